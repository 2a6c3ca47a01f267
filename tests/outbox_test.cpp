#include "holdfast/outbox.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <thread>

#include "db.hpp"
#include "holdfast/store.hpp"
#include "platform.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  Fixture() { make_database(path); }
};

Status attach(Connection& app, const OutboxOptions& options = {}) {
  Outbox outbox;
  return Outbox::attach(app, options, outbox);
}

bool says(const Status& status, const char* text) {
  return std::string(status.text()).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("attach refuses a connection that cannot keep G2, and names the pragma to set") {
  Fixture f;
  Connection app(f.path);
  for (const char* level : {"OFF", "NORMAL"}) {
    app.run("PRAGMA synchronous=" + std::string(level));
    const Status status = attach(app);
    CHECK(status.code() == Code::not_durable);
    CHECK(says(status, "PRAGMA synchronous=FULL"));
    CHECK(says(status, level));
  }
  for (const char* level : {"FULL", "EXTRA"}) {
    app.run("PRAGMA synchronous=" + std::string(level));
    CHECK(attach(app).ok());
  }
  app.run("PRAGMA journal_mode=DELETE");
  const Status status = attach(app);
  CHECK(status.code() == Code::not_durable);
  CHECK(says(status, "PRAGMA journal_mode=WAL"));
  CHECK(says(status, "delete"));
}

TEST_CASE("less durability is there for who asks for it by name (G2)") {
  Fixture f;
  Connection app(f.path);
  app.run("PRAGMA synchronous=OFF");
  OutboxOptions options;
  options.durability = Durability::relaxed;
  CHECK(attach(app, options).ok());
}

TEST_CASE("attach refuses other attached files, exclusive locking and a database without tables") {
  Fixture f;
  {
    Connection app(f.path);
    app.run("ATTACH ':memory:' AS scratch");  // no file: one COMMIT is still atomic
    CHECK(attach(app).ok());
    app.run("ATTACH '" + f.directory.file("other.db") + "' AS other");
    const Status status = attach(app);
    CHECK(status.code() == Code::misuse);
    CHECK(says(status, "attached"));
  }
  {
    Connection app(f.path);
    app.run("PRAGMA locking_mode=EXCLUSIVE");
    const Status status = attach(app);
    CHECK(status.code() == Code::misuse);
    CHECK(says(status, "PRAGMA locking_mode=NORMAL"));
  }
  Connection empty(f.directory.file("empty.db"));
  const Status status = attach(empty);
  CHECK(status.code() == Code::no_schema);
  CHECK(says(status, "holdfast init"));
  Outbox outbox;
  CHECK(Outbox::attach(nullptr, {}, outbox).code() == Code::misuse);
}

TEST_CASE(
    "an older program keeps emitting into a newer schema if that allows it, else it is refused") {
  Fixture f;
  Connection app(f.path);
  app.run("UPDATE holdfast_meta SET value=7 WHERE key='schema_version'");
  CHECK(attach(app).ok());
  app.run("UPDATE holdfast_meta SET value=7 WHERE key='min_writer'");
  CHECK(attach(app).code() == Code::newer_schema);
}

TEST_CASE("attach leaves the busy timeout of an application alone") {
  Fixture f;
  Connection bare(f.path, Connection::Kind::bare);
  bare.run("PRAGMA synchronous=FULL; PRAGMA busy_timeout=77");
  Outbox outbox;
  must(Outbox::attach(bare, {}, outbox));
  CHECK(bare.number("PRAGMA busy_timeout") == 77);
}

TEST_CASE("producers on stores of their own wait for each other as long as a store waits") {
  Fixture f;
  Connection holder(f.path);
  Store store;
  must(Store::open(f.path, Access::read_write, {}, store));
  OutboxOptions options;
  options.busy_timeout_ms = 1;  // shorter than the store's: it would end the wait below
  Outbox outbox;
  must(Outbox::attach(store.connection(), options, outbox));
  holder.run("BEGIN IMMEDIATE");
  std::thread release([&] {
    platform::sleep_us(50'000);
    holder.run("COMMIT");
  });
  CHECK(store.begin().ok());
  release.join();
  must(outbox.emit(sensor_event("a")));
  must(store.commit());
}

TEST_CASE("business change and event commit together or vanish together (G1)") {
  Fixture f;
  Connection app(f.path);
  app.run("CREATE TABLE reading(n)");
  Outbox outbox;
  must(Outbox::attach(app, {}, outbox));
  for (const char* end : {"ROLLBACK", "COMMIT"}) {
    app.run("BEGIN IMMEDIATE; INSERT INTO reading VALUES(1)");
    Emitted emitted;
    must(outbox.emit(sensor_event("a"), &emitted));
    CHECK(emitted.seq == 1);
    app.run(end);
    const int rows = std::string(end) == "COMMIT" ? 1 : 0;
    CHECK(app.number("SELECT count(*) FROM reading") == rows);
    CHECK(app.number("SELECT count(*) FROM outbox_event") == rows);
  }
}

TEST_CASE("emit outside a transaction is an error and writes nothing (G1)") {
  Fixture f;
  Connection app(f.path);
  Outbox outbox;
  CHECK(outbox.emit(sensor_event("a")).code() == Code::misuse);
  must(Outbox::attach(app, {}, outbox));
  CHECK(outbox.emit(sensor_event("a")).code() == Code::no_transaction);
  CHECK(app.number("SELECT count(*) FROM outbox_event") == 0);
  outbox.detach();
  app.run("BEGIN IMMEDIATE");
  CHECK(outbox.emit(sensor_event("a")).code() == Code::misuse);
}

TEST_CASE("a bad event is refused by field, and the transaction is as it was (G1, G8)") {
  Fixture f;
  Connection app(f.path);
  app.run("CREATE TABLE reading(n)");
  Outbox outbox;
  must(Outbox::attach(app, {}, outbox));
  app.run("BEGIN IMMEDIATE; INSERT INTO reading VALUES(1)");
  must(outbox.emit(sensor_event("good")));
  const std::string long_text(kMaxPayloadBytes + 1, 'x');
  std::vector<std::pair<const char*, Event>> bads;
  Event event = sensor_event("a");
  event.event_type = "";
  bads.emplace_back("event_type", event);
  event = sensor_event("");
  bads.emplace_back("aggregate_id", event);
  event = sensor_event("a");
  event.aggregate_type = std::string_view(long_text).substr(0, kMaxAggregateTypeBytes + 1);
  bads.emplace_back("aggregate_type", event);
  event = sensor_event("a", long_text);
  bads.emplace_back("payload", event);
  event = sensor_event("a", "\xff");
  bads.emplace_back("payload", event);
  event = sensor_event("a");
  event.headers = "[1]";
  bads.emplace_back("headers", event);
  event = sensor_event("a");
  event.lane = 2;
  bads.emplace_back("lane", event);
  for (const auto& [field, bad] : bads) {
    CAPTURE(field);
    Emitted emitted;
    const Status status = outbox.emit(bad, &emitted);
    CHECK(status.code() == Code::invalid);
    CHECK(says(status, field));
    CHECK(emitted.seq == 0);
    CHECK(in_transaction(app));
  }
  app.run("COMMIT");
  CHECK(app.number("SELECT count(*) FROM reading") == 1);
  CHECK(app.number("SELECT count(*) FROM outbox_event") == 1);
}

TEST_CASE("emit changes neither last_insert_rowid nor the application's own statements") {
  Fixture f;
  Connection app(f.path);
  app.run("CREATE TABLE reading(id INTEGER PRIMARY KEY)");
  Outbox outbox;
  must(Outbox::attach(app, {}, outbox));
  app.run("BEGIN IMMEDIATE; INSERT INTO reading VALUES(4711)");
  must(outbox.emit(sensor_event("a")));
  CHECK(sqlite3_last_insert_rowid(app) == 4711);
  Event bad = sensor_event("");
  CHECK_FALSE(outbox.emit(bad).ok());
  CHECK(sqlite3_last_insert_rowid(app) == 4711);
  app.run("COMMIT");
}

TEST_CASE(
    "ids: the producer's own is kept, a new one is a UUIDv7, the nil of the next emit is new") {
  Fixture f;
  Connection app(f.path);
  ManualClock clock;
  OutboxOptions options;
  options.clock = &clock;
  Outbox outbox;
  must(Outbox::attach(app, options, outbox));
  app.run("BEGIN IMMEDIATE");
  Event event = sensor_event("a");
  REQUIRE(EventId::parse("0190A8E4-1234-7ABC-8DEF-0123456789AB", event.id));
  Emitted own, made;
  must(outbox.emit(event, &own));
  must(outbox.emit(sensor_event("a"), &made));
  app.run("COMMIT");
  CHECK(own.id == event.id);
  CHECK((made.id.bytes[6] >> 4) == 7);
  CHECK(app.text("SELECT event_id FROM outbox_event WHERE seq=1") ==
        "0190a8e4-1234-7abc-8def-0123456789ab");
  CHECK(app.text("SELECT event_id FROM outbox_event WHERE seq=2") == made.id.text());
  CHECK(app.number("SELECT created_at FROM outbox_event WHERE seq=2") == clock.wall_ms());
}

TEST_CASE("resolve tells what became of an emit, by row or by a bounded search (G2)") {
  Fixture f;
  Connection app(f.path);
  Outbox outbox;
  must(Outbox::attach(app, {}, outbox));
  Emitted committed, rolled_back;
  app.run("BEGIN IMMEDIATE");
  must(outbox.emit(sensor_event("a"), &committed));
  app.run("COMMIT; BEGIN IMMEDIATE");
  must(outbox.emit(sensor_event("a"), &rolled_back));
  app.run("ROLLBACK");
  Fate fate = Fate::absent;
  must(outbox.resolve(committed, fate));
  CHECK(fate == Fate::committed);
  must(outbox.resolve(rolled_back, fate));
  CHECK(fate == Fate::absent);
  insert_events(app, 3);  // somebody else's event has the seq now
  REQUIRE(app.number("SELECT count(*) FROM outbox_event WHERE seq=" +
                     std::to_string(rolled_back.seq)) == 1);
  must(outbox.resolve(rolled_back, fate));
  CHECK(fate == Fate::absent);
  must(outbox.resolve(committed.id, 100, fate));
  CHECK(fate == Fate::committed);
  must(outbox.resolve(committed.id, 3, fate));  // not among the newest three
  CHECK(fate == Fate::absent);
  must(outbox.resolve(rolled_back.id, 100, fate));
  CHECK(fate == Fate::absent);
}

TEST_CASE("on_commit is called once for a commit that emitted, and for no other") {
  Fixture f;
  Connection app(f.path);
  app.run("CREATE TABLE reading(n)");
  int calls = 0;
  OutboxOptions options;
  options.on_commit = [&] { ++calls; };
  Outbox outbox;
  must(Outbox::attach(app, options, outbox));
  app.run("INSERT INTO reading VALUES(1)");
  CHECK(calls == 0);
  app.run("BEGIN IMMEDIATE");
  must(outbox.emit(sensor_event("a")));
  must(outbox.emit(sensor_event("a")));
  CHECK(calls == 0);
  app.run("COMMIT");
  CHECK(calls == 1);
  app.run("BEGIN IMMEDIATE");
  must(outbox.emit(sensor_event("a")));
  app.run("ROLLBACK");
  CHECK(calls == 1);
}

TEST_CASE(
    "the WAL stays bounded without a relay, under the application's own pragma too (G8, G12)") {
  Fixture f;
  Connection app(f.path);
  Outbox outbox;
  must(Outbox::attach(app, {}, outbox));
  CHECK(app.number("PRAGMA wal_autocheckpoint") == 0);
  const std::string payload(4000, 'x');
  std::int64_t largest = 0;
  for (int i = 0; i < 1500; ++i) {
    if (i % 100 == 0) app.run("PRAGMA wal_autocheckpoint=1000");  // takes our hook away
    app.run("BEGIN IMMEDIATE");
    must(outbox.emit(sensor_event("a", payload)));
    app.run("COMMIT");
    CHECK(app.number("PRAGMA wal_autocheckpoint") == 0);  // emit took it back
    largest = std::max(largest, wal_file_bytes(f.path));
  }
  CHECK(largest < std::int64_t{kCheckpointFrames + 100} * 4120);
  CHECK(app.text("PRAGMA integrity_check") == "ok");
}

TEST_CASE("beside a foreign connection with SQLite's own checkpoints nothing is lost (G12)") {
  Fixture f;
  Connection app(f.path);
  Connection foreign(f.path);
  foreign.run("CREATE TABLE theirs(n, fill)");
  Outbox outbox;
  must(Outbox::attach(app, {}, outbox));
  const std::string payload(2000, 'x');
  std::int64_t largest = 0;
  for (int i = 0; i < 1000; ++i) {
    app.run("BEGIN IMMEDIATE");
    must(outbox.emit(sensor_event("a", payload)));
    app.run("COMMIT");
    foreign.run("INSERT INTO theirs VALUES(1, zeroblob(1000))");
    largest = std::max(largest, wal_file_bytes(f.path));
  }
  CHECK(largest < std::int64_t{1000} * 4120);  // their 1,000 frames were never reached
  CHECK(app.number("SELECT count(*) FROM outbox_event") == 1000);
  CHECK(foreign.number("SELECT count(*) FROM theirs") == 1000);
  CHECK(app.text("PRAGMA integrity_check") == "ok");
}

TEST_CASE("checkpoint_frames 0 leaves the WAL to the application") {
  Fixture f;
  Connection app(f.path);
  OutboxOptions options;
  options.checkpoint_frames = 0;
  Outbox outbox;
  must(Outbox::attach(app, options, outbox));
  const std::string payload(100'000, 'x');
  for (int i = 0; i < 40; ++i) {
    app.run("BEGIN IMMEDIATE");
    must(outbox.emit(sensor_event("a", payload)));
    app.run("COMMIT");
  }
  CHECK(wal_file_bytes(f.path) > std::int64_t{2} * kCheckpointFrames * 4120 * 9 / 10);
}

TEST_CASE(
    "a read-only database and a full cap are refused by name, and the transaction stays open") {
  Fixture f;
  Connection app(f.path);
  Outbox outbox;
  must(Outbox::attach(app, {}, outbox));
  app.run("PRAGMA query_only=ON");
  app.run("BEGIN");
  CHECK(outbox.emit(sensor_event("a")).code() == Code::read_only);
  CHECK(in_transaction(app));
  app.run("ROLLBACK; PRAGMA query_only=OFF");
  app.run("PRAGMA max_page_count=" + std::to_string(app.number("PRAGMA page_count") + 3));
  app.run("CREATE TABLE reading(n)");
  app.run("BEGIN IMMEDIATE; INSERT INTO reading VALUES(1)");
  const std::string payload(100'000, 'x');
  const Status status = outbox.emit(sensor_event("a", payload));
  CHECK(status.code() == Code::no_space);
  CHECK(app.number("SELECT count(*) FROM outbox_event") == 0);
}

TEST_CASE("an Outbox can be moved, and detaching gives SQLite its checkpoints hook back") {
  Fixture f;
  Connection app(f.path);
  int calls = 0;
  OutboxOptions options;
  options.on_commit = [&] { ++calls; };
  Outbox first;
  must(Outbox::attach(app, options, first));
  Outbox second = std::move(first);
  app.run("BEGIN IMMEDIATE");
  CHECK(first.emit(sensor_event("a")).code() == Code::misuse);  // NOLINT: moved from on purpose
  must(second.emit(sensor_event("a")));
  app.run("COMMIT");
  CHECK(calls == 1);
  second.detach();
  insert_events(app, 1);
  CHECK(calls == 1);
}
