// How many durable transactions a second, by 1, 16 and 64 producers, and what each writes.
#include <atomic>
#include <memory>
#include <thread>

#include "bench.hpp"

namespace holdfast::cli::bench {
namespace {

constexpr int kProducers[] = {1, 16, 64};
constexpr int kRounds = 3;  // each between two measurements of the disk; the middle one is told

struct Result {
  Status status;
  std::vector<double> ms;  // of each transaction
};

void produce(Producers& producers, const std::atomic<bool>& stop, Result& result) {
  while (!stop && result.status.ok()) {
    const double start = now_seconds();
    result.status = producers.emit();
    if (result.status.ok()) result.ms.push_back((now_seconds() - start) * 1000);
  }
}

struct Round {
  double per_second = 0, of_limit = 0, p99_ms = 0, call_bytes = 0, disk_bytes = 0, syncs = 0;
};

// All producers for so long; what they committed, how fast.
Status run_producers(Bench& bench, Producers& producers, int count, double limit, Round& round) {
  std::atomic<bool> stop{false};
  std::vector<Result> results(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  const Written before = written();
  const std::int64_t syncs_before = SyncCounter::count();
  const double start = now_seconds();
  for (Result& each : results) {
    threads.emplace_back([&] { produce(producers, stop, each); });
  }
  bench.signals.wait(bench.slice_ms() / kRounds);
  stop = true;
  for (std::thread& each : threads) each.join();
  const double elapsed = now_seconds() - start;
  const Written after = written();
  const std::int64_t syncs = SyncCounter::count() - syncs_before;

  std::vector<double> ms;
  for (const Result& each : results) {
    if (!each.status.ok()) return each.status;
    ms.insert(ms.end(), each.ms.begin(), each.ms.end());
  }
  const double events = ms.empty() ? 1 : static_cast<double>(ms.size());
  round.per_second = events / elapsed;
  round.p99_ms = percentile(ms, 0.99);
  round.call_bytes = static_cast<double>(after.call_bytes - before.call_bytes) / events;
  round.disk_bytes = static_cast<double>(after.disk_bytes - before.disk_bytes) / events;
  round.syncs = static_cast<double>(syncs) / events;
  double limit_after = 0;
  const Status status = sync_limit(bench, limit_after);
  round.of_limit = round.per_second / ((limit + limit_after) / 2);
  return status;
}

double middle(const std::vector<Round>& rounds, double Round::* member) {
  std::vector<double> values;
  for (const Round& each : rounds) values.push_back(each.*member);
  return percentile(values, 0.5);
}

Status measure_producers(Bench& bench, int count) {
  const std::string database = bench.scratch.file("emit.db");
  const SyncCounter counter;
  Status status = create_database(database);
  Producers producers;
  if (status.ok()) status = producers.open(database);
  std::vector<Round> rounds(kRounds);
  std::vector<double> limits(kRounds);
  for (int i = 0; i < kRounds && status.ok() && !bench.signals.stop_asked(); ++i) {
    status = sync_limit(bench, limits[static_cast<std::size_t>(i)]);
    const auto at = static_cast<std::size_t>(i);
    if (status.ok()) status = run_producers(bench, producers, count, limits[at], rounds[at]);
  }
  if (!status.ok() || bench.signals.stop_asked()) return status;
  const std::string suffix = "_" + std::to_string(count);
  bench.add("sync_limit" + suffix, percentile(limits, 0.5), "syncs/s");
  bench.add("emit" + suffix, middle(rounds, &Round::per_second), "events/s",
            middle(rounds, &Round::of_limit));
  bench.add("emit_p99" + suffix, middle(rounds, &Round::p99_ms), "ms");
  bench.add("syncs_per_commit" + suffix, middle(rounds, &Round::syncs), "syncs");
  bench.add("bytes_per_event" + suffix, middle(rounds, &Round::call_bytes), "bytes");
  bench.add("disk_bytes_per_event" + suffix, middle(rounds, &Round::disk_bytes), "bytes");
  return status;
}

}  // namespace

Status measure_emit(Bench& bench) {
  Status status;
  for (const int count : kProducers) {
    if (!status.ok() || bench.signals.stop_asked()) break;
    bench.progress("emit by " + std::to_string(count));
    status = measure_producers(bench, count);
    bench.scratch.empty();
  }
  return status;
}

}  // namespace holdfast::cli::bench
