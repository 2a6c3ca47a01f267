"""What the three drivers share: a private namespace that takes every mount and process with it,
budgets and seeds, ext4 images, the judge, and how a loss is told."""
import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("HOLDFAST_BUILD", os.path.join(SOURCE, "build/release"))
# Guest kernels and kept evidence: outside the build of one preset, as all of them use it.
STORE = os.path.join(SOURCE, "build/power")
WORK = os.path.join(STORE, "work")
DEVICE = os.path.join(BUILD, "tests/holdfast_power")
HOLDFAST = os.environ.get("HOLDFAST_BIN", os.path.join(BUILD, "cli/holdfast"))
SKIPPED = 77
# 4 is "something to worry about": Debian's SQLite, or the control's mount options.
COMMANDS = {"ls": (0,), "stats": (0,), "doctor": (0, 4)}


def skip(why):
    print(f"SKIPPED: {os.path.basename(sys.argv[0])}: {why}", flush=True)
    sys.exit(SKIPPED)


def options(description, add=None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--short", action="store_true", help="the run of `make test`")
    parser.add_argument("--seconds", type=float, help="budget; default: HOLDFAST_SOAK_SECONDS, 600")
    parser.add_argument("--seed", type=int, help="default: HOLDFAST_TEST_SEED; else 1 if --short, or a new one")
    if add:
        add(parser)
    chosen = parser.parse_args()
    if chosen.seconds is None:
        chosen.seconds = float(os.environ.get("HOLDFAST_SOAK_SECONDS", 600))
    if chosen.seed is None:
        fresh = 1 if chosen.short else random.SystemRandom().randrange(1, 10**6)
        chosen.seed = int(os.environ.get("HOLDFAST_TEST_SEED", fresh))
    return chosen


def enter_namespace():
    """Goes on in a mount and process namespace of its own. Whatever ends this script, also SIGKILL by
    a time limit, the kernel then undoes every mount, frees the loop devices and ends every process."""
    if os.environ.get("HOLDFAST_POWER_INSIDE") == "1":
        os.makedirs(WORK, exist_ok=True)
        try:
            run("mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", WORK)
        except RuntimeError as error:
            skip(f"nothing can be mounted here: {error}")
        return
    if os.geteuid() != 0:
        skip("not root, which mounting an image needs")
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork",
               "--kill-child", "--mount-proc"]
    try:
        permitted = subprocess.run(command + ["true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        permitted = False
    if not permitted:
        skip("this machine permits no mount and process namespaces")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    inside = subprocess.Popen(command + [sys.executable] + sys.argv,
                              env=dict(os.environ, HOLDFAST_POWER_INSIDE="1"))
    try:
        sys.exit(inside.wait())
    finally:
        inside.kill()


def workshop():
    """A temporary folder in memory, of this namespace alone."""
    return tempfile.TemporaryDirectory(dir=WORK)


def run(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise RuntimeError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {' '.join(done.stdout.split())}")
    return done.stdout


def make_image(path, mebibytes, *options_of_mkfs):
    with open(path, "wb") as file:
        file.truncate(mebibytes * 1024 * 1024)
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", *options_of_mkfs, path)


class Unmountable(RuntimeError):
    pass


@contextlib.contextmanager
def mounted(image, folder, mount_options=""):
    os.makedirs(folder, exist_ok=True)
    try:
        run("mount", "-t", "ext4", "-o", "loop,noatime" + mount_options, image, folder)
    except RuntimeError as error:
        raise Unmountable(str(error)) from error
    try:
        yield folder
    finally:
        run("umount", folder)


def need_loop_mount(folder):
    image = os.path.join(folder, "probe.img")
    try:
        make_image(image, 8)
        with mounted(image, os.path.join(folder, "probe")):
            pass
    except RuntimeError as error:
        skip(f"an ext4 image cannot be mounted here: {error}")


def judge_image(image, folder, seed, mount_options="", repaired=None):
    """(transactions found or -1, what is wrong or ""): mounts it, so that the kernel replays the
    file system's journal; asks the library and the shipped program; then the device goes on.
    `repaired`: a list, if an image that does not mount may be given to e2fsck first, as a device does
    when it boots; it is noted there."""
    try:
        try:
            return judge_mounted(image, folder, seed, mount_options)
        except Unmountable:
            if repaired is None:
                raise
        repaired.append(image)
        repair(image)
        return judge_mounted(image, folder, seed, mount_options)
    except RuntimeError as error:
        return -1, str(error)


def judge_mounted(image, folder, seed, mount_options):
    with mounted(image, folder, mount_options):
        database = os.path.join(folder, "app.db")
        found, problem = judge(database, seed)
        if not problem and found >= 0:
            problem = command_problem(database)
        return found, problem or resume_problem(database, seed, max(found, 0))


def repair(image):
    done = subprocess.run(["e2fsck", "-fy", image], capture_output=True, text=True)
    if done.returncode > 2:  # 1 and 2: it is sound now
        raise RuntimeError(f"e2fsck: exit status {done.returncode}: {' '.join(done.stdout.split())}")


def judge(database, seed):
    said = run(DEVICE, "judge", database, "--seed", str(seed)).strip()
    kind, text = said.split(" ", 1)
    return (int(text), "") if kind == "found" else (-1, said)


def resume_problem(database, seed, found):
    run(DEVICE, "write", database, "--seed", str(seed), "--count", "2")
    after = judge(database, seed)
    return "" if after == (found + 2, "") else f"went on from {found}, then: {after}"


def command_problem(database):
    for command, allowed in COMMANDS.items():
        done = subprocess.run([HOLDFAST, command, database], capture_output=True, text=True)
        if done.returncode not in allowed:
            return f"holdfast {command}: exit status {done.returncode}: {done.stderr.strip()}"
    return ""


class Tally:
    """Cuts of one campaign, and the first that lost something."""

    def __init__(self, name, seed):
        self.name, self.seed = name, seed
        self.cuts = self.lost = self.bad = self.acked = 0
        self.first = ""
        self.began = time.monotonic()

    def add(self, where, acked, found, problem, begun=None):
        """Counts one cut: `acked` was promised, `found` is there, more than `begun` cannot be."""
        self.cuts += 1
        self.acked = max(self.acked, acked)
        what = ""
        if problem:
            self.bad += 1
            what = problem
        elif found < acked:
            self.lost += 1
            what = f"acked {acked}, found {found}"
        elif begun is not None and found > begun:
            self.bad += 1
            what = f"begun {begun}, found {found}"
        if what and not self.first:
            self.first = f"{where}: {what}"
            print(f"  {self.name}: first at {self.first}", flush=True)
        return not what

    def clean(self):
        return self.lost == 0 and self.bad == 0

    def report(self, extra=""):
        seconds = time.monotonic() - self.began
        print(f"{self.name}: cuts={self.cuts} lost={self.lost} bad={self.bad} acked={self.acked} "
              f"seed={self.seed} {seconds:.0f} s, {self.cuts / max(seconds, 0.1) * 60:.0f} a minute"
              f"{extra}", flush=True)


def keep(name, *files):
    """Copies the evidence to where `make clean` finds it; returns the folder."""
    folder = os.path.join(STORE, "kept", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    os.makedirs(folder, exist_ok=True)
    for file in files:
        run("cp", "--sparse=always", file, folder)
    return folder
