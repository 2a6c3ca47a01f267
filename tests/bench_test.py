#!/usr/bin/env python3
"""tests/bench: figures are only what was measured. The table of the recorded results is the one in
the repository, results that are not whole are refused with what is wrong, a system that is not there
or does not work is told by name and has no figure, and one that does work has them (the control)."""

import contextlib
import copy
import glob
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
BENCH = os.path.join(ROOT, "tests/bench")
RECORDED = os.path.join(ROOT, "lib/docs/bench")
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True
import measure  # noqa: E402
import peer  # noqa: E402
import report  # noqa: E402
from peer import Done, Failed, Peer, Server, load, need, output  # noqa: E402


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# --- the table ---


def recorded_problems():
    results = report.read(os.path.join(RECORDED, report.RESULTS))
    if report.table(results) != read(os.path.join(RECORDED, report.TABLE)):
        yield "lib/docs/bench/table.md is not the table of results.json: tests/bench/report.py writes it"
    text = read(os.path.join(ROOT, "README.md"))
    if report.with_figures(text, results) != text:
        yield "the README's table is not that of lib/docs/bench/results.json"
    for name in ("emit.svg", "drain.svg", "bytes.svg", "backlog.svg"):
        if name not in text or not os.path.exists(os.path.join(RECORDED, name)):
            yield f"the README does not show lib/docs/bench/{name}, or there is none"
    if report.with_figures(text.replace(" of 1,000", " of 1,001"), results) != text:
        yield "control: a table changed by hand would not be noticed"


# What is done to whole results, and the complaint.
def first_input(results):
    return results["systems"][0]["input"]["1"]


BREAKS = [
    (lambda r: r.pop("systems"), "`systems` is missing"),
    (lambda r: r.update(systems=[]), "systems: none"),
    (lambda r: r.update(systems={}), "results.systems: not a list"),
    (lambda r: r.update(format=99), "format 99: this report reads format 1"),
    (lambda r: r["machine"].pop("kernel"), "machine: `kernel` is missing"),
    (lambda r: r["systems"][0].pop("loss"), "system holdfast: `loss` is missing"),
    (lambda r: r["systems"][0]["loss"].update(source=""), "system holdfast.loss.source: '' is no text"),
    (lambda r: first_input(r).update(events_per_s="many"), "system holdfast.input.1.events_per_s: 'many' is no figure"),
    (lambda r: first_input(r).update(of_limit=float("nan")), "system holdfast.input.1.of_limit: nan is no figure"),
    (lambda r: first_input(r).update(of_limit=-1), "system holdfast.input.1.of_limit: -1 is no figure"),
    (lambda r: first_input(r).update(of_limit=True), "system holdfast.input.1.of_limit: True is no figure"),
    (lambda r: first_input(r).pop("events_per_s"), "system holdfast.input.1: `events_per_s` is missing"),
    (lambda r: r["systems"][0]["input"].update({"2": {}}), "'2' at once is not one of 1, 16, 64"),
    (lambda r: r["systems"][0].update(failed="it fell over"), "failed, and yet it has figures"),
    (lambda r: r["scaling"].update(x={"many": 1}), "scaling.x: 'many' is no backlog"),
    (lambda r: r["scaling"].update(x={"10": None}), "scaling.x.10: None is no figure"),
]


def refused(text, folder):
    """What the program says of these results; "" if it takes them."""
    path = os.path.join(folder, "results.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    run = subprocess.run([sys.executable, os.path.join(BENCH, "report.py"), path, folder],
                         capture_output=True, text=True, check=False)
    if "Traceback" in run.stderr or run.returncode not in (0, 1):
        return f"crashed: {run.stderr}"
    return run.stderr if run.returncode else ""


def broken_problems():
    whole = report.read(os.path.join(RECORDED, report.RESULTS))
    for change, complaint in BREAKS:
        results = copy.deepcopy(whole)
        change(results)
        try:
            report.check(results)
            yield f"taken, though broken: {complaint}"
        except report.Broken as why:
            if complaint not in str(why):
                yield f"expected {complaint!r}, got {str(why)!r}"
    with tempfile.TemporaryDirectory() as folder:
        for text, complaint in ((json.dumps(whole)[:-100], "results.json: no JSON: "), ("", "no JSON"), ("[]", "`format` is missing")):
            said = refused(text, folder)
            if complaint not in said:
                yield f"expected {complaint!r}, the program said {said!r}"
            if os.path.exists(os.path.join(folder, report.TABLE)):
                yield f"a table was written of broken results: {complaint}"
        if (said := refused(json.dumps(whole), folder)) or not os.path.exists(os.path.join(folder, report.TABLE)):
            yield f"control: whole results are refused: {said!r}"


