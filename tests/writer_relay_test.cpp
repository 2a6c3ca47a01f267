// A relay and the producers of one process: one Writer, and nobody waits for a lock.
#include <doctest/doctest.h>
#include <sqlite3.h>

#include <atomic>
#include <thread>

#include "delivery.hpp"
#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/crash_disk.hpp"
#include "support/manual_clock.hpp"
#include "support/scale.hpp"
#include "support/sinks.hpp"
#include "support/together.hpp"
#include "writer_impl.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 60'000;
constexpr std::int64_t kLease = 10'000;
constexpr int kEvents = 5;  // there at the start
constexpr const char* kOwner = "one";

Status emit_one(sqlite3*, Outbox& outbox) { return outbox.emit(sensor_event("a")); }

// A relay's place and the producers' writer on a disk that logs what is written and synced.
struct Fixture {
  CrashDisk disk;
  const std::string path = disk.path("app.db");
  ManualClock clock;
  DiskLog log;
  Writer writer;
  Delivery delivery;
  std::int64_t epoch = 0;

  explicit Fixture(std::size_t members) {
    make_database(path, "upstream", &clock);
    Connection application(path);
    insert_events(application, kEvents);
    must(Writer::open(path, groups_of(members), writer));
    must(delivery.open(path, "upstream", false, clock));
    delivery.use_writer(WriterAccess::of(writer));
    bool acquired = false;
    DestinationRow row;
    must(delivery.acquire(kOwner, kLease, acquired, row));
    REQUIRE(acquired);
    epoch = row.lease_epoch;
    disk.record(&log);
  }
  ~Fixture() { disk.record(nullptr); }
  CursorFlush cursor_at(std::int64_t acked) const {
    CursorFlush flush;
    flush.lanes[0].acked_seq = flush.lanes[0].claimed_seq = acked;
    flush.lease_until_ms = clock.boot_ms() + kLease;
    return flush;
  }
  std::int64_t acked() {
    return Connection(path).number("SELECT acked_seq FROM outbox_destination");
  }
  // Until a producer leads and waits for others.
  void wait_for_leader() const {
    const auto impl = WriterAccess::of(writer);
    for (bool leads = false; !leads;) {
      const std::lock_guard<std::mutex> lock(impl->mutex);
      leads = impl->gathering;
    }
  }
  int syncs() const {
    int count = 0;
    for (const auto& each : log) count += each->kind == DiskOperation::Kind::sync ? 1 : 0;
    return count;
  }
};

}  // namespace

TEST_CASE("a cursor without a producer beside it is written at once, and costs no sync") {
  Fixture f(1);
  must(f.delivery.flush(kOwner, f.epoch, f.cursor_at(3)));
  CHECK(f.syncs() == 0);
  CHECK(f.acked() == 3);
  must(f.writer.run(emit_one));
  CHECK(f.syncs() > 0);  // control: a producer's commit does cost one
}

TEST_CASE("a cursor rides along with a producer's commit: one sync for both") {
  Fixture f(2);
  must(f.delivery.flush(kOwner, f.epoch, f.cursor_at(1)));  // the WAL's first write is behind us
  Status told, flushed = Status::error(Code::busy, "not tried");
  // On a machine that is slow enough the relay's turn is over before the producer takes it along.
  for (int tries = 0; tries < 20 && flushed.code() == Code::busy; ++tries) {
    f.log.clear();
    std::thread producer([&] { told = f.writer.run(emit_one); });
    f.wait_for_leader();
    flushed = f.delivery.flush(kOwner, f.epoch, f.cursor_at(3));
    producer.join();
    must(told);
  }
  must(flushed);
  CHECK(f.syncs() == 1);
  CHECK(f.acked() == 3);
  CrashDisk after(f.disk.image(DiskState::kNothing));  // it is as durable as the event
  CHECK(Connection(after.path("app.db")).number("SELECT acked_seq FROM outbox_destination") == 3);
}

TEST_CASE("a relay that lost its lease marks nothing, and the producer beside it is not touched") {
  Fixture f(2);
  Status told;
  std::thread producer([&] { told = f.writer.run(emit_one); });
  f.wait_for_leader();
  CHECK(f.delivery.flush(kOwner, f.epoch + 1, f.cursor_at(3)).code() == Code::lease_lost);
  producer.join();
  CHECK(told.ok());
  CHECK(f.acked() == 0);
  CHECK(Connection(f.path).number("SELECT count(*) FROM outbox_event") == kEvents + 1);
}

TEST_CASE("a relay's write gives up its place behind producers that take too long") {
  Fixture f(1);
  std::atomic<bool> working{false}, go_on{false};
  std::thread producer([&] {
    must(f.writer.run([&](sqlite3* db, Outbox& outbox) {
      working = true;
      while (!go_on) std::this_thread::yield();
      return emit_one(db, outbox);
    }));
  });
  while (!working) std::this_thread::yield();
  // The producer's function runs: what comes now waits for the next turn, but not for long.
  CHECK(f.delivery.turn([] { return Status(); }).code() == Code::busy);
  go_on = true;
  producer.join();
  CHECK(f.delivery.turn([] { return Status(); }).ok());
}

TEST_CASE(
    "producers flat out and a relay with their writer: every event once, in order, no error") {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  make_database(path);
  MemorySink sink;
  Relay relay;
  Writer writer;
  std::function<void()> wake;
  WriterOptions options;
  options.on_commit = [&] {
    if (wake) wake();
  };
  must(Writer::open(path, options, writer));
  RelayOptions relay_options;
  relay_options.database = path;
  relay_options.sink = &sink;
  relay_options.writer = &writer;
  relay_options.outbox_retention_ms = 0;  // and a purge as soon as it may
  relay_options.flush_interval_ms = 20;
  must(Relay::start(relay_options, relay));
  wake = relay.waker();
  std::atomic<int> failed{0};
  const int threads = 8, each = scaled(200);
  std::vector<std::thread> producers;
  for (int t = 0; t < threads; ++t)
    producers.emplace_back([&, t] {
      const std::string id = std::to_string(t);
      for (int i = 0; i < each; ++i) {
        const std::string payload = std::to_string(i);
        const Status status = writer.run(
            [&](sqlite3*, Outbox& outbox) { return outbox.emit(sensor_event(id, payload)); });
        if (!status.ok()) ++failed;
      }
    });
  for (std::thread& producer : producers) producer.join();
  CHECK(failed == 0);
  CHECK(sink.wait_for(static_cast<std::size_t>(threads * each), kWaitMs));
  must(relay.stop());
  std::map<std::string, int> next;
  int out_of_order = 0;
  for (const EventRecord& event : sink.stored())
    if (event.payload != std::to_string(next[event.aggregate_id]++)) ++out_of_order;
  CHECK(out_of_order == 0);
  CHECK(sink.stored().size() == static_cast<std::size_t>(threads * each));
  CHECK(Connection(path).number("SELECT acked_seq FROM outbox_destination") == threads * each);
}

TEST_CASE("a relay refuses a writer that is not open or is of another database") {
  TemporaryDirectory directory;
  make_database(directory.file("app.db"));
  make_database(directory.file("other.db"));
  MemorySink sink;
  Writer writer;
  RelayOptions options;
  options.database = directory.file("app.db");
  options.sink = &sink;
  options.writer = &writer;
  Relay relay;
  CHECK(Relay::start(options, relay).code() == Code::misuse);
  must(Writer::open(directory.file("other.db"), {}, writer));
  CHECK(Relay::start(options, relay).code() == Code::invalid);
}
