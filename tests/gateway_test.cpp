#include "holdfast/gateway.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <atomic>
#include <thread>

#include "holdfast/outbox.hpp"
#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/running_gateway.hpp"
#include "support/sinks.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 30'000;

struct Fixture {
  TemporaryDirectory directory;
  std::string device = directory.file("device.db");
  std::string gateway = directory.file("gateway.db");
  std::unique_ptr<Connection> app;

  Fixture() {
    make_database(device);
    app = std::make_unique<Connection>(device);
  }
  RelayOptions relay_to(const std::string& url) const {
    RelayOptions options;
    options.database = device;
    options.url = url;
    options.retry_delay_min_ms = 5;
    options.retry_delay_max_ms = 20;
    options.link_delay_min_ms = 5;
    options.link_delay_max_ms = 50;
    return options;
  }
  GatewayOptions gateway_options() const {
    GatewayOptions options;
    options.database = gateway;
    return options;
  }
  void drain(const std::string& url) const {
    Relay relay;
    must(Relay::start(relay_to(url), relay));
    CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.drained; }));
    must(relay.stop());
  }
};

}  // namespace

TEST_CASE(
    "firmware: emit in a transaction, relay and gateway carry it into the log, once, in order") {
  Fixture f;
  RunningGateway gateway(f.gateway_options());
  Relay relay;
  must(Relay::start(f.relay_to(gateway.url()), relay));
  OutboxOptions options;
  options.on_commit = relay.waker();
  Outbox outbox;
  must(Outbox::attach(*f.app, options, outbox));
  f.app->run("CREATE TABLE reading(n)");
  std::vector<EventId> ids;
  for (int i = 0; i < 300; ++i) {
    f.app->run("BEGIN IMMEDIATE; INSERT INTO reading VALUES(" + std::to_string(i) + ")");
    Emitted emitted;
    const std::string payload = std::to_string(i);
    must(outbox.emit(sensor_event("boiler", payload), &emitted));
    f.app->run("COMMIT");
    ids.push_back(emitted.id);
  }
  CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.sent_events == 300; }));
  must(relay.stop());
  gateway.stop();
  Connection log(f.gateway);
  const std::vector<std::string> stored =
      log.column("SELECT event_id FROM outbox_event ORDER BY seq");
  REQUIRE(stored.size() == 300);
  for (std::size_t i = 0; i < 300; ++i) CHECK(stored[i] == ids[i].text());
  CHECK(log.text("SELECT DISTINCT source FROM outbox_event") == "board-1");
  CHECK(log.number("SELECT count(*) FROM outbox_event WHERE source_seq<>seq") == 0);
  CHECK(f.app->number("SELECT count(*) FROM outbox_status WHERE status='SENT'") == 300);
}

TEST_CASE("every column of an event arrives as it was emitted") {
  Fixture f;
  f.app->run(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,aggregate_version,"
      "created_at,content_type,trace,headers,lane,payload) VALUES('t','a','x',-7,123,'c/t',"
      "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01','{\"k\":\"v\"}',1,x'00ff10')");
  RunningGateway gateway(f.gateway_options());
  f.drain(gateway.url());
  gateway.stop();
  Connection log(f.gateway);
  const char* const columns =
      "SELECT event_id||event_type||aggregate_type||aggregate_id||aggregate_version||created_at||"
      "content_type||trace||headers||lane||hex(payload)||typeof(payload) FROM outbox_event";
  CHECK(log.text(columns) == f.app->text(columns));
}

