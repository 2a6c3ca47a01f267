// Start-up and memory of a real relay process before backlogs of growing size.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "bench.hpp"
#include "bench_gateway.hpp"
#include "small_file.hpp"

namespace holdfast::cli::bench {
namespace {

constexpr std::int64_t kBacklogs[] = {10'000, 100'000, 1'000'000, 10'000'000};
constexpr std::int64_t kFirstEventMaxMs = 30'000;
constexpr std::int64_t kSettleMs = 500;  // of sending, before its memory is looked at
constexpr std::size_t kStatusBytesMax = 8192;
constexpr const char* kThisProgram = "/proc/self/exe";

std::string label(std::int64_t rows) {
  return rows % 1'000'000 == 0 ? std::to_string(rows / 1'000'000) + "M"
                               : std::to_string(rows / 1'000) + "k";
}

// This program as a relay. Ended with the object.
class RelayProcess {
 public:
  ~RelayProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Status start(const std::string& database, const std::string& url) {
    std::string arguments[] = {"holdfast", "relay", database, "--to", url, "--log-level", "error"};
    char* argv[8] = {};
    for (std::size_t i = 0; i < 7; ++i) argv[i] = arguments[i].data();
    if (::posix_spawn(&pid_, kThisProgram, nullptr, nullptr, argv, environ) == 0) return {};
    pid_ = 0;
    return Status::error(Code::io, "cannot start a relay process");
  }
  double resident_mb() const {
    std::string text;
    const std::string file = "/proc/" + std::to_string(pid_) + "/status";
    if (!platform::read_small_file(file, kStatusBytesMax, text)) return 0;
    const std::size_t at = text.find("VmRSS:");
    return at == std::string::npos ? 0 : std::atof(text.c_str() + at + 6) / 1024;
  }

 private:
  pid_t pid_ = 0;
};

// A database in which `rows` wait, growing from what it holds.
Status measure_rows(Bench& bench, const std::string& database, std::int64_t rows) {
  const std::string name = label(rows);
  BenchGateway gateway;
  std::atomic<bool> first{false};
  Status status = gateway.start(bench.scratch.file("gateway-" + name + ".db"),
                                "ipc://" + bench.scratch.file("socket-" + name), [&] {
                                  if (!first.exchange(true)) bench.signals.notify();
                                });
  RelayProcess relay;
  const double start = now_seconds();
  if (status.ok()) status = relay.start(database, gateway.url());
  if (!status.ok()) return status;
  const StopSignals::Woken woken = bench.signals.wait(kFirstEventMaxMs);
  const double ms = (now_seconds() - start) * 1000;
  if (woken == StopSignals::Woken::signal) return status;
  if (woken != StopSignals::Woken::notified) {
    return Status::error(Code::unavailable, "a relay did not start in %lld ms",
                         static_cast<long long>(kFirstEventMaxMs));
  }
  bench.signals.wait(kSettleMs);
  bench.add("start_" + name, ms, "ms");
  bench.add("relay_rss_" + name, relay.resident_mb(), "MB");
  return status;
}

}  // namespace

Status measure_backlog(Bench& bench) {
  Status status;
  for (const std::int64_t rows : kBacklogs) {
    if (rows > bench.rows_max || !status.ok() || bench.signals.stop_asked()) break;
    bench.progress("relay before a backlog of " + label(rows));
    const std::string database = bench.scratch.file("device.db");
    status = create_database(database);
    const double start = now_seconds();
    if (status.ok()) status = fill(bench, database, rows);
    const double seconds = now_seconds() - start;
    if (status.ok() && !bench.signals.stop_asked()) status = measure_rows(bench, database, rows);
    if (status.ok() && !bench.signals.stop_asked()) {
      bench.add("fill_" + label(rows), static_cast<double>(rows) / seconds, "events/s");
    }
    bench.scratch.empty();
  }
  return status;
}

}  // namespace holdfast::cli::bench
