#include "support/world.hpp"

#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <stdexcept>

#include "holdfast/gateway.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/relay.hpp"
#include "support/connection.hpp"

namespace holdfast::test {
namespace {

constexpr int kWaitMs = 60'000;
constexpr int kSensors = 3;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// --- the programs ------------------------------------------------------------------------------

int run_device(const Arguments& arguments) {
  Connection app(arguments.text("db"));
  Outbox outbox;
  must(Outbox::attach(app, {}, outbox));
  const bool two_commits = arguments.number("two_commits") != 0;
  const std::int64_t first = app.number("SELECT ifnull(max(n),0) FROM reading") + 1;
  for (std::int64_t i = 1; i <= arguments.number("count"); ++i) {
    const std::int64_t n = first + i - 1;
    const std::string sensor = "s" + std::to_string(n % kSensors);
    const std::string payload = std::to_string(n);
    app.run("BEGIN IMMEDIATE");
    app.run("INSERT INTO reading VALUES(" + payload + ",'" + sensor + "')");
    if (two_commits) app.run("COMMIT");
    if (i == arguments.number("kill_between")) die();
    if (two_commits) app.run("BEGIN IMMEDIATE");
    must(outbox.emit(sensor_event(sensor, payload)));
    if (i == arguments.number("kill_before_commit")) die();
    app.run("COMMIT");
    if (i == arguments.number("kill_after_commit")) die();
  }
  return 0;
}

int die_after_commit(void*, sqlite3*, const char*, int) { die(); }

int run_gateway(const Arguments& arguments) {
  std::int64_t calls = 0;
  GatewayOptions options;
  options.database = arguments.text("db");
  options.listen = {"tcp://127.0.0.1:0"};
  options.handler = [&](const EventRecord& event, sqlite3* db) {
    ++calls;
    sqlite3_exec(db,
                 ("INSERT INTO effect VALUES('" + event.id.text() + "','" + event.aggregate_id +
                  "'," + event.payload + ")")
                     .c_str(),
                 nullptr, nullptr, nullptr);
    if (calls == arguments.number("kill_in_handler")) die();
    // SQLite calls the WAL hook when the commit is durable, before COMMIT returns to the gateway.
    if (calls == arguments.number("kill_after_commit"))
      sqlite3_wal_hook(db, die_after_commit, nullptr);
    return HandlerResult::done();
  };
  Gateway gateway;
  must(Gateway::start(options, gateway));
  say("listening " + gateway.urls().front());
  for (;;) must(gateway.poll(1000));
}

// The control: applies what it is given, and keeps no record of having done so.
class NaiveConsumer : public Sink {
 public:
  explicit NaiveConsumer(const std::string& path) : db_(path) {}
  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>&) override {
    db_.run("BEGIN IMMEDIATE");
    for (const EventRecord& event : events)
      db_.run("INSERT INTO effect VALUES('" + event.id.text() + "','" + event.aggregate_id + "'," +
              event.payload + ")");
    db_.run("COMMIT");
    return Status();
  }

