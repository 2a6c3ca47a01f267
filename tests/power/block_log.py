#!/usr/bin/env python3
"""L4: power is cut between any two block writes, and the drive loses what it had not flushed.

One run of the device is recorded: the file system's every write and flush, with the promises made
in between, in one ordered log. Then, for every prefix of the log, the images that a drive with a
volatile cache may leave are built (of the writes after the last flush: none, all, some), mounted
and judged. Two controls lose acknowledged rows: a mount without barriers, and an application with
synchronous NORMAL.

A failure keeps its log and prints the command that replays that one cut."""
import os
import random
import struct
import subprocess
import sys
import time

import cuts

IMAGE_MIB = 16
SECTOR = 512
WRITE, FLUSH, ACK = 1, 2, 3
HEADER = struct.Struct("=IIQ")
VARIANTS = ("none", "all", "some 1", "some 2")
# Often enough that the short run has checkpoints in it as well.
CHECKPOINT_FRAMES = 60
LOGGER = os.path.join(cuts.BUILD, "tests/holdfast_block_log")


def parse_log(data):
    records, at = [], 0
    while at < len(data):
        kind, size, offset = HEADER.unpack_from(data, at)
        at += HEADER.size
        records.append((kind, offset, data[at:at + size]))
        at += size
    return records


def record(folder, seed, transactions, mount_options, relaxed):
    """Runs the device once; returns the image before it and the log up to its last promise."""
    image, base, log, fuse = (os.path.join(folder, name) for name in ("image", "base", "log", "fuse"))
    cuts.make_image(image, IMAGE_MIB)
    cuts.run("cp", "--sparse=always", image, base)
    os.makedirs(fuse, exist_ok=True)
    logger = subprocess.Popen([LOGGER, image, log, fuse])
    try:
        disk = os.path.join(fuse, "disk")
        while not os.path.exists(disk):
            if logger.poll() is not None:
                cuts.skip("FUSE cannot be mounted here (/dev/fuse)")
            time.sleep(0.01)
        with cuts.mounted(disk, os.path.join(folder, "recorded"), mount_options):
            cuts.run(cuts.DEVICE, "write", os.path.join(folder, "recorded/app.db"),
                     "--seed", str(seed), "--count", str(transactions),
                     "--ack", os.path.join(fuse, "ack"),
                     "--checkpoint-frames", str(CHECKPOINT_FRAMES), *(["--relaxed"] if relaxed else []))
            with open(log, "rb") as file:
                data = file.read()
    finally:
        subprocess.run(["umount", fuse], check=False)
        logger.wait()
    with open(log, "wb") as file:
        file.write(data)
    return base, log


class Drive:
    """A drive's content, and a sum over its sectors that tells equal contents cheaply."""

    def __init__(self, base):
        self.bytes = bytearray(base)
        self.sum = 0

    def put(self, offset, data):
        """Writes; returns what undoes it."""
        old = bytes(self.bytes[offset:offset + len(data)])
        for at in range(0, len(data), SECTOR):
            before, after = old[at:at + SECTOR], data[at:at + SECTOR]
            if before != after:
                self.sum ^= hash((offset + at, before)) ^ hash((offset + at, after))
        self.bytes[offset:offset + len(data)] = data
        return offset, old


