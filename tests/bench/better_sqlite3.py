"""better-sqlite3 with the conventional outbox schema, WAL and FULL.

It is the one peer that Debian does not have. `npm install` brings it, once, into build/bench/npm: a
download and, where npm's prebuilt binary cannot be reached, minutes of compiling. It happens here
and never when Holdfast is built; if it fails, the peer is skipped with npm's reason."""

import contextlib
import json
import os
import signal
import subprocess

from peer import HERE, PAYLOAD, SOURCE, COMMAND_SECONDS, Done, Failed, Peer, Skipped, need

NPM = os.path.join(SOURCE, "build/bench/npm")
MODULE = os.path.join(NPM, "node_modules/better-sqlite3")
VERSION = "12.11.1"
INSTALL_SECONDS = 600
SCHEMA = os.path.join(HERE, "conventional.sql")


def loads():
    return subprocess.run(["node", "-e", f"new (require('{MODULE}'))(':memory:')"], capture_output=True,
                          check=False).returncode == 0


def install():
    """Into build/bench/npm, with nothing of the user's npm settings changed."""
    if loads():
        return
    os.makedirs(NPM, exist_ok=True)
    print(f"bench: npm install better-sqlite3@{VERSION} (once; up to {INSTALL_SECONDS // 60} minutes)", flush=True)
    npm = subprocess.Popen(
        ["npm", "install", "--prefix", NPM, "--no-save", "--no-audit", "--no-fund", "--loglevel", "error",
         f"better-sqlite3@{VERSION}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True)
    try:
        said = npm.communicate(timeout=INSTALL_SECONDS)[0]
    except subprocess.TimeoutExpired:
        raise Skipped(f"npm install better-sqlite3 takes more than {INSTALL_SECONDS} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(npm.pid, signal.SIGKILL)  # the compilers that it may have started, too
        npm.wait()
    if npm.returncode != 0 or not loads():
        raise Skipped(f"npm install better-sqlite3: {(said.strip().splitlines() or ['no word from npm'])[-1]}")


class BetterSqlite3(Peer):
    name, title = "better-sqlite3", "better-sqlite3, conventional outbox, FULL"
    business_row = "yes"
    drain_to = "claimed in batches of 256 and marked as sent, in the same process; nothing receives them"
    loss = "nothing that was committed"
    source = "https://www.sqlite.org/pragma.html#pragma_synchronous"
    connections = (1,)  # its calls are synchronous: of 16 requests at once, 15 wait
    fill_events = 20_000

    def __init__(self):
        self.folder = ""
        self.total_written = 0
        self.mb = 0

    def check(self):
        need("node", "npm")
        install()

    def version(self):
        with open(os.path.join(MODULE, "package.json"), encoding="utf-8") as file:
            return json.load(file)["version"]

    def start(self, folder):
        self.folder = folder

    def stop(self):
        pass  # a process for each call

    def call(self, *arguments, seconds=0):
        environment = dict(os.environ, NODE_PATH=os.path.dirname(MODULE), BENCH_PAYLOAD=PAYLOAD.decode())
        command = ["setpriv", "--pdeathsig", "KILL", "node", os.path.join(HERE, "better_sqlite3.js"),
                   os.path.join(self.folder, "outbox.db"), SCHEMA, *map(str, arguments)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True,
                                  timeout=COMMAND_SECONDS + seconds, check=False)
            result = json.loads(done.stdout)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"node: {late}") from late
        except json.JSONDecodeError as error:
            raise Failed(f"node: {(done.stderr.strip().splitlines() or ['it printed no figures'])[-1]}") from error
        self.total_written += result["write_bytes"]
        self.mb = result["resident_mb"]
        return Done(result["events"], result["seconds"])

    def put(self, connections, seconds=0, count=0):
        return self.call("put", seconds, count, seconds=seconds)

    def drain(self):
        return self.call("drain")

    def count(self):
        return self.call("count").events

    def written(self):
        return self.total_written

    def resident_mb(self):
        return self.mb
