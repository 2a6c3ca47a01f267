// Full disks (G8): file systems of a few MiB, filled to the last byte by the application's events
// and by a foreign file. They are tmpfs mounts, so these cases need root; without, they are skipped
// and say so.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "db.hpp"
#include "holdfast/gateway.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/relay.hpp"
#include "platform.hpp"
#include "reserve.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/sinks.hpp"
#include "support/small_disk.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 40'000;

bool drained(const RelayState& state) { return state.drained; }

// Polls a gateway on a thread of its own.
class Poller {
 public:
  explicit Poller(Gateway& gateway)
      : gateway_(gateway), thread_([this] {
          while (!stop_ && status_.ok()) status_ = gateway_.poll(20);
        }) {}
  ~Poller() { CHECK(end().ok()); }
  Status end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  Gateway& gateway_;
  Status status_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A device on a disk of its own: an application, a relay, and a destination that can be cut off.
struct Device {
  explicit Device(std::int64_t disk_bytes) : disk(disk_bytes) {
    make_database(path);
    app = std::make_unique<Connection>(path);
    app->run("CREATE TABLE tick(n); INSERT INTO tick VALUES(0)");
    sink.reachable = [this] {
      return up ? Status() : Status::error(Code::unavailable, "the cable is out");
    };
  }
  ~Device() { must(relay.stop()); }

  void start_relay(std::int64_t reserve_bytes = kReserveBytes) {
    RelayOptions options;
    options.database = path;
    options.sink = &sink;
    options.link_delay_min_ms = 5;
    options.link_delay_max_ms = 20;
    options.reserve_bytes = reserve_bytes;
    must(Relay::start(options, relay));
    if (reserve_bytes > 0)
      CHECK(relay.wait(kWaitMs, [&](const RelayState&) { return reserve() > 0; }));
  }
  std::int64_t reserve() const { return platform::ballast_bytes(reserve_path(path)); }