TEST_CASE("a handler's effect is there once, whatever is sent again after an inbox purge (G4)") {
  Fixture f;
  GatewayOptions options = f.gateway_options();
  options.consumer = "billing";
  std::atomic<int> calls{0};
  options.handler = [&](const EventRecord& event, sqlite3* db) {
    ++calls;
    sqlite3_exec(db, ("INSERT INTO effect VALUES('" + event.id.text() + "')").c_str(), nullptr,
                 nullptr, nullptr);
    return HandlerResult::done();
  };
  make_database(f.gateway, "");
  Connection log(f.gateway);
  log.run("CREATE TABLE effect(id)");
  RunningGateway gateway(options);
  insert_events(*f.app, 100);
  f.drain(gateway.url());
  CHECK(calls == 100);
  Store store;
  must(Store::open(f.gateway, Access::read_write, {}, store));
  PurgeOptions purge;
  purge.inbox_older_than_ms = 0;
  PurgeResult result;
  must(store.purge(purge, result));
  CHECK(log.number("SELECT count(*) FROM inbox_event") == 0);
  // The device's cursor goes back, as a lost flush or a restored page would make it.
  f.app->run("UPDATE outbox_destination SET acked_seq=40,claimed_seq=40,acked_id=NULL");
  f.drain(gateway.url());
  gateway.stop();
  CHECK(calls == 100);
  CHECK(log.number("SELECT count(*) FROM effect") == 100);
  CHECK(f.app->number("SELECT count(*) FROM outbox_status WHERE status<>'SENT'") == 0);
}

TEST_CASE("two consumers of one device are two gateways' marks: each event once for each (G4)") {
  Fixture f;
  make_database(f.gateway, "");
  insert_events(*f.app, 20);
  for (const char* consumer : {"billing", "alarms"}) {
    GatewayOptions options = f.gateway_options();
    options.consumer = consumer;
    std::atomic<int> calls{0};
    options.handler = [&](const EventRecord&, sqlite3*) {
      ++calls;
      return HandlerResult::done();
    };
    RunningGateway gateway(options);
    RelayOptions relay_options = f.relay_to(gateway.url());
    relay_options.destination = consumer;
    Relay relay;
    must(Relay::start(relay_options, relay));
    CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.drained; }));
    must(relay.stop());
    CHECK(calls == 20);
  }
  Connection log(f.gateway);
  CHECK(log.number("SELECT count(*) FROM inbox_event") == 40);
}

TEST_CASE("a batch with a refused event keeps 1, 2, 3 of its aggregate and lets others pass (G5)") {
  Fixture f;
  for (const char* sql : {"'a','1'", "'b','1'", "'a','2'", "'b','2'", "'a','3'", "'b','3'"})
    f.app->run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
        " VALUES('t','sensor'," +
        std::string(sql) + ")");
  GatewayOptions options = f.gateway_options();
  std::vector<std::string> applied;  // of the polling thread, until stop()
  int refusals = 0;
  options.handler = [&](const EventRecord& event, sqlite3*) {
    if (event.aggregate_id == "a" && event.payload == "1" && refusals < 3) {
      ++refusals;
      return refusals == 2 ? HandlerResult::retry_later(1, "busy") : HandlerResult::reject("no");
    }
    applied.push_back(event.aggregate_id + event.payload);
    return HandlerResult::done();
  };
  RunningGateway gateway(options);
  Relay relay;
  must(Relay::start(f.relay_to(gateway.url()), relay));
  CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.sent_events == 6; }));
  must(relay.stop());
  gateway.stop();
  std::string a, b;
  for (const std::string& one : applied) (one[0] == 'a' ? a : b) += one;
  CHECK(a == "a1a2a3");
  CHECK(b == "b1b2b3");
  CHECK(applied[0] == "b1");
  CHECK(f.app->number("SELECT count(*) FROM outbox_exception") == 0);
  CHECK(f.app->number("SELECT rejected FROM outbox_destination") == 2);
}

