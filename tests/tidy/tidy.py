#!/usr/bin/env python3
"""The project's layering as a test. usage: tidy.py [ROOT]

Prints one line per finding, path:line: rule: what and what to do, and exits 1 if there was one.

  include   <sqlite3.h>, <nng/...>, <mbedtls/...> and <cereal/...> only where DESIGN.md puts them
  sql       SQL text only in lib/src/schema.*; connection and transaction control also in db.*
  order     lib/ includes go one way, as listed in tests/tidy/order.txt
  language  .h is C, .hpp is C++; headers are guarded by #pragma once (.hpp) or #ifndef (.h)
"""

import fnmatch
import os
import re
import sys

SOURCE = (".c", ".cpp", ".h", ".hpp")

# Tests may include everything, for they forge bytes and peers. Demo programs are applications.
# header, where it may be included, and what to say elsewhere
INCLUDE_RULES = [
    (
        re.compile(r"^sqlite3\.h$|^sqlite3ext\.h$"),
        ("lib/src/db.*", "cli/bench_syncs.cpp", "tests/*")
        + ("platforms/*/demo/*", "platforms/*/examples/*"),
        "only lib/src/db.* speaks to SQLite; public headers forward-declare `struct sqlite3`",
    ),
    (
        re.compile(r"^nng/"),
        ("lib/src/link_nng*", "lib/src/nng_compat.cpp", "tests/*"),
        "only lib/src/link_nng* speaks to NNG",
    ),
    (
        re.compile(r"^mbedtls/"),
        ("lib/src/tls*", "tests/*"),
        "only lib/src/tls* speaks to mbedTLS, which comes with NNG",
    ),
    (
        re.compile(r"^cereal/"),
        ("lib/src/wire*.cpp", "lib/include/holdfast/typed.hpp")
        + ("tests/*", "platforms/*/demo/*", "platforms/*/examples/*"),
        "only lib/src/wire*.cpp and typed.hpp use cereal",
    ),
    (
        re.compile(r"^(nats/|libpq|mosquitto|mqtt_)"),
        ("cli/sinks/*",),
        "only the sinks of cli/sinks speak to other servers",
    ),
    (
        re.compile(r"^(CLI/|nlohmann/)"),
        ("cli/*", "tests/*"),
        "CLI11 and nlohmann-json are for the command line only",
    ),
]
# A literal that is the start of a statement (written in capitals), a whole transaction statement, or
# mentions one of our tables the way only SQL does.
SQL = [
    re.compile(
        r"^\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|PRAGMA|ATTACH|DETACH|WITH|VACUUM|"
        r"ANALYZE|REINDEX|EXPLAIN|VALUES|WHERE|FROM|ORDER BY|GROUP BY|LIMIT|UNION|RETURNING|"
        r"SAVEPOINT|RELEASE|ROLLBACK TO)\s+\S"
    ),
    re.compile(
        r"^\s*(BEGIN|COMMIT|END|ROLLBACK)"
        r"(\s+(DEFERRED|IMMEDIATE|EXCLUSIVE|TRANSACTION))*\s*;?\s*$"
    ),
    re.compile(
        r"^\s*(select\s.*\sfrom\s|insert\s+(or\s+\w+\s+)?into\s|delete\s+from\s|update\s+\w+\s+set\s|"
        r"create\s+(temp\s+)?(table|index|unique|trigger|view)\s|drop\s+(table|index|trigger|view)\s|"
        r"pragma\s+\w+|begin\s+(immediate|exclusive|deferred)|savepoint\s+\w+)",
        re.IGNORECASE | re.DOTALL,
    ),
    re.compile(
        r"\b(FROM|INTO|UPDATE|JOIN|TABLE|ON)\s+(main\.)?(outbox|inbox|holdfast)_[a-z]+\b"
    ),
]
# The bench is an application, with a table of its own; a sink's table is on another server.
SQL_HOME = ("lib/src/schema*", "cli/bench_workload.cpp", "cli/sinks/postgres_sql.*")
# What db.* needs to open a connection and to run a transaction; it knows no table of ours.
SQL_CONNECTION = re.compile(
    r"^\s*((PRAGMA|BEGIN|COMMIT|END|ROLLBACK|SAVEPOINT|RELEASE)\b|SELECT\s.*\sFROM sqlite_schema$)"
)
SQL_CONNECTION_HOME = ("lib/src/db.*",)
SQL_WHERE = ("lib/*", "cli/*", "platforms/linux/*")

