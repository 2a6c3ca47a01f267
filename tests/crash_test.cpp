// The power goes at every operation of the library's disk (layer L1, support/crash_run.hpp), and
// again while what is left is opened and used (L2). Two ctest entries, for two cores: the device
// with the controls, and the gateway.
#include <doctest/doctest.h>

#include <cstdio>
#include <random>

#include "delivery.hpp"
#include "gateway_core.hpp"
#include "holdfast/inbox.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "support/connection.hpp"
#include "support/crash_run.hpp"
#include "support/manual_clock.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr const char* kDatabase = "app.db";
constexpr const char* kOwner = "a-relay";

class Seeded {
 public:
  explicit Seeded(std::uint64_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  bool percent(int n) { return below(100) < n; }
  EventId id() {
    EventId id;
    for (auto& byte : id.bytes) byte = static_cast<std::uint8_t>(below(256));
    return id;
  }

 private:
  std::mt19937_64 random_;
};

// --- a device: an application, a relay and an operator on one database ---------------------------

struct DeviceOptions {
  std::uint64_t seed = 1;
  int steps = 40;
  int page_size = 1024;
  bool powersafe_overwrite = true;
  // What the application's connection runs instead of synchronous FULL: the controls.
  std::string instead;
};

class DeviceRun {
 public:
  explicit DeviceRun(const std::string& name, const DeviceOptions& options)
      : run(name, kDatabase), options_(options), random_(options.seed) {
    CrashDisk::seed_sqlite(options.seed);
    run.disk.set_powersafe_overwrite(options.powersafe_overwrite);
    run.one_commit_a_step = options.powersafe_overwrite && options.instead.empty();
    init();
    open();
    for (int i = 0; i < options.steps; ++i) one_step();
    close();
  }

  CrashRun run;

 private:
  void init() {
    InitOptions options;
    options.page_size = options_.page_size;
    options.clock = &clock_;
    options.device = "device";
    run.step("init", Promise::survives, [&] { must(Store::init(run.path(), options, nullptr)); });
  }

  void open() {
    const bool control = !options_.instead.empty();
    application_ = std::make_unique<Connection>(
        run.path(), control ? Connection::Kind::bare : Connection::Kind::application);
    if (control) application_->run(options_.instead);
    if (random_.percent(30)) application_->run("PRAGMA cache_size=10");  // spills before COMMIT
    run.step("create the application's table", Promise::may_roll_back, [&] {
      application_->run("CREATE TABLE IF NOT EXISTS reading(n INTEGER PRIMARY KEY, text)");
    });
    OutboxOptions outbox;
    outbox.clock = &clock_;
    outbox.checkpoint_frames = 60;
    if (control) outbox.durability = Durability::relaxed;
    run.step("attach", Promise::may_roll_back,
             [&] { must(Outbox::attach(*application_, outbox, outbox_)); });
    run.step("open the relay's side", Promise::may_roll_back,
             [&] { must(delivery_.open(run.path(), kDefaultDestination, true, clock_)); });
    StoreOptions store;
    store.clock = &clock_;
    must(Store::open(run.path(), Access::read_write, store, store_));
    must(delivery_.load(row_));
  }

  // The last connection to close checkpoints, and deletes the WAL.
  void close() {
    run.step("close", Promise::may_roll_back, [&] {
      outbox_.detach();
      store_ = Store();
      const bool relay_last = random_.percent(50);
      if (relay_last) application_.reset();
      delivery_.close();
      application_.reset();
    });
  }

