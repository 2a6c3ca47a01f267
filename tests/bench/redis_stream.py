"""Redis: a stream with a consumer group, its append-only file synced always or once a second."""

import contextlib
import os
import re
import socket
import time

from peer import PAYLOAD, Done, Failed, Server, ServerPeer, free_port, load, need, output

# Debian's redis-tools has the server's code as redis-check-rdb, which goes by its own name: so
# nothing needs the package that starts a service.
PROGRAM = "redis-check-rdb"
STREAM, GROUP, BATCH = b"events", b"relay", 1000
TIMEOUT_SECONDS = 60
ENTRY_LINES = 8  # *2 $len id *2 $len field $len payload; nothing of it has line ends inside


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Connection:
    """What the drain needs of Redis's protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self.buffer = b""

    def close(self):
        self.socket.close()

    def more(self):
        got = self.socket.recv(1 << 20)
        if not got:
            raise Failed("redis closed the connection")
        self.buffer += got

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        if line[:1] == b"-":
            raise Failed(f"redis answered {line.decode()}")
        return line

    def ask(self, *words):
        self.socket.sendall(command(*words))
        return self.line()

    def batch_ids(self):
        """Ids of the next XREADGROUP's answer: an array [[stream, [[id, [field, value]]…]]], or nil."""
        if self.line() in (b"*-1", b"$-1"):
            return []
        for _ in range(3):  # *2, $len, the stream's name
            self.line()
        count = int(self.line()[1:])
        while self.buffer.count(b"\r\n") < ENTRY_LINES * count:
            self.more()
        lines = self.buffer.split(b"\r\n", ENTRY_LINES * count)
        self.buffer = lines.pop()
        return lines[2::ENTRY_LINES]


class RedisStream(ServerPeer):
    drain_to = "read by a consumer group in batches of 1,000 and acknowledged (XACK); the reader keeps nothing"
    source = "https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/"
    policy = ""

    def check(self):
        need(PROGRAM)

    def version(self):
        return re.search(r"[\d.]+", output("redis-cli", "--version"))[0]

    def start(self, folder):
        port = free_port()
        # The name in argv[0] makes it the server; setpriv passes the path, so a link has that name.
        program = os.path.join(folder, "redis-server")
        with contextlib.suppress(FileExistsError):
            os.symlink(f"/usr/bin/{PROGRAM}", program)
        self.server = Server(folder, "redis", "redis-server", "--bind", "127.0.0.1", "--port", str(port),
                             "--dir", folder, "--appendonly", "yes", "--appendfsync", self.policy,
                             "--save", "", "--daemonize", "no", port=port, executable=program)
        self.wait_loaded()

    def wait_loaded(self):
        until = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                return self.count()
            except Failed as error:
                if "LOADING" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def put(self, connections, seconds=0, count=0):
        return load(self.server.port, connections, seconds, count,
                    command(b"XADD", STREAM, b"*", b"p", PAYLOAD), "lines:2", b"$")

    def drain(self):
        connection = Connection(self.server.port)
        with contextlib.closing(connection):
            connection.ask(b"XGROUP", b"CREATE", STREAM, GROUP, b"0")
            read = command(b"XREADGROUP", b"GROUP", GROUP, b"c", b"COUNT", b"%d" % BATCH, b"STREAMS", STREAM, b">")
            start, events = time.monotonic(), 0
            connection.socket.sendall(read)
            while ids := connection.batch_ids():
                connection.socket.sendall(command(b"XACK", STREAM, GROUP, *ids) + read)
                events += int(connection.line()[1:])
            return Done(events, time.monotonic() - start)

    def count(self):
        with contextlib.closing(Connection(self.server.port)) as connection:
            return int(connection.ask(b"XLEN", STREAM)[1:])


class RedisAlways(RedisStream):
    name, title, policy = "redis-always", "Redis stream, appendfsync always", "always"
    loss = "nothing that was acknowledged"


class RedisEverySecond(RedisStream):
    name, title, policy = "redis-everysec", "Redis stream, appendfsync everysec", "everysec"
    loss = "the last second, or two"