# Comments, character literals, raw strings and strings, in the order in which they must be tried.
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=delimiter)"
      | "(?P<string>(?:\\.|[^"\\\n])*)"
      | (?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'""",
    re.VERBOSE | re.DOTALL,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]', re.MULTILINE)


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, p) for p in patterns)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def sources(root):
    for top in ("lib", "cli", "platforms", "tests"):
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith(SOURCE):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as f:
                        yield os.path.relpath(path, root).replace(os.sep, "/"), f.read()


def without_comments(text):
    """The same text with comments blanked, so that offsets and lines stay."""

    def blank(m):
        if m.group("comment") is None:
            return m.group(0)
        return re.sub(r"[^\n]", " ", m.group(0))

    return TOKEN.sub(blank, text)


def literals(text):
    """(offset, text) of each string literal; neighbours that the compiler joins count as one."""
    joined, start, end = "", None, None
    for m in TOKEN.finditer(text):
        piece = m.group("raw") if m.group("raw") is not None else m.group("string")
        if piece is None:
            continue
        if m.group("raw") is None:
            piece = piece.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
        if start is not None and not text[end : m.start()].strip():
            joined += piece
        else:
            if start is not None:
                yield start, joined
            joined, start = piece, m.start()
        end = m.end()
    if start is not None:
        yield start, joined


def check_includes(path, text):
    for m in INCLUDE.finditer(text):
        for header, allowed, why in INCLUDE_RULES:
            if header.match(m.group(1)) and not matches(path, allowed):
                yield line_of(text, m.start()), "include", f"<{m.group(1)}>: {why}"


def check_sql(path, text):
    if not matches(path, SQL_WHERE) or matches(path, SQL_HOME):
        return
    for offset, literal in literals(text):
        if matches(path, SQL_CONNECTION_HOME) and SQL_CONNECTION.match(literal):
            continue
        if any(pattern.search(literal) for pattern in SQL):
            start = " ".join(literal.split())[:48]
            yield line_of(text, offset), "sql", f'"{start}": SQL text belongs in lib/src/schema.*'


def order_name(path):
    """lib/src/outbox.cpp: outbox; lib/include/holdfast/outbox.hpp: holdfast/outbox; else None"""
    for folder in ("lib/src/", "lib/include/"):
        if path.startswith(folder):
            return os.path.splitext(path[len(folder) :])[0]
    return None


def read_order(root):
    """[(pattern, rank)]"""
    order, rank = [], 0
    with open(os.path.join(root, "tests/tidy/order.txt"), encoding="utf-8") as f:
        for line in f:
            names = line.split("#")[0].split()
            if names:
                rank += 1
                order += [(name, rank) for name in names]
    return order


def rank_of(order, name):
    for pattern, rank in order:  # an exact name wins over a pattern
        if pattern == name:
            return rank
    for pattern, rank in order:
        if fnmatch.fnmatchcase(name, pattern):
            return rank
    return None


def check_order(path, text, order, own_headers):
    name = order_name(path)
    if name is None:
        return
    rank = rank_of(order, name)
    if rank is None:
        yield 1, "order", f"add `{name}` to tests/tidy/order.txt, after everything it includes"
        return
    for m in INCLUDE.finditer(text):
        other = own_headers.get(m.group(1))
        if other is None or other in (name, "holdfast/" + name):
            continue
        other_rank = rank_of(order, other)
        if other_rank is None or other_rank >= rank:
            line = line_of(text, m.start())
            yield line, "order", f"{name} includes {other}, which is not to its left (tests/tidy/order.txt)"


def check_language(path, text, code):
    if path.endswith(".hpp") and not re.search(r"^#pragma once$", code, re.MULTILINE):
        yield 1, "language", "a .hpp starts with #pragma once"
    if path.endswith(".h"):
        if not re.search(r"^#ifndef (\w+)\n#define \1$", code, re.MULTILINE):
            yield 1, "language", "a .h is guarded by #ifndef and #define"
        m = re.search(r"^\s*(namespace|class|template)\b", code, re.MULTILINE)
        if m:
            yield line_of(code, m.start(1)), "language", "a .h is C; C++ goes into a .hpp"


def findings(order, files, only=None):
    """files: {path: text}; only: look at this one alone"""
    own_headers = {}  # as it is written in an include: its name in order.txt
    for path in files:
        if path.endswith((".h", ".hpp")) and order_name(path):
            own_headers[re.sub(r"^lib/(src|include)/", "", path)] = order_name(path)
    for path, text in files.items():
        if only is not None and path != only:
            continue
        code = without_comments(text)
        found = list(check_includes(path, code))
        found += check_sql(path, code)
        found += check_order(path, code, order, own_headers)
        found += check_language(path, text, code)
        for line, rule, what in sorted(found):
            yield f"{path}:{line}: {rule}: {what}"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../..")
    found = list(findings(read_order(root), dict(sources(root))))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
