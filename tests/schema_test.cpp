#include "schema.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <thread>

#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/sinks.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 20'000;

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  Fixture() { make_database(path); }

  // Everything that is pending goes to the sink.
  void drain(MemorySink& sink) const {
    RelayOptions options;
    options.database = path;
    options.sink = &sink;
    Relay relay;
    must(Relay::start(options, relay));
    CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.drained; }));
    must(relay.stop());
  }
};

const char* const kPlainInsert =
    "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
    " VALUES('door.opened','door','front','{}')";

std::string insert_at(const std::string& seq, const std::string& verb = "INSERT") {
  return verb + " INTO outbox_event(seq,event_type,aggregate_type,aggregate_id,payload) VALUES(" +
         seq + ",'t','a','x','{}')";
}

}  // namespace

TEST_CASE("a plain INSERT is a complete event: a valid UUIDv7 and the time in ms") {
  Fixture f;
  Connection app(f.path);
  const std::int64_t before = system_clock().wall_ms();
  for (int i = 0; i < 50; ++i) app.run(kPlainInsert);
  const std::int64_t after = system_clock().wall_ms();
  std::vector<std::string> ids = app.column("SELECT event_id FROM outbox_event ORDER BY seq");
  REQUIRE(ids.size() == 50);
  for (const std::string& text : ids) {
    CAPTURE(text);
    EventId id;
    REQUIRE(EventId::parse(text, id));
    CHECK(text == id.text());
    CHECK((id.bytes[6] >> 4) == 7);
    CHECK((id.bytes[8] >> 6) == 2);
    std::int64_t ms = 0;
    for (int i = 0; i < 6; ++i) ms = ms << 8 | id.bytes[static_cast<std::size_t>(i)];
    CHECK(ms >= before - 1);
    CHECK(ms <= after + 1);
  }
  CHECK(app.number("SELECT count(DISTINCT event_id) FROM outbox_event") == 50);
  CHECK(app.number("SELECT min(created_at) FROM outbox_event") >= before - 1);
  CHECK(app.number("SELECT max(created_at) FROM outbox_event") <= after + 1);
  CHECK(app.text("SELECT DISTINCT typeof(created_at) FROM outbox_event") == "integer");
  CHECK(app.number("SELECT max(lane) FROM outbox_event") == 0);
  MemorySink sink;
  f.drain(sink);
  CHECK(sink.stored().size() == 50);
}

TEST_CASE("an application that trusts no schema can enqueue as well") {
  Fixture f;
  Connection app(f.path);
  app.run("PRAGMA trusted_schema=OFF");
  app.run(kPlainInsert);
  app.run(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,headers,payload)"
      " VALUES('t','a','x','{\"k\":1}',x'00ff')");
  CHECK(app.number("SELECT count(*) FROM outbox_event") == 2);
}

TEST_CASE("drained, everything deleted by hand, one inserted: it arrives (G3)") {
  Fixture f;
  Connection app(f.path);
  MemorySink sink;
  insert_events(app, 20);
  f.drain(sink);
  REQUIRE(sink.stored().size() == 20);
  app.run("DELETE FROM outbox_event");
  CHECK(app.text("SELECT group_concat(seq) FROM outbox_event") == "20");  // the newest stays
  app.run("DELETE FROM outbox_event WHERE 1");
  app.run(kPlainInsert);
  CHECK(app.number("SELECT max(seq) FROM outbox_event") == 21);
  f.drain(sink);
  CHECK(sink.stored().size() == 21);
  CHECK(sink.stored().back().seq == 21);
}

TEST_CASE("the same after a purge of everything that retention allows (G3)") {
  Fixture f;
  Connection app(f.path);
  MemorySink sink;
  insert_events(app, 20);
  f.drain(sink);
  Store store;
  must(Store::open(f.path, Access::read_write, {}, store));
  PurgeOptions purge;
  purge.outbox_older_than_ms = 0;
  PurgeResult result;
  must(store.purge(purge, result));
  CHECK(result.outbox_rows == 19);
  app.run(kPlainInsert);
  f.drain(sink);
  CHECK(sink.stored().size() == 21);
}

TEST_CASE("a hand-made seq cannot break a cursor, wherever it points (G3)") {
  Fixture f;
  Connection app(f.path);
  for (const bool used : {false, true}) {
    CAPTURE(used);
    if (used) insert_events(app, 5);
    for (const char* verb : {"INSERT", "REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE"}) {
      for (const char* seq : {"0", "-1", "-9223372036854775808", "3", "5", "7", "100",
                              "9223372036854775806", "9223372036854775807"}) {
        CAPTURE(verb);
        CAPTURE(seq);
        const std::string before = app.text("SELECT group_concat(seq||event_id) FROM outbox_event");
        const int rc = app.attempt(insert_at(seq, verb));
        if (std::string(verb) != "INSERT OR IGNORE") CHECK((rc & 0xff) == SQLITE_CONSTRAINT);
        CHECK(app.text("SELECT group_concat(seq||event_id) FROM outbox_event") == before);
      }
    }
  }
  app.run(insert_at("6"));  // the one that SQLite would have given
  app.run(insert_at("NULL"));
  CHECK(app.number("SELECT max(seq) FROM outbox_event") == 7);
}

