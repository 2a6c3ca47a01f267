#!/usr/bin/env python3
"""The memory of an idle relay on ARM, as the kernel of a virtual board counts it.

  idle_memory.py ARCH…   arm64, armhf, armv6: build/ARCH/holdfast of each; one 64-bit kernel runs all

Under qemu-user /proc shows the emulator. Prints a line for each; 1 if one has more than its budget."""
import os
import re
import subprocess
import sys
import tempfile

import cuts
import machine

BOOT_SECONDS = 120
# kB of VmRSS, most of them clean pages of the program file (platforms/README.md, "Memory").
MOST_KB = {"arm64": 3900, "armhf": 3000, "armv6": 3700}
INIT = """#!/busybox sh
/busybox mkdir -p /proc /tmp
/busybox mount -t proc proc /proc
/busybox mount -t tmpfs tmpfs /tmp
/busybox ifconfig lo 127.0.0.1 up
for program in /program-*; do
  $program init /tmp/app.db >/dev/null
  $program relay /tmp/app.db --to tcp://127.0.0.1:7449 2>/dev/null &
  /busybox sleep 20
  echo "figures $program" $(/busybox awk '/^(VmRSS|RssAnon|Threads):/ { print $1 $2 }' /proc/$!/status)
  kill $!
  wait
  /busybox rm -f /tmp/app.db*
done
/busybox poweroff -f
"""


def boot(programs):
    """What the console of a board said that ran each program in turn."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = machine.fetch_kernel(*machine.ARM_KERNEL)
        busybox = machine.fetch("busybox-static:arm64", "busybox-arm64")
        init, initramfs = os.path.join(folder, "init"), os.path.join(folder, "initramfs")
        with open(init, "w") as file:
            file.write(INIT)
        os.chmod(init, 0o755)
        named = {f"program-{number}": path for number, path in enumerate(programs)}
        machine.pack_initramfs(initramfs, kernel, (), {
            "init": init, "busybox": os.path.join(busybox, "bin/busybox"), **named})
        disk = os.path.join(folder, "disk")
        cuts.make_image(disk, 64)
        return subprocess.run(
            machine.command("virt", kernel, initramfs, disk, ""), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace",
            timeout=BOOT_SECONDS + 30 * len(programs)).stdout


def main(kinds):
    programs = [os.path.join(cuts.SOURCE, "build", kind, "holdfast") for kind in kinds]
    for kind, program in zip(kinds, programs):
        if not os.path.exists(program):
            sys.exit(f"{program} is not there: make cross ARCH={kind}")
    said = boot(programs)
    above = False
    for number, kind in enumerate(kinds):
        found = re.search(rf"figures /program-{number} (.*)", said)
        if not found:
            sys.exit(f"{kind}: no figures. The board said:\n{said}")
        figures = {name: int(value) for name, value in re.findall(r"(\w+):(\d+)", found.group(1))}
        print(f"{kind}: an idle relay has {figures['VmRSS']} kB (VmRSS; at most {MOST_KB[kind]}), "
              f"{figures['RssAnon']} kB of its own (RssAnon), {figures['Threads']} threads")
        above = above or figures["VmRSS"] > MOST_KB[kind]
    return 1 if above else 0


if __name__ == "__main__":
    if not sys.argv[1:] or set(sys.argv[1:]) - set(MOST_KB):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
