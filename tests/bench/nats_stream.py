"""NATS JetStream: a stream in files, read by a durable pull consumer."""

import contextlib
import json
import os
import re
import socket
import time

from peer import PAYLOAD, PAYLOAD_BYTES, Done, Failed, Server, ServerPeer, free_port, load, need, output

STREAM, SUBJECT, CONSUMER, BATCH = "EVENTS", "events.boiler", "relay", 1000
TIMEOUT_SECONDS = 60
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
# A message of the stream: its "reply to" is where it is acknowledged.
MESSAGE = re.compile(rb"MSG \S+ \d+ (\S+) %d\r\n.{%d}\r\n" % (PAYLOAD_BYTES, PAYLOAD_BYTES), re.S)


class Connection:
    """What the drain needs of the NATS protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or each second send waits 40 ms
        self.buffer = b""
        self.socket.sendall(CONNECT + b"SUB inbox 1\r\nPING\r\n")
        self.until(b"PONG\r\n")

    def close(self):
        self.socket.close()

    def more(self):
        got = self.socket.recv(1 << 20)
        if not got:
            raise Failed("nats-server closed the connection")
        self.buffer += got

    def until(self, end):
        while end not in self.buffer:
            self.more()
        text, self.buffer = self.buffer.split(end, 1)
        return text

    def publish(self, subject, body):
        self.socket.sendall(b"PUB %s inbox %d\r\n%s\r\n" % (subject.encode(), len(body), body))

    def ask(self, subject, **body):
        """A request of the JetStream API, answered in JSON."""
        self.publish("$JS.API." + subject, json.dumps(body).encode())
        self.until(b"MSG inbox 1 ")
        self.until(b"\r\n")
        answer = json.loads(self.until(b"\r\n"))
        if "error" in answer:
            raise Failed(f"nats-server answered {answer['error']}")
        return answer

    def batch_replies(self):
        """The acknowledgement addresses of one batch."""
        replies = []
        while len(replies) < BATCH:
            at = 0
            for message in MESSAGE.finditer(self.buffer):
                replies.append(message[1])
                at = message.end()
            self.buffer = self.buffer[at:]
            if self.buffer.startswith(b"HMSG inbox"):  # a status: no (more) messages
                self.until(b"\r\n\r\n\r\n")
                return replies
            if len(replies) < BATCH:
                self.more()
        return replies


class NatsStream(ServerPeer):
    name, title = "nats", "NATS JetStream, file store"
    drain_to = "pulled in batches of 1,000, a batch acknowledged by its last (AckAll); the reader keeps nothing"
    loss = "what came since the last sync: at most the 2 minutes of sync_interval"
    source = "https://docs.nats.io/nats-concepts/jetstream#syncing-data-to-disk"

    def check(self):
        need("nats-server")

    def version(self):
        return re.search(r"v([\d.]+)", output("/usr/sbin/nats-server", "--version"))[1]

    def start(self, folder):
        port = free_port()
        settings = os.path.join(folder, "nats.conf")
        with open(settings, "w", encoding="utf-8") as file:
            file.write(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/store" }}\n')
        self.server = Server(folder, "nats", "nats-server", "-c", settings, port=port)
        with contextlib.closing(Connection(port)) as connection:
            connection.ask("STREAM.CREATE." + STREAM, name=STREAM, subjects=["events.>"], storage="file",
                           retention="limits", num_replicas=1, max_msgs=-1, max_bytes=-1, max_age=0)

    def put(self, connections, seconds=0, count=0):
        return load(self.server.port, connections, seconds, count,
                    b"PUB %s in.%%%%%%%% %d\r\n%s\r\n" % (SUBJECT.encode(), PAYLOAD_BYTES, PAYLOAD),
                    "lines:2", b'"seq"', (CONNECT + b"SUB in.%%%% 1\r\nPING\r\n", "lines:2"))

    def drain(self):
        with contextlib.closing(Connection(self.server.port)) as connection:
            connection.ask(f"CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}", stream_name=STREAM,
                           config={"durable_name": CONSUMER, "ack_policy": "all", "deliver_policy": "all",
                                   "max_ack_pending": 16 * BATCH})
            pull = json.dumps({"batch": BATCH, "no_wait": True}).encode()
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}"
            start, events = time.monotonic(), 0
            connection.publish(subject, pull)
            connection.publish(subject, pull)  # one is on the way while the other is read
            while replies := connection.batch_replies():
                connection.socket.sendall(b"PUB %s 4\r\n+ACK\r\n" % replies[-1])
                connection.publish(subject, pull)
                events += len(replies)
            return Done(events, time.monotonic() - start)

    def count(self):
        with contextlib.closing(Connection(self.server.port)) as connection:
            return connection.ask("STREAM.INFO." + STREAM)["state"]["messages"]