TEST_CASE("after everything was sent and purged but one, seq 1 cannot come back (G3)") {
  Fixture f;
  Connection app(f.path);
  insert_events(app, 1);
  MemorySink sink;
  f.drain(sink);
  app.run("DROP TRIGGER outbox_event_guard_newest");  // worse than any hand: the log is empty
  app.run("DELETE FROM outbox_event");
  CHECK((app.attempt(kPlainInsert) & 0xff) == SQLITE_CONSTRAINT);
}

TEST_CASE("events are facts: no UPDATE, however it is written") {
  Fixture f;
  Connection app(f.path);
  insert_events(app, 3);
  const std::string before =
      app.text("SELECT group_concat(seq||event_id||payload) FROM outbox_event");
  for (const char* sql :
       {"UPDATE outbox_event SET payload='x'", "UPDATE outbox_event SET seq=9 WHERE seq=3",
        "UPDATE OR REPLACE outbox_event SET seq=1 WHERE seq=3",
        "UPDATE outbox_event SET lane=1 WHERE seq=2",
        "INSERT INTO outbox_event(seq,event_type,aggregate_type,aggregate_id,payload)"
        " VALUES(3,'t','a','x','{}') ON CONFLICT(seq) DO UPDATE SET payload='y'"}) {
    CAPTURE(sql);
    CHECK((app.attempt(sql) & 0xff) == SQLITE_CONSTRAINT);
    CHECK(app.text("SELECT group_concat(seq||event_id||payload) FROM outbox_event") == before);
  }
}

TEST_CASE("an event that some destination did not get cannot be deleted by hand (G3)") {
  Fixture f;
  Connection app(f.path);
  app.run("INSERT INTO outbox_destination(name) VALUES('second')");
  insert_events(app, 5);
  CHECK((app.attempt("DELETE FROM outbox_event WHERE seq=2") & 0xff) == SQLITE_CONSTRAINT);
  MemorySink sink;
  f.drain(sink);
  CHECK((app.attempt("DELETE FROM outbox_event WHERE seq=2") & 0xff) == SQLITE_CONSTRAINT);
  CHECK(app.error().find("not sent to every destination") != std::string::npos);
  app.run("UPDATE outbox_destination SET acked_seq=5 WHERE name='second'");
  app.run("INSERT INTO outbox_exception(destination_id,seq,lane,status) VALUES(1,2,0,'DEAD')");
  CHECK((app.attempt("DELETE FROM outbox_event WHERE seq=2") & 0xff) == SQLITE_CONSTRAINT);
  app.run("DELETE FROM outbox_exception");
  app.run("DELETE FROM outbox_event WHERE seq=2");
}

TEST_CASE("a bad column is refused by name, and the row is not there (G8, G10)") {
  Fixture f;
  Connection app(f.path);
  struct Bad {
    const char* column;
    const char* value;
    const char* names;
  };
  const Bad bads[] = {
      {"event_type", "''", "event_type_is_1_to_128_bytes"},
      {"event_type", "printf('%129s','x')", "event_type_is_1_to_128_bytes"},
      {"event_type", "NULL", "event_type"},
      {"aggregate_type", "''", "aggregate_type_is_1_to_128_bytes"},
      {"aggregate_id", "printf('%257s','x')", "aggregate_id_is_1_to_256_bytes"},
      {"aggregate_version", "'one'", "aggregate_version_is_an_integer"},
      {"created_at", "'2026-01-01'", "created_at_is_ms"},
      {"created_at", "-1", "created_at_is_ms"},
      {"content_type", "printf('%129s','x')", "content_type_is_at_most_128_bytes"},
      {"trace", "printf('%129s','x')", "trace_is_at_most_128_bytes"},
      {"headers", "'[1]'", "headers_is_a_json_object"},
      {"headers", "printf('{%9000s}','')", "headers_is_a_json_object"},
      {"lane", "2", "lane_is_0_or_1"},
      {"lane", "'x'", "lane_is_0_or_1"},
      {"lane", "NULL", "lane"},
      {"payload", "NULL", "payload"},
      {"payload", "7", "payload_is_text_or_blob"},
      {"payload", "zeroblob(921601)", "payload_is_at_most_921600_bytes"},
      {"event_id", "'not-a-uuid'", "event_id_is_a_uuid"},
      {"event_id", "'0190a8e4-0000-7000-8000-00000000000g'", "event_id_is_a_uuid"},
  };
  for (const Bad& bad : bads) {
    CAPTURE(bad.column);
    CAPTURE(bad.value);
    std::string names, values;
    for (const char* column : {"event_type", "aggregate_type", "aggregate_id", "payload"}) {
      if (std::string(column) == bad.column) continue;
      names += std::string(",") + column;
      values += ",'x'";
    }
    const int rc = app.attempt("INSERT INTO outbox_event(" + std::string(bad.column) + names +
                               ") VALUES(" + bad.value + values + ")");
    CHECK((rc & 0xff) == SQLITE_CONSTRAINT);
    CHECK(app.error().find(bad.names) != std::string::npos);
  }
  CHECK(app.number("SELECT count(*) FROM outbox_event") == 0);
}

