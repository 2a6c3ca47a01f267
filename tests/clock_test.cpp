// Boards without a clock, end to end (G7): 1970 at boot, the clock set late or never, jumps of
// years, another boot, suspend. Real outbox, relay and gateway; each promise with a control that
// breaks it.
#include <doctest/doctest.h>

#include <cstdlib>

#include "delivery.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/relay.hpp"
#include "platform.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"
#include "support/running_clock.hpp"
#include "support/running_gateway.hpp"
#include "support/sinks.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 30'000;
constexpr int kNeverMs = 1'500;  // long enough to see that something does not happen
constexpr std::int64_t kSecond = 1'000, kHour = 3'600'000, kYear = 365 * 24 * kHour;
constexpr std::int64_t kLease = 10'000;

bool drained(const RelayState& state) { return state.drained; }

// A board that comes up in 1970, its application and its relay.
struct Board {
  TemporaryDirectory directory;
  std::string path = directory.file("device.db");
  ManualClock clock;
  MemorySink sink;
  std::unique_ptr<Connection> app;
  Outbox outbox;

  Board() {
    make_database(path, "upstream", &clock);
    app = std::make_unique<Connection>(path);
    boot();
  }
  // The application starts with the board.
  void boot() {
    clock.reboot(kHour, false);
    OutboxOptions options;
    options.clock = &clock;
    must(Outbox::attach(*app, options, outbox));
  }
  std::int64_t right() const { return ManualClock::kStartWallMs + clock.boot_ms(); }
  void set_clock() { clock.set_wall(right()); }
  // Ten seconds later, an event; gives the right time of it.
  std::int64_t emit(std::int64_t ttl_ms = 0) {
    clock.advance(10 * kSecond);
    app->run("BEGIN IMMEDIATE");
    Event event = sensor_event("a");
    event.ttl_ms = ttl_ms;
    must(outbox.emit(event));
    app->run("COMMIT");
    return right();
  }
  RelayOptions options() {
    RelayOptions options;
    options.database = path;
    options.clock = &clock;
    options.lease_ms = kLease;
    options.link_delay_min_ms = 5;
    options.link_delay_max_ms = 20;
    return options;
  }
  void drain_to(const std::string& url) {
    RelayOptions to = options();
    to.url = url;
    Relay relay;
    must(Relay::start(to, relay));
    CHECK(relay.wait(kWaitMs, drained));
    must(relay.stop());
  }
  std::vector<std::int64_t> drain_to_sink() {
    RelayOptions to = options();
    to.sink = &sink;
    Relay relay;
    must(Relay::start(to, relay));
    CHECK(relay.wait(kWaitMs, drained));
    must(relay.stop());
    std::vector<std::int64_t> times;
    for (const EventRecord& event : sink.stored()) times.push_back(event.created_at_ms);
    return times;
  }
  std::int64_t set_samples() const {
    return app->number(
        "SELECT count(*) FROM holdfast_time WHERE wall_ms>=1704067200000"
        " AND boot_id='" +
        clock.boot_id() + "'");
  }
};

struct Upstream {
  TemporaryDirectory directory;
  std::string path = directory.file("gateway.db");
  RunningGateway gateway{options()};

  GatewayOptions options() const {
    GatewayOptions options;
    options.database = path;
    return options;
  }
  std::vector<std::int64_t> created() const {
    std::vector<std::int64_t> times;
    for (const std::string& text :
         Connection(path).column("SELECT created_at FROM outbox_event ORDER BY seq"))
      times.push_back(std::stoll(text));
    return times;
  }
};

// A relay that holds the lease and hangs: alive, but it does nothing.
struct HungRelay {
  Delivery delivery;
  HungRelay(const std::string& path, const Clock& clock) {
    must(delivery.open(path, "upstream", false, clock));
    bool acquired = false;
    DestinationRow row;
    must(delivery.acquire(platform::process_token() + "/1", kLease, acquired, row));
    REQUIRE(acquired);
  }
};