 private:
  Connection db_;
};

int run_relay(const Arguments& arguments) {
  std::unique_ptr<NaiveConsumer> naive;
  RelayOptions options;
  options.database = arguments.text("db");
  options.url = arguments.text("url");
  options.flush_interval_ms = arguments.number("flush", 20);
  options.link_delay_min_ms = 5;
  options.link_delay_max_ms = 50;
  options.request_timeout_ms = arguments.number("request_timeout", 2'000);
  options.batch_events_max = static_cast<int>(arguments.number("batch", 16));
  if (arguments.number("naive") != 0) {
    naive = std::make_unique<NaiveConsumer>(arguments.text("gateway_db"));
    options.sink = naive.get();
    options.url.clear();
  }
  Relay relay;
  must(Relay::start(options, relay));
  say("started");
  const std::int64_t kill_after_sent = arguments.number("kill_after_sent");
  const bool drain = arguments.number("drain") != 0;
  const auto done = [&](const RelayState& state) {
    if (kill_after_sent > 0 && state.sent_events >= kill_after_sent) die();
    return state.phase == RelayState::Phase::failed ||
           (drain && state.drained && state.pending_events == 0);
  };
  while (!relay.wait(kWaitMs, done)) {
  }
  must(relay.stop());
  return 0;
}

const Program kDevice("device", run_device);
const Program kGateway("gateway", run_gateway);
const Program kRelay("relay", run_relay);

}  // namespace

World::World() {
  make_database(device_db_);
  Connection(device_db_).run("CREATE TABLE reading(n INTEGER PRIMARY KEY, sensor TEXT)");
  make_database(gateway_db_, "");
  Connection(gateway_db_).run("CREATE TABLE effect(event_id, sensor, n INTEGER)");
}

Process World::device(const Options& options) {
  Options all = options;
  all["db"] = device_db_;
  return start_program("device", all);
}

Process World::gateway(const Options& options) {
  Options all = options;
  all["db"] = gateway_db_;
  Process process = start_program("gateway", all);
  const std::string line = process.wait_for_stdout("listening ", kWaitMs);
  if (line.empty()) throw std::runtime_error("gateway: " + process.stderr_text());
  wire_.set_backend(line);
  return process;
}

Process World::relay(const Options& options) {
  Options all = options;
  all["db"] = device_db_;
  all["gateway_db"] = gateway_db_;
  all["url"] = wire_.url();
  return start_program("relay", all);
}

bool World::drain(const Options& relay_options) {
  wire_.set_judge({});
  Options all = relay_options;
  all["drain"] = "1";
  Process gateway_process = gateway();
  Process relay_process = relay(all);
  const ExitStatus end = relay_process.wait(kWaitMs);
  return end.exited && end.code == 0;
}

std::int64_t World::acked() const {
  return Connection(device_db_).number("SELECT acked_seq FROM outbox_destination");
}

std::int64_t World::effects() const {
  return Connection(gateway_db_).number("SELECT count(*) FROM effect");
}

Verdict World::verdict() const {
  Verdict out;
  Connection device(device_db_);
  Connection gateway(gateway_db_);
  out.sound = device.text("PRAGMA integrity_check") == "ok" &&
              gateway.text("PRAGMA integrity_check") == "ok";
  out.committed = device.number("SELECT count(*) FROM reading");
  out.without_event = device.number(
      "SELECT (SELECT count(*) FROM reading WHERE CAST(n AS TEXT) NOT IN (SELECT payload FROM"
      " outbox_event))+(SELECT count(*) FROM outbox_event WHERE payload NOT IN (SELECT CAST(n AS"
      " TEXT) FROM reading))");
  std::set<std::string> applied;
  for (const std::string& id : gateway.column("SELECT event_id FROM effect"))
    if (!applied.insert(id).second) ++out.twice;
  for (const std::string& id : device.column("SELECT event_id FROM outbox_event"))
    out.lost += applied.count(id) == 0 ? 1 : 0;
  out.out_of_order = gateway.number(
      "SELECT count(*) FROM effect a WHERE EXISTS(SELECT 1 FROM effect b WHERE b.sensor=a.sensor"
      " AND b.rowid<a.rowid AND b.n>a.n)");
  std::set<std::string> readings;
  for (const std::string& n : device.column("SELECT n FROM reading")) readings.insert(n);
  for (const std::string& n : gateway.column("SELECT n FROM effect"))
    out.invented += readings.count(n) == 0 ? 1 : 0;
  return out;
}

std::string Verdict::text() const {
  return "committed " + std::to_string(committed) + ", without event " +
         std::to_string(without_event) + ", lost " + std::to_string(lost) + ", twice " +
         std::to_string(twice) + ", out of order " + std::to_string(out_of_order) + ", invented " +
         std::to_string(invented) + (sound ? "" : ", damaged");
}

bool was_killed(Process& process) {
  const ExitStatus end = process.wait(kWaitMs);
  return end.signalled && end.signal == SIGKILL;
}

}  // namespace holdfast::test