TEST_CASE("init is idempotent and writes nothing the second time") {
  Fixture f;
  InitResult first;
  Connection(f.path).run("PRAGMA wal_checkpoint(TRUNCATE)");
  const std::string before = read_file(f.path);
  InitResult again;
  must(Store::init(f.path, {}, &again));
  CHECK_FALSE(again.created);
  CHECK(again.from_version == kSchemaVersion);
  CHECK(again.to_version == kSchemaVersion);
  CHECK(read_file(f.path) == before);
}

TEST_CASE("init adds its tables beside the application's own, which stay as they are") {
  TemporaryDirectory directory;
  Connection app(directory.file("app.db"), Connection::Kind::bare);
  app.run(
      "CREATE TABLE reading(id INTEGER PRIMARY KEY, celsius); INSERT INTO reading VALUES(1,20)");
  make_database(directory.file("app.db"));
  CHECK(app.number("SELECT celsius FROM reading") == 20);
  CHECK(app.text("PRAGMA journal_mode") == "wal");
  app.run(kPlainInsert);
}

TEST_CASE("a newer schema is refused by name, and not a byte is written") {
  Fixture f;
  {
    Connection app(f.path);
    app.run("UPDATE holdfast_meta SET value=99 WHERE key IN ('schema_version','min_writer')");
    app.run("PRAGMA wal_checkpoint(TRUNCATE)");
  }
  const std::string before = read_file(f.path);
  Store store;
  CHECK(Store::init(f.path, {}, nullptr).code() == Code::newer_schema);
  CHECK(Store::open(f.path, Access::read_write, {}, store).code() == Code::newer_schema);
  CHECK(Store::open(f.path, Access::read_only, {}, store).code() == Code::newer_schema);
  RelayOptions options;
  options.database = f.path;
  options.url = "tcp://127.0.0.1:1";
  Relay relay;
  CHECK(Relay::start(options, relay).code() == Code::newer_schema);
  CHECK(read_file(f.path) == before);
  CHECK(read_file(f.path + "-wal").empty());
}

TEST_CASE("a newer schema that still takes older writers is used, but not migrated") {
  Fixture f;
  Connection(f.path).run("UPDATE holdfast_meta SET value=99 WHERE key='schema_version'");
  Store store;
  must(Store::open(f.path, Access::read_write, {}, store));
  CHECK(Store::init(f.path, {}, nullptr).code() == Code::newer_schema);
}

TEST_CASE("a locked database is waited for, by init as by everything else") {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  Connection app(path);
  app.run("CREATE TABLE mine(a)");
  app.run("BEGIN IMMEDIATE; INSERT INTO mine VALUES(1)");
  Status status;
  std::thread other([&] { status = Store::init(path, {}, nullptr); });
  // The other thread cannot be seen waiting from here; that it has not failed after its first tries
  // is what matters.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  app.run("COMMIT");
  other.join();
  CHECK(status.ok());
  InitOptions short_wait;
  short_wait.busy_timeout_ms = 50;
  TemporaryDirectory second;
  Connection holder(second.file("app.db"));
  holder.run("BEGIN IMMEDIATE; CREATE TABLE mine(a)");
  CHECK(Store::init(second.file("app.db"), short_wait, nullptr).code() == Code::busy);
  holder.run("ROLLBACK");
  CHECK(holder.number("SELECT count(*) FROM sqlite_schema") == 0);
}

TEST_CASE("two processes that init at once make one set of tables") {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  std::vector<std::thread> threads;
  std::vector<Status> ends(4);
  for (Status& end : ends)
    threads.emplace_back([&end, &path] { end = Store::init(path, {}, nullptr); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& end : ends) {
    CAPTURE(end.text());
    CHECK(end.ok());
  }
  Connection app(path);
  CHECK(app.number("SELECT count(*) FROM outbox_destination") == 1);
  CHECK(app.number("SELECT count(*) FROM holdfast_meta WHERE key='stream_id'") == 1);
}
