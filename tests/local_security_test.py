#!/usr/bin/env python3
"""What another user of the machine, or hostile text in an argument, could make `holdfast` do.

Black box: the program is run, then files, modes and tables are looked at. Each part has a control that
shows the look would notice.
"""

import json
import os
import re
import shlex
import sqlite3
import stat
import subprocess
import sys
import tempfile

PROGRAM = os.environ.get("HOLDFAST_BIN", "build/release/cli/holdfast")
SECRET = "s3cret-4711-of-nobody"
TIMEOUT_S = 60
SERVES_S = 0.5
DEEP = 100_000
problems = []


def check(holds, what):
    if not holds:
        problems.append(what)


def run(*arguments, stdin="", umask=0o022, cwd=None, serves_s=SERVES_S):
    # A command that serves until it is stopped has served long enough for what is looked at here.
    seconds = serves_s if arguments[0] in ("relay", "gateway") else TIMEOUT_S
    command = ["timeout", "-s", "INT", str(seconds), PROGRAM, *arguments]
    return subprocess.run(command, input=stdin.encode("utf-8", "surrogateescape"), capture_output=True, umask=umask,
                          cwd=cwd)


def must(*arguments, **how):
    done = run(*arguments, **how)
    check(done.returncode == 0, f"{shlex.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return done


# --- file modes ----------------------------------------------------------------------------------


def open_to_others(folder):
    found = []
    for name in os.listdir(folder):
        mode = os.lstat(os.path.join(folder, name)).st_mode
        if not stat.S_ISLNK(mode) and mode & stat.S_IRWXO:
            found.append(f"{name} {stat.filemode(mode)}")
    return found


def modes():
    with tempfile.TemporaryDirectory() as folder:
        def inside(name):
            return os.path.join(folder, name)

        for umask in (0o000, 0o022):
            database = inside(f"{umask}.db")
            must("init", database, umask=umask)
            keep_open = sqlite3.connect(database)  # so that -wal and -shm stay
            must("emit", database, "--type", "t", "--aggregate", "a/1", "--payload", "x", umask=umask)
            must("backup", database, inside(f"{umask}.copy"), umask=umask)
            keep_open.close()
            gateway = subprocess.Popen([PROGRAM, "gateway", inside(f"{umask}.gw"), "--listen", "ipc://" + inside(f"{umask}.sock")],
                                       stderr=subprocess.PIPE, umask=umask)
            while b"ipc://" not in (line := gateway.stderr.readline()):
                if not line:
                    break
            check(os.path.exists(inside(f"{umask}.sock")), "the gateway has no socket")
            check(not open_to_others(folder), f"umask {umask:o}: open to others: {open_to_others(folder)}")
            gateway.kill()
            gateway.wait()
            gateway.stderr.close()
        with open(inside("control"), "w"):
            os.chmod(inside("control"), 0o644)
        check(open_to_others(folder) == ["control -rw-r--r--"], "control: a file open to others is not noticed")


# --- symbolic links ------------------------------------------------------------------------------


def links():
    with tempfile.TemporaryDirectory() as folder:
        def inside(name):
            return os.path.join(folder, name)

        victim = inside("victim")

        def untouched(what):
            with open(victim) as file:
                check(file.read() == SECRET, f"{what}: the file behind the link was changed")
            check(not os.path.lexists(inside("nowhere")), f"{what}: a file was made behind the link")

        with open(victim, "w") as file:
            file.write(SECRET)
        must("init", inside("good.db"))
        for target in (victim, inside("nowhere")):
            link = inside("link.db")
            os.symlink(target, link)
            for command in (["init", link], ["backup", inside("good.db"), link],
                            ["gateway", link, "--listen", "ipc://" + inside("g.sock")]):
                done = run(*command, serves_s=10)
                check(done.returncode not in (0, 124), f"{command[0]} through a link to {target}: {done.returncode} {done.stderr.decode()}")
                untouched(f"{command[0]} through a link")
            os.unlink(link)
        for beside in ("-wal", "-shm", "-journal", "-reserve"):
            database = inside(f"beside{beside}.db")
            must("init", database)
            for leftover in ("-wal", "-shm", beside):
                if os.path.lexists(database + leftover):
                    os.unlink(database + leftover)
            os.symlink(victim, database + beside)
            done = run("emit", database, "--type", "t", "--aggregate", "a/1", "--payload", "x")
            untouched(f"emit beside a link {beside}")
            if beside != "-reserve":
                check(done.returncode == 1 and b"symbolic link" in done.stderr, f"emit beside a link {beside}: {done.stderr}")
            relay = ["relay", database, "--to", "ipc://" + inside("nobody"), "--reserve", "64KiB"]
            run(*relay)
            untouched(f"relay beside a link {beside}")
        for name in ("ca.key", "ca.crt"):
            authority = inside(f"of {name}")
            os.mkdir(authority)
            os.symlink(victim, os.path.join(authority, name))
            for force in ([], ["--force"]):
                run("certs", "init", "--dir", authority, *force)
                untouched(f"certs init over a link {name}")
        os.symlink(inside("good.db"), inside("alias.db"))  # control: a link to a database is one
        must("ls", inside("alias.db"))


# --- hostile text in every option ----------------------------------------------------------------

HOSTILE = ["'; DROP TABLE outbox_event; --", "\"; DROP TABLE outbox_event; --", "x') ; DELETE FROM outbox_event; --",
           "../../../../../../hostile", "file:hostile?mode=memory", "%n%s%s%s", "a\nb\x1b[2J", "-1", "99999999999999999999",
           "\udcff\udcfe", "$(touch hostile)", "`touch hostile`", "A" * 5000]
# The first is the whole command line of a use that works; its options come from its --help.
COMMANDS = [["init", "DB"], ["emit", "DB", "--type", "t", "--aggregate", "a/1", "--payload", "x"],
            ["capture", "DB", "reading"], ["relay", "DB", "--to", "ipc://nobody.sock", "--drain"],
            ["gateway", "gateway.db", "--listen", "ipc://gateway.sock"], ["ls", "DB"], ["show", "DB", "1"],
            ["resolve", "DB", "01a23c3b-321a-7593-b937-8a8808f2cc1c"], ["stats", "DB"], ["inbox", "ls", "DB"],
            ["inbox", "streams", "DB"], ["inbox", "gaps", "DB"], ["retry", "DB"], ["discard", "DB", "1"], ["purge", "DB"],
            ["destination", "ls", "DB"], ["destination", "add", "DB", "other"], ["destination", "rm", "DB", "other"]]


def options_of(command):
    words = [word for word in command if re.fullmatch("[a-z]+", word) and word not in ("t", "x", "reading", "other")]
    text = run(*words, "--help").stdout.decode()
    return sorted(set(re.findall(r"^  (?:-\w,)?(--[a-z-]+) [A-Z@]", text, re.M)))


def state_of(database):
    with sqlite3.connect(database) as db:
        tables = db.execute("SELECT type,name,sql FROM sqlite_schema WHERE name NOT LIKE '%capture%' ORDER BY 1,2").fetchall()
        kept = db.execute("SELECT count(*) FROM outbox_event WHERE seq<=3").fetchone()
    db.close()
    return tables, kept


def injection():
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        above = set(os.listdir(os.path.dirname(folder)))
        database = os.path.join(folder, "app.db")
        must("init", database)
        with sqlite3.connect(database) as db:
            db.execute("CREATE TABLE reading(id INTEGER PRIMARY KEY, celsius)")
        db.close()
        for _ in range(3):
            must("emit", database, "--type", "t", "--aggregate", "a/1", "--payload", "x")
        before = state_of(database)
        for command in COMMANDS:
            places = [index for index, word in enumerate(command) if index > 0 and not word.startswith("--") and word != "DB"
                      and word not in ("ls", "add", "rm", "streams", "gaps")]
            for text in HOSTILE:
                tries = [command[:place] + [text] + command[place + 1:] for place in places]
                tries += [command + [f"{option}={text}"] for option in options_of(command)]
                for arguments in tries[HOSTILE.index(text) % 4::4]:
                    arguments = [database if word == "DB" else word for word in arguments]
                    done = run(*arguments, cwd=folder)
                    tried += 1
                    where = f"{arguments[0]} with {arguments[-1][:60]!r}"
                    check(done.returncode in (0, 1, 2, 3, 4, 75, 124), f"{where}: ended with {done.returncode}")
                    check(b"internal error" not in done.stderr, f"{where}: {done.stderr[:200]}")
                    check(b"\x1b" not in done.stderr, f"{where}: an escape sequence reached the terminal")
            check(state_of(database) == before, f"{command[0]}: tables or events are not what they were")
        check(not os.path.exists(os.path.join(folder, "hostile")), "a command in an argument was run")
        check("hostile" not in set(os.listdir(os.path.dirname(folder))) - above, "a file outside the folder was made")
        with sqlite3.connect(database) as db:
            db.execute("DROP TRIGGER IF EXISTS outbox_event_no_update")
            db.execute("DROP TABLE outbox_event")
            db.execute("CREATE TABLE outbox_event(seq)")
        db.close()
        check(state_of(database) != before, "control: a table that was dropped is not noticed")
    print(f"{tried} command lines with hostile text")


# --- secrets, and what is huge -------------------------------------------------------------------


def secrets():
    with tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, "device.key")
        with open(key, "w") as file:
            file.write(f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n")
        os.chmod(key, 0o600)
        database = os.path.join(folder, "app.db")
        must("init", database)
        done = run("relay", database, "--to", "tls+tcp://localhost:1", "--tls-ca", key, "--tls-cert", key, "--tls-key", key)
        check(done.returncode != 0 and key.encode() in done.stderr, f"a damaged key is not named: {done.stderr}")
        check(SECRET.encode() not in done.stderr + done.stdout, "a key's text is in a message")
        must("emit", database, "--type", "t", "--aggregate", "a/1", "--payload", SECRET)
        done = run("relay", database, "--to", "ipc://" + os.path.join(folder, "nobody"))
        check(SECRET.encode() not in done.stderr, "a payload is in a log")


def huge():
    with tempfile.TemporaryDirectory() as folder:
        database = os.path.join(folder, "app.db")
        must("init", database)
        for deep in ("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP):
            line = json.dumps({"event_type": "t", "aggregate_type": "a", "aggregate_id": "1", "payload": 0})
            for stdin in (deep, line.replace(": 0}", f": {deep}" + "}"), line[:-1] + f', "headers": {deep}' + "}"):
                done = run("emit", database, "--ndjson", "-", stdin=stdin + "\n")
                check(done.returncode in (0, 1, 2), f"deep JSON: ended with {done.returncode}")
            done = run("emit", database, "--type", "t", "--aggregate", "a/1", "--payload", "x", "--headers", deep[:60_000])
            check(done.returncode == 2, f"deep headers: ended with {done.returncode}")
        must("ls", database, "--json")


modes()
links()
injection()
secrets()
huge()
for problem in problems[:40]:
    print(f"local_security_test: {problem}")
print(f"{len(problems)} problems")
sys.exit(bool(problems))
