#!/bin/bash
# Installs into an empty folder, and there builds and runs what a user would: an application in C99
# and one in C++17 without exceptions and RTTI, with an outbox alone, with a relay and with
# everything, by pkg-config and by find_package, with the shared library, the static one and fully
# static. For another architecture, HOLDFAST_EMULATOR runs them.
set -eu
source=${HOLDFAST_SOURCE:?}
build=${HOLDFAST_BUILD:?}
emulator=${HOLDFAST_EMULATOR:-}
read -ra target_flags <<<"${HOLDFAST_TARGET_FLAGS:-}"
cc=(${CC:-cc} "${target_flags[@]}") cxx=(${CXX:-c++} "${target_flags[@]}")
minimal_bytes_max=150000 # outbox alone, SQLite and libc shared

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/usr
cmake --install "$build" --prefix "$prefix" >"$work/install.log" ||
  { cat "$work/install.log"; exit 1; }

libdir=$(dirname "$(find "$prefix" -name libholdfast.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
[ -z "$emulator" ] || export PKG_CONFIG_LIBDIR=$HOLDFAST_TARGET_PACKAGES
examples=$source/tests/install
c=(-std=c99 -pedantic -Wall -Wextra -Werror)
cpp=(-std=c++17 -Wall -Wextra -Werror -fno-exceptions -fno-rtti)

count=0 failures=0
report() { # name status text
  count=$((count + 1))
  if [ "$2" = 0 ]; then
    echo "ok: $1${3:+: $3}"
  else
    echo "FAILED: $1: $3"
    failures=$((failures + 1))
  fi
}
check() { # name command…: an application that prints the id of the event it committed
  local name=$1 id status=0
  shift
  id=$($emulator "$@" "$work/$count.db" 2>&1) &&
    [[ $id =~ ^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$ ]] || status=1
  report "$name" "$status" "$id"
}
check_on() { # name number command…: an application that sends what check number N left
  local name=$1 db=$work/$2.db said status=0
  shift 2
  said=$($emulator "$@" "$db" 2>&1) || status=1
  report "$name" "$status" "$said"
}
flags() { # pkg-config arguments, word by word
  local -a words
  eval "words=($(pkg-config "$@"))" # its output is quoted for the shell
  printf '%s\n' "${words[@]}"
}

# pkg-config
mapfile -t shared < <(flags --cflags --libs holdfast sqlite3)
mapfile -t static < <(flags --cflags --libs holdfast-static)
mapfile -t outbox < <(flags --cflags --libs holdfast-outbox)
mapfile -t all_static < <(flags --static --cflags --libs holdfast)
link() { # program language(c|cpp) source flags…
  local program=$work/$1 source=$examples/$3
  if [ "$2" = c ]; then
    "${cc[@]}" "${c[@]}" -o "$program" "$source" "${@:4}"
  else
    "${cxx[@]}" "${cpp[@]}" -o "$program" "$source" "${@:4}"
  fi 2>"$work/link.log" || { cat "$work/link.log"; exit 1; }
}
link c_shared c outbox.c "${shared[@]}"
check "C99, pkg-config, shared" "$work/c_shared" # 0.db
link c_static c outbox.c "${static[@]}"
check "C99, pkg-config, static" "$work/c_static" # 1.db
link c_all_static c outbox.c -static "${all_static[@]}"
LD_LIBRARY_PATH= check "C99, pkg-config, fully static" "$work/c_all_static" # 2.db
link cpp_shared cpp outbox.cpp "${shared[@]}"
check "C++17, pkg-config, shared" "$work/cpp_shared" # 3.db
link cpp_static cpp outbox.cpp "${static[@]}"
check "C++17, pkg-config, static" "$work/cpp_static" # 4.db
link c_outbox c outbox.c "${outbox[@]}" -Os -s -Wl,--gc-sections
check "C99, outbox alone, static" "$work/c_outbox" # 5.db
link cpp_outbox cpp outbox.cpp "${outbox[@]}" -Os -s -Wl,--gc-sections
check "C++17, outbox alone, static" "$work/cpp_outbox" # 6.db
for program in c_outbox cpp_outbox; do
  bytes=$(stat -c %s "$work/$program")
  [ "$bytes" -le "$minimal_bytes_max" ] && status=0 || status=1
  report "$program: an outbox alone is small" "$status" "$bytes bytes, at most $minimal_bytes_max"
done
link c_relay c relay.c "${static[@]}"
check_on "C99 with a relay" 0 "$work/c_relay"
link cpp_relay cpp relay.cpp "${static[@]}"
check_on "C++17 with a relay" 1 "$work/cpp_relay"
link c_all c all.c "${static[@]}"
check_on "C99 with everything" 2 "$work/c_all"
link cpp_all cpp all.cpp "${static[@]}"
check_on "C++17 with everything" 3 "$work/cpp_all"
link c_all_in_one c all.c -static "${all_static[@]}"
LD_LIBRARY_PATH= check_on "C99 with everything, fully static" 4 "$work/c_all_in_one"
link cpp_all_in_one cpp all.cpp -static "${all_static[@]}"
LD_LIBRARY_PATH= check_on "C++17 with everything, fully static" 5 "$work/cpp_all_in_one"

# The examples refuse to run with a second SQLite. The control has two: the shared library's, and one
# in the program.
link c_two c outbox.c $(printf '%s\n' "${shared[@]/-lsqlite3/-l:libsqlite3.a}") -pthread -ldl -lm
said=$($emulator "$work/c_two" "$work/two.db" 2>&1) && status=1 || status=0
[ "$said" = "SQLite: more than one copy in this process" ] || status=1
report "control: a program with two copies of SQLite" "$status" "$said"

# find_package
build_consumers() { # folder languages
  CC=${CC:-cc} CXX=${CXX:-c++} cmake -S "$source/tests/install" -B "$1" -DCMAKE_PREFIX_PATH="$prefix" \
    ${HOLDFAST_TOOLCHAIN:+-DCMAKE_TOOLCHAIN_FILE="$HOLDFAST_TOOLCHAIN"} -DLANGUAGES="$2" >"$work/cmake.log" 2>&1 && cmake --build "$1" >>"$work/cmake.log" 2>&1 ||
    { cat "$work/cmake.log"; exit 1; }
}
build_consumers "$work/both" "C;CXX"
check "C99, find_package, shared" "$work/both/c_shared"
check "C99, find_package, static" "$work/both/c_holdfast"
check "C++17, find_package, shared" "$work/both/cpp_shared"
check "C++17, find_package, static" "$work/both/cpp_holdfast"
check "C99, find_package, outbox alone" "$work/both/c_outbox"
check "C++17, find_package, outbox alone" "$work/both/cpp_outbox"
check_on "C99 with a relay, find_package" 6 "$work/both/c_relay"
check_on "C++17 with a relay, find_package" 6 "$work/both/cpp_relay"
check "C++17, find_package, an event for everything" "$work/both/cpp_outbox"
check_on "C++17 with everything, find_package" $((count - 1)) "$work/both/cpp_all"
build_consumers "$work/c" C
check "C99, find_package in a project without C++, shared" "$work/c/c_shared"
check "C99, find_package in a project without C++, static" "$work/c/c_holdfast"
check_on "C99 with everything, find_package in a project without C++" $((count - 1)) "$work/c/c_all"

# SQLite of this machine reads what programs of the target wrote.
if [ -n "$emulator" ]; then
  for db in "$work"/*.db; do
    said=$(sqlite3 "$db" "SELECT count(*) || payload FROM outbox_event; PRAGMA integrity_check" 2>&1)
    [ "$said" = $'121.5\nok' ] && status=0 || status=1
    report "${db##*/}, written by the target, is read here" "$status" "$(echo $said)"
  done
fi

# The installed program, and what the shared library lets out.
[ -x "$prefix/bin/holdfast" ] || { echo "FAILED: no bin/holdfast"; failures=$((failures + 1)); }
leaked=$(nm -DC --defined-only "$libdir/libholdfast.so" |
  grep -Ev ' (holdfast_|holdfast::|vtable for holdfast::|typeinfo (name )?for holdfast::)' || true)
[ -z "$leaked" ] || { echo "FAILED: libholdfast.so exports: $leaked"; failures=$((failures + 1)); }

echo "$count checks, $failures failed"
[ "$failures" = 0 ]
