#!/usr/bin/env python3
"""The plots of `make bench`: equal results give equal files, other results give others, and a system
that failed is not drawn. Skipped without Debian's python3-matplotlib."""

import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
PLOTS = ("emit.svg", "drain.svg", "bytes.svg", "backlog.svg")
PYTHON = "/usr/bin/python3"  # whose packages Debian's are


def plots(results):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(results, file)
        done = subprocess.run([PYTHON, os.path.join(ROOT, "tests/bench/report.py"), path, folder],
                              capture_output=True, text=True, check=False)
        if "no plots" in done.stderr:
            print("skipped: no python3-matplotlib")
            sys.exit(77)
        if done.returncode:
            sys.exit(done.stderr)
        texts = {}
        for name in PLOTS:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                texts[name] = file.read()
        return texts


def main():
    with open(os.path.join(ROOT, "lib/docs/bench/results.json"), encoding="utf-8") as file:
        results = json.load(file)
    first, problems = plots(results), []
    if plots(results) != first:
        problems.append("equal results gave other plots")
    title = results["systems"][-1]["title"]
    changed = json.loads(json.dumps(results))
    changed["systems"][0]["drain"]["events_per_s"] *= 2
    for key in ("input", "drain", "rss"):
        changed["systems"][-1].pop(key, None)
    changed["systems"][-1]["failed"] = "it fell over"
    other = plots(changed)
    if other["drain.svg"] == first["drain.svg"]:
        problems.append("control: other figures gave the same plot")
    for name in ("emit.svg", "drain.svg", "bytes.svg"):
        if title not in first[name]:
            problems.append(f"control: {title} is not in {name}")
        if title in other[name]:
            problems.append(f"{title} failed, and is drawn in {name}")
    print("\n".join(problems) or "plots: as they should be")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
