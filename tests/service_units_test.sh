#!/bin/bash
# The systemd units of platforms/systemd: systemd's own checks of them, and their command lines, run
# as systemd would build them from the example files, until they say READY=1.
set -eu
units=$HOLDFAST_SOURCE/platforms/systemd
exposure_max=20 # tenths

fail() { echo "FAILED: $1" >&2; exit 1; }
command -v systemd-analyze >/dev/null || { echo "skipped: no systemd-analyze"; exit 77; }
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

exposure() { # unit: in tenths
  systemd-analyze security --offline=true "$1" |
    sed -n 's/.*Overall exposure level for [^:]*: \([0-9]*\)\.\([0-9]\).*/\1\2/p'
}

# verify wants the program to be there.
for unit in holdfast-relay@.service holdfast-gateway.service; do
  sed "s#/usr/bin/holdfast#$HOLDFAST_BIN#" "$units/$unit" >"$work/$unit"
  said=$(systemd-analyze verify "$work/$unit" 2>&1) || fail "$unit: $said"
  [ -z "$said" ] || fail "$unit: $said"
  level=$(exposure "$work/$unit")
  [ -n "$level" ] && [ "$level" -le $exposure_max ] || fail "$unit: exposure $level tenths"
  echo "$unit: exposure $level tenths"
done

# Controls: both checks can fail.
sed 's/^Type=notify/Type=notfy/; s#^ExecStart=.*#ExecStart=/no/such/program#' \
  "$units/holdfast-gateway.service" >"$work/wrong.service"
[ -n "$(systemd-analyze verify "$work/wrong.service" 2>&1 || true)" ] || fail "control: verify says nothing"
sed '/^\(CapabilityBoundingSet\|User\|Private\|Protect\|Restrict\|SystemCall\)/d' \
  "$units/holdfast-gateway.service" >"$work/open.service"
[ "$(exposure "$work/open.service")" -gt $exposure_max ] || fail "control: exposure of an open unit"

# The examples' options exist.
for name in relay gateway; do
  "$HOLDFAST_BIN" $name --help >"$work/$name.help"
  options=$(sed -n 's/^HOLDFAST_OPTIONS=//p' "$units/$name.conf" | grep -o -e '--[a-z-]*')
  [ -n "$options" ] || fail "$name.conf has no options"
  for option in $options; do
    grep -q -e "$option " "$work/$name.help" || fail "$name.conf: $option"
  done
done

run_unit() { # unit conf assignments…: as systemd does, with our values behind the file's
  local unit=$1 conf=$2 line word
  local -a words=()
  shift 2
  line=$(sed -n 's/^ExecStart=//p' "$work/$unit")
  while IFS= read -r word; do # not a shell's file: no quotes to take off, nothing to expand
    case $word in [A-Z]*=*) declare "$word" ;; esac
  done <"$conf"
  for word; do declare "$word"; done
  for word in $line; do
    case $word in
      '${'*'}') word=${word#??} word=${word%?} words+=("${!word}") ;; # one argument
      '$'*) word=${word#?} words+=(${!word}) ;;                       # split at blanks
      *) words+=("$word") ;;
    esac
  done
  NOTIFY_SOCKET=$work/notify exec "${words[@]}"
}

python3 - "$work/notify" <<'PY' >"$work/heard" &
import socket, sys
end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
end.bind(sys.argv[1])
while True:
    print(end.recv(4096).decode(), flush=True)
PY
wait_for() { # file text
  for _ in $(seq 200); do
    ! grep -q "$2" "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  cat "$work"/*.log >&2
  fail "$1 has no '$2'"
}
for _ in $(seq 100); do [ ! -S "$work/notify" ] || break; sleep 0.1; done
run_unit holdfast-gateway.service "$units/gateway.conf" "HOLDFAST_DB=$work/gateway.db" \
  "HOLDFAST_LISTEN=ipc://$work/gateway" "HOLDFAST_OPTIONS=--log-level debug" 2>"$work/gateway.log" &
gateway=$!
wait_for "$work/heard" "STATUS=storing events in $work/gateway.db"
"$HOLDFAST_BIN" init "$work/app.db" >/dev/null
"$HOLDFAST_BIN" emit "$work/app.db" --type t --aggregate a/1 --payload 1 >/dev/null
run_unit holdfast-relay@.service "$units/relay.conf" "HOLDFAST_DB=$work/app.db" \
  "HOLDFAST_TO=ipc://$work/gateway" "HOLDFAST_OPTIONS=--log-level debug" 2>"$work/relay.log" &
relay=$!
wait_for "$work/heard" "STATUS=forwarding $work/app.db"
for _ in $(seq 200); do
  [ "$(sqlite3 "$work/gateway.db" 'SELECT count(*) FROM outbox_event')" != 1 ] || break
  sleep 0.1
done
[ "$(sqlite3 "$work/gateway.db" 'SELECT count(*) FROM outbox_event')" = 1 ] || fail "nothing arrived"
kill -TERM $relay && wait $relay || fail "relay ends with $?"
kill -TERM $gateway && wait $gateway || fail "gateway ends with $?"
[ "$(grep -c STOPPING=1 "$work/heard")" = 2 ] || fail "not two of STOPPING=1"
echo passed
