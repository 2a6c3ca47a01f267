#include "support/crash_programs.hpp"

#include <stdexcept>
#include <vector>

#include "delivery.hpp"
#include "gateway_core.hpp"
#include "holdfast/inbox.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"
#include "support/seeded.hpp"

namespace holdfast::test {

namespace {

constexpr const char* kOwner = "a-relay";

// --- a device ---

class DeviceRun {
 public:
  DeviceRun(CrashRun& on, const DeviceOptions& options)
      : run_(on), options_(options), random_(options.seed) {
    CrashDisk::seed_sqlite(options.seed);
    run_.disk.set_powersafe_overwrite(options.powersafe_overwrite);
    run_.one_commit_a_step = options.powersafe_overwrite && options.instead.empty();
    init();
    open();
    for (int i = 0; i < options.steps; ++i) one_step();
    close();
  }

 private:
  void init() {
    InitOptions options;
    options.page_size = options_.page_size;
    options.clock = &clock_;
    options.device = "device";
    run_.step("init", Promise::survives, [&] { must(Store::init(run_.path(), options, nullptr)); });
  }

  void open() {
    const bool control = !options_.instead.empty();
    application_ = std::make_unique<Connection>(
        run_.path(), control ? Connection::Kind::bare : Connection::Kind::application);
    if (control) application_->run(options_.instead);
    if (random_.percent(30)) application_->run("PRAGMA cache_size=10");  // spills before COMMIT
    run_.step("create the application's table", Promise::survives, [&] {
      application_->run("CREATE TABLE IF NOT EXISTS reading(n INTEGER PRIMARY KEY, text)");
    });
    OutboxOptions outbox;
    outbox.clock = &clock_;
    outbox.checkpoint_frames = 60;
    if (control) outbox.durability = Durability::relaxed;
    run_.step("attach", Promise::may_roll_back,
              [&] { must(Outbox::attach(*application_, outbox, outbox_)); });
    run_.step("open the relay's side", Promise::may_roll_back,
              [&] { must(delivery_.open(run_.path(), kDefaultDestination, true, clock_)); });
    StoreOptions store;
    store.clock = &clock_;
    must(Store::open(run_.path(), Access::read_write, store, store_));
    must(delivery_.load(row_));
  }

