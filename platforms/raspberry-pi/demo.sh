#!/bin/bash
# The demo: two devices, a relay and a gateway, killed with kill -9 again and again. At the end, what
# the devices committed is compared with what the gateway applied: nothing lost, nothing twice,
# everything in order; and the comparison itself is tested, by breaking copies.
#
#   boiler: firmware in C++, with `holdfast relay` beside it   ┐
#   pump:   firmware in C99, with the relay inside             ┴──▶  `holdfast gateway`
#
# HOLDFAST_BUILD is the build folder (with cli/holdfast and demo/); by default build/release, found
# from here. Or, for files copied to a board: HOLDFAST_BIN and HOLDFAST_DEMO_DIR.
set -u

usage() {
  cat <<USAGE
usage: demo.sh [--cycles N] [--seed N] [--rate N] [--keep]
  --cycles N   so many times something is killed (20)
  --seed N     what is killed when; printed, so that a run can be repeated (from the clock)
  --rate N     readings per second of each device, at most (100)
  --keep       keep the databases and logs
USAGE
}

cycles=20 seed=$((($(date +%s) ^ $$) & 0x7fffffff)) rate=100 keep=
while [ $# -gt 0 ]; do
  case $1 in
    --cycles | --seed | --rate)
      [[ ${2-} =~ ^[0-9]{1,10}$ ]] || { echo "demo.sh: $1: give a number" >&2; exit 2; }
      declare "${1#--}=$((10#$2))"
      shift
      ;;
    --keep) keep=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[ "$rate" -ge 1 ] || { echo "demo.sh: --rate: give at least 1" >&2; exit 2; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${HOLDFAST_BUILD:-$here/../../build/release}
holdfast=${HOLDFAST_BIN:-$build/cli/holdfast}
[ -x "$holdfast" ] || [ -n "${HOLDFAST_BIN-}${HOLDFAST_BUILD-}" ] || holdfast=$here/../../build/holdfast
programs=${HOLDFAST_DEMO_DIR:-$build/demo}
for program in "$holdfast" "$programs"/demo_{sensor,sensor_c,compare}; do
  [ -x "$program" ] || { echo "demo.sh: no $program; run \`make demo\`" >&2; exit 1; }
done

# ------------------------------------------------------------------------------------- processes

work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-demo-XXXXXX") || exit 1
declare -A pid=()
compare_pid=

clean_up() {
  local status=$? name
  trap '' INT TERM
  for name in "${!pid[@]}"; do kill -9 "${pid[$name]}" 2>/dev/null; done
  [ -z "$compare_pid" ] || kill -9 "$compare_pid" 2>/dev/null
  wait 2>/dev/null
  if [ -n "$keep" ] || [ "$status" = 1 ]; then
    echo "databases and logs: $work"
  else
    rm -rf "$work"
  fi
  exit "$status"
}
trap clean_up EXIT
trap 'echo; echo "interrupted"; exit 130' INT
trap 'exit 143' TERM HUP

failed() { # what [log]
  echo "demo.sh: $1" >&2
  [ -z "${2-}" ] || tail -n 5 "$work/$2.log" >&2
  exit 1
}

port=$((20000 + $$ % 12000)) # below the range from which the kernel takes ports by itself
start() { # name. exec, so that it is the program itself that is killed.
  case $1 in
    gateway) exec "$holdfast" gateway "$work/gateway.db" --listen "tcp://127.0.0.1:$port" ;;
    relay) exec "$holdfast" relay "$work/boiler.db" --to "tcp://127.0.0.1:$port" ;;
    boiler) exec "$programs/demo_sensor" "$work/boiler.db" boiler "$rate" >>"$work/boiler.printed" ;;
    pump) exec "$programs/demo_sensor_c" "$work/pump.db" "tcp://127.0.0.1:$port" pump "$rate" \
      >>"$work/pump.printed" ;;
  esac </dev/null 2>>"$work/$1.log" &
  pid[$1]=$!
}

kill_now() { # name…: as a power cut would. The shell's own words about it are not wanted.
  local name
  for name; do
    kill -0 "${pid[$name]}" 2>/dev/null || failed "$name had ended by itself" "$name"
  done
  { for name; do kill -9 "${pid[$name]}"; done; } 2>/dev/null
  { for name; do wait "${pid[$name]}"; done; } 2>/dev/null
  for name; do unset "pid[$name]"; done
}

stop() { # name: cleanly
  kill -TERM "${pid[$1]}" 2>/dev/null
  wait "${pid[$1]}" || failed "$1 did not stop cleanly" "$1"
  unset "pid[$1]"
}

state=$seed value=0
random() { # low high: into $value. Not $RANDOM, which differs between versions of bash.
  state=$(((state * 1103515245 + 12345) & 0x7fffffff))
  value=$(($1 + (state >> 16) % ($2 - $1 + 1)))
}

now_ms() { local t=${EPOCHREALTIME/[.,]/}; value=$((t / 1000)); }
pause_ms() {
  local seconds
  printf -v seconds '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
  sleep "$seconds" &
  wait $! # so that a signal is handled at once
}

