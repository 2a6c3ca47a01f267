// A backlog over a link with a round trip of 200 ms: several batches are under way at once. The
// figures are printed; the rate with one batch at a time, of the same minute, is the control.
#include "support/slow_link.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/programs.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kRoundTripMs = 200;
constexpr int kSlowestMs = 120'000;

// A relay with a window as it is given; prints how long the backlog took from the first answer on.
const Program kRelay("windowed_relay", [](const Arguments& arguments) {
  using Steady = std::chrono::steady_clock;
  RelayOptions options;
  options.database = arguments.text("db");
  options.url = arguments.text("url");
  options.window_batches_max = static_cast<int>(arguments.number("window"));
  Relay relay;
  must(Relay::start(options, relay));
  const auto begun = [](const RelayState& state) { return state.sent_events > 0; };
  if (!relay.wait(kSlowestMs, begun)) return 1;
  const std::int64_t first = relay.state().sent_events;
  const auto start = Steady::now();
  const std::int64_t events = arguments.number("events");
  if (!relay.wait(kSlowestMs, [&](const RelayState& s) { return s.sent_events >= events; }))
    return 1;
  const std::chrono::duration<double> seconds = Steady::now() - start;
  std::printf("%.0f\n", static_cast<double>(events - first) / seconds.count());
  must(relay.stop());
  return 0;
});

void fill(const std::string& path, int events) {
  make_database(path);
  Connection db(path);
  db.run("PRAGMA synchronous=OFF");
  db.run(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
      " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<" +
      std::to_string(events) +
      ") SELECT 'reading','sensor',i%50,printf('{\"value\":\"%0244d\"}',i) FROM n");
}

// Events a second, from the first answer on. All of them are at the gateway once, in order.
double drain(int loss_percent, int window, int events) {
  TemporaryDirectory directory;
  const std::string device = directory.file("device.db");
  fill(device, events);
  const SlowLink link(kRoundTripMs, loss_percent);
  Process gateway =
      Process::spawn(link.on_gateway({holdfast_program(), "gateway", directory.file("gateway.db"),
                                      "--listen", link.url(), "--insecure"}));
  REQUIRE_FALSE(gateway.wait_for_stderr("listening on ", kSlowestMs).empty());
  Process relay = Process::spawn(
      link.on_device(program_command("windowed_relay", {{"db", device},
                                                        {"url", link.url()},
                                                        {"window", std::to_string(window)},
                                                        {"events", std::to_string(events)}})));
  CHECK(relay.wait(kSlowestMs).code == 0);
  gateway.kill(SIGTERM);
  CHECK(gateway.wait(kSlowestMs).code == 0);
  Connection log(directory.file("gateway.db"));
  CHECK(log.number("SELECT count(*) FROM outbox_event") == events);
  CHECK(log.number("SELECT count(DISTINCT event_id) FROM outbox_event") == events);
  CHECK(log.number("SELECT count(*) FROM outbox_event WHERE seq<>source_seq") == 0);
  const double rate = std::atof(relay.stdout_text().c_str());
  MESSAGE(loss_percent, " % lost, at most ", window, " under way: ", rate, " events/s, ",
          link.attempts(), " connections");
  return rate;
}

}  // namespace

TEST_CASE("a round trip of 200 ms: a backlog drains ten times as fast as one batch at a time") {
  if (!SlowLink::possible()) return;
  const double wide = drain(0, kWindowBatchesMax, scaled(60'000));
  const double one = drain(0, 1, 1'500);  // control
  // Emulated and instrumented programs are not fast enough for the window to show.
  if (scaled(100) == 100) CHECK(wide > 10 * one);
}

TEST_CASE(
    "a round trip of 200 ms and 1 % lost packets: everything arrives once and in order (G3)") {
  if (!SlowLink::possible()) return;
  drain(1, kWindowBatchesMax, scaled(20'000));
}
