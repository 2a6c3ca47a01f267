#!/bin/bash
# The Debian packages: built, checked by lintian, installed into a root of their own, and used there.
set -eu
fail() { echo "FAILED: $1" >&2; exit 1; }
cd "$HOLDFAST_SOURCE"
for tool in lintian help2man dpkg-deb cpack; do
  command -v $tool >/dev/null || { echo "skipped: no $tool (make deb installs it)"; exit 77; }
done
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -f build/deb/*"_$architecture.deb"
platforms/debian/build-packages
packages=(build/deb/*"_$architecture.deb")
[ ${#packages[@]} = 4 ] || fail "not four packages: ${packages[*]}"

# Whose packages they are, only the builder can say.
lintian --allow-root --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact \
  --fail-on error "${packages[@]}" || fail "lintian"

for package in "${packages[@]}"; do dpkg-deb -x "$package" "$work"; done
"$work/usr/bin/holdfast" --version
[ "$(stat -c %s "$work/usr/bin/holdfast")" -gt 1000000 ] || fail "the program is not the static one"
! grep -rqF "$HOLDFAST_SOURCE" "$work/usr" || fail "names the folder it was built in: $(grep -rlF "$HOLDFAST_SOURCE" "$work/usr")"

# A page for each command, without a complaint.
for command in "" $("$work/usr/bin/holdfast" --help | sed -n '/^[A-Z][a-z ]*:$/,/^$/s/^  \([a-z][a-z]*\) .*/-\1/p'); do
  page=$work/usr/share/man/man1/holdfast$command.1.gz
  [ -s "$page" ] || fail "no page holdfast$command(1)"
  said=$(LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 >/dev/null) || fail "$page"
  [ -z "$said" ] || fail "$page: $said"
done

completed() { # words…: what bash offers for the last one
  PATH=$work/usr/bin:$PATH bash --norc -c '
    . /usr/share/bash-completion/bash_completion
    . "$0"
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
    _holdfast; echo " ${COMPREPLY[*]} "' "$work/usr/share/bash-completion/completions/holdfast" "$@"
}
if [ -e /usr/share/bash-completion/bash_completion ]; then
  [ "$(completed holdfast rel)" = " relay " ] || fail "completion of rel: $(completed holdfast rel)"
  [[ $(completed holdfast relay --t) == *" --to --tls-ca "* ]] || fail "relay --t: $(completed holdfast relay --t)"
  [ "$(completed holdfast relay --log-level w)" = " warning " ] || fail "--log-level w"
  [[ $(completed holdfast inbox s) == " show stats "* ]] || fail "inbox s: $(completed holdfast inbox s)"
else
  echo "not tried: completion (no bash-completion)"
fi

# A program against libholdfast-dev's tree.
export PKG_CONFIG_PATH=$work/usr/lib/$(gcc -print-multiarch)/pkgconfig
gcc -std=c99 -o "$work/program" tests/install/outbox.c -Itests/install \
  $(pkg-config --cflags --libs holdfast-outbox) || fail "no program against libholdfast-dev"
echo passed
