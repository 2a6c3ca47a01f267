"""Virtual machines of the real program: a Debian kernel, an initramfs whose first process is
holdfast_power, and a disk. TCG only, so it needs no /dev/kvm."""
import glob
import os
import re
import shutil
import subprocess
import time

import cuts

EXT4 = ("crc32c_generic", "jbd2", "mbcache", "crc16", "ext4")
ARM_KERNEL = ("linux-image-arm64:arm64", "arm64")
PC_KERNEL = ("linux-image-cloud-amd64:amd64", "amd64")
DISK = ["-drive", "if=none,id=disk,format=raw,cache=writeback,file={image}"]
# Modules in the order in which they need each other; one that a kernel has built in is left out.
MACHINES = {
    "x86": {
        "program": "qemu-system-x86_64", "kernel": PC_KERNEL,
        "modules": EXT4 + ("virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev",
                           "virtio_pci", "virtio_blk"),
        "arguments": ["-M", "pc", "-cpu", "max", "-m", "128", "-nodefaults", *DISK,
                      "-device", "virtio-blk-pci,drive=disk"],
        "console": "ttyS0", "device": "/dev/vda"},
    "virt": {
        "program": "qemu-system-aarch64", "kernel": ARM_KERNEL,
        "modules": EXT4 + ("virtio_mmio", "virtio_blk"),
        "arguments": ["-M", "virt", "-cpu", "cortex-a72", "-m", "256", "-nodefaults", *DISK,
                      "-device", "virtio-blk-device,drive=disk"],
        "console": "ttyAMA0", "device": "/dev/vda",
        "network": (("virtio_net",), ["-device", "virtio-net-device,netdev=net"])},
    "raspi3b": {
        "program": "qemu-system-aarch64", "kernel": ARM_KERNEL,
        "modules": EXT4 + ("sdhci", "sdhci-pltfm", "sdhci-iproc", "bcm2835"),
        "arguments": ["-M", "raspi3b", "-dtb", "{dtb}",
                      "-drive", "if=sd,format=raw,cache=writeback,file={image}"],
        "console": "ttyAMA0,115200", "device": "/dev/mmcblk0",
        # QEMU has no model of the board's own Ethernet chip (LAN9514): an adapter on its USB.
        "network": (("phy-generic", "dwc2", "rndis_host", "cdc_ether"),
                    ["-device", "usb-net,netdev=net"])},
}
DTB = "usr/lib/linux-image-*/broadcom/bcm2837-rpi-3-b.dtb"


def only(pattern):
    found = glob.glob(pattern, recursive=True)
    if len(found) != 1:
        raise RuntimeError(f"{pattern}: {len(found)} files, one expected")
    return found[0]


def fetch(package, folder):
    """The package NAME:ARCHITECTURE, unpacked in a folder of the store; downloaded once."""
    folder = os.path.join(cuts.STORE, folder)
    if os.path.isdir(folder):
        return folder
    partial = folder + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package],
                   cwd=partial, check=True, stdout=subprocess.DEVNULL)
    cuts.run("dpkg", "-x", only(f"{partial}/*.deb"), partial)
    os.rename(partial, folder)
    return folder


def fetch_kernel(meta_package, architecture):
    folder = f"kernel-{architecture}"
    if os.path.isdir(os.path.join(cuts.STORE, folder)):
        return os.path.join(cuts.STORE, folder)
    depends = cuts.run("apt-cache", "depends", meta_package)
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    if not package:
        raise RuntimeError(f"apt knows no {meta_package}")
    return fetch(package.group(1).split(":")[0] + ":" + architecture, folder)


def built_for_arm():
    """The cross-built folder. The host's own build serves where it is 64-bit ARM itself."""
    if os.uname().machine == "aarch64":
        return cuts.BUILD
    folder = os.path.join(cuts.STORE, "aarch64")
    cuts.run("cmake", "-G", "Ninja", "-S", cuts.SOURCE, "-B", folder, "--toolchain",
             os.path.join(cuts.SOURCE, "toolchains/aarch64.cmake"), "-DCMAKE_BUILD_TYPE=MinSizeRel",
             "-DHOLDFAST_STATIC=ON", "-DHOLDFAST_SHARED=OFF", "-DHOLDFAST_DEMO=ON")
    cuts.run("cmake", "--build", folder, "-j", os.environ.get("JOBS", str(os.cpu_count())),
             "--target", "holdfast_power", "holdfast_cli", "holdfast_demos")
    return folder


def module_files(kernel, names):
    """The modules' files with those that they depend on, in the order in which to load them."""
    with open(only(f"{kernel}/lib/modules/*/modules.builtin")) as file:
        built_in = {os.path.basename(line.strip())[:-len(".ko")].replace("-", "_") for line in file}
    found = {os.path.basename(path)[:-len(".ko")].replace("-", "_"): path for path in
             glob.glob(f"{kernel}/lib/modules/*/kernel/**/*.ko", recursive=True)}
    order = []

    def visit(name):
        name = name.replace("-", "_")
        if name in built_in or found.get(name) in order:
            return
        if name not in found:
            raise RuntimeError(f"{kernel} has no module {name}")
        with open(found[name], "rb") as file:
            depends = re.search(rb"\0depends=([^\0]*)\0", file.read())
        for needed in (depends.group(1).decode() if depends else "").split(","):
            if needed:
                visit(needed)
        order.append(found[name])

    for name in names:
        visit(name)
    return order


