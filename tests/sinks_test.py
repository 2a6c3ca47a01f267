#!/usr/bin/env python3
"""Sinks (cli/sinks) with the real servers: nothing committed is lost and nothing is there twice in effect
(G3), whatever is killed; one event that a server refuses holds its aggregate alone (G5); a server that
is away costs no attempt (G6); and no secret is on a command line."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
BUILD = os.environ.get("HOLDFAST_BUILD", os.path.join(ROOT, "build/release"))
PROGRAM = os.path.join(BUILD, "cli/holdfast-gateway")
DEVICE = os.path.join(BUILD, "cli/holdfast")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tests/sinks"))
from servers import Mosquitto, Nats, Postgres, Skipped, Subscriber, free_port, silent_port  # noqa: E402

WAIT_SECONDS = 30


def until(what, seconds=WAIT_SECONDS):
    """Waits for what() to be true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.02)


class Case(unittest.TestCase):
    server = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="holdfast-sinks-")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.emitted = 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def begin(self, kind, **options):
        try:
            server = kind(self.folder, **options)
        except Skipped as why:
            self.skipTest(str(why))
        self.addCleanup(server.stop)
        return server

    def holdfast(self, *arguments, status=0, program=PROGRAM, **options):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, **options)
        if status is not None:
            self.assertEqual(done.returncode, status, f"{arguments}: {done.stderr}")
        return done

    def emit(self, count, database="app.db", aggregates=10, **fields):
        database = self.path(database)
        if not os.path.exists(database):
            self.holdfast("init", database)
        lines = []
        for _ in range(count):
            self.emitted += 1
            lines.append(json.dumps({"event_type": "reading.v1", "aggregate_type": "sensor",
                                     "aggregate_id": f"s{self.emitted % aggregates}",
                                     "payload": json.dumps({"n": self.emitted}), **fields}))
        self.holdfast("emit", database, "--ndjson", "-", "--batch", "1000", input="\n".join(lines))
        return database

    def start(self, *arguments):
        log = open(self.path(f"log{free_port()}"), "w+b")
        self.addCleanup(log.close)
        process = subprocess.Popen([PROGRAM, *arguments], stdout=log, stderr=log)
        process.log = log.name

        def end():
            if process.poll() is None:
                process.kill()
                process.wait()
        self.addCleanup(end)
        return process

    def stop(self, process, seconds=3):
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        with open(process.log, encoding="utf-8", errors="replace") as log:
            self.assertEqual(process.wait(30), 0, log.read())
        self.assertLess(time.monotonic() - began, seconds, "a stop is quick")

    def drain(self, database, sink, status=0):
        return self.holdfast("relay", database, "--sink", sink, "--drain", status=status)

    def events(self, database, *arguments):
        out = self.holdfast("ls", database, "--json", "--limit", "100000", *arguments, status=None).stdout
        return [json.loads(line) for line in out.splitlines()]


