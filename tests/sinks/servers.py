"""Real servers for the sinks, on loopback, each in a folder of its own and ended with the test."""

import contextlib
import glob
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.path.insert(0, os.path.join(SOURCE, "tests/bench"))
from nats_stream import Connection  # noqa: E402
from peer import START_SECONDS, Failed, Server, Skipped, free_port, need, output  # noqa: E402,F401


class Postgres:
    """A cluster; the role `guarded` needs its password, the others none."""

    def __init__(self, folder):
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not programs:
            raise Skipped("postgresql is not installed")
        self.programs, self.folder, self.port = programs[-1], os.path.join(folder, "postgres"), free_port()
        os.mkdir(self.folder)
        self.user = []
        if os.geteuid() == 0:  # which postgres refuses to be
            owner = pwd.getpwnam("postgres")
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self.user = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
        self.data = os.path.join(self.folder, "data")
        output(*self.user, f"{self.programs}/initdb", "-D", self.data, "-U", "test", "--encoding=UTF8",
               "--locale=C", "--no-sync", cwd=self.folder)
        with open(f"{self.data}/pg_hba.conf", "w", encoding="utf-8") as file:
            file.write("host all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
        self.server = None
        self.start()

    def start(self):
        command = [*self.user, "--pdeathsig", "KILL"] if self.user else ["setpriv", "--pdeathsig", "KILL"]
        self.server = Server(self.folder, "server", *command, f"{self.programs}/postgres", "-D", self.data,
                             "-p", str(self.port), "-k", self.folder, "-h", "127.0.0.1", port=self.port)
        self.wait_ready()

    def wait_ready(self):
        """It listens before it answers, and also after the end of a backend it begins anew."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(Failed):
                if self.rows("SELECT 1") == ["1"]:
                    return
            time.sleep(0.05)
        raise Failed(f"postgres does not answer: {self.server.last_words()}")

    def kill(self):
        """kill -9 of all of it, as the children do not end with the first process."""
        children = output("pgrep", "-P", str(self.server.pid)).split()
        self.server.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), 9)

    def backends(self):
        return [int(pid) for pid in self.rows(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'")]

    def stop(self):
        self.server.process.send_signal(3)  # SIGQUIT: at once
        self.server.process.wait()

    @property
    def url(self):
        return f"postgres://test@127.0.0.1:{self.port}/postgres"

    def rows(self, sql):
        return output("psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", "test", "-d", "postgres",
                      "-c", sql, env={**os.environ, "PGPASSWORD": "secret"}).splitlines()


class Configured:
    """A server that one file of settings is all of."""

    def __init__(self, folder, program, settings):
        self.folder, self.program, self.settings = folder, program, os.path.join(folder, program + ".conf")
        with open(self.settings, "w", encoding="utf-8") as file:
            file.write(settings)
        self.server = None
        self.start()

    def start(self):
        self.server = Server(self.folder, self.program, self.program, "-c", self.settings, port=self.port)

    def kill(self):
        self.server.kill()

    def stop(self):
        self.server.stop()


class Nats(Configured):
    def __init__(self, folder, extra=""):
        need("nats-server")
        self.port = free_port()
        super().__init__(folder, "nats-server",
                         f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{folder}/nats" }}\n{extra}')

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def ask(self, subject, **body):
        with contextlib.closing(Connection(self.port)) as connection:
            return connection.ask(subject, **body)

    def count(self, stream="EVENTS"):
        return self.ask("STREAM.INFO." + stream)["state"]["messages"]

    def message(self, seq, stream="EVENTS"):
        return self.ask("STREAM.MSG.GET." + stream, seq=seq)["message"]


class Mosquitto(Configured):
    def __init__(self, folder, extra="allow_anonymous true\n"):
        need("mosquitto", "mosquitto_sub")
        self.port = free_port()
        user = "user root\n" if os.geteuid() == 0 else ""
        super().__init__(folder, "mosquitto", f"listener {self.port} 127.0.0.1\n{user}max_queued_messages 0\n{extra}")

    @property
    def url(self):
        return f"mqtt://127.0.0.1:{self.port}"


class Subscriber:
    """mosquitto_sub into a file, a JSON object a line; it connects again by itself."""

    def __init__(self, broker, topic="#"):
        self.path = os.path.join(broker.folder, f"subscriber{free_port()}")
        with open(self.path, "wb") as file:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", shutil.which("mosquitto_sub"), "-V", "5", "-q", "1", "-h",
                 "127.0.0.1", "-p", str(broker.port), "-t", topic, "-F", "%j"], stdout=file)

    def messages(self):
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def stop(self):
        self.process.kill()
        self.process.wait()


def silent_port():
    """A socket that accepts and says nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, listener.getsockname()[1]
