#!/usr/bin/env python3
"""seeds.py DIRECTORY: writes first inputs for each fuzz target into DIRECTORY/TARGET.

From the golden frames of tests/golden, and what a person would try first. Fuzzing goes on from these and
from tests/fuzz/corpus, which was grown out of them.
"""

import os
import struct
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
FRAMES = os.path.join(ROOT, "tests/golden/frames/v1")
HEADER_BYTES = 16  # of a frame: lib/docs/WIRE.md
BATCH, START_AT = 2, 33
FITTING = 0xC0  # fuzz_device_frame.cpp
COMMIT, HONEST, WAIT, EMIT, RESTART = 0x80, 0x84, 0x80, 0x83, 0x85


def step(kind, data=b""):
    return struct.pack("<BH", kind, len(data)) + data


def golden():
    """{name: (kind, body)}"""
    out = {}
    for name in sorted(os.listdir(FRAMES)):
        with open(os.path.join(FRAMES, name), "rb") as f:
            frame = f.read()
        out[name[: -len(".bin")]] = (frame[6], frame[HEADER_BYTES:])
    return out


def event(extra):
    return ('{"event_type":"t.v1","aggregate_type":"sensor","aggregate_id":"a"%s}' % extra).encode()


def seeds():
    """(target, name, bytes)"""
    frames = golden()
    hello = step(*frames["hello"])
    for name, (kind, body) in frames.items():
        if kind == BATCH:  # the first of its stream
            body = body[:START_AT] + b"\1" + body[START_AT + 1 :]
        yield "gateway_frame", name, hello + step(kind, body) + step(COMMIT) + step(kind, body)
        yield "device_frame", name, step(kind | FITTING, body)
        yield "device_frame", name + "_later", step(HONEST) + step(kind | FITTING, body) + step(HONEST) * 3
    yield "gateway_frame", "raw", step(0, b"HFST")
    yield "device_frame", "honest", (step(HONEST) * 6 + step(EMIT) + step(HONEST) * 2 + step(RESTART) + step(HONEST) * 4)
    for number, extra in enumerate(
        [
            "",
            ',"payload":{"celsius":71.5,"tags":[1,-2.5e3,true,null]}',
            ',"payload_base64":"AP8=","lane":1,"ttl_ms":60000',
            ',"payload":"\\u00e9\\ud83d\\ude00\\n","headers":{"site":"north"},"aggregate_version":3',
            ',"event_id":"01a23a49-2014-7b0d-9f35-190ae396f422","created_at":1796274200596,"lane":"urgent"',
            ',"trace":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","content_type":"text/plain"',
            ',"seq":5,"source":"x","status":"RETRY","last_error":"no","payload":"p"',
        ]
    ):
        yield "event_json", str(number), event(extra) + b"\n" + event(extra)
    urls = "tcp://gateway.example:7447 tls+tcp://[::1]:7447 ipc:///run/holdfast.sock inproc://name tcp://127.0.0.1:0 tcp://:1"
    for number, url in enumerate(urls.split()):
        yield "url", str(number), url.encode()
    options = [["250ms", "1.5h", "7d", "0", "2w"], ["4096", "1.5M", "1GiB"], ["urgent", "-42", "RETRY"]]
    options += [["01a23a49-2014-7b0d-9f35-190ae396f422"], ["AP8=", "abcd"], ["é😀\x7f"], ['{"a":{"b":[1,"x"]}}']]
    for which, texts in enumerate(options):
        for number, text in enumerate(texts):
            yield "options", f"{which}-{number}", bytes([which]) + text.encode()
    changes = {
        "none": b"",
        "bytes": struct.pack("<BBHB", 0, 3, 8, 4) + b"\xff" * 4,
        "truncate": struct.pack("<BBH", 1, 20, 100),
        "page": struct.pack("<BBB", 2, 5, 9),
        "zero": struct.pack("<BB", 3, 7),
        "wal": struct.pack("<BBHB", 4, 2, 0, 4) + b"\x0d\0\0\x02\0",
        "wal_bytes": struct.pack("<BBHBB", 4, 2, 0, 0, 0) + struct.pack("<BBHB", 5, 0, 40, 4) + b"\1\2\3\4",
        "cell": struct.pack("<BBBBBB", 6, 7, 2, 3, 2, 3),
        "row": struct.pack("<BB", 7, 5) + b"\1\1" * 12,
        "schema": struct.pack("<BBHBB", 8, 9, 20, 4, 4) + b"text",
    }
    for version in (0, 3):
        for what in range(6):
            for name, change in changes.items():
                yield "database", f"{version}-{what}-{name}", bytes([version, what]) + change


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for target, name, data in seeds():
        folder = os.path.join(sys.argv[1], target)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "seed-" + name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
