"""Measures one peer: input by 1, 16 and 64 at once beside the disk's own limit, memory, drain."""

import os
import tempfile

import disk
from peer import Failed, Skipped

ROUNDS = 10  # of each figure of input. A disk that is shared changes its speed within seconds: the
STEADY = 5   # rounds count in which its limit before and after differ least, and their middle is told


def measure_round(peer, folder, connections, seconds):
    before, written = disk.sync_limit(folder), peer.written()
    done = peer.put(connections, seconds=seconds)
    written = peer.written() - written
    after = disk.sync_limit(folder)
    if done.events == 0:
        raise Failed(f"{connections} at once: nothing was acknowledged in {seconds:.1f} s")
    return {"events": done.events, "events_per_s": done.rate, "limit_before": before, "limit_after": after,
            "of_limit": done.rate / ((before + after) / 2), "disk_bytes_per_event": written / done.events}


def unsteady(each):
    low, high = sorted((each["limit_before"], each["limit_after"]))
    return high / low


def middle(rounds):
    steady = sorted(rounds, key=unsteady)[:STEADY]
    return sorted(steady, key=lambda each: each["of_limit"])[len(steady) // 2]


def measure(peer, folder, seconds):
    """Figures of a running peer, with what it was said to be."""
    result = {"input": {}}
    waiting = 0
    for connections in peer.connections:
        rounds = [measure_round(peer, folder, connections, seconds / ROUNDS) for _ in range(ROUNDS)]
        waiting += sum(each["events"] for each in rounds)
        result["input"][str(connections)] = dict(middle(rounds), rounds=rounds)
    if waiting < peer.fill_events:
        waiting += peer.put(max(peer.connections), seconds=3 * seconds, count=peer.fill_events - waiting).events
    result["rss"] = {"mb": peer.resident_mb(), "pending": waiting}
    drained = peer.drain()
    if drained.events != waiting:
        raise Failed(f"{waiting} events were acknowledged, {drained.events} came out")
    result["drain"] = {"events": drained.events, "events_per_s": drained.rate}
    return result


def description(peer):
    return {"name": peer.name, "title": peer.title, "business_row": peer.business_row, "drain_to": peer.drain_to,
            "loss": {"documented": peer.loss, "source": peer.source}}


def measured(peer, folder, seconds):
    """One entry of results.json: figures, or why there are none."""
    result = description(peer)
    try:
        peer.check()
        result["version"] = peer.version()
        with tempfile.TemporaryDirectory(dir=folder, prefix=peer.name + "-") as own:
            os.chmod(own, 0o700)
            try:
                peer.start(own)
                result.update(measure(peer, own, seconds))
            finally:
                peer.stop()
    except Skipped as why:
        result["skipped"] = str(why)
    except (Failed, OSError) as why:
        result["failed"] = str(why)
    return result
