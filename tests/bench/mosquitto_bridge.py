"""Mosquitto: a broker on the device, bridged to a second one at QoS 1."""

import contextlib
import os
import re
import socket
import subprocess
import time

import disk
from peer import PAYLOAD, Done, Failed, Peer, Server, free_port, load, need

TOPIC = b"events/boiler"
ARRIVE_SECONDS = 20  # until the first arrives: the bridge tries to connect now and then
QUIET_SECONDS = 5    # nothing arrives for so long: that was all
INFLIGHT = 1000      # unacknowledged messages of the bridge; the default, 20, is slower


def text(bytes_):
    return len(bytes_).to_bytes(2, "big") + bytes_


def packet(kind, body):
    length, out = len(body), b""
    while True:
        length, digit = divmod(length, 128)
        out += bytes([digit | (0x80 if length else 0)])
        if not length:
            return bytes([kind]) + out + body


def connect(client):
    return packet(0x10, text(b"MQTT") + b"\x04\x02\x00\x00" + text(client))  # 3.1.1, clean, no keep-alive


PUBLISH = packet(0x32, text(TOPIC) + b"\x00\x01" + PAYLOAD)  # QoS 1, packet 1
RECEIVED_BYTES = len(packet(0x30, text(TOPIC) + PAYLOAD))    # by a subscriber at QoS 0


class Subscriber:
    """Counts what the second broker has."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), ARRIVE_SECONDS)
        self.socket.sendall(connect(b"counter") + packet(0x82, b"\x00\x01" + text(b"events/#") + b"\x00"))
        self.answer(4 + 5)  # CONNACK, SUBACK

    def answer(self, size):
        while size > 0:
            got = self.socket.recv(size)
            if not got:
                raise Failed("mosquitto closed the connection")
            size -= len(got)

    def receive(self, wanted):
        """(events, seconds from the first to the last); fewer than `wanted` if no more come."""
        size, first, last = 0, None, None
        try:
            while size < wanted * RECEIVED_BYTES:
                got = len(self.socket.recv(1 << 20))
                if not got:
                    raise Failed("mosquitto closed the connection")
                size, last = size + got, time.monotonic()
                first = first or last
                self.socket.settimeout(QUIET_SECONDS)
        except TimeoutError:
            pass
        return size // RECEIVED_BYTES, (last or 0) - (first or 0)

    def close(self):
        self.socket.close()


class MosquittoBridge(Peer):
    drain_to = "to a second Mosquitto with persistence, which acknowledges before it is on its disk"
    source = "https://mosquitto.org/man/mosquitto-conf-5.html (autosave_interval, autosave_on_changes)"
    autosave = ""
    inflight = INFLIGHT

    def __init__(self):
        self.device = self.upstream = None
        self.folder = ""
        self.taken = self.upstream_port = 0

    def check(self):
        need("mosquitto")

    def version(self):
        done = subprocess.run(["/usr/sbin/mosquitto", "-h"], capture_output=True, text=True, check=False)
        return re.search(r"version ([\d.]+)", done.stdout)[1]

    def broker(self, name, port, extra):
        """A broker with its own settings and store, as the user who runs this."""
        store = os.path.join(self.folder, name, "")
        os.makedirs(store, exist_ok=True)
        settings = os.path.join(self.folder, name + ".conf")
        user = "user root\n" if os.geteuid() == 0 else ""
        with open(settings, "w", encoding="utf-8") as file:
            file.write(f"listener {port} 127.0.0.1\nallow_anonymous true\n{user}persistence true\n"
                       f"persistence_location {store}\nmax_queued_messages 0\n"
                       f"max_inflight_messages {self.inflight}\n{extra}")
        return Server(self.folder, name, "mosquitto", "-c", settings, port=port)

    def start(self, folder):
        self.folder, self.taken, self.upstream_port = folder, 0, free_port()
        self.start_device()

    def start_device(self):
        self.device = self.broker("device", free_port(), self.autosave + (
            f"connection upstream\naddress 127.0.0.1:{self.upstream_port}\ntopic events/# out 1\n"
            "cleansession false\nrestart_timeout 1\nnotifications false\nlocal_clientid bridge\n"))

    def stop(self):
        for each in (self.device, self.upstream):
            if each:
                each.stop()

    def put(self, connections, seconds=0, count=0):
        done = load(self.device.port, connections, seconds, count, PUBLISH, "bytes:4", b"\x40\x02",
                    (connect(b"c%%%%"), "bytes:4"))
        self.taken += done.events
        return done

    def drain(self):
        self.upstream = self.broker("upstream", self.upstream_port, "")
        with contextlib.closing(Subscriber(self.upstream.port)) as subscriber:
            events, seconds = subscriber.receive(self.taken)
        if events != self.taken:
            raise Failed(f"{events} of {self.taken} events arrived at the second broker")
        return Done(events, seconds)

    def recover(self, folder):
        """What the device's broker still has it sends to the second one at once."""
        self.folder, self.upstream_port = folder, free_port()
        self.upstream = self.broker("upstream", self.upstream_port, "")
        with contextlib.closing(Subscriber(self.upstream.port)) as subscriber:
            self.start_device()
            return subscriber.receive(self.cut_events)[0]

    def written(self):
        return disk.write_bytes(self.device.pid)

    def resident_mb(self):
        return disk.resident_mb(self.device.pid)


class MosquittoDefault(MosquittoBridge):
    name, title = "mosquitto", "Mosquitto bridge, default autosave"
    loss = "what came since the last save: at most the 30 minutes of autosave_interval"


class MosquittoEveryChange(MosquittoBridge):
    name, title = "mosquitto-autosave-1", "Mosquitto bridge, autosave on every change"
    autosave = "autosave_on_changes true\nautosave_interval 1\n"
    loss = "not stated; the whole store is written anew for each message"
    cut_events = 300     # each costs a whole store
    fill_events = 0      # what its three figures of input left
