#!/usr/bin/env python3
"""lib/docs/LIMITS.md names every limit of the sources. usage: limits.py [--write] [ROOT]

A limit is a numeric constant k...Max..., k...Min... or k...Timeout... of lib, cli or platforms/linux,
and any numeric constant of a public header that has a unit in its name. Prints one line for each that the table lacks, has with another value, or has no words for, and
exits 1 if there was one. --write brings names and values up to date, and leaves the words alone.
"""

import os
import re
import sys

TABLE = "lib/docs/LIMITS.md"
# part of the table: folders of its constants
PARTS = [
    ("Library, public", "lib/include/holdfast"),
    ("Library, internal", "lib/src"),
    ("Linux platform", "platforms/linux"),
    ("Command line", "cli"),
    ("Sinks", "cli/sinks"),
]
CONSTANT = re.compile(
    r"constexpr\s+(?:std::)?(?:u?int(?:\d+_t)?|size_t|double|long|nng_duration|rlim_t)\s+(k[A-Z]\w*)"
    r"\s*=\s*([^;]+);(?:[ \t]*//[ \t]*(.*))?"
)
BOUND = re.compile(r"Max|Min|Timeout|Keepalive")
PUBLIC = re.compile(BOUND.pattern + r"|Ms|Us|Bytes|Rows|Frames|Rejections|Steps|Members")
ROW = re.compile(r"^\| `(k\w+)` \| (.*?) \| `([^`]+)` \| (.*) \|$")
NO_WORDS = "?"


def limits(root):
    """file, name, value as it is written, comment behind it"""
    for _, folder in PARTS:
        top = os.path.join(root, folder)
        for name in sorted(os.listdir(top)):
            if not name.endswith((".hpp", ".cpp")) or name.startswith("bench"):
                continue
            with open(os.path.join(top, name), encoding="utf-8") as f:
                text = f.read()
            for constant, value, comment in CONSTANT.findall(text):
                if re.search(PUBLIC if folder == PARTS[0][1] else BOUND, constant):
                    yield f"{folder}/{name}", constant, " ".join(value.split()), comment


def rows(text):
    """(file, name): value, words"""
    return {(m[3], m[1]): (m[2], m[4]) for m in map(ROW.match, text.splitlines()) if m}


def findings(root, text):
    written = rows(text)
    found = {(file, name): value for file, name, value, _ in limits(root)}
    how = f"`tests/tidy/limits.py --write`, then say in {TABLE} what it is for"
    for (file, name), value in found.items():
        row = written.get((file, name))
        if row is None:
            yield f"{file}: limits: {name} is not in the table: {how}"
        elif row[0] != f"`{value}`":
            yield f"{file}: limits: {name} is {value}, in the table {row[0]}: {how}"
        elif row[1] == NO_WORDS:
            yield f"{file}: limits: nothing says what {name} is for: {how}"
    for file, name in written.keys() - found.keys():
        yield f"{TABLE}: limits: {name} is no longer in {file}: {how}"


def renewed(root, text):
    written = rows(text)
    head = text.split("\n## ")[0].rstrip("\n")
    parts = []
    for title, folder in PARTS:
        lines = [f"## {title}", "", "| name | value | in | what for |", "|---|---|---|---|"]
        for file, name, value, comment in limits(root):
            if os.path.dirname(file) == folder:
                words = written.get((file, name), ("", comment or NO_WORDS))[1]
                lines.append(f"| `{name}` | `{value}` | `{file}` | {words} |")
        parts.append("\n".join(lines))
    return head + "\n\n" + "\n\n".join(parts) + "\n"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    here = os.path.dirname(os.path.abspath(__file__))
    root = arguments[0] if arguments else os.path.join(here, "../..")
    path = os.path.join(root, TABLE)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as f:
            f.write(renewed(root, text))
        return 0
    found = list(findings(root, text))
    print("\n".join(found) if found else f"{len(rows(text))} limits in the table")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