TEST_CASE("a gateway's log goes on to the next hop and to a sink, in order (G3, G5)") {
  Fixture f;
  RunningGateway gateway(f.gateway_options());
  MemorySink sink;
  RelayOptions onward;
  onward.database = f.gateway;
  onward.destination = "printer";
  onward.sink = &sink;
  Relay printer;
  must(Relay::start(onward, printer));
  insert_events(*f.app, 200);
  f.drain(gateway.url());
  CHECK(sink.wait_for(200, kWaitMs));
  must(printer.stop());
  gateway.stop();
  const std::vector<EventRecord> events = sink.stored();
  for (std::size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i].source == "board-1");
    CHECK(events[i].source_seq == static_cast<std::int64_t>(i + 1));
  }
}

TEST_CASE("v1…v9 queued offline, v10 during the drain: the consumer sees 1…10 in order (G5)") {
  Fixture f;
  GatewayOptions options = f.gateway_options();
  std::vector<std::string> seen;
  bool emitted = false;
  options.handler = [&](const EventRecord& event, sqlite3*) {
    if (!emitted) {
      emitted = true;
      Connection device(f.device);
      device.run(
          "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
          " VALUES('t','sensor','a','10')");
    }
    seen.push_back(event.payload);
    return HandlerResult::done();
  };
  insert_events(*f.app, 9);
  RunningGateway gateway(options);
  RelayOptions relay_options = f.relay_to(gateway.url());
  relay_options.batch_events_max = 2;
  Relay relay;
  must(Relay::start(relay_options, relay));
  CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.sent_events == 10; }));
  must(relay.stop());
  gateway.stop();
  CHECK(seen == std::vector<std::string>{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"});
}

TEST_CASE("a clock one hour back between v1 and v2: v1 still arrives first (G5, G7)") {
  Fixture f;
  const std::int64_t now = system_clock().wall_ms();
  for (const auto& [payload, at] :
       {std::pair<const char*, std::int64_t>{"v1", now}, {"v2", now - 3'600'000}})
    f.app->run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,created_at,payload)"
        " VALUES('t','sensor','a'," +
        std::to_string(at) + ",'" + payload + "')");
  RunningGateway gateway(f.gateway_options());
  f.drain(gateway.url());
  gateway.stop();
  Connection log(f.gateway);
  CHECK(log.text(
            "SELECT group_concat(payload) FROM (SELECT payload FROM outbox_event ORDER BY seq)") ==
        "v1,v2");
}

TEST_CASE("many devices at once: nothing lost, nothing twice, each in its order (G3, G4, G5)") {
  Fixture f;
  RunningGateway gateway(f.gateway_options());
  constexpr int kDevices = 8, kEvents = 100;
  std::vector<Relay> relays(kDevices);
  for (int i = 0; i < kDevices; ++i) {
    const std::string path = f.directory.file("d" + std::to_string(i));
    make_database(path);
    Connection app(path);
    insert_events(app, kEvents);
    RelayOptions options = f.relay_to(gateway.url());
    options.database = path;
    options.batch_events_max = 7;
    must(Relay::start(options, relays[static_cast<std::size_t>(i)]));
  }
  for (Relay& relay : relays) {
    CHECK(
        relay.wait(kWaitMs, [](const RelayState& state) { return state.sent_events == kEvents; }));
    must(relay.stop());
  }
  gateway.stop();
  Connection log(f.gateway);
  CHECK(log.number("SELECT count(*) FROM outbox_event") == kDevices * kEvents);
  CHECK(log.number("SELECT count(DISTINCT event_id) FROM outbox_event") == kDevices * kEvents);
  CHECK(log.number(
            "SELECT count(*) FROM (SELECT source_seq - row_number() OVER"
            " (PARTITION BY source_stream ORDER BY seq) AS d FROM outbox_event) WHERE d<>0") == 0);
}

