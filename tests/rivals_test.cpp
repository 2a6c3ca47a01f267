// Processes that write to one database at the same time: each gets its share of the lock, and no
// error about it escapes.
#include <doctest/doctest.h>
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <sstream>
#include <thread>

#include "holdfast/relay.hpp"
#include "holdfast/store.hpp"
#include "holdfast/writer.hpp"
#include "platform.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/programs.hpp"
#include "support/scale.hpp"
#include "support/sinks.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

using Emit = std::function<Status()>;

// Emits for so long, so many a second (0: flat out); prints how many, how many failed, and how long
// they took.
void rival(const Arguments& arguments, const Emit& emit) {
  const Clock& clock = system_clock();
  const std::int64_t per_second = arguments.number("per_second");
  const std::int64_t began = clock.boot_ms(), until = began + arguments.number("ms");
  std::vector<double> took_ms;
  int failed = 0;
  while (clock.boot_ms() < until) {
    const auto start = std::chrono::steady_clock::now();
    const Status status = emit();
    const auto took = std::chrono::steady_clock::now() - start;
    took_ms.push_back(std::chrono::duration<double, std::milli>(took).count());
    if (!status.ok() && ++failed == 1) std::fprintf(stderr, "%s\n", status.text());
    if (per_second > 0)
      platform::sleep_us(std::max<std::int64_t>(
          0, 1'000'000 / per_second - static_cast<std::int64_t>(took_ms.back() * 1000)));
  }
  std::sort(took_ms.begin(), took_ms.end());
  const auto at = [&](double part) {
    return took_ms[static_cast<std::size_t>(part * static_cast<double>(took_ms.size() - 1))];
  };
  std::printf("%zu %d %.2f %.2f %.2f\n", took_ms.size(), failed, at(0.5), at(0.99), at(1));
}

int run_rival(const Arguments& arguments) {
  const std::string path = arguments.text("db");
  if (arguments.number("plain") == 0) {
    Writer writer;
    must(Writer::open(path, {}, writer));
    rival(arguments, [&] {
      return writer.run([](sqlite3*, Outbox& outbox) { return outbox.emit(sensor_event("a")); });
    });
    return 0;
  }
  // The control: an application's connection, which waits as SQLite does.
  Connection own(path);
  own.run("PRAGMA busy_timeout=5000");
  Outbox outbox;
  must(Outbox::attach(own, {}, outbox));
  rival(arguments, [&] {
    if (own.attempt("BEGIN IMMEDIATE") != SQLITE_OK)
      return Status::error(Code::busy, "%s", own.error().c_str());
    const Status status = outbox.emit(sensor_event("a"));
    const bool ended = own.attempt(status.ok() ? "COMMIT" : "ROLLBACK") == SQLITE_OK;
    return ended || !status.ok() ? status : Status::error(Code::busy, "%s", own.error().c_str());
  });
  return 0;
}
const Program kRival("rival", run_rival);

struct Share {
  std::int64_t events = 0;
  int failed = -1;
  double p50_ms = 0, p99_ms = 0, max_ms = 0;

  explicit Share(Process& process) {
    CHECK(process.wait(120'000).code == 0);
    std::istringstream line(process.stdout_text());
    line >> events >> failed >> p50_ms >> p99_ms >> max_ms;
    CAPTURE(process.stderr_text());
    CHECK(failed == 0);
  }
  std::string text() const {
    char out[160];
    std::snprintf(out, sizeof out, "%lld events, p50 %.2f ms, p99 %.2f ms, longest %.1f ms",
                  static_cast<long long>(events), p50_ms, p99_ms, max_ms);
    return out;
  }
};

// One process at 200 a second, one flat out, a relay that drains and somebody who purges.
struct Fight {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  MemorySink sink;
  std::atomic<bool> over{false};
  Status purged;
  std::int64_t purged_rows = 0;

  void purge() {
    Store store;
    purged = Store::open(path, Access::read_write, {}, store);
    PurgeOptions all;
    all.outbox_older_than_ms = 0;
    all.step_rows = 500;
    while (!over && purged.ok()) {
      PurgeResult result;
      purged = store.purge(all, result);
      purged_rows += result.outbox_rows;
      platform::sleep_us(20'000);
    }
  }

  void run(bool plain, const std::string& ms) {
    make_database(path);
    Relay relay;
    RelayOptions options;
    options.database = path;
    options.sink = &sink;
    must(Relay::start(options, relay));
    std::thread purger([this] { purge(); });
    const std::map<std::string, std::string> arguments = {
        {"db", path}, {"ms", ms}, {"plain", plain ? "1" : "0"}};
    auto steady_arguments = arguments;
    steady_arguments["per_second"] = "200";
    Process steady_process = start_program("rival", steady_arguments);
    Process flat_process = start_program("rival", arguments);
    const Share steady(steady_process), flat(flat_process);
    over = true;
    purger.join();
    CHECK(sink.wait_for(static_cast<std::size_t>(steady.events + flat.events), 60'000));
    CHECK(relay.stop().ok());
    CHECK_MESSAGE(purged.ok(), std::string(purged.text()));
    MESSAGE(std::string(plain ? "SQLite's own waiting" : "short random looks")
            << ", 200/s: " << steady.text() << "; flat out: " << flat.text() << "; purged "
            << purged_rows);
    CHECK(sink.stored().size() == static_cast<std::size_t>(steady.events + flat.events));
    steady_events = steady.events;
    flat_events = flat.events;
  }
  std::int64_t steady_events = 0, flat_events = 0;
};

}  // namespace

TEST_CASE("two producing processes, a relay and a purge: no lock error escapes, nobody starves") {
  const int ms = std::max(1'000, scaled(4'000));
  Fight ours;
  ours.run(false, std::to_string(ms));
  // Loose: a busy machine must not fail it. 200/s were asked for.
  CHECK(ours.steady_events > ms / 1000 * 10);
  CHECK(ours.flat_events > ms / 1000 * 10);
  CHECK(ours.purged_rows > 0);
  // For comparison only: how much worse it is depends on the disk.
  Fight theirs;
  theirs.run(true, std::to_string(ms));
}