# --- the peers ---


class Answering:
    """A server on loopback, with a thread for each connection, that answers each line."""

    def __init__(self, answer):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.answer, self.taken = answer, 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.socket.accept()[0],), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            for _ in lines:
                if self.answer is None:
                    return
                self.taken += 1
                connection.sendall(self.answer)


class Working(Peer):
    """All that measure.py asks for, of a server in this process."""

    name, title, drain_to, loss, source = "working", "Working", "nobody", "everything", "bench_test.py"
    connections, fill_events, answer = (1, 16), 100, b"+ok\n"
    server = None

    def version(self):
        return "1"

    def start(self, folder):
        self.server = Answering(self.answer)

    def stop(self):
        if self.server:
            self.server.socket.close()

    def put(self, connections, seconds=0, count=0):
        return load(self.server.port, connections, seconds, count, b"event\n", "lines:1", b"+")

    def drain(self):
        return Done(self.server.taken, 0.5)

    def written(self):
        return 0

    def resident_mb(self):
        return 1.0


class NotInstalled(Working):
    def check(self):
        need("sh", "holdfast-no-such-program")


class DoesNotStart(Working):
    command = ("sh", "-c", "echo it has no licence >&2; exit 3")

    def start(self, folder):
        Server(folder, "server", *self.command, port=peer.free_port())


class NeverListens(DoesNotStart):
    command = ("sleep", "1000")


class Refuses(Working):
    answer = b"-ERR no room\n"


class HangsUp(Working):
    answer = None


class Forgets(Working):
    def drain(self):
        return Done(self.server.taken - 1, 0.5)


# The peer, and what is told in place of figures (None: it has figures).
PEERS = [
    (Working, None),
    (NotInstalled, "skipped: holdfast-no-such-program is not installed"),
    (DoesNotStart, "ended at once: it has no licence"),
    (NeverListens, "accepts no connection in"),
    (Refuses, "the server answered -ERR no room"),
    (HangsUp, "the server closed the connection"),
    (Forgets, "events were acknowledged"),
]


def peer_problems():
    peer.START_SECONDS = 0.5
    whole = report.read(os.path.join(RECORDED, report.RESULTS))
    with tempfile.TemporaryDirectory() as folder:
        for kind, told in PEERS:
            result = measure.measured(kind(), folder, 0.25)
            report.check(dict(whole, systems=[result]))
            cells = report.row(result)
            if told is None and (result.get("failed") or not result["input"]["16"]["events_per_s"] > 0):
                yield f"control: {kind.__name__} has no figures: {result}"
            if told is not None and (told not in cells[1] or any(cells[2:]) or "input" in result):
                yield f"{kind.__name__}: expected {told!r} and no figure, got {cells}"
        if left := os.listdir(folder):
            yield f"left behind: {left}"
    if running := subprocess.run(["pgrep", "-f", "^sleep 1000$", "-P", str(os.getpid())], capture_output=True, text=True, check=False).stdout:
        yield f"still running: {running}"


def missing_figures_problems():
    """A version of `holdfast bench` without a figure has a gap in the table, not a number."""
    from holdfast import entry
    result = entry({"emit_1": {"name": "emit_1", "value": 100.0, "unit": "events/s", "of_limit": 0.7}})
    whole = dict(report.read(os.path.join(RECORDED, report.RESULTS))["systems"][0])
    for key in ("input", "drain", "rss", "figures"):
        whole.pop(key, None)
    cells = report.row({**whole, **result})
    if cells[1] != "0.70 / – / –" or cells[3] != "–" or cells[5] != "–":
        yield f"absent figures: {cells}"


def compile_problems():
    for path in [*glob.glob(os.path.join(BENCH, "*.py")), os.path.join(BENCH, "bench")]:
        compile(read(path), path, "exec")
    if "--record" not in output(sys.executable, os.path.join(BENCH, "bench"), "--help"):
        yield "bench --help does not work"


def main():
    failed = 0
    for group in (recorded_problems, broken_problems, peer_problems, missing_figures_problems, compile_problems):
        try:
            problems = list(group())
        except (report.Broken, Failed) as why:
            problems = [str(why)]
        failed += len(problems)
        for each in problems:
            print(f"{group.__name__}: {each}")
    print(f"{failed} problems")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
