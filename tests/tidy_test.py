#!/usr/bin/env python3
"""The layering holds (tests/tidy/tidy.py), the table of limits is true (tests/tidy/limits.py), and the
checks are able to fail: seeded into a copy, each kind of violation is found, at its place."""

import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
TIDY = os.path.join(ROOT, "tests/tidy/tidy.py")
sys.path.insert(0, os.path.dirname(TIDY))
sys.dont_write_bytecode = True
import limits  # noqa: E402
import tidy  # noqa: E402

# file to add to the copy, its text, and the finding it must give (None: no finding)
SEEDS = [
    ("cli/seed.cpp", "\n#include <sqlite3.h>\n", "cli/seed.cpp:2: include"),
    ("lib/include/holdfast/typed.h", "#include <sqlite3.h>\n", "typed.h:1: include"),
    ("lib/src/outbox.cpp", "#  include <nng/nng.h>\n", "lib/src/outbox.cpp:1: include"),
    ("lib/src/relay.cpp", "#include <cereal/cereal.hpp>\n", "lib/src/relay.cpp:1: include"),
    ("lib/src/status.cpp", "#include <nlohmann/json.hpp>\n", "lib/src/status.cpp:1: include"),
    ("lib/src/outbox.cpp", '\n\nauto a = "SELECT 1";', "lib/src/outbox.cpp:3: sql"),
    ("lib/src/outbox.cpp", 'auto a = "BEGIN IMMEDIATE";', "lib/src/outbox.cpp:1: sql"),
    ("lib/src/outbox.cpp", 'auto a = R"sql(\n  DELETE FROM t\n)sql";', "lib/src/outbox.cpp:1: sql"),
    ("lib/src/outbox.cpp", 'auto a = "insert"\n  " into t values(1)";', "lib/src/outbox.cpp:1: sql"),
    ("lib/src/outbox.cpp", "auto a = \"' x\" + b + \" FROM outbox_event\";", "outbox.cpp:1: sql"),
    ("lib/src/db.cpp", 'auto a = "SELECT seq FROM outbox_event";', "lib/src/db.cpp:1: sql"),
    ("cli/seed.cpp", 'auto a = "PRAGMA synchronous=OFF";', "cli/seed.cpp:1: sql"),
    ("lib/src/status.cpp", '#include "db.hpp"\n', "lib/src/status.cpp:1: order"),
    ("lib/src/db.cpp", '#include "holdfast/relay.hpp"\n', "lib/src/db.cpp:1: order"),
    ("lib/src/brand_new.cpp", "int x;\n", "lib/src/brand_new.cpp:1: order: add `brand_new`"),
    ("lib/src/seed.hpp", "int x;\n", "lib/src/seed.hpp:1: language"),
    ("lib/include/holdfast/c.h", "#ifndef C\n#define C\nnamespace a {}\n#endif\n", "c.h:3: language"),
    # And what is fine stays fine.
    ("lib/src/db.cpp", '#include <sqlite3.h>\nauto a = "PRAGMA synchronous";', None),
    ("lib/src/outbox.cpp", '// #include <sqlite3.h>, "SELECT 1"\n/* "DELETE FROM t" */ char a = \'"\';', None),
    ("cli/seed.cpp", 'auto a = "Delete events: update, insert or SELECTED";', None),
    ("lib/src/schema.cpp", 'auto a = "DELETE FROM outbox_event";', None),
    ("tests/seed_test.cpp", '#include <sqlite3.h>\nauto a = "SELECT 1";', None),
]


def controls(order, files):
    """Each seed gives its finding; yields what is wrong with the check."""
    for path, text, expected in SEEDS:
        found = list(tidy.findings(order, {**files, path: text}, only=path))
        if expected is None and found:
            yield f"control: {path} is fine, but: {found[0]}\n{text}"
        if expected is not None and not any(expected in line for line in found):
            yield f"control: expected a finding `{expected}`, got {found}\n{text}"


def control_on_disk():
    """The program itself, on a copy of the tree with one violation."""
    with tempfile.TemporaryDirectory() as copy:
        for top in ("lib", "tests/tidy"):
            shutil.copytree(os.path.join(ROOT, top), os.path.join(copy, top))
        path, text = "lib/src/outbox.cpp", "\n#include <sqlite3.h>\n"
        expected = "lib/src/outbox.cpp:2: include"
        with open(os.path.join(copy, path), "w", encoding="utf-8") as f:
            f.write(text)
        run = subprocess.run([sys.executable, TIDY, copy], capture_output=True, text=True)
        if run.returncode != 1 or expected not in run.stdout:
            yield f"control: tidy.py exits {run.returncode} on a seeded copy:\n{run.stdout}{run.stderr}"


def limits_controls(table):
    """A table with another value, without a row, or without words is found to be wrong."""
    row = next(line for line in table.splitlines() if "`kMaxPayloadBytes`" in line)
    for what, spoilt in [
        ("is 900 * 1024, in the table", row.replace("900", "901")),
        ("is not in the table", ""),
        ("nothing says what", row.rsplit("|", 2)[0] + "| ? |"),
        ("is no longer in", row + "\n" + row.replace("kMaxPayloadBytes", "kMaxGoneBytes")),
    ]:
        found = list(limits.findings(ROOT, table.replace(row, spoilt)))
        if len(found) != 1 or what not in found[0]:
            yield f"control: limits: expected one finding `{what}`, got {found}"


def main():
    order, files = tidy.read_order(ROOT), dict(tidy.sources(ROOT))
    found = list(controls(order, files)) + list(control_on_disk())
    found += tidy.findings(order, files)
    with open(os.path.join(ROOT, limits.TABLE), encoding="utf-8") as f:
        table = f.read()
    found += list(limits.findings(ROOT, table)) + list(limits_controls(table))
    for line in found:
        print(line)
    print(f"{len(files)} files, {len(SEEDS) + 5} seeded controls, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