def pack_initramfs(path, kernel, modules, programs):
    """`programs`: the files in its root, by their names there. "init" is process 1."""
    root = path + ".root"
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(os.path.join(root, "modules"))
    for name, program in programs.items():
        shutil.copy(program, os.path.join(root, name))
    for number, file in enumerate(module_files(kernel, modules)):
        shutil.copy(file, os.path.join(root, "modules", f"{number:02}-{os.path.basename(file)}"))
    with open(path, "wb") as out:
        subprocess.run("find . | cpio -o -H newc --quiet", shell=True, cwd=root, stdout=out, check=True)


def command(kind, kernel, initramfs, image, words):
    """The command line of QEMU: its standard output is the guest's console. `words`: what the guest
    reads from /proc/cmdline."""
    spec = MACHINES[kind]
    dtb = only(os.path.join(kernel, DTB)) if kind == "raspi3b" else ""
    return [spec["program"], "-accel", "tcg", "-display", "none", "-no-reboot", "-serial", "stdio",
            *(word.format(image=image, dtb=dtb) for word in spec["arguments"]),
            "-kernel", only(f"{kernel}/boot/vmlinuz-*"), "-initrd", initramfs,
            "-append", f"console={spec['console']} quiet panic=-1 {words}"]


def need(kinds):
    """Skips unless all of these can be had, before any of them is tried; downloads and builds."""
    for kind in kinds:
        spec = MACHINES[kind]
        arm = spec["kernel"] == ARM_KERNEL
        programs = [spec["program"], "cpio"]
        if arm and os.uname().machine != "aarch64":
            programs += ["aarch64-linux-gnu-g++"]
        for program in programs:
            if not shutil.which(program):
                cuts.skip(f"{program} is not installed (platforms/debian/install-deps power)")
        if not arm and os.uname().machine != "x86_64":
            cuts.skip("the x86-64 guest runs the host's own build, and this is no x86-64 host")
        try:
            fetch_kernel(*spec["kernel"])
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            cuts.skip(f"no guest kernel: {error}")
        if arm:
            built_for_arm()


class Board:
    """What starts one kind of machine, once need() found that it can be."""

    def __init__(self, kind, folder):
        self.kind, self.spec, self.folder = kind, MACHINES[kind], folder
        self.kernel = fetch_kernel(*self.spec["kernel"])
        arm = self.spec["kernel"] == ARM_KERNEL
        build = built_for_arm() if arm else cuts.BUILD
        self.initramfs = os.path.join(folder, f"initramfs-{kind}")
        holdfast = os.path.join(build, "cli/holdfast") if arm else cuts.HOLDFAST
        pack_initramfs(self.initramfs, self.kernel, self.spec["modules"],
                       {"init": os.path.join(build, "tests/holdfast_power"), "holdfast": holdfast})

    def start(self, image, seed, relaxed=False, monitor=None):
        """`monitor`: a connected socket that QEMU's control protocol (QMP) is to speak on."""
        line = (f"power.device={self.spec['device']} power.seed={seed} "
                f"power.relaxed={int(relaxed)}")
        words = command(self.kind, self.kernel, self.initramfs, image, line)
        if monitor:
            words += ["-chardev", f"socket,id=monitor,fd={monitor.fileno()}",
                      "-mon", "chardev=monitor,mode=control"]
        return Machine(words, (monitor.fileno(),) if monitor else ())


class Machine:
    """A running guest, and what its console said."""

    def __init__(self, command, inherited):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, pass_fds=inherited)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest, self.lines = b"", []
        self.acked, self.found, self.problem, self.ready = -1, -1, "", False
        self.promises = 0  # how often it said "acked"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.listen()

    def listen(self):
        """Takes in what the console said since; False once the machine is gone."""
        while True:
            try:
                data = os.read(self.process.stdout.fileno(), 65536)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                self.hear(line.decode(errors="replace").strip())

    def hear(self, line):
        self.lines.append(line)
        del self.lines[:-40]
        kind, _, text = line.partition(" ")
        if kind == "acked":
            self.acked = int(text)
            self.promises += 1
        elif kind == "found":
            self.found = int(text)
        elif kind == "ready":
            self.ready = True
        elif kind == "command":
            command, status = text.split()
            if int(status) not in cuts.COMMANDS[command]:
                self.problem = f"holdfast {command}: exit status {status}"
        elif kind in ("bad", "failed") or re.search("Kernel panic|EXT4-fs error|Oops", line):
            self.problem = self.problem or line

    def wait(self, condition, seconds):
        """True once the condition holds; False if the machine ended, failed or took too long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            alive = self.listen()
            if condition():
                return True
            if not alive or self.problem:
                break
            time.sleep(0.002)
        self.problem = self.problem or "silent: " + " | ".join(self.lines[-5:])
        return False
