"""One system that is measured beside Holdfast. Each peer has a file of its own, in which a class
says how it is started, filled and emptied; measure.py does the same with each of them."""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import time

import disk

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("HOLDFAST_BUILD", os.path.join(SOURCE, "build/release"))
LOAD = os.path.join(BUILD, "tests/holdfast_bench_load")
PAYLOAD_BYTES = 256
PAYLOAD = (b'{"sensor":"boiler-1","celsius":71.25,"note":"' + b"x" * PAYLOAD_BYTES)[:PAYLOAD_BYTES - 2] + b'"}'
START_SECONDS = 20     # for a server to accept connections
STOP_SECONDS = 20      # after SIGTERM; then SIGKILL
COMMAND_SECONDS = 120  # for a program that loads a server or asks it something


class Skipped(Exception):
    """It is not installed: no failure, and no figure."""


class Failed(Exception):
    """It is there, and did not do what it should."""


@dataclasses.dataclass
class Done:
    """So many events in so much time."""

    events: int
    seconds: float

    @property
    def rate(self):
        return self.events / self.seconds


def need(*programs):
    """Skips, naming the first of these programs that is not installed."""
    for program in programs:
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            raise Skipped(f"{program} is not installed")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def output(*command, seconds=COMMAND_SECONDS, **options):
    """What a command prints. Raises Failed with what it said, if it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{os.path.basename(command[0])}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise Failed(f"{os.path.basename(command[0])}: {said[-1]}")
    return done.stdout


class Server:
    """A process of ours, listening on loopback. The kernel ends it when this script ends, however
    that happens."""

    def __init__(self, folder, name, *command, port, executable=None):
        self.log = os.path.join(folder, name + ".log")
        self.port = port
        # Looked up here, for setpriv does not look into /usr/sbin.
        self.program = executable or shutil.which(command[0], path=os.environ["PATH"] + ":/usr/sbin")
        if not self.program:
            raise Failed(f"{command[0]} is not there")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", self.program, *command[1:]], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=folder)
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self):
        return self.process.pid

    def wait_ready(self):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise Failed(f"{self.program} ended at once: {self.last_words()}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise Failed(f"{self.program} accepts no connection in {START_SECONDS} s: {self.last_words()}")

    def last_words(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else f"exit status {self.process.returncode}"

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()


def load(port, connections, seconds, count, request, answer, expected, greeting=(b"", "bytes:0")):
    """Runs load.cpp, which says what the arguments are."""
    return Done(**json.loads(output(
        LOAD, str(port), str(connections), str(seconds), str(count), greeting[0].hex(), greeting[1],
        request.hex(), answer, expected.hex(), seconds=COMMAND_SECONDS + seconds)))


class Peer:
    """What measure.py and power_cut.py ask of a system. The methods raise Skipped and Failed."""

    name = ""            # on the command line and in results.json
    title = ""           # in the table
    business_row = "no"  # can a business row share the transaction?
    drain_to = ""        # what "taken out and acknowledged" means here
    loss = ""            # what its documentation says that a power cut takes
    source = ""          # where it says so
    connections = (1, 16, 64)
    cut_events = 1000    # acknowledged before the simulated power cut
    fill_events = 50_000  # that wait, at least, before the drain; or as many as it takes in 3 figures' time

    def check(self):
        """Skips if something is not installed."""

    def version(self):
        raise NotImplementedError

    def start(self, folder):
        """Starts it with its data in this folder, which may hold those of an earlier run."""
        raise NotImplementedError

    def stop(self):
        """Ends every process of it. May be called at any time, and twice."""
        raise NotImplementedError

    def put(self, connections, seconds=0, count=0):
        """Events of PAYLOAD_BYTES, each acknowledged before the next of its connection. -> Done"""
        raise NotImplementedError

    def drain(self):
        """Takes out and acknowledges all that waits. -> Done"""
        raise NotImplementedError

    def count(self):
        """How many events it holds."""
        raise NotImplementedError

    def recover(self, folder):
        """Starts it on what a power cut left, and says how many events are there."""
        self.start(folder)
        return self.count()

    def written(self):
        """Bytes written to the disk until now."""
        raise NotImplementedError

    def resident_mb(self):
        raise NotImplementedError


class ServerPeer(Peer):
    """A peer that is one server, in `self.server` once it is started."""

    def __init__(self):
        self.server = None

    def stop(self):
        if self.server:
            self.server.stop()

    def written(self):
        return disk.write_bytes(self.server.pid)

    def resident_mb(self):
        return disk.resident_mb(self.server.pid)
