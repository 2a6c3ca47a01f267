#!/usr/bin/env python3
"""L6: the virtual machine is killed at a random moment and boots again on the same disk. The program
itself, as the first process of the next boot, judges what is there, runs the shipped `holdfast`, and
goes on where it was: recovery by the guest's own kernel and drivers, cut after cut on one database.

virt has a virtio disk, raspi3b an SD card. The control (synchronous NORMAL) loses acknowledged
rows. A failure keeps the disk as the killed machine left it, and prints what had been promised."""
import os
import random
import sys
import time

import cuts
import machine

IMAGE_MIB = 64
BOOT_SECONDS = 240
# A life is cut during recovery, or after so many promises: an SD card makes a few in a second.
EARLY_SHARE, EARLY_SECONDS_MAX = 0.2, 0.3
PROMISES_MAX, RUN_SECONDS_MAX = 150, 10
BOOTS_PER_DISK = 25


def boot_and_kill(board, disk, seed, dice, relaxed):
    """One life of the machine, from power on to the cut. Returns the dead machine."""
    with board.start(disk, seed, relaxed) as guest:
        if dice.random() < EARLY_SHARE:
            if guest.wait(lambda: "booted" in guest.lines, BOOT_SECONDS):
                time.sleep(dice.uniform(0, EARLY_SECONDS_MAX))
        elif guest.wait(lambda: guest.ready, BOOT_SECONDS):
            enough, until = dice.randint(0, PROMISES_MAX), time.monotonic() + RUN_SECONDS_MAX
            while guest.promises < enough and time.monotonic() < until and guest.listen():
                time.sleep(0.002)
            time.sleep(dice.uniform(0, 0.05))
    return guest


def one_disk(board, seed, tally, until, relaxed, enough):
    """A new disk and its lives. False once there is nothing more to do."""
    dice = random.Random(seed)
    disk, before = (os.path.join(board.folder, name) for name in ("disk", "before"))
    cuts.make_image(disk, IMAGE_MIB)
    acked = -1
    for life in range(BOOTS_PER_DISK + 1):
        if time.monotonic() > until or (enough and tally.lost >= enough):
            return False
        cuts.run("cp", "--sparse=always", disk, before)
        guest = boot_and_kill(board, disk, seed, dice, relaxed)
        judged = guest.ready or guest.problem  # else it was cut before it could tell
        if judged and life > 0 and not tally.add(f"disk {seed} life {life}", acked, guest.found,
                                                 guest.problem):
            if not enough:
                kept = cuts.keep(f"reboot-{board.kind}", before)
                print(f"replay: {sys.executable} {os.path.join(cuts.HERE, 'freeze.py')} --seed {seed} "
                      f"--acked {acked} --replay {kept}/before")
                return False
            acked = -1  # the control goes on with what is left
        elif life == 0 and guest.problem:
            raise RuntimeError(f"{board.kind} does not start: {guest.problem}")
        acked = max(acked, guest.acked)
    return True


def campaign(kind, seed, seconds, relaxed=False, enough=None):
    with cuts.workshop() as folder:
        board = machine.Board(kind, folder)
        tally = cuts.Tally(f"reboot {kind}{' control NORMAL' if relaxed else ''}", seed)
        until = time.monotonic() + seconds
        while one_disk(board, seed, tally, until, relaxed, enough):
            seed += 1
        tally.report()
        if tally.cuts == 0:
            raise RuntimeError(f"{kind}: not one cut in {seconds:.0f} s")
        return tally


def control(kind, seed, seconds):
    tally = campaign(kind, seed, seconds, relaxed=True, enough=2)
    if tally.lost == 0:
        print(f"{tally.name}: lost nothing, so this test would not notice a loss")
    return tally.lost > 0


def add_options(parser):
    parser.add_argument("--machine", choices=sorted(machine.MACHINES), action="append",
                        help="default: virt and raspi3b")


def main():
    cuts.enter_namespace()
    chosen = cuts.options(__doc__.split("\n", 1)[0], add_options)
    print(f"seed {chosen.seed}", flush=True)
    kinds = chosen.machine or ["virt", "raspi3b"]
    machine.need(kinds)
    ok = True
    for kind in kinds:
        ok &= control(kind, chosen.seed, 300)
        ok &= campaign(kind, chosen.seed, chosen.seconds / len(kinds)).clean()
    return ok


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
