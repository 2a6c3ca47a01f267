"""What the disk can do just now, and what a process has written to it."""

import contextlib
import os
import time

ROUNDS = 100  # 4 KiB each, as in `holdfast bench`
BLOCK = os.urandom(4096)


def sync_limit(folder):
    """A 4 KiB overwrite and fdatasync, again and again: so many a second."""
    path = os.path.join(folder, "limit")
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, BLOCK, 0)
        os.fsync(fd)
        start = time.monotonic()
        for _ in range(ROUNDS):
            os.pwrite(fd, BLOCK, 0)
            os.fdatasync(fd)
        return ROUNDS / (time.monotonic() - start)
    finally:
        os.close(fd)
        os.unlink(path)


def write_bytes(pid):
    """Bytes that the process caused to be written to a disk (/proc/PID/io), whole pages, at the
    moment it wrote them: also those that no sync has forced out yet."""
    with open(f"/proc/{pid}/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("write_bytes:"))


def resident_mb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024


def file_system(folder):
    """Type of the file system under `folder`."""
    best = ("", "unknown")
    with contextlib.suppress(OSError), open("/proc/self/mounts", encoding="utf-8") as file:
        for line in file:
            _, point, kind = line.split()[:3]
            inside = os.path.realpath(folder).startswith(point.rstrip("/") + "/") or point == "/"
            if inside and len(point) >= len(best[0]):
                best = (point, kind)
    return best[1]