TEST_CASE("a copied device is noticed, takes a new stream, and loses nothing (G11)") {
  Fixture f;
  RunningGateway gateway(f.gateway_options());
  insert_events(*f.app, 10);
  f.drain(gateway.url());
  f.app->run("PRAGMA wal_checkpoint(TRUNCATE)");
  const std::string clone = f.directory.file("clone.db");
  write_file(clone, read_file(f.device));
  insert_events(*f.app, 5, "original");
  f.drain(gateway.url());
  {
    Connection other(clone);
    insert_events(other, 5, "clone");
  }
  RelayOptions options = f.relay_to(gateway.url());
  options.database = clone;
  Relay relay;
  must(Relay::start(options, relay));
  CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.drained; }));
  must(relay.stop());
  gateway.stop();
  Connection log(f.gateway);
  CHECK(log.number("SELECT count(*) FROM outbox_event WHERE aggregate_id='original'") == 5);
  CHECK(log.number("SELECT count(*) FROM outbox_event WHERE aggregate_id='clone'") == 5);
  CHECK(log.number("SELECT count(*) FROM outbox_event") == 20);
  Connection other(clone);
  CHECK(other.number("SELECT value FROM holdfast_counter WHERE name='forks'") == 1);
}

TEST_CASE("a gateway restored from an old copy gets again what is kept (G3)") {
  Fixture f;
  std::string old;
  insert_events(*f.app, 10);
  {
    RunningGateway gateway(f.gateway_options());
    f.drain(gateway.url());
  }
  old = read_file(f.gateway);
  insert_events(*f.app, 10);
  {
    RunningGateway gateway(f.gateway_options());
    f.drain(gateway.url());
  }
  write_file(f.gateway, old);
  insert_events(*f.app, 1);
  {
    RunningGateway gateway(f.gateway_options());
    f.drain(gateway.url());
  }
  Connection log(f.gateway);
  CHECK(log.number("SELECT count(*) FROM outbox_event") == 21);
  CHECK(f.app->number("SELECT rewinds FROM outbox_destination") == 1);
}

TEST_CASE("more gap records than a batch may have: each is told, and none is passed by (G9)") {
  Fixture f;
  constexpr int kDiscarded = 300;  // a batch has room for 256
  insert_events(*f.app, 2 * kDiscarded + 1);
  // What `holdfast discard` leaves of events that went dead before the gateway was told.
  f.app->run(
      "INSERT INTO "
      "outbox_gap(destination_id,lane,first_seq,last_seq,count,reason,detail,created_at)"
      " SELECT d.id,0,seq,seq,1,'discarded','by hand',0 FROM outbox_destination d, outbox_event"
      " WHERE seq%2=0");
  RunningGateway gateway(f.gateway_options());
  f.drain(gateway.url());
  gateway.stop();
  Connection log(f.gateway);
  CHECK(log.number("SELECT count(*) FROM outbox_event") == kDiscarded + 1);
  CHECK(log.number("SELECT sum(count) FROM inbox_gap WHERE state='GONE'") == kDiscarded);
  CHECK(f.app->number("SELECT count(*) FROM outbox_gap WHERE reported=0") == 0);
}

TEST_CASE("a bad URL, a taken port and an unusable database are refused at the start, by name") {
  Fixture f;
  RunningGateway running(f.gateway_options());
  Gateway gateway;
  GatewayOptions options = f.gateway_options();
  options.database = f.directory.file("second.db");
  CHECK(Gateway::start(options, gateway).code() == Code::invalid);
  options.listen = {"nonsense"};
  CHECK(Gateway::start(options, gateway).code() == Code::invalid);
  options.listen = {running.url()};
  const Status taken = Gateway::start(options, gateway);
  CHECK_FALSE(taken.ok());
  CHECK(std::string(taken.text()).find(running.url()) != std::string::npos);
  options.listen = {"tcp://127.0.0.1:0"};
  options.consumer = "";
  CHECK(Gateway::start(options, gateway).code() == Code::invalid);
  options.consumer = "log";
  write_file(f.directory.file("text.db"), std::string(5000, 'x'));
  options.database = f.directory.file("text.db");
  CHECK(Gateway::start(options, gateway).code() == Code::corrupt);
  CHECK(gateway.poll(0).code() == Code::misuse);
}