class Replay:
    def __init__(self, folder, base, log, seed, mount_options, tally):
        self.folder, self.seed, self.mount_options, self.tally = folder, seed, mount_options, tally
        with open(base, "rb") as file:
            self.base = file.read()
        with open(log, "rb") as file:
            self.records = parse_log(file.read())
        self.verdicts = {}
        self.repaired = []
        self.failed = None  # the first (prefix, variant)

    def chosen(self, pending, prefix, variant):
        """What of the unflushed writes reached the medium, sector by sector."""
        if variant == 0:
            return []
        if variant == 1:
            return pending
        dice = random.Random(f"{self.seed}/{prefix}/{variant}")
        share = dice.choice((0.1, 0.5, 0.9))
        return [(offset + at, data[at:at + SECTOR]) for offset, data in pending
                for at in range(0, len(data), SECTOR) if dice.random() < share]

    def judge(self, drive, torn):
        verdict = self.verdicts.get(drive.sum)
        if verdict is None:
            image = os.path.join(self.folder, "cut")
            with open(image, "wb") as file:
                file.write(drive.bytes)
            # ext4's superblock is two sectors with one checksum: torn, it needs e2fsck.
            verdict = cuts.judge_image(image, os.path.join(self.folder, "mnt"), self.seed,
                                       self.mount_options, self.repaired if torn else None)
            self.verdicts[drive.sum] = verdict
        return verdict

    def cut(self, drive, pending, prefix, variant, acked):
        undo = [drive.put(*write) for write in self.chosen(pending, prefix, variant)]
        found, problem = self.judge(drive, torn=variant >= 2)
        for write in reversed(undo):
            drive.put(*write)
        where = f"cut {prefix}/{variant} ({VARIANTS[variant]} of {len(pending)} unflushed writes)"
        if not self.tally.add(where, acked, found, problem, begun=acked + 1) and not self.failed:
            self.failed = (prefix, variant)

    def go(self, prefixes, variants, until, enough=None):
        """Cuts after each of these prefixes, which are in rising order."""
        drive, pending, acked, done = Drive(self.base), [], -1, 0
        for prefix in prefixes:
            for kind, offset, data in self.records[done:prefix]:
                if kind == WRITE:
                    pending.append((offset, data))
                elif kind == FLUSH:
                    for write in pending:
                        drive.put(*write)
                    pending = []
                else:
                    acked = int(data.split()[1])
            done = prefix
            for variant in variants:
                if time.monotonic() > until or (enough and self.tally.lost >= enough):
                    return False
                self.cut(drive, pending, prefix, variant, acked)
        return True

    def all(self, until, enough=None):
        """Every prefix, in seeded order: spread over the whole run whenever time is up."""
        prefixes = list(range(len(self.records) + 1))
        random.Random(self.seed).shuffle(prefixes)
        step = 50
        for at in range(0, len(prefixes), step):
            if not self.go(sorted(prefixes[at:at + step]), range(len(VARIANTS)), until, enough):
                return False
        return True


def campaign(name, seed, transactions, seconds, mount_options="", relaxed=False, enough=None):
    """One recorded run and its cuts. Returns the tally."""
    with cuts.workshop() as folder:
        base, log = record(folder, seed, transactions, mount_options, relaxed)
        tally = cuts.Tally(name, seed)
        replay = Replay(folder, base, log, seed, mount_options, tally)
        complete = replay.all(time.monotonic() + seconds, enough)
        tally.report(f", {len(replay.verdicts)} unique images of {len(replay.records)} log records, "
                     f"{len(replay.repaired)} by e2fsck{', complete' if complete else ''}")
        if enough is None and not tally.clean():
            kept = cuts.keep(name, base, log)
            print(f"replay: {sys.executable} {os.path.abspath(__file__)} --seed {seed} "
                  f"--replay {kept} --cut {replay.failed[0]}/{replay.failed[1]}")
        return tally


def control(name, seed, seconds, **how):
    tally = campaign(name, seed, 40, seconds, enough=5, **how)
    if tally.lost == 0:
        print(f"{name}: lost nothing, so this test would not notice a loss")
    return tally.lost > 0


def replay_one(folder, seed, cut):
    prefix, variant = map(int, cut.split("/"))
    with cuts.workshop() as scratch:
        tally = cuts.Tally("replay", seed)
        replay = Replay(scratch, f"{folder}/base", f"{folder}/log", seed, "", tally)
        replay.go([prefix], [variant], time.monotonic() + 3600)
        print(f"{'ok' if tally.clean() else 'lost'}: {tally.first or cut}")
        return tally.clean()


def add_options(parser):
    parser.add_argument("--transactions", type=int, help="of each recorded run")
    parser.add_argument("--replay", metavar="FOLDER", help="a kept base and log")
    parser.add_argument("--cut", metavar="PREFIX/VARIANT", help="with --replay: this one")


def main():
    cuts.enter_namespace()
    chosen = cuts.options(__doc__.split("\n", 1)[0], add_options)
    if not os.path.exists(LOGGER):
        cuts.skip("built without libfuse3 (apt-get install fuse3 libfuse3-dev, then configure again)")
    with cuts.workshop() as folder:
        cuts.need_loop_mount(folder)
    if chosen.replay:
        return replay_one(chosen.replay, chosen.seed, chosen.cut)
    print(f"seed {chosen.seed}", flush=True)
    ok = control("block_log control nobarrier", chosen.seed, 30, mount_options=",barrier=0")
    ok &= control("block_log control NORMAL", chosen.seed, 30, relaxed=True)
    until = time.monotonic() + (25 if chosen.short else chosen.seconds)
    seed, transactions = chosen.seed, chosen.transactions or (40 if chosen.short else 400)
    while ok and time.monotonic() < until:
        ok = campaign("block_log", seed, transactions, until - time.monotonic()).clean()
        seed += 1
    return ok


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