class Exec(Case):
    def test_a_command_gets_each_event_once_and_the_place_stays_when_the_command_changes(self):
        database = self.emit(500)
        self.drain(database, f"exec:cat >>{self.path('one')}")
        self.emit(1)
        self.drain(database, f"exec:cat >>{self.path('two')}")
        with open(self.path("one"), encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["seq"] for line in file], list(range(1, 501)))
        with open(self.path("two"), encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["seq"] for line in file], [501])
        # Control: another name is another place.
        self.drain(database, f"other=exec:cat >>{self.path('two')}")
        with open(self.path("two"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 502)

    def test_a_bad_event_is_found_by_65_and_holds_its_aggregate_alone(self):
        database = self.emit(100)
        script = f"tee -a {self.path('seen')} >{self.path('now')}; grep -q ': 42}}' {self.path('now')} && " \
                 f"{{ echo no 42 >&2; exit 65; }}; cat {self.path('now')} >>{self.path('taken')}"
        self.drain(database, "exec:" + script, status=4)
        with open(self.path("taken"), encoding="utf-8") as file:
            taken = [json.loads(line) for line in file]
        held = [e for e in self.events(database, "--status", "retry,held,dead", "--destination", "exec")]
        self.assertEqual({e["aggregate_id"] for e in held}, {"s2"})
        self.assertEqual([e["last_error"] for e in held if e["status"] == "RETRY"], ["no 42"])
        self.assertEqual(len(taken) + len(held), 100)
        self.assertEqual([e["seq"] for e in taken if e["aggregate_id"] == "s2"], [2, 12, 22, 32])

    def test_a_command_that_fails_costs_no_attempt(self):
        database = self.emit(5)
        self.holdfast("relay", database, "--sink", "exec:exit 1", "--drain", "--drain-timeout", "1s", status=75)
        self.assertEqual([e["attempts"] for e in self.events(database, "--destination", "exec")], [0] * 5)

    def test_a_stop_does_not_wait_for_a_command_that_hangs(self):
        database = self.emit(1)
        relay = self.start("relay", database, "--sink", f"exec:touch {self.path('begun')}; sleep 60")
        self.assertTrue(until(lambda: os.path.exists(self.path("begun"))))
        self.stop(relay)


class Options(Case):
    def test_secrets_are_refused_on_the_command_line(self):
        database = self.emit(1)
        for url in ("nats://u:geheim@h", "postgres://u:geheim@h/d", "mqtt://u:geheim@h", "nats://h?token=geheim",
                    "mqtt://h?password=geheim", "postgres://h/d?password=geheim",
                    "postgres://h/d?sslpassword=geheim"):
            said = self.holdfast("relay", database, "--sink", url, status=2).stderr
            self.assertIn("_file=FILE", said)
            self.assertNotIn("geheim", said)

    def test_a_file_with_a_password_must_not_be_readable_by_all(self):
        with open(self.path("password"), "w", encoding="utf-8") as file:
            file.write("secret\n")
        os.chmod(self.path("password"), 0o644)
        said = self.holdfast("sink", "check", f"mqtt://u@127.0.0.1:1?password_file={self.path('password')}",
                             status=None)
        self.assertIn("chmod 600", said.stderr)
        os.chmod(self.path("password"), stat.S_IRUSR)  # control: then it is about the server
        said = self.holdfast("sink", "check", f"mqtt://u@127.0.0.1:1?password_file={self.path('password')}",
                             status=75)

    def test_wrong_ones_are_named(self):
        database = self.emit(1)
        for url, what in (("kafka://h", "no sink of this kind"), ("nats://h?subjct=x", "no option subjct"),
                          ("nats://h?subject=a.{b}", "what stands in { }"), ("mqtt://h?format=xml", "format is"),
                          ("mqtt://h:0", "port"), ("exec:", "followed by a command"),
                          ("postgres://h/d?sslmod=x", "sslmod"), ("nats+tls://h", "ca=FILE")):
            self.assertIn(what, self.holdfast("relay", database, "--sink", url, status=2).stderr)
        said = self.holdfast("gateway", self.path("g.db"), "--listen", f"ipc://{self.path('s')}", "--sink", "exec:a",
                             "--sink", "exec:b", status=2).stderr
        self.assertIn("two sinks are named exec", said)

    def test_the_program_without_sinks_says_which_package_has_them(self):
        said = self.holdfast("relay", self.emit(1), "--sink", "exec:cat", program=DEVICE, status=2).stderr
        self.assertIn("holdfast-gateway", said)

    def test_the_program_without_sinks_hands_over_to_the_installed_one(self):
        for program, place in ((DEVICE, "bin/holdfast"), (PROGRAM, "lib/holdfast/holdfast-gateway")):
            os.makedirs(os.path.dirname(self.path(place)), exist_ok=True)
            shutil.copy(program, self.path(place))
        installed = self.path("bin/holdfast")
        self.holdfast("relay", self.emit(1), "--sink", f"exec:cat >{self.path('out')}", "--drain", program=installed)
        self.assertTrue(os.path.getsize(self.path("out")) > 0)
        self.assertIn("--partitioned", self.holdfast("sink", "init", "--help", program=installed).stdout)

    def test_a_server_that_says_nothing_is_given_up_and_stopped_from(self):
        listener, port = silent_port()
        with contextlib.closing(listener):
            database = self.emit(1)
            for url in (f"nats://127.0.0.1:{port}", f"postgres://u@127.0.0.1:{port}/d", f"mqtt://127.0.0.1:{port}"):
                relay = self.start("relay", database, "--sink", url)
                connection, _ = listener.accept()
                with contextlib.closing(connection):
                    self.stop(relay, 4)


class PostgresSink(Case):
    """One server for all; a table for each."""

    @classmethod
    def setUpClass(cls):
        cls.cluster_folder = tempfile.mkdtemp(prefix="holdfast-sinks-")
        cls.addClassCleanup(shutil.rmtree, cls.cluster_folder, True)
        os.chmod(cls.cluster_folder, 0o755)
        try:
            cls.server = Postgres(cls.cluster_folder)
        except Skipped as why:
            raise unittest.SkipTest(str(why)) from why
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        super().setUp()
        self.table = f"t{free_port()}"
        self.url = f"{self.server.url}?table={self.table}"

    def count(self):
        return int(self.server.rows(f"SELECT count(*) FROM {self.table}")[0])

    def test_kill_9_of_backend_and_server_loses_nothing_and_doubles_nothing(self):
        server = self.server
        self.holdfast("sink", "init", self.url)
        self.holdfast("sink", "init", self.url)
        database = self.emit(2000)
        relay = self.start("relay", database, "--sink", self.url, "--batch-events", "50")
        killed = 0
        for _ in range(3):
            self.emit(500)
            for pid in server.backends():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # the server restarts as a whole then
                    killed += 1
            server.wait_ready()
        server.kill()
        self.emit(500)
        server.start()
        self.assertTrue(until(lambda: server.rows(f"SELECT count(*) FROM {self.table}") == [str(self.emitted)]))
        self.assertGreater(killed, 0)
        self.assertEqual(server.rows("SELECT count(DISTINCT (payload::json->>'n')::int), min(seq), max(seq) FROM "
                                     + self.table), [f"{self.emitted}|1|{self.emitted}"])
        self.stop(relay)
        # All of it once more, under another name: known by the ids.
        self.drain(database, "again=" + self.url)
        self.assertEqual(server.rows(f"SELECT count(*) FROM {self.table}"), [str(self.emitted)])
        # Control: where a trigger gives each row another id, all are there twice.
        server.rows("CREATE FUNCTION another() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.event_id := "
                    "gen_random_uuid(); RETURN NEW; END'; CREATE TRIGGER another BEFORE INSERT ON "
                    f"{self.table} FOR EACH ROW EXECUTE FUNCTION another()")
        self.drain(database, "twice=" + self.url)
        self.assertEqual(self.count(), 2 * self.emitted)

    def test_a_row_that_a_constraint_refuses_holds_its_aggregate_alone(self):
        server = self.server
        self.holdfast("sink", "init", self.url)
        server.rows(f"ALTER TABLE {self.table} ADD CONSTRAINT no42 CHECK (payload NOT LIKE '%\"n\": 42}}%')")
        database = self.emit(300)
        self.drain(database, self.url, status=4)
        left = self.events(database, "--status", "retry,held,dead", "--destination", "postgres")
        self.assertEqual({e["aggregate_id"] for e in left}, {"s2"})
        self.assertIn("check constraint", [e["last_error"] for e in left if e["status"] == "RETRY"][0])
        self.assertEqual(server.rows(f"SELECT count(*) FROM {self.table}"), [str(300 - len(left))])
        self.assertEqual(server.rows(f"SELECT max(seq) FROM {self.table} WHERE aggregate_id = 's2'"), ["32"])
        # Once the constraint is gone they come, in order.
        server.rows(f"ALTER TABLE {self.table} DROP CONSTRAINT no42")
        relay = self.start("relay", database, "--sink", self.url)
        self.assertTrue(until(lambda: server.rows(f"SELECT count(*) FROM {self.table}") == ["300"]))
        self.stop(relay)

    def test_months_are_partitions_and_an_id_is_there_once_in_all_of_them(self):
        server = self.server
        url = server.url + "?table=log.events"
        server.rows("CREATE SCHEMA log")
        self.holdfast("sink", "init", url, "--partitioned")
        self.holdfast("sink", "init", url, "--partitioned")
        database = self.emit(100)
        self.holdfast("emit", database, "--type", "t", "--aggregate", "a/b", "--id",
                      "f47ac10b-58cc-4372-a567-0e02b2c3d479")
        self.drain(database, url)
        self.drain(database, "again=" + url)
        month = time.strftime("events_%Y_%m", time.gmtime())
        self.assertEqual(server.rows(f"SELECT count(*) FROM log.{month}"), ["100"])
        self.assertEqual(server.rows("SELECT count(*) FROM log.events_other"), ["1"])

    def test_a_password_comes_from_a_file_and_is_in_no_command_line(self):
        server = self.server
        server.rows("CREATE ROLE guarded LOGIN SUPERUSER PASSWORD 'secret-of-the-test'")
        with open(self.path("password"), "w", encoding="utf-8") as file:
            os.chmod(self.path("password"), 0o600)
            file.write("secret-of-the-test\n")
        plain = f"postgres://guarded@127.0.0.1:{server.port}/postgres?table={self.table}"
        self.holdfast("sink", "init", plain, status=75)
        url = f"{plain}&password_file={self.path('password')}"
        self.holdfast("sink", "init", url)
        self.holdfast("sink", "check", plain, env={**os.environ, "PGPASSWORD": "secret-of-the-test"})
        relay = self.start("relay", self.emit(1), "--sink", url)
        count = f"SELECT count(*) FROM {self.table}"
        self.assertTrue(until(lambda: server.rows(count) == ["1"]))
        with open(f"/proc/{relay.pid}/cmdline", "rb") as file:
            self.assertNotIn(b"secret-of-the-test", file.read())
        self.stop(relay)
        with open(relay.log, encoding="utf-8") as file:
            self.assertNotIn("secret-of-the-test", file.read())

    def test_what_is_missing_costs_no_attempt_and_is_told(self):
        server = self.server
        database = self.emit(3)
        said = self.holdfast("relay", database, "--sink", self.url, "--drain", "--drain-timeout", "1s", status=75)
        self.assertIn('does not exist', said.stderr)
        self.assertEqual([e["attempts"] for e in self.events(database, "--destination", "postgres")], [0] * 3)
        self.assertIn("sink init", self.holdfast("sink", "check", self.url, status=None).stderr)

    def test_every_kind_of_value_arrives_as_it_was(self):
        server = self.server
        self.holdfast("sink", "init", self.url)
        text = '"\\ {,} \' ä\n'
        database = self.emit(1, payload=text, headers={"a": "\\\"}", "z": "\\u0000"}, trace="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
                             content_type="x/y")
        self.holdfast("emit", database, "--type", "t", "--aggregate", 'a/{"b\\,}', "--payload", "@/bin/true")
        self.drain(database, self.url)
        def row(seq, columns):
            return server.rows(f"SELECT {columns} FROM {self.table} WHERE seq = {seq}")
        self.assertEqual(row(1, "encode(convert_to(payload, 'UTF8'), 'hex')"), [text.encode().hex()])
        self.assertEqual(row(1, "trace, content_type, lane, payload_binary IS NULL, headers->>'a'"), ["00-" + "a" * 32 + "-" + "b" * 16 + '-01|x/y|0|t|\\"}'])
        with open("/bin/true", "rb") as file:
            content = file.read()
        self.assertEqual(row(2, "encode(sha256(payload_binary), 'hex'), payload IS NULL, aggregate_id"),
                         [hashlib.sha256(content).hexdigest() + '|t|{"b\\,}'])


class NatsSink(Case):
    def test_kill_9_of_the_server_loses_nothing_and_doubles_nothing(self):
        server = self.begin(Nats)
        url = server.url + "?stream=EVENTS"
        self.holdfast("sink", "init", url)
        self.holdfast("sink", "init", url)
        self.holdfast("sink", "check", url)
        self.holdfast("sink", "check", server.url)
        database = self.emit(2000)
        relay = self.start("relay", database, "--sink", url)
        for _ in range(3):
            self.emit(500)
            server.kill()
            server.start()
        self.assertTrue(until(lambda: server.count() >= self.emitted))
        self.stop(relay)
        self.assertEqual(server.count(), self.emitted)
        self.drain(database, "again=" + url)
        self.assertEqual(server.count(), self.emitted)
        # Control: without a window for duplicates they are there twice.
        server.ask("STREAM.CREATE.SHORT", name="SHORT", subjects=["short.>"], duplicate_window=100_000_000)
        for name in ("one", "two"):
            self.drain(database, f"{name}={server.url}?subject=short.{{aggregate_id}}")
            time.sleep(0.3)
        self.assertEqual(server.count("SHORT"), 2 * self.emitted)

    def test_a_message_that_is_too_large_holds_its_aggregate_alone(self):
        server = self.begin(Nats)
        server.ask("STREAM.CREATE.EVENTS", name="EVENTS", subjects=["holdfast.>"], max_msg_size=1000)
        database = self.emit(41)
        self.emit(1, payload="x" * 2000)
        self.emit(58)
        self.drain(database, server.url, status=4)
        left = self.events(database, "--status", "retry,held,dead", "--destination", "nats")
        self.assertEqual({e["aggregate_id"] for e in left}, {"s2"})
        self.assertEqual(server.count(), 100 - len(left))
        self.assertEqual(len(left), 6)  # 42, 52 … 92

    def test_a_full_or_missing_stream_costs_no_attempt(self):
        server = self.begin(Nats)
        database = self.emit(20)
        said = self.holdfast("relay", database, "--sink", server.url, "--drain", "--drain-timeout", "1s", status=75)
        self.assertIn("no stream takes", said.stderr)
        server.ask("STREAM.CREATE.EVENTS", name="EVENTS", subjects=["holdfast.>"], max_msgs=5, discard="new")
        said = self.holdfast("relay", database, "--sink", server.url, "--drain", "--drain-timeout", "1s", status=75)
        self.assertIn("maximum messages exceeded", said.stderr)
        self.assertEqual({e["attempts"] for e in self.events(database, "--destination", "nats")}, {0})

    def test_formats_subjects_and_headers(self):
        server = self.begin(Nats)
        database = self.path("app.db")
        self.holdfast("init", database)
        self.holdfast("emit", database, "--type", "reading.v1", "--aggregate", "sensor/a.b *>", "--payload",
                      '{"v":1}', "--content-type", "application/json")
        for form in ("json", "cloudevents", "cloudevents-binary"):
            name = form.replace("-", "_")
            self.holdfast("sink", "init", f"{server.url}?stream={name}&subject={name}.*")
            self.drain(database, f"{name}={server.url}?format={form}&subject={name}.{{aggregate_id}}")
        import base64
        plain, structured, binary = (server.message(1, each) for each in ("json", "cloudevents", "cloudevents_binary"))
        self.assertEqual(plain["subject"], "json.a%2Eb%20%2A%3E")
        event = json.loads(base64.b64decode(plain["data"]))
        self.assertEqual(event["payload"], '{"v":1}')
        cloud = json.loads(base64.b64decode(structured["data"]))
        self.assertEqual({k: cloud[k] for k in ("specversion", "id", "type", "subject", "data", "source",
                                                "datacontenttype", "sequence")},
                         {"specversion": "1.0", "id": event["event_id"], "type": "reading.v1",
                          "subject": "sensor/a.b *>", "data": {"v": 1}, "source": "/holdfast",
                          "datacontenttype": "application/json", "sequence": "0" * 18 + "1"})
        headers = base64.b64decode(binary["hdrs"]).decode()
        self.assertEqual(base64.b64decode(binary["data"]), b'{"v":1}')
        for header in ("ce-specversion: 1.0", f"ce-id: {event['event_id']}", "content-type: application/json",
                       f"Nats-Msg-Id: {event['event_id']}", "ce-subject: sensor/a.b%20*>"):
            self.assertIn(header + "\r\n", headers)

    def test_a_password_comes_from_the_environment(self):
        server = self.begin(Nats, extra='authorization { user: "u", password: "secret-of-the-test" }\n')
        url = f"nats://u@127.0.0.1:{server.port}?password_env=NATS_SECRET"
        self.holdfast("sink", "init", url + "&stream=E", env={**os.environ, "NATS_SECRET": "secret-of-the-test"})
        self.holdfast("sink", "check", url, env={**os.environ, "NATS_SECRET": "wrong"}, status=75)


class MqttSink(Case):
    def test_events_wait_for_a_subscriber_and_for_a_broker_that_was_killed(self):
        server = self.begin(Mosquitto)
        database = self.emit(200)
        relay = self.start("relay", database, "--sink", server.url)
        waiting = until(lambda: [e for e in self.events(database, "--status", "retry", "--destination", "mqtt")])
        self.assertEqual({e["attempts"] for e in waiting}, {0})
        self.assertIn("nobody subscribes", waiting[0]["last_error"])
        subscriber = Subscriber(server)
        self.addCleanup(subscriber.stop)

        def numbers():
            return [json.loads(json.loads(m["payload"])["payload"])["n"] for m in subscriber.messages()]
        self.assertTrue(until(lambda: set(numbers()) == set(range(1, 201))))
        server.kill()
        self.emit(200)
        server.start()
        self.assertTrue(until(lambda: set(numbers()) == set(range(1, 401))))
        by_aggregate = {}
        for n in dict.fromkeys(numbers()):
            by_aggregate.setdefault(n % 10, []).append(n)
        self.assertEqual([each for each in by_aggregate.values() if each != sorted(each)], [])
        self.stop(relay)

    def test_formats_and_user_properties(self):
        server = self.begin(Mosquitto)
        subscriber = Subscriber(server)
        self.addCleanup(subscriber.stop)
        time.sleep(0.3)
        database = self.path("app.db")
        self.holdfast("init", database)
        self.holdfast("emit", database, "--type", "reading.v1", "--aggregate", "sensor/a/+#", "--payload", "{}",
                      "--content-type", "application/json")
        self.drain(database, server.url + "?format=cloudevents-binary")
        message = until(subscriber.messages)[0]
        self.assertEqual(message["topic"], "holdfast/sensor/a%2F%2B%23")
        self.assertEqual(message["payload"], "{}")
        self.assertEqual(message["properties"]["content-type"], "application/json")
        said = json.dumps(message["properties"])
        for text in ("specversion", "reading.v1", "sensor/a/+#"):
            self.assertIn(text, said)

    def test_a_message_that_is_too_large_holds_its_aggregate_alone(self):
        server = self.begin(Mosquitto, extra="allow_anonymous true\nmax_packet_size 2000\n")
        database = self.emit(41)
        self.emit(1, payload="x" * 4000)
        self.emit(58)
        self.drain(database, server.url + "?subscribers=optional", status=4)
        left = self.events(database, "--status", "retry,held,dead", "--destination", "mqtt")
        self.assertEqual({e["aggregate_id"] for e in left}, {"s2"})
        self.assertEqual(len(left), 6)


class Gateway(Case):
    def test_two_sinks_at_once_and_the_one_that_is_down_does_not_hold_the_other(self):
        server = self.begin(Postgres)
        self.holdfast("sink", "init", server.url)
        gateway_db, socket_url = self.path("gateway.db"), f"ipc://{self.path('socket')}"
        gone = f"nats=nats://127.0.0.1:{free_port()}"
        gateway = self.start("gateway", gateway_db, "--listen", socket_url, "--sink", server.url, "--sink", gone)
        self.assertTrue(until(lambda: os.path.exists(self.path("socket"))))
        device = self.emit(1000)
        self.holdfast("relay", device, "--to", socket_url, "--drain", program=DEVICE)
        self.assertTrue(until(lambda: server.rows("SELECT count(*) FROM holdfast_event") == ["1000"]))
        self.assertEqual(server.rows("SELECT count(*) FROM holdfast_event WHERE source_seq IS NULL"), ["0"])
        self.stop(gateway)
        places = {each["destination"]: each["pending"] for each in
                  map(json.loads, self.holdfast("destination", "ls", gateway_db, "--json").stdout.splitlines())}
        self.assertEqual({name: places.get(name) for name in ("postgres", "nats")}, {"postgres": 0, "nats": 1000})
        nats = self.begin(Nats)
        self.holdfast("sink", "init", nats.url + "?stream=EVENTS")
        self.drain(gateway_db, f"nats={nats.url}")  # the name keeps the place under another URL
        self.assertEqual(nats.count(), 1000)


if __name__ == "__main__":
    if not os.path.exists(PROGRAM):
        print(f"skipped: {PROGRAM} is not built; see HOLDFAST_SINKS in CMakeLists.txt")
        sys.exit(77)
    unittest.main(verbosity=2)