# Starts what was killed, and waits until new events of the devices concerned are at the gateway.
recover() { # name…: milliseconds into $value
  local name databases=()
  case " $* " in *" gateway "* | *" boiler "* | *" relay "*) databases+=("$work/boiler.db") ;; esac
  case " $* " in *" gateway "* | *" pump "*) databases+=("$work/pump.db") ;; esac
  "$programs/demo_compare" --await 30000 "$work/gateway.db" "${databases[@]}" \
    >"$work/await" 2>"$work/await.log" &
  compare_pid=$!
  for name; do start "$name"; done
  wait "$compare_pid" || failed "no new event within 30 s of the restart of: $*; $(cat "$work/await.log")"
  compare_pid=
  value=$(cat "$work/await")
}

# --------------------------------------------------------------------------------------- the run

now_ms && begin=$value
echo "holdfast demo: $cycles cycles, seed $seed, up to $rate readings/s from each of two devices"
echo "  boiler: firmware (C++) and a relay; pump: firmware (C99) with the relay inside; one gateway"

for attempt in 1 2 3 4 5 6 7 8 9 10; do
  start gateway
  for _ in {1..100}; do
    grep -qs 'listening on' "$work/gateway.log" && break 2
    kill -0 "${pid[gateway]}" 2>/dev/null || break
    pause_ms 20
  done
  kill -9 "${pid[gateway]}" 2>/dev/null
  wait "${pid[gateway]}" 2>/dev/null
  [ "$attempt" != 10 ] || failed "the gateway does not start" gateway
  port=$((20000 + (port - 20000 + 997) % 12000)) # somebody else has it
done
start boiler
start pump
for _ in {1..500}; do # the relay wants an initialised database
  [ -s "$work/boiler.printed" ] && [ -s "$work/pump.printed" ] && break
  pause_ms 20
done
start relay
"$programs/demo_compare" --await 30000 "$work/gateway.db" "$work/boiler.db" "$work/pump.db" \
  >/dev/null 2>"$work/await.log" || failed "nothing arrives: $(cat "$work/await.log")" relay
echo "  everything runs on tcp://127.0.0.1:$port, in $work"
echo

names=(boiler relay pump gateway)
declare -A kills=([boiler]=0 [relay]=0 [pump]=0 [gateway]=0) times=()
printf '%5s %8s  %-28s %9s %13s\n' cycle at 'kill -9' 'down for' 'recovered in'
for ((cycle = 1; cycle <= cycles; ++cycle)); do
  random 300 2700 && pause_ms "$value"
  # Mostly one, sometimes two, now and then all of them.
  random 0 9
  case $value in 0) count=4 ;; 1 | 2 | 3) count=2 ;; *) count=1 ;; esac
  victims=()
  random 0 3
  for ((i = 0; i < count; ++i)); do victims+=("${names[(value + i * (1 + cycle % 2 * 2)) % 4]}"); done
  now_ms && at=$((value - begin))
  kill_now "${victims[@]}"
  random 50 1000 && down=$value
  pause_ms "$down"
  recover "${victims[@]}"
  for name in "${victims[@]}"; do kills[$name]=$((kills[$name] + 1)); done
  for name in "${victims[@]}"; do times[$name]+=" $value"; done
  times[all]+=" $value"
  printf '%2d/%-2d %6d.%d s  %-28s %6d ms %10d ms\n' "$cycle" "$cycles" $((at / 1000)) \
    $((at / 100 % 10)) "${victims[*]}" "$down" "$value"
done

echo
echo "stopping the devices; the relays deliver what is left"
stop boiler
stop pump
stop relay
for device in boiler pump; do
  "$holdfast" relay "$work/$device.db" --to "tcp://127.0.0.1:$port" --drain --log-level warning \
    2>>"$work/drain.log" || failed "the drain of $device ended with status $?" drain
done
stop gateway
echo

sorted() { printf '%s\n' $1 | sort -n; }
printf '%-26s%14s%14s%14s\n' 'kill -9' times 'median ms' 'max ms'
for name in "${names[@]}" all; do
  [ -n "${times[$name]-}" ] || continue
  mapfile -t list < <(sorted "${times[$name]}")
  label=$name number=${kills[$name]-}
  [ "$name" != all ] || label='recovery, all cycles' number=${#list[@]}
  printf '%-26s%14d%14d%14d\n' "$label" "$number" "${list[(${#list[@]} - 1) / 2]}" "${list[-1]}"
done
echo

databases=("$work/gateway.db" "$work/boiler.db" "$work/boiler.printed" "$work/pump.db"
  "$work/pump.printed")
"$programs/demo_compare" "${databases[@]}"
status=$?
"$programs/demo_compare" --control "${databases[@]}" || status=1
now_ms
echo
if [ "$status" = 0 ]; then
  echo "PASSED: nothing lost, nothing twice, everything in order ($(((value - begin) / 1000)) s)"
else
  echo "FAILED: repeat it with --seed $seed --cycles $cycles --rate $rate"
  exit 1
fi
