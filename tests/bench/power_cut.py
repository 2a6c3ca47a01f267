#!/usr/bin/env python3
"""What of 1,000 acknowledged events is left after a power cut, for each system named.

Its data are on ext4 on the block device of tests/power, which logs every write and flush. When the
last event is acknowledged, the power is cut: what was written after the last flush is gone. The
kernel then replays the file system's journal, the system starts again, and the events are counted.

Prints a JSON object per system: name, acked, found; or name, failed. Exit status 77: this machine
cannot do it, and the last line says why. Needs root, FUSE and loop devices."""

import contextlib
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "power"))
import block_log  # noqa: E402
import cuts  # noqa: E402
from peer import Failed, Skipped  # noqa: E402
from systems import by_name  # noqa: E402

IMAGE_MIB = 96
READY_SECONDS = 10


@contextlib.contextmanager
def logged_disk(folder):
    """(the disk, its log): a block device in a file, which remembers."""
    image, log, fuse = (os.path.join(folder, name) for name in ("image", "log", "fuse"))
    os.makedirs(fuse)
    logger = subprocess.Popen([block_log.LOGGER, image, log, fuse])
    try:
        disk, until = os.path.join(fuse, "disk"), time.monotonic() + READY_SECONDS
        while not os.path.exists(disk):
            if logger.poll() is not None or time.monotonic() > until:
                cuts.skip("FUSE cannot be mounted here (/dev/fuse)")
            time.sleep(0.01)
        yield disk, log
    finally:
        subprocess.run(["umount", fuse], check=False)
        logger.wait()


def after_cut(base, log):
    """What is on the medium: all up to the log's last flush."""
    drive, pending = block_log.Drive(base), []
    for kind, offset, data in block_log.parse_log(log):
        if kind == block_log.WRITE:
            pending.append((offset, data))
        elif kind == block_log.FLUSH:
            for write in pending:
                drive.put(*write)
            pending = []
    return drive.bytes


def whole_records(log, size):
    with open(log, "rb") as file:
        return file.read(size)


def cut(peer, folder):
    """(acknowledged, left after the cut)"""
    image, base = os.path.join(folder, "image"), os.path.join(folder, "base")
    cuts.make_image(image, IMAGE_MIB)
    with open(image, "rb") as file:
        base = file.read()
    with logged_disk(folder) as (disk, log):
        with cuts.mounted(disk, os.path.join(folder, "running")) as running:
            try:
                peer.start(running)
                acked = peer.put(1, count=peer.cut_events).events
                records = whole_records(log, os.path.getsize(log))  # the power is cut here
            finally:
                peer.stop()
    with open(image, "wb") as file:
        file.write(after_cut(base, records))
    with cuts.mounted(image, os.path.join(folder, "after")) as after:
        try:
            return acked, peer.recover(after)
        finally:
            peer.stop()


def main():
    cuts.enter_namespace()
    if not os.path.exists(block_log.LOGGER):
        cuts.skip("built without libfuse3 (apt-get install fuse3 libfuse3-dev, then configure again)")
    with cuts.workshop() as folder:
        cuts.need_loop_mount(folder)
    for name in sys.argv[1:]:
        peer = by_name(name)
        with cuts.workshop() as folder:
            try:
                peer.check()
                acked, found = cut(peer, folder)
                print(json.dumps({"name": name, "acked": acked, "found": found}), flush=True)
            except (Failed, Skipped, OSError, RuntimeError) as why:
                print(json.dumps({"name": name, "failed": str(why)}), flush=True)


if __name__ == "__main__":
    main()