// Whether the relay does it within `ms`; woken all the while, for a manual clock stands.
bool does(Relay& relay, int ms, const std::function<bool(const RelayState&)>& what) {
  for (int waited = 0; waited < ms; waited += 10) {
    relay.wake();
    if (relay.wait(10, what)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("1970 at boot, emit, clock set, emit: the gateway gets the right times (G7)") {
  Board board;
  Upstream upstream;
  std::vector<std::int64_t> right;
  for (int i = 0; i < 3; ++i) right.push_back(board.emit());
  board.set_clock();
  for (int i = 0; i < 2; ++i) right.push_back(board.emit());
  board.drain_to(upstream.gateway.url());
  upstream.gateway.stop();
  CHECK(upstream.created() == right);
  // The control: as emitted, the first three are of 1970.
  CHECK(board.app->number("SELECT count(*) FROM outbox_event WHERE created_at<100000000") == 3);
  const RunResult there = command({"ls", upstream.path, "--json", "--status", "all"});
  CHECK(there.out.find("created_at_known") == std::string::npos);
  const std::vector<Json> here =
      json_lines(command({"ls", board.path, "--json", "--status", "all"}).out);
  REQUIRE(here.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) CHECK(here[i].at("created_at") == right[i]);
}

TEST_CASE("a clock that is never set: the event's time is marked unknown on both sides (G7, G9)") {
  Board board;
  Upstream upstream;
  board.emit();
  board.drain_to(upstream.gateway.url());
  board.boot();
  board.set_clock();  // of the next boot, too late for the first event
  const std::int64_t right = board.emit();
  board.drain_to(upstream.gateway.url());
  upstream.gateway.stop();
  for (const std::string& path : {board.path, upstream.path}) {
    CAPTURE(path);
    const std::vector<Json> lines =
        json_lines(command({"ls", path, "--json", "--status", "all"}).out);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].at("created_at_known") == false);
    CHECK(lines[0].at("created_at") == 10'000);
    CHECK_FALSE(lines[1].contains("created_at_known"));
    CHECK(lines[1].at("created_at") == right);
    CHECK(command({"show", path, "1"}).out.find("unknown (clock was not set)") !=
          std::string::npos);
    CHECK(command({"show", path, "2"}).out.find("unknown (clock was not set)") ==
          std::string::npos);
  }
  // A printed line can be emitted again.
  const std::string line = command({"ls", board.path, "--json", "--status", "all"}).out;
  write_file(board.directory.file("lines"), line.substr(0, line.find('\n') + 1));
  Database copy;
  const RunResult again = command({"emit", copy.path(), "--ndjson", board.directory.file("lines")});
  CAPTURE(again.err);
  CHECK(again.code() == 0);
}

TEST_CASE("an offline relay notes that the clock was set; the time survives the next boot (G7)") {
  for (const bool relay_runs : {true, false}) {  // false: the control, nobody noted it
    CAPTURE(relay_runs);
    Board board;
    const std::int64_t right = board.emit();
    RelayOptions offline = board.options();
    offline.url = "ipc://" + board.directory.file("nobody");  // so it takes no lease either
    Relay relay;
    if (relay_runs) {
      must(Relay::start(offline, relay));
      CHECK(relay.wait(kWaitMs, [](const RelayState& state) { return state.link_failures > 0; }));
    }
    board.clock.advance(kSecond);
    board.set_clock();
    if (relay_runs)
      CHECK(does(relay, kWaitMs, [&](const RelayState&) { return board.set_samples() == 1; }));
    must(relay.stop());
    board.boot();
    const std::vector<std::int64_t> times = board.drain_to_sink();
    REQUIRE(times.size() == 1);
    CHECK(times[0] == (relay_runs ? right : 10'000));
  }
}

TEST_CASE("the application's next emit notes that the clock was set, once, also after a rollback") {
  Board board;
  const std::int64_t right = board.emit();
  board.set_clock();
  CHECK(board.set_samples() == 0);
  for (int i = 0; i < 2; ++i) {
    board.app->run("BEGIN IMMEDIATE");
    must(board.outbox.emit(sensor_event("a")));
    CHECK(board.set_samples() == 1);
    board.app->run("ROLLBACK");
    CHECK(board.set_samples() == 0);
  }
  for (int i = 0; i < 3; ++i) board.emit();
  CHECK(board.set_samples() == 1);
  board.boot();
  CHECK(board.drain_to_sink().at(0) == right);
}

TEST_CASE("the age of the oldest pending event is right across a clock that was set (G7)") {
  Board board;
  board.emit();
  board.clock.advance(50 * kSecond);
  board.set_clock();
  StoreOptions options;
  options.clock = &board.clock;
  Store store;
  must(Store::open(board.path, Access::read_only, options, store));
  StoreStats stats;
  must(store.stats(stats));
  CHECK(stats.destinations.at(0).oldest_pending_age_ms == 50 * kSecond);
}

TEST_CASE("a standby relay waits for the lease, whatever years the wall clock jumps (G7)") {
  for (const bool right_clock : {true, false}) {  // false: the control
    CAPTURE(right_clock);
    Board board;
    board.set_clock();
    board.emit();
    const WallForBootClock wall_for_boot(board.clock);
    const Clock& clock = right_clock ? static_cast<const Clock&>(board.clock) : wall_for_boot;
    const HungRelay hung(board.path, clock);
    RelayOptions options = board.options();
    options.sink = &board.sink;
    options.clock = &clock;
    Relay standby;
    must(Relay::start(options, standby));
    board.clock.set_wall(board.right() + 5 * kYear);
    CHECK(does(standby, kNeverMs, drained) == !right_clock);
    must(standby.stop());
    if (!right_clock) continue;
    must(Relay::start(options, standby));
    board.clock.set_wall(0);
    board.clock.advance(kLease + 1);
    CHECK(does(standby, kWaitMs, drained));
    must(standby.stop());
    CHECK(board.sink.stored().size() == 1);
  }
}

TEST_CASE(
    "after a reboot a lease is void at once, also when no clock tells one boot from another") {
  for (const bool rebooted : {true, false}) {  // false: the control
    CAPTURE(rebooted);
    Board board;
    board.emit();
    const HungRelay hung(board.path, board.clock);
    if (rebooted) board.clock.reboot(0, false);
    RelayOptions options = board.options();
    options.sink = &board.sink;
    Relay relay;
    must(Relay::start(options, relay));
    CHECK(does(relay, rebooted ? kWaitMs : kNeverMs, drained) == rebooted);
    must(relay.stop());
  }
}

TEST_CASE("back-off goes on by boot time while the wall clock jumps years (G7)") {
  for (const bool right_clock : {true, false}) {  // false: the control
    for (const std::int64_t wall : {std::int64_t{0}, ManualClock::kStartWallMs + 5 * kYear}) {
      CAPTURE(right_clock);
      CAPTURE(wall);
      Board board;
      board.set_clock();
      const WallForBootClock wall_for_boot(board.clock);
      const Clock& clock = right_clock ? static_cast<const Clock&>(board.clock) : wall_for_boot;
      board.emit();
      std::atomic<bool> accept{false};
      board.sink.answer = [&](const EventRecord&) {
        Outcome outcome;
        if (!accept) outcome.kind = Outcome::Kind::rejected;
        return outcome;
      };
      RelayOptions options = board.options();
      options.sink = &board.sink;
      options.clock = &clock;
      options.retry_delay_min_ms = options.retry_delay_max_ms = 60 * kSecond;
      Relay relay;
      must(Relay::start(options, relay));
      REQUIRE(board.sink.wait_for_calls(1, kWaitMs));
      accept = true;
      board.clock.set_wall(wall);
      const bool early =
          does(relay, kNeverMs, [&](const RelayState&) { return !board.sink.stored().empty(); });
      board.clock.advance(61 * kSecond);
      const bool due = does(relay, right_clock ? kWaitMs : kNeverMs,
                            [&](const RelayState&) { return !board.sink.stored().empty(); });
      must(relay.stop());
      CHECK((!early && due) == right_clock);  // else too early (5 years on), or never (in 1970)
    }
  }
}

TEST_CASE("years that only the wall clock passed give no event up (G7)") {
  for (const bool right_clock : {true, false}) {  // false: the control
    CAPTURE(right_clock);
    Board board;
    board.set_clock();
    const WallForBootClock wall_for_boot(board.clock);
    const Clock& clock = right_clock ? static_cast<const Clock&>(board.clock) : wall_for_boot;
    OutboxOptions outbox;
    outbox.clock = &clock;
    must(Outbox::attach(*board.app, outbox, board.outbox));
    board.emit(kHour);
    board.clock.set_wall(board.right() + 5 * kYear);
    RelayOptions options = board.options();
    options.sink = &board.sink;
    options.clock = &clock;
    Relay relay;
    must(Relay::start(options, relay));
    CHECK(relay.wait(kWaitMs, drained));
    must(relay.stop());
    CHECK(board.sink.stored().size() == (right_clock ? 1 : 0));
  }
}

TEST_CASE("time asleep counts: a lease and a time to live end while suspended (G7)") {
  // The control: a boot clock that stands while suspended, as CLOCK_MONOTONIC does.
  for (const std::int64_t asleep : {kHour, std::int64_t{0}}) {
    CAPTURE(asleep);
    Board board;
    board.emit(kHour / 2);  // 1: not worth it after half an hour
    board.emit();           // 2
    const HungRelay hung(board.path, board.clock);
    board.clock.advance(asleep);
    RelayOptions options = board.options();
    options.sink = &board.sink;
    Relay relay;
    must(Relay::start(options, relay));
    const bool took_over = does(relay, asleep > 0 ? kWaitMs : kNeverMs, drained);
    must(relay.stop());
    CHECK(took_over == (asleep > 0));
    CHECK(board.app->number("SELECT count(*) FROM outbox_gap WHERE reason='expired'") ==
          (asleep > 0 ? 1 : 0));
    CHECK(board.sink.stored().size() == (asleep > 0 ? 1 : 0));
  }
}

TEST_CASE("the boot clock is the one that runs on while suspended, not the monotonic one (G7)") {
  // A time namespace moves one clock and not the other, as a suspend does.
  const auto boot_ms_with = [](const std::string& clock, bool& can) {
    const Database db{Database::NoInit()};
    const RunResult made =
        run({"unshare", "--time", clock, "100000", holdfast_program(), "init", db.path()});
    can = made.code() == 0;
    return can ? db.number("SELECT boot_ms FROM holdfast_time") - system_clock().boot_ms() : 0;
  };
  bool can = false;
  const std::int64_t with_boottime = boot_ms_with("--boottime", can);
  if (!can) {
    MESSAGE("skipped: no time namespaces here, or not permitted");
    return;
  }
  CHECK(std::llabs(with_boottime - 100'000 * kSecond) < 60 * kSecond);
  const std::int64_t with_monotonic = boot_ms_with("--monotonic", can);
  CHECK(can);
  CHECK(std::llabs(with_monotonic) < 60 * kSecond);
}
