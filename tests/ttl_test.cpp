// Time to live (G7, G9): given up late, never early, by powered time alone, counted and reported.
#include <doctest/doctest.h>

#include "holdfast/outbox.hpp"
#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"
#include "support/sinks.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 20'000;
constexpr std::int64_t kMinute = 60'000;

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  ManualClock clock;
  std::unique_ptr<Connection> app;
  MemorySink sink;

  Fixture() {
    make_database(path, "upstream", &clock);
    app = std::make_unique<Connection>(path);
  }
  Status emit(std::int64_t ttl_ms, const std::string& payload = "{}") {
    OutboxOptions options;
    options.clock = &clock;
    Outbox outbox;
    must(Outbox::attach(*app, options, outbox));
    Event event = sensor_event("a", payload);
    event.ttl_ms = ttl_ms;
    app->run("BEGIN IMMEDIATE");
    const Status status = outbox.emit(event);
    app->run("COMMIT");
    return status;
  }
  void insert(const std::string& ttl) const {
    app->run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload,ttl_ms)"
        " VALUES('t','sensor','a','sql'," +
        ttl + ")");
  }
  std::string relay() {
    RelayOptions options;
    options.database = path;
    options.sink = &sink;
    options.clock = &clock;
    Relay relay;
    must(Relay::start(options, relay));
    CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.drained; }));
    must(relay.stop());
    std::string out;
    for (const std::string& payload : sink.payloads()) out += payload;
    return out;
  }
  std::string gaps() const {
    return app->text(
        "SELECT group_concat(first_seq||'-'||last_seq||' '||count||' '||reason,'; ')"
        " FROM outbox_gap");
  }
};

}  // namespace

TEST_CASE(
    "an event past its time is given up with a gap, one a moment before it is sent (G7, G9)") {
  Fixture f;
  must(f.emit(10 * kMinute, "1"));
  must(f.emit(20 * kMinute, "2"));
  must(f.emit(0, "3"));
  must(f.emit(10 * kMinute, "4"));
  must(f.emit(10 * kMinute, "5"));
  f.clock.advance(10 * kMinute);
  CHECK(f.relay() == "23");
  CHECK(f.gaps() == "1-1 1 expired; 4-5 2 expired");
  StoreOptions options;
  options.clock = &f.clock;
  Store store;
  must(Store::open(f.path, Access::read_only, options, store));
  StoreStats stats;
  must(store.stats(stats));
  CHECK(stats.expired == 3);
  CHECK(stats.destinations[0].pending == 0);
  CHECK(stats.destinations[0].gone == 3);
  std::vector<EventView> views;
  must(store.find(4, views));
  CHECK(views[0].state == EventState::gone);
  CHECK(views[0].gone_reason.find("expired") == 0);
  CHECK(f.relay() == "23");  // once
  must(store.stats(stats));
  CHECK(stats.expired == 3);

  Fixture g;
  must(g.emit(10 * kMinute, "1"));
  g.clock.advance(10 * kMinute - 1);
  CHECK(g.relay() == "1");
}

TEST_CASE("the wall clock neither ages an event nor keeps it (G7)") {
  for (const std::int64_t wall : {std::int64_t{0}, ManualClock::kStartWallMs * 2}) {
    Fixture f;
    must(f.emit(10 * kMinute, "1"));
    f.clock.set_wall(wall);
    CHECK(f.relay() == "1");
    must(f.emit(10 * kMinute, "2"));
    f.clock.set_wall(ManualClock::kStartWallMs);
    f.clock.advance(11 * kMinute);
    CHECK(f.relay() == "1");
  }
}

TEST_CASE("time switched off counts only as far as it is known (G7)") {
  for (const bool known : {true, false}) {
    Fixture f;
    must(f.emit(10 * kMinute, "1"));
    f.clock.reboot(60 * kMinute, known);
    CHECK(f.relay() == (known ? "" : "1"));
  }
}

TEST_CASE("plain SQL: late by at most the distance to the next sample, never early (G7)") {
  Fixture f;
  f.insert(std::to_string(10 * kMinute));
  f.clock.advance(30 * kMinute);
  f.app->run("BEGIN IMMEDIATE; UPDATE holdfast_meta SET value=value WHERE key='device'; COMMIT");
  // No sample since: nobody knows how old it is.
  Fixture dated;
  dated.insert(std::to_string(10 * kMinute));
  dated.sink.reachable = [] { return Status::error(Code::unavailable, "no"); };
  RelayOptions options;
  options.database = dated.path;
  options.sink = &dated.sink;
  options.clock = &dated.clock;
  Relay relay;
  must(Relay::start(options, relay));
  CHECK(relay.wait(kWaitMs, [&](const RelayState&) {
    return dated.app->number("SELECT max(last_seq) FROM holdfast_time") == 1;
  }));
  must(relay.stop());
  CHECK(f.relay() == "sql");
}

TEST_CASE("a time to live that is none is refused, by every kind of writer (G8)") {
  Fixture f;
  CHECK(f.emit(-1).code() == Code::invalid);
  CHECK(f.emit(kMaxTtlMs + 1).code() == Code::invalid);
  for (const char* ttl : {"0", "-1", "'soon'", "1.5", "3153600000001"}) {
    CAPTURE(std::string(ttl));
    CHECK_THROWS(f.insert(ttl));
  }
  f.insert("NULL");
  f.insert("1");
}

TEST_CASE("an expired event reaches the gateway as a gap, counted there as well (G9)") {
  const Database db;
  const RunResult made = command(
      {"emit", db.path(), "--type", "t", "--aggregate", "a/x", "--payload", "{}", "--ttl", "1ms"});
  CHECK(made.code() == 0);
  write_file(db.file("lines"), R"({"event_type":"t","aggregate_type":"a","aggregate_id":"x",)"
                               R"("payload":"1","ttl_ms":600000})"
                               "\n");
  CHECK(command({"emit", db.path(), "--ndjson", db.file("lines")}).code() == 0);
  CHECK(json_lines(command({"ls", db.path(), "--json"}).out)[1]["ttl_ms"] == 600'000);
  Process gateway = start_command({"gateway", db.file("gw.db"), "--listen", "tcp://127.0.0.1:0"});
  const std::string line = gateway.wait_for_stderr("tcp://127.0.0.1:", kWaitMs);
  CHECK(command({"relay", db.path(), "--to", line.substr(line.find("tcp://")), "--drain"}).code() ==
        0);
  CHECK(json_lines(command({"ls", db.path(), "--status", "gone", "--json"}).out).size() == 1);
  const std::vector<Json> there =
      json_lines(command({"inbox", "stats", db.file("gw.db"), "--json"}).out);
  CHECK(there[0]["gone"] == 1);
  CHECK(there[0]["applied"] == 1);
  CHECK(json_lines(command({"stats", db.path(), "--json"}).out)[0]["expired"] == 1);
}
