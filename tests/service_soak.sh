#!/bin/bash
# The Debian package under a real systemd: a Debian of its own (debootstrap; kept in build/), booted in
# namespaces of its own. Installed, started, used by two users, hung, killed, upgraded, removed.
set -eu
fail() { echo "FAILED: $1" >&2; exit 1; }
cd "$HOLDFAST_SOURCE"
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
for tool in debootstrap unshare nsenter help2man cpack; do
  command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
base=$PWD/build/root/$release
if [ ! -e "$base/made" ]; then
  rm -rf "$base"
  mkdir -p "${base%/*}"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,adduser "$release" "$base" >"$base.log" 2>&1 ||
    { tail -n 3 "$base.log"; echo "skipped: debootstrap failed"; exit 77; }
  touch "$base/made"
fi
platforms/debian/build-packages >/dev/null
work=$(mktemp -d)
cp -a "$base" "$work/root"
cp build/deb/holdfast_*_"$(dpkg --print-architecture)".deb "$work/root/root/holdfast.deb"

# Nothing of this machine is mounted in it: systemd clears /tmp and fills /run when it boots.
cat >"$work/boot" <<'BOOT'
set -e
cd "$1"
mount --make-rprivate /
mount --bind . .
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for node in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "dev/${node%:*}" c 1 "${node#*:}"; done
: >dev/console
mknod -m 666 dev/tty c 5 0
mkdir dev/pts dev/shm old
mount -t devpts devpts dev/pts
ln -s pts/ptmx dev/ptmx
ip link set lo up
pivot_root . old # not chroot: there, PrivateUsers= is refused
umount -l old
exec /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
  --unit=multi-user.target
BOOT
unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup bash "$work/boot" "$work/root" \
  >"$work/boot.log" 2>&1 &
machine=$!
trap 'kill -9 $machine 2>/dev/null || true; wait 2>/dev/null; rm -rf --one-file-system "$work"' EXIT

inside() { # command…, in the machine; its process 1 is the child of unshare
  local first
  first=$(pgrep -P $machine) || { cat "$work/boot.log" >&2; fail "the machine has ended"; }
  nsenter -t "$first" -m -u -i -n -p -C -r -w /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    timeout 60 "$@"
}
until_is() { # what, expected, command…
  local what=$1 expected=$2 got
  shift 2
  for _ in $(seq 300); do
    got=$(inside "$@" 2>/dev/null) || true
    [ "$got" != "$expected" ] || return 0
    sleep 0.1
  done
  inside journalctl --no-pager -n 30 >&2
  fail "$what: $got, not $expected"
}
value() { inside systemctl show "$1" -p "$2" --value; }

for _ in $(seq 300); do
  case $(inside systemctl is-system-running 2>/dev/null || true) in running | degraded) break ;; esac
  sleep 0.1
done
inside dpkg -i /root/holdfast.deb >/dev/null || fail "dpkg -i"
inside id holdfast || fail "no user holdfast"
cat >"$work/root/etc/holdfast/gateway.conf" <<'CONF'
HOLDFAST_DB=/var/lib/holdfast/gateway.db
HOLDFAST_LISTEN=tcp://127.0.0.1:7447
HOLDFAST_OPTIONS=--log-level debug
CONF
cat >"$work/root/etc/holdfast/relay-app.conf" <<'CONF'
HOLDFAST_DB=/var/lib/holdfast/app.db
HOLDFAST_TO=tcp://127.0.0.1:7447
HOLDFAST_OPTIONS=--log-level debug
CONF
inside systemctl start holdfast-gateway || { inside journalctl --no-pager -n 20 >&2; fail "gateway"; }

# Two users of one database, as README.md has it.
inside useradd --system -G holdfast app
as_app() { inside su -s /bin/sh app -c "$1"; }
as_app 'holdfast init /var/lib/holdfast/app.db && holdfast emit /var/lib/holdfast/app.db --type t --aggregate a/1 --payload 1'
barred=$(inside holdfast doctor /var/lib/holdfast/app.db --user holdfast || true)
[[ $barred == *"holdfast has no access"* ]] || fail "control: doctor does not see the mode: $barred"
as_app 'chmod 660 /var/lib/holdfast/app.db*' # and what doctor has left beside it
inside systemctl start holdfast-relay@app || { inside journalctl --no-pager -n 20 >&2; fail "relay"; }
delivered='holdfast stats /var/lib/holdfast/app.db | grep -c "^upstream  *0 "'
until_is "delivered" 1 sh -c "$delivered"
as_app 'holdfast emit /var/lib/holdfast/app.db --type t --aggregate a/1 --payload 2'
until_is "delivered" 1 sh -c "$delivered"

# Alive is not restarted; hung is, by the watchdog; killed is.
inside sh -c 'mkdir -p /run/systemd/system/holdfast-relay@app.service.d &&
  printf "[Service]\nWatchdogSec=3\n" >/run/systemd/system/holdfast-relay@app.service.d/short.conf &&
  systemctl daemon-reload && systemctl restart holdfast-relay@app'
sleep 7 # twice the watchdog's time, in which nothing may happen
[ "$(value holdfast-relay@app NRestarts)" = 0 ] || fail "a relay that works was restarted"
inside systemctl kill -s STOP holdfast-relay@app
until_is "restarts of a hung relay" 1 systemctl show holdfast-relay@app -p NRestarts --value
inside journalctl -u holdfast-relay@app --no-pager -o cat | grep -q 'Watchdog timeout' || fail "not by the watchdog"
inside systemctl kill -s KILL holdfast-gateway
until_is "restarts of a killed gateway" 1 systemctl show holdfast-gateway -p NRestarts --value
until_is "gateway" active systemctl is-active holdfast-gateway
as_app 'holdfast emit /var/lib/holdfast/app.db --type t --aggregate a/1 --payload 3'
until_is "delivered" 1 sh -c "$delivered"

before=$(value holdfast-gateway MainPID)
inside dpkg -i /root/holdfast.deb >/dev/null || fail "upgrade"
[ "$(value holdfast-gateway MainPID)" != "$before" ] || fail "an upgrade leaves the old program running"
until_is "gateway after the upgrade" active systemctl is-active holdfast-gateway
inside systemctl stop holdfast-relay@app
[ "$(value holdfast-relay@app Result) $(value holdfast-relay@app ExecMainStatus)" = "success 0" ] || fail "stop"
inside dpkg --purge holdfast >/dev/null || fail "purge"
until_is "gateway after the purge" inactive systemctl is-active holdfast-gateway
[ "$(sqlite3 "$work/root/var/lib/holdfast/gateway.db" 'SELECT count(*) FROM outbox_event')" = 3 ] || fail "purge took data"
echo "passed: systemd $(inside systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p') on $release"
