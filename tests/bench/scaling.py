"""How fast the first 10,000 of a backlog are taken out, by the backlog's length: Holdfast's relay
and gateway as processes, and the conventional schema (conventional.sql), claimed in two ways."""

import os
import sqlite3
import statistics
import subprocess
import tempfile
import time

import holdfast
from peer import HERE, PAYLOAD, Failed, Server, free_port, output

TAKE = 10_000
FILL_ROWS = 100_000      # in one transaction
CLAIM = 256
ROUNDS = 5               # of Holdfast's; the middle one is told
TAKE_SECONDS_MAX = 60
CLAIM_SECONDS_MAX = 8    # then the rate is that of what was claimed
POLL_SECONDS = 0.001

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
FILL_HOLDFAST = (
    "INSERT INTO outbox_event(event_type, aggregate_type, aggregate_id, payload) " + NUMBERS +
    "SELECT 'sensor.reading.v1', 'sensor', 'boiler-1', ? FROM n")
FILL_CONVENTIONAL = (
    "INSERT INTO outbox(uuid, event_type, aggregate_type, aggregate_id, payload, next_retry_at, created_at) " + NUMBERS +
    "SELECT lower(hex(randomblob(16))), 'sensor.reading.v1', 'sensor', 'boiler-1', ?, ? + i, ? + i FROM n")
CLAIM_CONVENTIONAL = (
    "UPDATE outbox SET status = 'processing' WHERE id IN (SELECT id FROM outbox WHERE status = 'pending' "
    "AND next_retry_at <= ? ORDER BY {} LIMIT ?) RETURNING id, payload")
ORDERS = {"conventional, ORDER BY next_retry_at": "next_retry_at, created_at",
          "conventional, ORDER BY created_at": "created_at"}


def connect(path):
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    return db


def batches(rows):
    for done in range(0, rows, FILL_ROWS):
        yield done, min(FILL_ROWS, rows - done)


def fill_holdfast(path, rows):
    db = connect(path)
    for _, count in batches(rows):
        db.execute(FILL_HOLDFAST, (count, PAYLOAD.decode()))
    db.close()


def last_seq(db):
    return db.execute("SELECT coalesce(max(seq), 0) FROM outbox_event").fetchone()[0]


def take_with_relay(device, url, gateway_db):
    """Events per second at the gateway, durable, from the first that is seen there until TAKE are."""
    before = last_seq(gateway_db)
    start, first, first_events = time.monotonic(), None, 0
    relay = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", holdfast.PROGRAM, "relay", device, "--to", url],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            now, events = time.monotonic(), last_seq(gateway_db) - before
            seconds = now - start
            if events and first is None:
                first, first_events = now, events
            if events >= TAKE:
                # A gateway that had all of them at the first look: from the relay's start, then.
                return (events - first_events) / (now - first) if events > first_events else events / seconds
            if relay.poll() is not None or seconds > TAKE_SECONDS_MAX:
                raise Failed(f"the relay sent {events} of {TAKE} events in {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
    finally:
        relay.terminate()
        relay.wait()


def measure_holdfast(folder, rows):
    device, gateway = os.path.join(folder, "device.db"), os.path.join(folder, "gateway.db")
    for database in (device, gateway):
        output(holdfast.PROGRAM, "init", database)
    fill_holdfast(device, rows)
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    server = Server(folder, "gateway", holdfast.PROGRAM, "gateway", gateway, "--listen", url, port=port)
    gateway_db = sqlite3.connect(f"file:{gateway}?mode=ro", uri=True)
    try:
        rates = [take_with_relay(device, url, gateway_db)]
        for _ in range(ROUNDS - 1):
            if rows <= TAKE:
                fill_holdfast(device, rows)
            rates.append(take_with_relay(device, url, gateway_db))
        return statistics.median(rates)
    finally:
        gateway_db.close()
        server.stop()


def claim(db, order):
    statement = CLAIM_CONVENTIONAL.format(order)
    start, events, now = time.monotonic(), 0, 2**53
    while events < TAKE and time.monotonic() - start < CLAIM_SECONDS_MAX:
        rows = db.execute(statement, (now, CLAIM)).fetchall()
        if not rows:
            break
        db.execute("BEGIN IMMEDIATE")
        db.executemany("UPDATE outbox SET status = 'sent' WHERE id = ?", [row[:1] for row in rows])
        db.execute("COMMIT")
        events += len(rows)
    return events / (time.monotonic() - start)


def measure_conventional(folder, rows, rates):
    """Adds to `rates`, by the name of the claim."""
    db = connect(os.path.join(folder, "conventional.db"))
    with open(os.path.join(HERE, "conventional.sql"), encoding="utf-8") as schema:
        db.executescript(schema.read())
    try:
        at = int(time.time() * 1000)
        for name, order in ORDERS.items():
            pending = db.execute("SELECT count(*) FROM outbox WHERE status = 'pending'").fetchone()[0]
            for done, count in batches(rows - pending):
                db.execute(FILL_CONVENTIONAL, (count, PAYLOAD.decode(), at + done, at + done))
            at += rows
            rates.setdefault(name, {})[str(rows)] = claim(db, order)
    finally:
        db.close()


def measure(folder, lengths, progress):
    """{"what": {"10000": events per second, …}}; what failed says so instead of a rate."""
    rates = {}
    for rows in lengths:
        with tempfile.TemporaryDirectory(dir=folder, prefix="backlog-") as own:
            progress(f"backlog of {rows:,}: Holdfast")
            try:
                rates.setdefault("Holdfast", {})[str(rows)] = measure_holdfast(own, rows)
            except (Failed, sqlite3.Error) as why:
                rates.setdefault("Holdfast", {})[str(rows)] = str(why)
        with tempfile.TemporaryDirectory(dir=folder, prefix="backlog-") as own:
            progress(f"backlog of {rows:,}: conventional schema")
            measure_conventional(own, rows, rates)
    return rates
