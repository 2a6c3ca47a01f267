#!/usr/bin/env python3
"""Instructions that an emit takes, and a relay for each event, against tests/instructions.txt.

usage: instructions_test.py [--record]

Counted by valgrind (callgrind), so neither the machine's speed nor its load matters. Two runs that
differ only in the number of events are subtracted: starting and stopping cancel out. The figures
hold for one compiler and one version of each library; with others the test is skipped. --record
replaces this machine's line of the table, which a change that is meant to cost more needs.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.txt")
TOLERANCE = 0.03
SKIPPED = 77
PROGRAM = os.environ.get("HOLDFAST_BIN", "build/release/cli/holdfast")
BUILD = os.environ.get("HOLDFAST_BUILD", "build/release")
# Which of its variants libc takes for memcpy and the like depends on the processor; not here.
SAME_PROCESSOR = "glibc.cpu.hwcaps=-AVX2,-AVX,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM,-RTM,-BMI2,-MOVBE,-LZCNT"
# Without threads: what those of a whole relay take depends on how they meet.
STEPS = os.path.join(BUILD, "tests/holdfast_tests")
EMITS = (50, 250)
RELAYED = (1000, 4000)
PAYLOAD_BYTES = 256


def skip(why):
    print(f"instructions_test: skipped: {why}")
    sys.exit(SKIPPED)


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def versions():
    """What the figures depend on, as the first columns of the table."""
    own = output_of(PROGRAM, "version")
    libraries = dict(re.findall(r"(?im)^\s*(sqlite|nng)\s+v?([0-9.]+)", own))
    compiler = os.environ.get("CXX", "c++")
    gcc = "gcc-" + output_of(compiler, "-dumpfullversion").strip()
    glibc = "glibc-" + os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    names = {name.lower(): version for name, version in libraries.items()}
    return [gcc, glibc, "sqlite-" + names["sqlite"], "nng-" + names["nng"]]


def counted(*command):
    """Runs a program under callgrind; the instructions it took."""
    environment = dict(os.environ, GLIBC_TUNABLES=SAME_PROCESSOR)
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or not found:
        sys.exit(f"instructions_test: {' '.join(command)} failed under callgrind:\n{run.stderr}")
    return int(found.group(1))


def event(number, more):
    fields = {
        "event_type": "sensor.reading.v1",
        "aggregate_type": "sensor",
        "aggregate_id": f"boiler-{number % 10}",
        "payload": "x" * PAYLOAD_BYTES,
    }
    fields.update(more)
    return json.dumps(fields) + "\n"


def new_database(folder, name):
    path = os.path.join(folder, name)
    output_of(PROGRAM, "init", path)
    return path


def emit(folder, count, more):
    path = new_database(folder, "emit.db")
    lines = os.path.join(folder, "events.ndjson")
    with open(lines, "w", encoding="utf-8") as file:
        file.writelines(event(number, more) for number in range(count))
    taken = counted(PROGRAM, "emit", path, "--ndjson", lines)
    remove(path)
    return taken


def relay(folder, count, more):
    path = new_database(folder, "relay.db")
    lines = "".join(event(number, more) for number in range(count))
    subprocess.run(
        [PROGRAM, "emit", path, "--ndjson", "-", "--batch", "1000"],
        input=lines,
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    taken = counted(STEPS, "--program", "relay_steps", f"db={path}", f"events={count}")
    remove(path)
    return taken


def remove(path):
    for end in ("", "-wal", "-shm", "-reserve"):
        if os.path.exists(path + end):
            os.remove(path + end)


def per_event(run, counts, more=None):
    with tempfile.TemporaryDirectory() as folder:
        few, many = (run(folder, count, more or {}) for count in counts)
    return (many - few) / (counts[1] - counts[0])


def read_table():
    rows = []
    with open(TABLE, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                rows.append((words[:4], dict(zip(("emit", "relay"), map(int, words[4:])))))
    return rows


def record(key, figures):
    with open(TABLE, encoding="utf-8") as file:
        lines = [line for line in file if line.split()[:4] != key]
    lines.append("  ".join(key + [f"{figures['emit']:8.0f}", f"{figures['relay']:8.0f}"]) + "\n")
    with open(TABLE, "w", encoding="utf-8") as file:
        file.writelines(lines)
    print(f"recorded in {TABLE}: {lines[-1].strip()}")


def judge(what, measured, recorded):
    """True if it is within the tolerance."""
    change = measured / recorded - 1
    print(f"{what}: {measured:.0f} instructions an event, recorded {recorded}: {change:+.1%}")
    return abs(change) <= TOLERANCE


def main():
    recording = sys.argv[1:] == ["--record"]
    if platform.machine() != "x86_64":
        skip("the figures are for amd64")
    if shutil.which("valgrind") is None:
        skip("valgrind is not installed (platforms/debian/install-deps test)")
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as cache:
        if "CMAKE_BUILD_TYPE:STRING=MinSizeRel" not in cache.read():
            skip("the figures are for the release build")
    key = versions()
    known = [figures for row, figures in read_table() if row == key]
    if not known and not recording:
        skip(f"no figures for {' '.join(key)} (tests/instructions_test.py --record adds them)")
    figures = {"emit": per_event(emit, EMITS), "relay": per_event(relay, RELAYED)}
    if recording:
        record(key, figures)
        return 0
    good = [judge(what, figures[what], known[0][what]) for what in ("emit", "relay")]
    # The control: one field more, and the guard must fail.
    trace = {"trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "headers": {"a": "b"}}
    noticed = not judge("control, emit with two fields more", per_event(emit, EMITS, trace), known[0]["emit"])
    if not noticed:
        print("instructions_test: the control was not noticed: the guard cannot fail")
    if not all(good):
        print(
            f"instructions_test: more than {TOLERANCE:.0%} away from tests/instructions.txt. If the change is"
            " meant to cost (or save) that, renew the line with\n"
            f"  HOLDFAST_BIN={PROGRAM} HOLDFAST_BUILD={BUILD} python3 tests/instructions_test.py --record\n"
            "and say in the commit what is worth it; else look at what grew with\n"
            "  valgrind --tool=callgrind build/debug/cli/holdfast emit … and callgrind_annotate"
        )
    return 0 if all(good) and noticed else 1


if __name__ == "__main__":
    sys.exit(main())
