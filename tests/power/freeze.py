#!/usr/bin/env python3
"""L5: a virtual machine runs the device; again and again it is stopped in its tracks, its disk is
copied, and it runs on. Each copy is what a power cut at that instant leaves of everything the guest
kernel had in memory; it is mounted and judged against what the console had promised by then.

The control (synchronous NORMAL) loses acknowledged rows. Seeds fix the pauses, not the instants: a
guest under TCG has no exact clock. A failure therefore keeps its disk, which replays exactly."""
import contextlib
import json
import os
import random
import socket
import sys
import time

import cuts
import machine

IMAGE_MIB = 32
CUTS_PER_BOOT = 100
BOOT_SECONDS = 180
PAUSE_SECONDS_MAX = 0.04


class Monitor:
    """QEMU's control socket (QMP)."""

    def __init__(self, connected):
        self.file = connected.makefile("rw")
        self.file.readline()  # the greeting
        self.command("qmp_capabilities")

    def command(self, name):
        self.file.write(json.dumps({"execute": name}) + "\n")
        self.file.flush()
        while True:
            answer = json.loads(self.file.readline())
            if "error" in answer:
                raise RuntimeError(f"{name}: {answer['error']}")
            if "return" in answer:
                return


@contextlib.contextmanager
def frozen(guest, monitor):
    """The guest stands still inside; gives what it had promised by then."""
    monitor.command("stop")
    guest.listen()
    yield guest.acked
    monitor.command("cont")


def judge_disk(disk, folder, seed):
    copy = os.path.join(folder, "copy")
    cuts.run("cp", "--sparse=always", disk, copy)
    return cuts.judge_image(copy, os.path.join(folder, "mnt"), seed)


def round_of_cuts(board, seed, tally, until, relaxed, enough):
    """One boot from an empty disk, and its cuts. False once there is nothing more to do."""
    dice = random.Random(seed)
    disk = os.path.join(board.folder, "disk")
    ours, theirs = socket.socketpair()
    cuts.make_image(disk, IMAGE_MIB)
    with ours, theirs, board.start(disk, seed, relaxed, theirs) as guest:
        # From here on its every step, the making of the database too, is cut.
        if not guest.wait(lambda: "booted" in guest.lines, BOOT_SECONDS):
            raise RuntimeError(f"{board.kind} does not boot: {guest.problem}")
        monitor = Monitor(ours)
        for number in range(CUTS_PER_BOOT):
            if (tally.cuts and time.monotonic() > until) or (enough and tally.lost >= enough):
                return False
            time.sleep(dice.uniform(0.0, PAUSE_SECONDS_MAX))
            with frozen(guest, monitor) as acked:
                found, problem = judge_disk(disk, board.folder, seed)
                whole = tally.add(f"boot {seed} cut {number}", acked, found, problem or guest.problem)
                if not whole and not enough:
                    kept = cuts.keep(f"freeze-{board.kind}", disk)
                    print(f"replay: {sys.executable} {os.path.abspath(__file__)} --seed {seed} "
                          f"--acked {acked} --replay {kept}/disk")
                    return False
    return True


def campaign(kind, seed, seconds, cut_limit=None, relaxed=False, enough=None):
    with cuts.workshop() as folder:
        board = machine.Board(kind, folder)
        tally = cuts.Tally(f"freeze {kind}{' control NORMAL' if relaxed else ''}", seed)
        until = time.monotonic() + seconds
        while round_of_cuts(board, seed, tally, until, relaxed, enough):
            seed += 1
            if cut_limit and tally.cuts >= cut_limit:
                break
        tally.report()
        if tally.cuts == 0:
            raise RuntimeError(f"{kind}: not one cut in {seconds:.0f} s")
        return tally


def control(kind, seed, seconds):
    tally = campaign(kind, seed, seconds, relaxed=True, enough=3)
    if tally.lost == 0:
        print(f"{tally.name}: lost nothing, so this test would not notice a loss")
    return tally.lost > 0


def replay_one(image, seed, acked):
    with cuts.workshop() as folder:
        tally = cuts.Tally("replay", seed)
        found, problem = judge_disk(image, folder, seed)
        tally.add(image, acked, found, problem)
        print(f"{'ok' if tally.clean() else 'lost'}: acked {acked}, found {found} {problem}")
        return tally.clean()


def add_options(parser):
    parser.add_argument("--machine", choices=("x86", "virt"), action="append", help="default: both")
    parser.add_argument("--replay", metavar="IMAGE", help="a kept disk")
    parser.add_argument("--acked", type=int, help="with --replay: what had been promised")


def main():
    cuts.enter_namespace()
    chosen = cuts.options(__doc__.split("\n", 1)[0], add_options)
    with cuts.workshop() as folder:
        cuts.need_loop_mount(folder)
    if chosen.replay:
        return replay_one(chosen.replay, chosen.seed, chosen.acked)
    print(f"seed {chosen.seed}", flush=True)
    kinds = chosen.machine or (["x86"] if chosen.short else ["x86", "virt"])
    machine.need(kinds)
    seconds = 30 if chosen.short else chosen.seconds / len(kinds)
    ok = True
    for kind in kinds:
        ok &= control(kind, chosen.seed, 120)
        ok &= campaign(kind, chosen.seed, seconds, CUTS_PER_BOOT if chosen.short else None).clean()
    return ok


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
