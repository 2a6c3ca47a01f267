#include "holdfast/relay.hpp"

#include <doctest/doctest.h>

#include <atomic>

#include "db.hpp"
#include "holdfast/outbox.hpp"
#include "platform.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/sinks.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 30'000;

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  std::unique_ptr<Connection> app;
  MemorySink sink;

  Fixture() {
    make_database(path);
    app = std::make_unique<Connection>(path);
  }
  RelayOptions options() {
    RelayOptions out;
    out.database = path;
    out.sink = &sink;
    out.retry_delay_min_ms = 5;
    out.retry_delay_max_ms = 20;
    out.link_delay_min_ms = 5;
    out.link_delay_max_ms = 20;
    return out;
  }
  std::string states() const {
    return app->text(
        "SELECT group_concat(status) FROM (SELECT status FROM outbox_status ORDER BY seq)");
  }
};

bool drained(const RelayState& state) { return state.drained; }

void insert(Connection& app, const std::string& aggregate, const std::string& payload,
            int lane = kLaneNormal) {
  app.run(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,lane,payload)"
      " VALUES('t','sensor','" +
      aggregate + "'," + std::to_string(lane) + ",'" + payload + "')");
}

}  // namespace

TEST_CASE(
    "what was committed before and after the start arrives once, in order, and is SENT (G3, G5)") {
  Fixture f;
  insert_events(*f.app, 3000);
  Relay relay;
  must(Relay::start(f.options(), relay));
  CHECK(f.sink.wait_for(3000, kWaitMs));
  insert_events(*f.app, 10, "b");  // noticed without a wake()
  CHECK(f.sink.wait_for(3010, kWaitMs));
  must(relay.stop());
  const std::vector<EventRecord> events = f.sink.stored();
  REQUIRE(events.size() == 3010);
  for (std::size_t i = 0; i < events.size(); ++i)
    CHECK(events[i].seq == static_cast<std::int64_t>(i + 1));
  CHECK(f.app->number("SELECT count(*) FROM outbox_status WHERE status<>'SENT'") == 0);
  CHECK(f.app->text("SELECT lease_owner FROM outbox_destination").empty());
}

TEST_CASE("a firmware's own commit wakes its relay through Outbox.on_commit") {
  Fixture f;
  Relay relay;
  must(Relay::start(f.options(), relay));
  OutboxOptions options;
  options.on_commit = relay.waker();
  Outbox outbox;
  must(Outbox::attach(*f.app, options, outbox));
  for (int i = 1; i <= 20; ++i) {
    f.app->run("BEGIN IMMEDIATE");
    must(outbox.emit(sensor_event("a")));
    f.app->run("COMMIT");
    CHECK(f.sink.wait_for(static_cast<std::size_t>(i), kWaitMs));
  }
  must(relay.stop());
  options.on_commit();  // the relay is gone; nothing happens
  f.app->run("BEGIN IMMEDIATE");
  must(outbox.emit(sensor_event("a")));
  f.app->run("COMMIT");
}

TEST_CASE("an unreachable destination costs no attempt and no write per event, and heals (G6)") {
  Fixture f;
  std::atomic<bool> up{false};
  f.sink.reachable = [&] {
    return up ? Status() : Status::error(Code::unavailable, "the cable is out");
  };
  Relay relay;
  must(Relay::start(f.options(), relay));
  CHECK(f.sink.wait_for_calls(0, kWaitMs));
  insert_events(*f.app, 500);
  CHECK(f.sink.wait_for_calls(30, kWaitMs));
  const std::int64_t wal = wal_file_bytes(f.path);
  CHECK(f.sink.wait_for_calls(60, kWaitMs));
  CHECK(wal_file_bytes(f.path) == wal);
  CHECK(f.app->number("SELECT count(*) FROM outbox_exception") == 0);
  CHECK(f.app->number("SELECT retries+rejected FROM outbox_destination") == 0);
  CHECK(relay.state().last_error.code() == Code::unavailable);
  up = true;
  CHECK(relay.wait(kWaitMs, drained));
  CHECK(f.sink.stored().size() == 500);
  must(relay.stop());
}