  // The last connection to close checkpoints, and deletes the WAL.
  void close() {
    run_.step("close", Promise::may_roll_back, [&] {
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
    run_.step("emit", Promise::survives, [&] {
      write_events();
      application_->run("COMMIT");
    });
  }

  void rolled_back() {
    run_.step("emit and roll back", Promise::survives, [&] {
      write_events();
      application_->run("ROLLBACK");
    });
  }

  void acquire() {
    run_.step("acquire", Promise::may_roll_back, [&] {
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
    run_.step("flush", Promise::may_roll_back,
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
    run_.step(gives_up ? "discard" : "retry", Promise::survives, [&] {
      std::int64_t changed = 0;
      must(gives_up ? store_.discard(seq, "", "a test", changed) : store_.retry(seq, "", changed));
    });
  }

  void purge() {
    PurgeOptions options;
    options.outbox_older_than_ms = random_.percent(70) ? 0 : 3'600'000;
    options.inbox_older_than_ms = -1;
    run_.step("purge", Promise::survives, [&] {
      PurgeResult result;
      must(store_.purge(options, result));
    });
  }

  void checkpoint() {
    run_.step("checkpoint", Promise::may_roll_back, [&] { must(delivery_.checkpoint()); });
  }

  CrashRun& run_;
  DeviceOptions options_;
  Seeded random_;
  ManualClock clock_;
  std::unique_ptr<Connection> application_;
  Outbox outbox_;
  Delivery delivery_;
  Store store_;
  DestinationRow row_;
};

// --- a gateway ---

class GatewayRun {
 public:
  GatewayRun(CrashRun& on, std::uint64_t seed, bool forwards)
      : run_(on), forwards_(forwards), random_(seed) {
    CrashDisk::seed_sqlite(seed);
    for (EventId& stream : streams_) stream = random_.id();
    init();
    open();
    for (int i = 0; i < 35; ++i) one_step();
    close();
  }

 private:
  static constexpr int kStreams = 2;

  void init() {
    InitOptions options;
    options.page_size = 1024;
    options.clock = &clock_;
    options.destination = forwards_ ? kDefaultDestination : "";
    run_.step("init", Promise::survives, [&] { must(Store::init(run_.path(), options, nullptr)); });
    run_.step("create the consumer's table", Promise::may_roll_back, [&] {
      Connection(run_.path()).run("CREATE TABLE effect(id BLOB, consumer TEXT, seq INTEGER)");
    });
  }

  void open() {
    must(Db::open(run_.path(), OpenMode::read_write, 0, db_));
    must(Db::open(run_.path(), OpenMode::read_write, 0, guard_));
    GatewayCoreConfig config;
    if (!forwards_)
      config.handler = [this](const EventRecord& event, sqlite3* db) {
        return effect(event, "default", db);
      };
    core_ = std::make_unique<GatewayCore>(db_.handle(), clock_, config);
    must(core_->open());
    InboxOptions inbox;
    inbox.clock = &clock_;
    consumer_ = std::make_unique<Connection>(run_.path());
    must(Inbox::attach(*consumer_, inbox, inbox_));
    StoreOptions store;
    store.clock = &clock_;
    must(Store::open(run_.path(), Access::read_write, store, store_));
    if (forwards_)
      run_.step("open the next hop", Promise::may_roll_back,
                [&] { must(delivery_.open(run_.path(), kDefaultDestination, true, clock_)); });
    for (int i = 0; i < kStreams; ++i) hello(i);
  }

  void close() {
    run_.step("close", Promise::may_roll_back, [&] {
      core_.reset();
      store_ = Store();
      delivery_.close();
      guard_.close();
      inbox_ = Inbox();
      consumer_.reset();
      db_.close();
    });
  }

  HandlerResult effect(const EventRecord& event, const char* consumer, sqlite3* db) {
    Statement insert;
    must(insert.prepare(db, "INSERT INTO effect VALUES(?1,?2,?3)"));
    must(insert.bind_id(1, event.id).bind_text(2, consumer).bind(3, event.seq).run("effect"));
    if (random_.percent(85)) return HandlerResult::done();
    return random_.percent(50) ? HandlerResult::reject("refused")
                               : HandlerResult::retry_later(1'000, "not now");
  }

  // One group of frames, one commit; and the replies of which are read.
  void accept(const std::vector<wire::Message>& messages, std::vector<wire::Message>& replies) {
    must(core_->begin());
    for (const wire::Message& message : messages) {
      std::string frame, reply;
      must(wire::encode(message, frame));
      must(core_->accept(frame, clock_.boot_ms(), reply));
      wire::RefusedCode refused{};
      replies.emplace_back();
      must(wire::decode(reply, replies.back(), refused));
    }
    must(core_->commit());
  }

  void hello(int stream) {
    wire::Hello hello;
    hello.stream = streams_[stream];
    hello.session = ++session_;
    sessions_[stream] = hello.session;
    frame_no_[stream] = 0;
    hello.device = "device";
    hello.software = "test";
    for (std::uint8_t lane = 0; lane < kLaneCount; ++lane) hello.lanes.push_back({lane, 0, {}});
    run_.step("hello", Promise::may_roll_back, [&] {
      std::vector<wire::Message> replies;
      accept({hello}, replies);
    });
  }

  wire::Batch batch(int stream) {
    wire::Batch batch;
    batch.stream = streams_[stream];
    batch.session = sessions_[stream];
    batch.frame_no = ++frame_no_[stream];
    batch.prev = marks_[stream];
    batch.start = batch.prev.seq == 0;
    const int many = 1 + random_.below(5);
    for (int i = 1; i <= many; ++i) {
      EventRecord event = sensor_record("s" + std::to_string(random_.below(3)), batch.prev.seq + i);
      event.id = random_.id();
      event.payload.assign(static_cast<std::size_t>(random_.below(500)), 'p');
      batch.events.push_back(std::move(event));
    }
    return batch;
  }

  void gateway_step() {
    std::vector<wire::Message> batches;
    for (int stream = 0; stream < kStreams; ++stream)
      if (stream == 0 || random_.percent(40)) batches.emplace_back(batch(stream));
    // Sent twice: the second is a duplicate.
    if (random_.percent(20)) batches.push_back(batches.front());
    run_.step("accept", Promise::survives, [&] {
      std::vector<wire::Message> replies;
      accept(batches, replies);
      for (int stream = 0; stream < kStreams; ++stream)
        for (const wire::Message& each : batches) read_mark(stream, each, replies);
    });
  }

  void read_mark(int stream, const wire::Message& message,
                 const std::vector<wire::Message>& replies) {
    if (std::get<wire::Batch>(message).stream != streams_[stream]) return;
    for (const wire::Message& reply : replies) {
      const auto* const ack = std::get_if<wire::Ack>(&reply);
      if (ack != nullptr && ack->session == sessions_[stream] && ack->mark.seq > marks_[stream].seq)
        marks_[stream] = ack->mark;
    }
  }

  void inbox_step() {
    EventRecord event = sensor_record("s", 1 + random_.below(1'000));
    event.id = random_.percent(80) || last_id_.nil() ? random_.id() : last_id_;
    event.source_stream = streams_[0];
    event.source_seq = event.seq;
    last_id_ = event.id;
    run_.step("inbox once", Promise::survives, [&] {
      Applied applied{};
      must(inbox_.once(
          event, "second",
          [this](const EventRecord& record, sqlite3* db) { return effect(record, "second", db); },
          applied));
    });
  }

  void purge_step() {
    PurgeOptions options;
    const bool inbox = random_.percent(50);
    options.outbox_older_than_ms = inbox ? -1 : 0;
    options.inbox_older_than_ms = inbox ? 3'600'000 : -1;
    options.step_rows = 20;
    run_.step("purge", Promise::survives, [&] {
      PurgeResult result;
      must(store_.purge(options, result));
    });
  }

  void checkpoint_step() {
    run_.step("checkpoint", Promise::may_roll_back, [&] {
      CheckpointResult result;
      must(guarded_checkpoint(db_.handle(), guard_, result));
    });
  }

  void next_hop_step() {
    DestinationRow row;
    run_.step("acquire", Promise::may_roll_back, [&] {
      bool acquired = false;
      must(delivery_.acquire(kOwner, 30'000, acquired, row));
    });
    CursorFlush flush;
    for (int lane = 0; lane < kLaneCount; ++lane) flush.lanes[lane] = row.lanes[lane];
    LaneCursor& cursor = flush.lanes[kLaneNormal];
    must(delivery_.read(kLaneNormal, cursor.acked_seq, 4, [&](EventRecord&& event, const Status&) {
      cursor.acked_seq = cursor.claimed_seq = event.seq;
      cursor.acked_id = event.id;
      return true;
    }));
    run_.step("flush", Promise::may_roll_back,
              [&] { must(delivery_.flush(kOwner, row.lease_epoch, flush)); });
  }

  void one_step() {
    clock_.advance(1'000 + random_.below(3'600'000));
    switch (random_.below(14)) {
      case 0:
      case 1:
        return purge_step();
      case 2:
        return checkpoint_step();
      case 3:
      case 4:
        return forwards_ ? next_hop_step() : inbox_step();
      case 5:
        return inbox_step();
      case 6:
        if (random_.percent(60)) return gateway_step();
        close();
        return open();
      default:
        return gateway_step();
    }
  }

  CrashRun& run_;
  bool forwards_;
  Seeded random_;
  ManualClock clock_;
  EventId streams_[kStreams];
  std::uint64_t session_ = 0, sessions_[kStreams] = {}, frame_no_[kStreams] = {};
  wire::Mark marks_[kStreams];
  EventId last_id_{};
  Db db_, guard_;
  std::unique_ptr<GatewayCore> core_;
  std::unique_ptr<Connection> consumer_;
  Inbox inbox_;
  Delivery delivery_;
  Store store_;
};

}  // namespace

std::unique_ptr<CrashRun> run_device(const std::string& name, const DeviceOptions& options) {
  auto run = std::make_unique<CrashRun>(name, kCrashDatabase);
  const DeviceRun device(*run, options);
  return run;
}

std::unique_ptr<CrashRun> run_gateway(const std::string& name, std::uint64_t seed, bool forwards) {
  auto run = std::make_unique<CrashRun>(name, kCrashDatabase);
  const GatewayRun gateway(*run, seed, forwards);
  return run;
}

std::unique_ptr<CrashRun> run_boot(const std::string& name, const DiskImage& image) {
  auto run = std::make_unique<CrashRun>(name, kCrashDatabase, image);
  ManualClock clock;
  clock.reboot(1'000);
  InitOptions init;
  init.clock = &clock;
  OutboxOptions outbox_options;
  outbox_options.clock = &clock;
  run->step("init", Promise::survives, [&] { must(Store::init(run->path(), init, nullptr)); });
  {
    Connection application(run->path());
    Outbox outbox;
    run->step("attach", Promise::may_roll_back,
              [&] { must(Outbox::attach(application, outbox_options, outbox)); });
    Emitted emitted;
    run->step("emit", Promise::survives, [&] {
      application.run("BEGIN IMMEDIATE");
      must(outbox.emit(sensor_event("after"), &emitted));
      application.run("COMMIT");
    });
    Fate fate = Fate::absent;
    must(outbox.resolve(emitted, fate));
    if (fate != Fate::committed) throw std::runtime_error("resolve: absent");
    Delivery delivery;
    run->step("open the relay's side", Promise::may_roll_back,
              [&] { must(delivery.open(run->path(), kDefaultDestination, true, clock)); });
    run->step("acquire", Promise::may_roll_back, [&] {
      bool acquired = false;
      DestinationRow row;
      must(delivery.acquire(kOwner, 30'000, acquired, row));
    });
    run->step("checkpoint", Promise::may_roll_back, [&] { must(delivery.checkpoint()); });
  }
  return run;
}

}  // namespace holdfast::test
