// How long a committed event waits: until a relay offers it, and until a gateway has it durably.
#include <atomic>

#include "bench.hpp"
#include "bench_gateway.hpp"
#include "holdfast/relay.hpp"
#include "holdfast/sink.hpp"

namespace holdfast::cli::bench {
namespace {

constexpr std::int64_t kPauseMs = 5;  // between two events: the relay is idle again
constexpr std::int64_t kArrivalMaxMs = 5'000;
constexpr int kRoundsMax = 2'000;

// When the event under way was committed and when it arrived. One event at a time.
class Stopwatch {
 public:
  void committed() { committed_ = now_seconds(); }
  void arrived() {
    arrived_ = now_seconds();
    waker_.notify();
  }
  double ms() const { return (arrived_ - committed_) * 1000; }
  explicit Stopwatch(StopSignals& waker) : waker_(waker) {}

 private:
  StopSignals& waker_;
  std::atomic<double> committed_{0}, arrived_{0};
};

class StopwatchSink : public Sink {
 public:
  explicit StopwatchSink(Stopwatch& watch) : watch_(watch) {}
  Status deliver(const std::vector<EventRecord>&, std::vector<Outcome>&) override {
    watch_.arrived();
    return {};
  }

 private:
  Stopwatch& watch_;
};

Status time_events(Bench& bench, const std::string& database, const std::string& name,
                   Stopwatch& watch, const std::function<void()>& wake) {
  Producer producer;
  Status status = producer.open(database, [&watch, wake] {
    watch.committed();
    if (wake) wake();
  });
  std::vector<double> ms;
  const double end = now_seconds() + bench.seconds;
  bool first = true;  // finds the relay still at its start
  for (int i = 0; i < kRoundsMax && status.ok() && now_seconds() < end; ++i) {
    status = producer.emit();
    if (!status.ok()) return status;
    const StopSignals::Woken woken = bench.signals.wait(kArrivalMaxMs);
    if (woken == StopSignals::Woken::signal) return status;
    if (woken != StopSignals::Woken::notified) {
      return Status::error(Code::unavailable, "an event did not arrive in %lld ms",
                           static_cast<long long>(kArrivalMaxMs));
    }
    if (!first) ms.push_back(watch.ms());
    first = false;
    if (bench.signals.wait(kPauseMs) == StopSignals::Woken::signal) return status;
  }
  bench.add(name + "_p50", percentile(ms, 0.5), "ms");
  bench.add(name + "_p99", percentile(ms, 0.99), "ms");
  return status;
}

Status measure_one(Bench& bench, const std::string& name, bool same_process, bool to_gateway) {
  const std::string database = bench.scratch.file("device.db");
  Status status = create_database(database);
  Stopwatch watch(bench.signals);
  StopwatchSink sink(watch);
  BenchGateway gateway;
  RelayOptions options;
  options.database = database;
  if (to_gateway) {
    if (status.ok()) {
      status = gateway.start(bench.scratch.file("gateway.db"), "tcp://127.0.0.1:0",
                             [&watch] { watch.arrived(); });
    }
    if (status.ok()) options.url = gateway.url();
  } else {
    options.sink = &sink;
  }
  Relay relay;
  if (status.ok()) status = Relay::start(options, relay);
  if (!status.ok()) return status;
  status = time_events(bench, database, name, watch,
                       same_process ? relay.waker() : std::function<void()>());
  const Status stopped = relay.stop();
  return status.ok() ? stopped : status;
}

}  // namespace

Status measure_wake_up(Bench& bench) {
  const struct {
    const char* name;
    bool same_process, to_gateway;
  } kinds[] = {
      {"wake_up", true, false}, {"wake_up_noticed", false, false}, {"deliver", true, true}};
  Status status;
  for (const auto& kind : kinds) {
    if (!status.ok() || bench.signals.stop_asked()) break;
    bench.progress(kind.name);
    status = measure_one(bench, kind.name, kind.same_process, kind.to_gateway);
    bench.scratch.empty();
  }
  return status;
}

}  // namespace holdfast::cli::bench