TEST_CASE("a rejected event holds back its own aggregate alone, and goes on in order (G5)") {
  Fixture f;
  for (int i = 1; i <= 4; ++i) {
    insert(*f.app, "a", "a" + std::to_string(i));
    insert(*f.app, "b", "b" + std::to_string(i));
  }
  std::atomic<int> rejections{0};
  std::atomic<bool> b_arrived{false};
  f.sink.answer = [&](const EventRecord& event) {
    Outcome outcome;
    if (event.payload == "b4") b_arrived = true;
    if (event.payload == "a2" && (rejections < 3 || !b_arrived)) {
      ++rejections;
      outcome.kind = Outcome::Kind::rejected;
      outcome.reason = "not now";
    }
    return outcome;
  };
  RelayOptions options = f.options();
  options.batch_events_max = 1;  // a sink says nothing of what follows in its batch
  options.dead_after = 1'000'000;
  Relay relay;
  must(Relay::start(options, relay));
  CHECK(f.sink.wait_for(8, kWaitMs));
  must(relay.stop());
  std::string a, b;
  for (const std::string& payload : f.sink.payloads()) (payload[0] == 'a' ? a : b) += payload;
  CHECK(a == "a1a2a3a4");
  CHECK(b == "b1b2b3b4");
  CHECK(f.sink.payloads().back()[0] == 'a');  // b was not held up
  CHECK(f.app->number("SELECT count(*) FROM outbox_exception") == 0);
  CHECK(f.app->number("SELECT rejected FROM outbox_destination") == rejections);
}

TEST_CASE(
    "after N rejections an event is DEAD with the reason, and its aggregate flows on (G5, G8)") {
  Fixture f;
  for (const char* payload : {"1", "2", "3"}) insert(*f.app, "a", payload);
  f.sink.answer = [](const EventRecord& event) {
    Outcome outcome;
    if (event.payload == "2") {
      outcome.kind = Outcome::Kind::rejected;
      outcome.reason = "no such sensor";
    }
    return outcome;
  };
  RelayOptions options = f.options();
  options.dead_after = 3;
  Relay relay;
  must(Relay::start(options, relay));
  CHECK(f.sink.wait_for(2, kWaitMs));
  CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.dead == 1; }));
  must(relay.stop());
  CHECK(f.states() == "SENT,DEAD,SENT");
  CHECK(f.app->text("SELECT attempts||' '||last_error FROM outbox_exception") ==
        "3 no such sensor");
}

TEST_CASE("one undecodable row is DEAD with the reason; everything else arrives (G10)") {
  Fixture f;
  insert_events(*f.app, 300);
  f.app->run("PRAGMA ignore_check_constraints=ON");
  f.app->run(
      "INSERT INTO outbox_event(event_id,event_type,aggregate_type,aggregate_id,payload)"
      " VALUES('garbage',x'ff','a','x',x'00')");
  f.app->run("PRAGMA ignore_check_constraints=OFF");
  insert_events(*f.app, 300);
  Relay relay;
  must(Relay::start(f.options(), relay));
  CHECK(relay.wait(kWaitMs,
                   [](const RelayState& state) { return state.drained && state.dead == 1; }));
  must(relay.stop());
  CHECK(f.sink.stored().size() == 600);
  CHECK(f.app->text("SELECT seq||status FROM outbox_exception") == "301DEAD");
  CHECK(f.app->text("SELECT last_error FROM outbox_exception").size() > 5);
}

TEST_CASE("urgent events overtake a backlog; order holds within a lane (G5)") {
  Fixture f;
  insert_events(*f.app, 2000);
  for (int i = 1; i <= 3; ++i) insert(*f.app, "alarm", "urgent" + std::to_string(i), kLaneUrgent);
  RelayOptions options = f.options();
  options.batch_events_max = 50;
  Relay relay;
  must(Relay::start(options, relay));
  CHECK(f.sink.wait_for(2003, kWaitMs));
  must(relay.stop());
  const std::vector<std::string> payloads = f.sink.payloads();
  CHECK(payloads[0] == "urgent1");
  CHECK(payloads[1] == "urgent2");
  CHECK(payloads[2] == "urgent3");
}

TEST_CASE("one dead destination never delays another (G3)") {
  Fixture f;
  MemorySink dead;
  dead.reachable = [] { return Status::error(Code::unavailable, "gone"); };
  Relay good, bad;
  RelayOptions options = f.options();
  options.destination = "archive";
  options.sink = &dead;
  must(Relay::start(options, bad));
  must(Relay::start(f.options(), good));
  insert_events(*f.app, 500);
  CHECK(f.sink.wait_for(500, kWaitMs));
  CHECK(dead.wait_for_calls(1, kWaitMs));
  must(good.stop());
  must(bad.stop());
  CHECK(f.app->number("SELECT acked_seq FROM outbox_destination WHERE name='upstream'") == 500);
  CHECK(f.app->number("SELECT acked_seq FROM outbox_destination WHERE name='archive'") == 0);
  Store store;
  must(Store::open(f.path, Access::read_write, {}, store));
  PurgeOptions purge;
  purge.outbox_older_than_ms = 0;
  PurgeResult result;
  must(store.purge(purge, result));
  CHECK(result.outbox_rows == 0);
}