  void one_step() {
    clock_.advance(1'000 + random_.below(3'600'000));
    switch (random_.below(20)) {
      case 0:
      case 1:
        return acquire();
      case 2:
      case 3:
      case 4:
        return flush();
      case 5:
        return operate();
      case 6:
      case 7:
        return purge();
      case 8:
        return checkpoint();
      case 9:
        return rolled_back();
      case 10:
        if (random_.percent(60)) return emit();
        close();
        return open();
      default:
        return emit();
    }
  }

  void write_events() {
    application_->run("BEGIN IMMEDIATE");
    const int many = random_.percent(8) ? 25 : 1 + random_.below(3);
    for (int i = 0; i < many; ++i) {
      const auto size = static_cast<std::size_t>(random_.percent(15) ? 3'000 : random_.below(400));
      const std::string payload(size, static_cast<char>('a' + random_.below(26)));
      Event event = sensor_event("s", payload);
      event.id = random_.id();
      event.lane = random_.percent(20) ? kLaneUrgent : kLaneNormal;
      must(outbox_.emit(event));
      application_->run("INSERT INTO reading(text) VALUES('" + payload.substr(0, 40) + "')");
    }
  }

  void emit() {
    run.step("emit", Promise::survives, [&] {
      write_events();
      application_->run("COMMIT");
    });
  }

  void rolled_back() {
    run.step("emit and roll back", Promise::survives, [&] {
      write_events();
      application_->run("ROLLBACK");
    });
  }

  void acquire() {
    run.step("acquire", Promise::may_roll_back, [&] {
      bool acquired = false;
      must(delivery_.acquire(kOwner, 30'000, acquired, row_));
    });
    must(delivery_.load(row_));
  }

  void flush() {
    if (row_.lease_owner != kOwner) acquire();
    must(delivery_.load(row_));
    CursorFlush flush;
    for (int lane = 0; lane < kLaneCount; ++lane) advance(lane, flush);
    flush.lease_until_ms = clock_.boot_ms() + 30'000;
    run.step("flush", Promise::may_roll_back,
             [&] { must(delivery_.flush(kOwner, row_.lease_epoch, flush)); });
    must(delivery_.load(row_));
  }

  // Some events more are answered, and some of them refused.
  void advance(int lane, CursorFlush& flush) {
    LaneCursor& cursor = flush.lanes[lane] = row_.lanes[lane];
    must(delivery_.read(lane, cursor.acked_seq, 1 + random_.below(8),
                        [&](EventRecord&& event, const Status& bad) {
                          must(bad);
                          cursor.acked_seq = cursor.claimed_seq = event.seq;
                          cursor.acked_id = event.id;
                          ++flush.sent;
                          if (random_.percent(15)) flush.put.push_back(refused(event));
                          return true;
                        }));
  }

  ExceptionRow refused(const EventRecord& event) {
    ExceptionRow row;
    row.seq = event.seq;
    row.lane = event.lane;
    row.status = random_.percent(50) ? ExceptionStatus::dead : ExceptionStatus::retry;
    row.attempts = 1;
    row.last_error = "refused";
    return row;
  }

  void operate() {
    std::vector<ExceptionRow> rows;
    must(delivery_.load_exceptions(rows));
    if (rows.empty()) return emit();
    const std::int64_t seq =
        rows[static_cast<std::size_t>(random_.below(static_cast<int>(rows.size())))].seq;
    const bool gives_up = random_.percent(60);
    run.step(gives_up ? "discard" : "retry", Promise::survives, [&] {
      std::int64_t changed = 0;
      must(gives_up ? store_.discard(seq, "", "a test", changed) : store_.retry(seq, "", changed));
    });
  }

  void purge() {
    PurgeOptions options;
    options.outbox_older_than_ms = random_.percent(70) ? 0 : 3'600'000;
    options.inbox_older_than_ms = -1;
    run.step("purge", Promise::survives, [&] {
      PurgeResult result;
      must(store_.purge(options, result));
    });
  }

  void checkpoint() {
    run.step("checkpoint", Promise::may_roll_back, [&] { must(delivery_.checkpoint()); });
  }

  DeviceOptions options_;
  Seeded random_;
  ManualClock clock_;
  std::unique_ptr<Connection> application_;
  Outbox outbox_;
  Delivery delivery_;
  Store store_;
  DestinationRow row_;
};

std::string summary(const CutVerdict& verdict) {
  char text[200];
  std::snprintf(text, sizeof text,
                "%lld cuts, %lld images, %lld lost, %lld wrong, %lld broken, %lld stuck",
                static_cast<long long>(verdict.cuts), static_cast<long long>(verdict.unique),
                static_cast<long long>(verdict.lost), static_cast<long long>(verdict.wrong),
                static_cast<long long>(verdict.broken), static_cast<long long>(verdict.stuck));
  return text;
}

}  // namespace

TEST_CASE("device: a power cut at any operation loses nothing that was promised (G1, G2)") {
  CutVerdict all;
  for (std::uint64_t seed = 1; all.unique < scaled(150'000); ++seed) {
    const std::string name = "device-" + std::to_string(seed);
    if (one_cut_wanted() && seed > 10'000) break;
    if (!wanted(name)) continue;
    DeviceOptions options;
    options.seed = seed;
    options.page_size = seed % 4 == 0 ? 4096 : 1024;
    options.powersafe_overwrite = seed % 3 != 0;
    DeviceRun device(name, options);
    CutOptions cuts;
    all.add(cut_everywhere(device.run, cuts));
    if (seed == 1 || all.bad() > 0)
      MESSAGE(name << ": " << device.run.log.size() << " operations, " << device.run.states.size()
                   << " states: " << summary(all));
    if (one_cut_wanted() || all.bad() > 0) break;
  }
  MESSAGE(summary(all));
  CHECK_MESSAGE(all.bad() == 0, all.first);
}