  Status emit(std::size_t payload_bytes) {
    Outbox& out = outbox();
    app->run("BEGIN IMMEDIATE");
    const std::string payload(payload_bytes, 'x');
    const Status status = out.emit(sensor_event("a", payload));
    if (status.ok() && app->attempt("COMMIT") == 0) {
      ++committed;
      return status;
    }
    if (in_transaction(*app)) app->attempt("ROLLBACK");
    return status.ok() ? Status::error(Code::no_space, "commit") : status;
  }
  // One event by plain SQL, as a program that knows nothing of Holdfast's checkpoints.
  bool insert(std::size_t payload_bytes) {
    const bool done = app->attempt(
                          "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
                          " VALUES('t','sensor','a',hex(zeroblob(" +
                          std::to_string(payload_bytes / 2) + ")))") == 0;
    if (done) ++committed;
    return done;
  }
  Outbox& outbox() {
    if (!attached) must(Outbox::attach(*app, outbox_options, outbox_));
    attached = true;
    return outbox_;
  }
  // As a reboot does: the last connection could not close the database in good order, and what
  // SQLite shares between processes is made anew.
  void lose_shared_memory() {
    const TemporaryDirectory kept;  // copied by another process: ours has the file open
    run({"cp", path, path + "-wal", kept.path()});
    attached = false;
    outbox_.detach();
    app->close();
    write_file(path, read_file(kept.file("app.db")));
    write_file(path + "-wal", read_file(kept.file("app.db-wal")));
    disk.fill();
  }
  // Until not even a small event fits.
  template <class EmitOne>
  void fill(EmitOne&& one) {
    for (const std::size_t bytes : {std::size_t{2000}, std::size_t{10}})
      while (one(bytes)) {
      }
    // Again and again: a relay's checkpoint may make a little room while we look.
    for (int refused = 0; refused < 25; ++refused) {
      disk.fill();
      while (one(10) || app->attempt("UPDATE tick SET n=n+1") == 0)  // the smallest commit there is
        refused = 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // Emits until it works, for it may take the relay a moment to make room.
  bool emits_again(int events) {
    const std::int64_t end = system_clock().boot_ms() + kWaitMs;
    while (events > 0 && system_clock().boot_ms() < end) {
      if (emit(200).ok())
        --events;
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return events == 0;
  }
  bool all_arrived() {
    if (!sink.wait_for(static_cast<std::size_t>(committed), kWaitMs)) return false;
    if (!relay.wait(kWaitMs, drained)) return false;
    std::int64_t expected = 1;
    for (const EventRecord& event : sink.stored())
      if (event.seq == expected) ++expected;
    return expected == committed + 1;
  }
  SmallDisk disk;
  std::string path = disk.file("app.db");
  std::unique_ptr<Connection> app;
  OutboxOptions outbox_options;
  MemorySink sink;
  std::atomic<bool> up{false};
  std::int64_t committed = 0;
  Relay relay;  // after the sink it uses

 private:
  Outbox outbox_;
  bool attached = false;
};

}  // namespace

TEST_CASE("a full disk drains when the gateway is back, and emit works again (G3, G8)") {
  if (!SmallDisk::possible()) return;
  for (const std::int64_t bytes : {std::int64_t{4} << 20, std::int64_t{1} << 20}) {
    CAPTURE(bytes);
    Device device(bytes);
    device.start_relay();
    CHECK(device.reserve() == bytes / kReservePart);
    device.fill([&](std::size_t payload) { return device.emit(payload).ok(); });
    // A commit of 16 KiB in a WAL that no checkpoint has emptied yet: about 40 on the small disk.
    REQUIRE(device.committed > 20);
    const std::int64_t backlog = device.committed;
    device.up = true;
    CHECK(device.all_arrived());
    CHECK(device.emits_again(50));
    CHECK(device.all_arrived());
    CHECK(device.app->text("PRAGMA integrity_check") == "ok");
    MESSAGE("disk of " << bytes / 1024 << " KiB: " << backlog << " events drained and "
                       << device.committed - backlog << " emitted again; reserve left "
                       << device.reserve() / 1024 << " KiB");
    device.disk.remove_foreign();
  }
}

TEST_CASE("control: without a reserve, a full disk is never drained") {
  if (!SmallDisk::possible()) return;
  Device device(std::int64_t{4} << 20);
  device.start_relay(0);
  CHECK(device.reserve() == 0);
  device.fill([&](std::size_t payload) { return device.insert(payload); });
  device.up = true;
  device.relay.wake();
  const auto stuck = [](const RelayState& s) { return s.last_error.code() == Code::no_space; };
  CHECK(device.relay.wait(kWaitMs, stuck));
  CHECK_FALSE(device.relay.wait(3'000, [&](const RelayState& s) { return !stuck(s); }));
  CHECK(device.app->number("SELECT acked_seq FROM outbox_destination") == 0);
  CHECK_FALSE(device.emit(10).ok());
  device.disk.remove_foreign();  // with room again, it goes on by itself
  CHECK(device.all_arrived());
}

TEST_CASE("the same for a program in plain SQL, whose WAL grows as SQLite lets it (G3, G8)") {
  if (!SmallDisk::possible()) return;
  for (const std::int64_t bytes : {std::int64_t{4} << 20, std::int64_t{1} << 20}) {
    CAPTURE(bytes);
    Device device(bytes);
    device.start_relay();
    device.fill([&](std::size_t payload) { return device.insert(payload); });
    const std::int64_t backlog = device.committed;
    const std::int64_t wal = wal_file_bytes(device.path);
    device.up = true;
    CHECK(device.all_arrived());
    CHECK(device.emits_again(50));
    CHECK(device.all_arrived());
    CHECK(device.app->text("PRAGMA integrity_check") == "ok");
    MESSAGE("plain SQL, disk of " << bytes / 1024 << " KiB, WAL of " << wal / 1024
                                  << " KiB: " << backlog << " events drained; reserve left "
                                  << device.reserve() / 1024 << " KiB");
  }
}

TEST_CASE(
    "a WAL that nobody may move, held by a reader: it drains, and goes on after the reader (G3)") {
  if (!SmallDisk::possible()) return;
  Device device(std::int64_t{4} << 20);
  device.start_relay();
  // A reader that stays: no checkpoint gets past what it sees.
  Connection reader(device.path);
  reader.run("BEGIN");
  CHECK(reader.number("SELECT count(*) FROM outbox_event") == 0);
  device.fill([&](std::size_t payload) { return device.insert(payload); });
  const std::int64_t wal = wal_file_bytes(device.path);
  CHECK(wal > 2'000'000);
  device.up = true;
  CHECK(device.all_arrived());
  reader.run("ROLLBACK");
  device.disk.remove_foreign();
  CHECK(device.emits_again(50));
  CHECK(device.all_arrived());
  MESSAGE("WAL of " << wal / 1024 << " KiB held by a reader: " << device.committed
                    << " events drained");
}

TEST_CASE("a relay that starts on a disk which is full already uses the reserve of the last (G8)") {
  if (!SmallDisk::possible()) return;
  for (const bool reboot : {false, true}) {
    CAPTURE(reboot);
    Device device(std::int64_t{4} << 20);
    device.start_relay();
    device.fill([&](std::size_t payload) { return device.emit(payload).ok(); });
    must(device.relay.stop());
    if (reboot) device.lose_shared_memory();
    device.up = true;
    device.start_relay();
    CHECK(device.all_arrived());
    if (reboot) device.app = std::make_unique<Connection>(device.path);
    CHECK(device.emits_again(50));
  }
}

TEST_CASE("with room on the disk again the reserve is whole again, and it helps again (G8)") {
  if (!SmallDisk::possible()) return;
  Device device(std::int64_t{4} << 20);
  device.start_relay();
  const std::int64_t whole = device.reserve();
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    device.up = false;
    device.fill([&](std::size_t payload) { return device.emit(payload).ok(); });
    device.up = true;
    CHECK(device.all_arrived());
    CHECK(device.reserve() < whole);
    device.disk.remove_foreign();
    CHECK(device.relay.wait(kWaitMs, [&](const RelayState&) { return device.reserve() == whole; }));
    CHECK(device.emits_again(10));
    CHECK(device.all_arrived());
  }
}

TEST_CASE("a producer that never stops trying does not eat the reserve before the relay (G8)") {
  if (!SmallDisk::possible()) return;
  Device device(std::int64_t{4} << 20);
  device.start_relay();
  device.fill([&](std::size_t payload) { return device.emit(payload).ok(); });
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> more{0};
  std::thread producer([&] {
    Connection other(device.path);
    while (!stop)
      if (other.attempt("INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
                        " VALUES('t','sensor','a','more')") == 0)
        ++more;
  });
  device.up = true;
  const bool arrived = device.sink.wait_for(static_cast<std::size_t>(device.committed), kWaitMs);
  for (int ms = 0; ms < kWaitMs && more <= 10; ms += 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  stop = true;
  producer.join();
  device.committed += more;
  CHECK(arrived);
  CHECK(more > 10);
  CHECK(device.all_arrived());
  MESSAGE("" << more.load() << " events emitted by a producer that kept trying");
}

TEST_CASE("`purge` works on a full disk with what a relay held back (G8)") {
  if (!SmallDisk::possible()) return;
  Device device(std::int64_t{4} << 20);
  device.up = true;
  device.start_relay();
  CHECK(device.emits_again(500));
  CHECK(device.all_arrived());
  must(device.relay.stop());
  device.fill([&](std::size_t payload) { return device.emit(payload).ok(); });
  CHECK(device.reserve() > 0);
  const RunResult result = command({"purge", device.path, "--older-than", "0s"});
  CAPTURE(result.err);
  CHECK(result.code() == 0);
  CHECK(device.emits_again(20));
}

TEST_CASE("a gateway on a full disk acknowledges nothing that it does not have (G3, G8)") {
  if (!SmallDisk::possible()) return;
  SmallDisk disk(std::int64_t{4} << 20);
  GatewayOptions options;
  options.database = disk.file("gateway.db");
  options.listen = {"tcp://127.0.0.1:0"};
  Gateway gateway;
  must(Gateway::start(options, gateway));
  must(gateway.poll(0));
  Poller poller(gateway);
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  make_database(path);
  Connection app(path);
  for (int i = 0; i < 3000; ++i)
    app.run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
        " VALUES('t','sensor','a',hex(zeroblob(1000)))");
  RelayOptions relay_options;
  relay_options.database = path;
  relay_options.url = gateway.urls().front();
  relay_options.link_delay_min_ms = 10;
  relay_options.link_delay_max_ms = 50;
  Relay relay;
  must(Relay::start(relay_options, relay));
  CHECK(relay.wait(
      kWaitMs, [](const RelayState& state) { return state.last_error.code() == Code::refused; }));
  CHECK(app.number("SELECT count(*) FROM outbox_exception") == 0);
  CHECK(app.number("SELECT acked_seq FROM outbox_destination") < 3000);
  CHECK(app.number("SELECT retries+rejected FROM outbox_destination") == 0);
  disk.resize(std::int64_t{64} << 20);
  CHECK(relay.wait(kWaitMs, drained));
  must(relay.stop());
  must(poller.end());
  Connection look(options.database);
  CHECK(look.number("SELECT count(*) FROM outbox_event") == 3000);
  CHECK(look.number("SELECT count(DISTINCT event_id) FROM outbox_event") == 3000);
  CHECK(look.text("PRAGMA integrity_check") == "ok");
}