TEST_CASE(
    "of two relays on one destination one stands by, and takes over when the first stops (G3)") {
  Fixture f;
  MemorySink other;
  insert_events(*f.app, 10);
  Relay first, second;
  must(Relay::start(f.options(), first));
  CHECK(f.sink.wait_for(10, kWaitMs));
  RelayOptions options = f.options();
  options.sink = &other;
  must(Relay::start(options, second));
  insert_events(*f.app, 10);
  CHECK(f.sink.wait_for(20, kWaitMs));
  must(first.stop());
  insert_events(*f.app, 10);
  CHECK(other.wait_for(10, kWaitMs));
  must(second.stop());
  CHECK(f.sink.stored().size() == 20);
  CHECK(other.stored().size() == 10);
}

TEST_CASE("a person's retry and discard reach a running relay") {
  Fixture f;
  std::atomic<bool> accept{false};
  f.sink.answer = [&](const EventRecord&) {
    Outcome outcome;
    if (!accept) outcome.kind = Outcome::Kind::invalid;
    return outcome;
  };
  insert_events(*f.app, 2);
  Relay relay;
  must(Relay::start(f.options(), relay));
  CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.dead == 2; }));
  const auto written = [&] {
    return f.app->number("SELECT count(*) FROM outbox_exception WHERE status='DEAD'") == 2;
  };
  while (!written()) relay.wait(10, [](const RelayState&) { return false; });
  accept = true;
  Store store;
  must(Store::open(f.path, Access::read_write, {}, store));
  std::int64_t changed = 0;
  must(store.discard(1, "", "old", changed));
  CHECK(changed == 1);
  must(store.retry_all_dead("", changed));
  CHECK(changed == 1);
  CHECK(f.sink.wait_for(1, kWaitMs));
  must(relay.stop());
  CHECK(f.sink.stored()[0].seq == 2);
  CHECK(f.states() == "GONE,SENT");
}

TEST_CASE(
    "the WAL stays bounded while the relay keeps up with a producer that never checkpoints (G8)") {
  Fixture f;
  f.app->run("PRAGMA wal_autocheckpoint=0");
  Relay relay;
  must(Relay::start(f.options(), relay));
  const std::string payload(3000, 'x');
  for (int i = 0; i < 4000; ++i) insert(*f.app, "a", payload);
  CHECK(f.sink.wait_for(4000, kWaitMs));
  must(relay.stop());
  // Some 12,000 frames went through it.
  CHECK(wal_file_bytes(f.path) < std::int64_t{8} * kCheckpointFrames * 4120);
}

TEST_CASE("bad options and databases are refused at the start, each with its reason") {
  Fixture f;
  Relay relay;
  RelayOptions options = f.options();
  options.url = "tcp://127.0.0.1:1";
  CHECK(Relay::start(options, relay).code() == Code::invalid);
  options = f.options();
  options.sink = nullptr;
  CHECK(Relay::start(options, relay).code() == Code::invalid);
  options.url = "carrier-pigeon://roof";
  CHECK(Relay::start(options, relay).code() == Code::invalid);
  options = f.options();
  options.dead_after = 0;
  CHECK(Relay::start(options, relay).code() == Code::invalid);
  options = f.options();
  options.database = f.directory.file("none.db");
  CHECK(Relay::start(options, relay).code() == Code::not_found);
  options = f.options();
  options.destination = "nowhere";
  options.create_destination = false;
  CHECK(Relay::start(options, relay).code() == Code::not_found);
  CHECK(relay.stop().ok());
}

TEST_CASE("the relay's turns grow when it is woken, and stand still while its thread is held up") {
  Fixture f;
  std::atomic<bool> held{false};
  f.sink.reachable = [&] {
    while (held) platform::sleep_us(1'000);
    return Status();
  };
  Relay relay;
  must(Relay::start(f.options(), relay));
  const auto grows = [&](std::int64_t within_ms) {
    const std::int64_t turns = relay.state().turns;
    relay.wake();
    return relay.wait(within_ms, [&](const RelayState& state) { return state.turns > turns; });
  };
  REQUIRE(relay.wait(kWaitMs, drained));
  CHECK(grows(kWaitMs));
  CHECK(grows(kWaitMs));
  held = true;
  insert(*f.app, "a", "1");
  grows(500);  // the turn that meets it
  CHECK_FALSE(grows(500));
  held = false;
  CHECK(grows(kWaitMs));
  must(relay.stop());
}
