#!/bin/bash
# A short demo: three cycles of kill -9, then the comparison and its control, and a Ctrl-C that leaves
# nothing behind.
set -u
demo=${HOLDFAST_SOURCE:?}/platforms/raspberry-pi/demo.sh
export HOLDFAST_BIN HOLDFAST_DEMO_DIR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
failures=0
check() { # what condition…
  local what=$1
  shift
  "$@" && return
  echo "not so: $what"
  failures=$((failures + 1))
}
nobody_left() {
  local file line
  for file in /proc/[0-9]*/cmdline; do
    line=$(tr '\0' ' ' 2>/dev/null <"$file") || continue
    [[ $line != *"$work/holdfast-demo-"* ]] || return 1
  done
}
nothing_left() { [ -z "$(ls -A "$work")" ]; }

cd / # it must not matter from where
"$demo" --cycles 3 --seed 5 --rate 50 >"$TMPDIR.log" 2>&1
status=$?
cat "$TMPDIR.log"
check "exit status 0, not $status" [ "$status" = 0 ]
check "a line for each cycle" [ "$(grep -c '^ [123]/3 ' "$TMPDIR.log")" = 3 ]
check "the control noticed every fault" grep -q '^control: 20 of 20 faults' "$TMPDIR.log"
check "it passed" grep -q '^PASSED' "$TMPDIR.log"
check "no process is left" nobody_left
check "no file is left" nothing_left

# With job control, so that the demo is a process group, as it is in a terminal.
rm -f "$TMPDIR.log" # or the old one is read until the new one is there
set -m
"$demo" --cycles 1000 >"$TMPDIR.log" 2>&1 &
group=$!
set +m
for _ in {1..300}; do
  grep -qs 'everything runs' "$TMPDIR.log" && break
  sleep 0.1
done
check "the long demo runs" grep -q 'everything runs' "$TMPDIR.log"
kill -INT -- "-$group"
wait "$group"
status=$?
check "Ctrl-C: exit status 130, not $status" [ "$status" = 130 ]
check "Ctrl-C: no process is left" nobody_left
check "Ctrl-C: no file is left" nothing_left

"$demo" --cycles x >"$TMPDIR.log" 2>&1
check "wrong usage is 2" [ $? = 2 ]
rm -f "$TMPDIR.log"
[ "$failures" = 0 ]
