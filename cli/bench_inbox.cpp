// How many events a second an inbox applies, new ones and ones it has already.
#include "bench.hpp"
#include "holdfast/inbox.hpp"
#include "holdfast/store.hpp"

namespace holdfast::cli::bench {
namespace {

constexpr int kBatches[] = {1, 256};  // events in one transaction
constexpr std::int64_t kEventsMax = 1'000'000;

class Consumer {
 public:
  Status open(const std::string& database) {
    Status status = Store::open(database, Access::read_write, {}, store_);
    if (status.ok()) status = Inbox::attach(store_.connection(), {}, inbox_);
    stream_ = EventId::make_random();
    return status;
  }
  // The events first, first + 1, … in one transaction. Their ids are made from their numbers.
  Status apply(std::int64_t first, int count, Applied expected) {
    Status status = store_.begin();
    for (int i = 0; i < count && status.ok(); ++i) status = once(first + i, expected);
    return status.ok() ? store_.commit() : status;
  }

 private:
  Status once(std::int64_t seq, Applied expected) {
    EventRecord event;
    event.seq = event.source_seq = seq;
    event.source_stream = stream_;
    event.id = stream_;
    for (int i = 0; i < 8; ++i) {
      event.id.bytes[static_cast<std::size_t>(7 - i)] = static_cast<std::uint8_t>(seq >> (8 * i));
    }
    event.event_type = "sensor.reading.v1";
    event.aggregate_type = "sensor";
    event.aggregate_id = "boiler-1";
    event.payload = payload();
    Applied applied = Applied::done;
    const Handler handler = [](const EventRecord&, sqlite3*) { return HandlerResult::done(); };
    const Status status = inbox_.once(event, "bench", handler, applied);
    if (!status.ok() || applied == expected) return status;
    return Status::error(Code::internal, "the inbox took event %lld for something else",
                         static_cast<long long>(seq));
  }

  Store store_;
  Inbox inbox_;  // after store_: detached before its connection closes
  EventId stream_{};
};

// Applies [0, limit) until the time is over; how many it came to.
Status run(Bench& bench, Consumer& consumer, int batch, Applied expected, std::int64_t limit,
           std::int64_t& events, double& per_second) {
  const double start = now_seconds();
  Status status;
  events = 0;
  while (status.ok() && events + batch <= limit && now_seconds() - start < bench.seconds / 2 &&
         !bench.signals.stop_asked()) {
    status = consumer.apply(events + 1, batch, expected);
    events += batch;
  }
  per_second = static_cast<double>(events) / (now_seconds() - start);
  return status;
}

Status measure_batch(Bench& bench, int batch) {
  const std::string database = bench.scratch.file("inbox.db");
  Consumer consumer;
  double limit = 0, fresh = 0, known = 0;
  std::int64_t events = 0, again = 0;
  Status status = create_database(database);
  if (status.ok()) status = consumer.open(database);
  if (status.ok()) status = sync_limit(bench, limit);
  if (status.ok()) status = run(bench, consumer, batch, Applied::done, kEventsMax, events, fresh);
  if (status.ok()) status = run(bench, consumer, batch, Applied::duplicate, events, again, known);
  if (!status.ok() || bench.signals.stop_asked()) return status;
  const std::string suffix = "_" + std::to_string(batch);
  bench.add("inbox_new" + suffix, fresh, "events/s", fresh / limit);
  bench.add("inbox_duplicate" + suffix, known, "events/s", known / limit);
  return status;
}

}  // namespace

Status measure_inbox(Bench& bench) {
  Status status;
  for (const int batch : kBatches) {
    if (!status.ok() || bench.signals.stop_asked()) break;
    bench.progress("inbox, " + std::to_string(batch) + " in a transaction");
    status = measure_batch(bench, batch);
    bench.scratch.empty();
  }
  return status;
}

}  // namespace holdfast::cli::bench
