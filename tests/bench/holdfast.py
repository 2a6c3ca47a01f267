"""Holdfast itself: the figures of `holdfast bench`, read by name, and an application for the power cut."""

import json
import os
import statistics
import time

from peer import BUILD, COMMAND_SECONDS, PAYLOAD, Done, Failed, Peer, output

PROGRAM = os.environ.get("HOLDFAST_BIN", os.path.join(BUILD, "cli/holdfast"))
BENCH_ROWS = 100_000       # of the largest backlog of `holdfast bench`; scaling.py has longer ones
BENCH_SECONDS_MAX = 120
RUNS = 5                   # of `holdfast bench`


class Holdfast(Peer):
    name, title, business_row = "holdfast", "Holdfast", "yes"
    drain_to = "over TCP to a gateway, which stores durably and applies once before it acknowledges"
    loss = "nothing that was committed"
    source = "lib/docs/DESIGN.md, G2; tests/README.md, Power cuts"

    def __init__(self):
        self.database = ""

    def check(self):
        if not os.path.exists(PROGRAM):
            raise Failed(f"{PROGRAM} is not built (make build)")

    def version(self):
        return output(PROGRAM, "version").split()[1]

    def measured(self, folder, seconds):
        """One entry of results.json: of each figure the middle one of several short runs, for the
        disk's speed changes within seconds. A figure that this version of the bench does not have is
        absent there, and told as absent in the table."""
        runs = [self.bench(folder, seconds / 3, BENCH_ROWS if last else 0) for last in (*[False] * (RUNS - 1), True)]
        return entry({name: middle([run[name] for run in runs if name in run]) for name in runs[-1]})

    def bench(self, folder, seconds, rows):
        lines = output(PROGRAM, "bench", "--json", "--seconds", str(seconds), "--rows", str(rows),
                       os.path.abspath(folder), seconds=BENCH_SECONDS_MAX).splitlines()
        return {figure["name"]: figure for figure in map(json.loads, lines)}

    def start(self, folder):
        self.database = os.path.join(folder, "device.db")
        output(PROGRAM, "init", self.database)

    def stop(self):
        pass  # a process for each call

    def put(self, connections, seconds=0, count=0):
        """One durable transaction for each event; an id is printed once it is committed."""
        line = json.dumps({"event_type": "sensor.reading.v1", "aggregate_type": "sensor",
                           "aggregate_id": "boiler-1", "payload": PAYLOAD.decode()}) + "\n"
        start = time.monotonic()
        ids = output(PROGRAM, "emit", self.database, "--ndjson", "-", input=line * count).split()
        return Done(len(ids), time.monotonic() - start)

    def count(self):
        return len(output(PROGRAM, "ls", self.database, "--limit", str(self.cut_events + 1), "--json").splitlines())


def middle(figures):
    """Each member's own middle: a ratio to the limit belongs to its own moment."""
    return dict(figures[0], **{key: statistics.median_low([each[key] for each in figures])
                               for key in ("value", "of_limit") if key in figures[0]})


def entry(figures):
    result = {"figures": {name: {key: figure[key] for key in ("value", "unit", "of_limit") if key in figure}
                          for name, figure in figures.items()}, "input": {}}
    for producers in ("1", "16", "64"):
        emit, disk_bytes = figures.get("emit_" + producers), figures.get("disk_bytes_per_event_" + producers)
        if emit is None:
            continue
        result["input"][producers] = {"events_per_s": emit["value"], "of_limit": emit.get("of_limit")}
        if disk_bytes is not None:
            result["input"][producers]["disk_bytes_per_event"] = disk_bytes["value"]
    if "drain_tcp" in figures:
        result["drain"] = {"events_per_s": figures["drain_tcp"]["value"]}
    if "relay_rss_100k" in figures:
        result["rss"] = {"mb": figures["relay_rss_100k"]["value"], "pending": BENCH_ROWS}
    return result
