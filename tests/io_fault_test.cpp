// The disk answers with an error at every single operation (layer L2): what the library then says
// must match what is there, after the process starts again and after a power cut (G2).
//
// One day of work on one database, every call of it with its Status. For each operation of that
// day, and each kind of error, the day is lived once; then the database is opened again.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "delivery.hpp"
#include "gateway_core.hpp"
#include "holdfast/inbox.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "support/connection.hpp"
#include "support/crash_disk.hpp"
#include "support/manual_clock.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr const char* kDatabase = "app.db";
constexpr const char* kOwner = "a-relay";
constexpr std::int64_t kOldEvents = 4;  // in the database when the day begins

EventId id_of(std::uint8_t number) {
  EventId id;
  id.bytes.fill(number);
  return id;
}

struct Call {
  std::string name;
  Status status;
  bool promised = true;  // ok means that a power cut cannot take it away
  // What must be there if it was done, and, with the same number of rows, is not if it was not.
  std::string done;   // a query: 1 or 0
  std::string begun;  // a query: 1 if any part of it is there
  Emitted emitted;    // of an emit
};

class Day {
 public:
  explicit Day(CrashDisk& disk) : path_(disk.path(kDatabase)) {}

  std::vector<Call> live() {
    if (!open().ok()) return {};
    emit(1);
    relay();
    discard();
    accept();
    once();
    emit(2);
    checkpoint();
    purge();
    emit(3);
    return std::move(calls_);
  }

 private:
  Status open() {
    StoreOptions options;
    options.busy_timeout_ms = 1;
    options.clock = &clock_;
    Status status = Store::open(path_, Access::read_write, options, store_);
    OutboxOptions outbox;
    outbox.clock = &clock_;
    if (status.ok()) status = Outbox::attach(store_.connection(), outbox, outbox_);
    InboxOptions inbox;
    inbox.clock = &clock_;
    if (status.ok()) status = Inbox::attach(store_.connection(), inbox, inbox_);
    if (status.ok()) status = Db::open(path_, OpenMode::read_write, 1, gateway_db_);
    if (status.ok()) status = delivery_.open(path_, kDefaultDestination, false, clock_);
    if (status.ok()) delivery_.db().set_busy_timeout(1);
    return status;
  }

  void add(Call call) { calls_.push_back(std::move(call)); }

  Status execute(sqlite3* db, const std::string& sql) {
    Statement statement;
    const Status status = statement.prepare(db, sql.c_str());
    return status.ok() ? statement.run("sql") : status;
  }

  // A business row and its event.
  void emit(std::uint8_t number) {
    const std::string n = std::to_string(number);
    Call call;
    call.name = "emit " + n;
    const EventId id = id_of(number);
    const std::string reading = "(SELECT count(*) FROM reading WHERE n=" + n + ")";
    const std::string event =
        "(SELECT count(*) FROM outbox_event WHERE event_id='" + id.text() + "')";
    call.done = "SELECT " + reading + "=1 AND " + event + "=1";
    call.begun = "SELECT " + reading + "+" + event + ">0";
    const std::string payload(3'000, 'p');
    Event to_emit = sensor_event("s", payload);
    to_emit.id = id;
    call.status = store_.begin();
    if (call.status.ok())
      call.status = execute(store_.connection(), "INSERT INTO reading VALUES(" + n + ")");
    if (call.status.ok()) call.status = outbox_.emit(to_emit, &call.emitted);
    if (call.status.ok()) call.status = store_.commit();
    (void)store_.rollback();
    add(call);
  }

  void relay() {
    Call lease;
    lease.name = "acquire";
    lease.promised = false;
    lease.done = lease.begun = "SELECT lease_epoch=1 FROM outbox_destination";
    DestinationRow row;
    bool acquired = false;
    lease.status = delivery_.acquire(kOwner, 30'000, acquired, row);
    add(lease);
    if (!acquired) return;
    Call call;
    call.name = "flush";
    call.promised = false;
    const std::string cursor = "(SELECT acked_seq FROM outbox_destination)";
    const std::string dead = "(SELECT count(*) FROM outbox_exception WHERE seq=3)";
    call.done = "SELECT " + cursor + "=3 AND " + dead + "=1";
    call.begun = "SELECT " + cursor + ">0 OR " + dead + ">0";
    CursorFlush flush;
    flush.lanes[kLaneNormal].acked_seq = flush.lanes[kLaneNormal].claimed_seq = 3;
    ExceptionRow refused;
    refused.seq = 3;
    refused.status = ExceptionStatus::dead;
    flush.put.push_back(refused);
    call.status = delivery_.flush(kOwner, row.lease_epoch, flush);
    // What discard() takes away again is no failure of this call.
    if (call.status.ok()) call.done = "SELECT " + cursor + "=3";
    add(call);
  }

  // Event 1 was refused before this day.
  void discard() {
    Call call;
    call.name = "discard";
    const std::string there = "(SELECT count(*) FROM outbox_exception WHERE seq=1)";
    const std::string gap = "(SELECT count(*) FROM outbox_gap WHERE first_seq=1)";
    call.done = "SELECT " + there + "=0 AND " + gap + "=1";
    call.begun = "SELECT " + there + "=0 OR " + gap + "=1";
    std::int64_t changed = 0;
    call.status = store_.discard(1, "", "a test", changed);
    add(call);
  }

  static std::string effects(std::uint8_t first, std::uint8_t last, const std::string& check) {
    std::string ids;
    for (int i = first; i <= last; ++i) {
      char hex[3];
      std::snprintf(hex, sizeof hex, "%02x", i);
      std::string id;
      for (int j = 0; j < 16; ++j) id += hex;
      ids += (ids.empty() ? "x'" : ",x'") + id + "'";
    }
    const std::string many = std::to_string(last - first + 1);
    const std::string effect = "(SELECT count(*) FROM effect WHERE id IN (" + ids + "))";
    const std::string inbox = "(SELECT count(*) FROM inbox_event WHERE event_id IN (" + ids + "))";
    return check == "done" ? "SELECT " + effect + "=" + many + " AND " + inbox + "=" + many
                           : "SELECT " + effect + "+" + inbox + ">0";
  }

  static HandlerResult effect(const EventRecord& event, sqlite3* db) {
    Statement insert;
    Status status = insert.prepare(db, "INSERT INTO effect VALUES(?1)");
    if (status.ok()) status = insert.bind_id(1, event.id).run("effect");
    return status.ok() ? HandlerResult::done() : HandlerResult::retry_later(1, "disk");
  }

  void accept() {
    Call call;
    call.name = "accept";
    call.done = effects(20, 22, "done");
    call.begun = effects(20, 22, "begun");
    GatewayCoreConfig config;
    config.handler = effect;
    GatewayCore core(gateway_db_.handle(), clock_, config);
    wire::Hello hello;
    hello.stream = id_of(9);
    hello.session = 1;
    hello.device = hello.software = "test";
    for (std::uint8_t lane = 0; lane < kLaneCount; ++lane) hello.lanes.push_back({lane, 0, {}});
    wire::Batch batch;
    batch.stream = hello.stream;
    batch.session = batch.frame_no = 1;
    batch.start = true;
    for (std::uint8_t i = 0; i < 3; ++i) {
      EventRecord event = sensor_record("s", i + 1);
      event.id = id_of(static_cast<std::uint8_t>(20 + i));
      batch.events.push_back(event);
    }
    call.status = core.open();
    if (call.status.ok()) call.status = core.begin();
    bool stored = true;
    for (const wire::Message& message : {wire::Message(hello), wire::Message(batch)}) {
      std::string frame, reply;
      if (call.status.ok()) call.status = wire::encode(message, frame);
      if (call.status.ok()) call.status = core.accept(frame, 1, reply);
      if (call.status.ok()) stored = all_stored(reply);
    }
    if (call.status.ok()) call.status = core.commit();
    if (!call.status.ok()) core.abandon();
    // A handler that could not write said "later": that is no promise.
    if (call.status.ok() && !stored) return;
    add(call);
  }

  static bool all_stored(const std::string& reply) {
    wire::Message message;
    wire::RefusedCode refused{};
    if (!wire::decode(reply, message, refused).ok()) return false;
    const auto* const ack = std::get_if<wire::Ack>(&message);
    if (ack == nullptr) return false;
    for (const Outcome& each : ack->outcomes)
      if (each.kind != Outcome::Kind::stored) return false;
    return true;
  }

  void once() {
    Call call;
    call.name = "once";
    call.done = effects(30, 30, "done");
    call.begun = effects(30, 30, "begun");
    EventRecord event = sensor_record("s", 1);
    event.id = id_of(30);
    Applied applied = Applied::done;
    call.status = inbox_.once(event, "second", effect, applied);
    if (call.status.ok() && applied != Applied::done) return;
    add(call);
  }

  void checkpoint() {
    // It promises nothing; what it must not do is checked with everything else.
    (void)delivery_.checkpoint();
  }

  void purge() {
    Call call;
    call.name = "purge";
    PurgeOptions options;
    options.outbox_older_than_ms = 0;
    options.inbox_older_than_ms = -1;
    PurgeResult result;
    call.status = store_.purge(options, result);
    const std::string old = "(SELECT count(*) FROM outbox_event WHERE seq<=4)";
    const std::string left =
        std::to_string(kOldEvents - (call.status.ok() ? result.outbox_rows : 0));
    call.begun = "SELECT " + old + "<>" + std::to_string(kOldEvents);
    call.done = call.status.ok() ? "SELECT " + old + "=" + left : call.begun;
    add(call);
  }

  std::string path_;
  ManualClock clock_;
  Store store_;
  Db gateway_db_;
  Outbox outbox_;  // after its connection: detached before that closes
  Inbox inbox_;
  Delivery delivery_;
  std::vector<Call> calls_;
};

DiskImage morning(bool powersafe) {
  CrashDisk disk;
  disk.set_powersafe_overwrite(powersafe);
  const ManualClock clock;
  const std::string path = disk.path(kDatabase);
  make_database(path, kDefaultDestination, &clock);
  Connection db(path);
  db.run("CREATE TABLE reading(n INTEGER PRIMARY KEY); CREATE TABLE effect(id BLOB)");
  insert_events(db, static_cast<int>(kOldEvents));
  db.run("INSERT INTO outbox_exception(destination_id,seq,lane,status) VALUES(1,1,0,'DEAD')");
  return disk.image(DiskState::kEverything);
}

struct Answers {
  int ok = 0, unknown = 0, failed = 0;
  int unknown_there = 0;  // of the unknown ones, those that were there afterwards
};

// What each call said, against what is there.
void compare(const std::vector<Call>& calls, const DiskImage& image, bool after_cut,
             const std::string& where, Answers& answers) {
  CrashDisk disk(image);
  const std::string path = disk.path(kDatabase);
  Store store;
  Outbox outbox;
  must(Store::open(path, Access::read_write, {}, store));
  must(Outbox::attach(store.connection(), {}, outbox));
  Connection db(path);
  CHECK_MESSAGE(db.text("PRAGMA integrity_check") == "ok", where);
  for (const Call& call : calls) {
    const std::string what = where + ": " + call.name + " said " + code_name(call.status.code()) +
                             " (" + call.status.text() + ")";
    const bool done = db.number(call.done) == 1;
    const bool begun = db.number(call.begun) == 1;
    if (call.status.ok()) {
      if (call.promised || !after_cut) CHECK_MESSAGE(done, what);
    } else if (call.status.code() == Code::unknown) {
      CHECK_MESSAGE(done == begun, what);
      answers.unknown_there += done && !after_cut ? 1 : 0;
    } else {
      CHECK_MESSAGE(!begun, what);
    }
    ++(call.status.ok()                      ? answers.ok
       : call.status.code() == Code::unknown ? answers.unknown
                                             : answers.failed);
    if (call.emitted.seq == 0) continue;
    Fate by_seq = Fate::absent, by_id = Fate::absent;
    must(outbox.resolve(call.emitted, by_seq));
    must(outbox.resolve(call.emitted.id, 100, by_id));
    CHECK_MESSAGE((by_seq == Fate::committed) == done, what);
    CHECK_MESSAGE((by_id == Fate::committed) == done, what);
  }
}

struct FaultKind {
  const char* name;
  DiskFault fault;
  bool for_good;
};
constexpr FaultKind kFaults[] = {{"EIO once", DiskFault::io_error, false},
                                 {"EIO from then on", DiskFault::io_error, true},
                                 {"ENOSPC once", DiskFault::no_space, false},
                                 {"ENOSPC from then on", DiskFault::no_space, true},
                                 {"short write", DiskFault::short_write, false},
                                 {"short writes from then on", DiskFault::short_write, true},
                                 {"EROFS from then on", DiskFault::read_only, true},
                                 {"no power from then on", DiskFault::power_off, true}};

std::vector<Call> live(CrashDisk& disk) { return Day(disk).live(); }

void fault_everywhere(bool powersafe) {
  const DiskImage start = morning(powersafe);
  std::int64_t operations = 0;
  {
    CrashDisk disk(start);
    disk.set_powersafe_overwrite(powersafe);
    for (const Call& call : live(disk)) CHECK_MESSAGE(call.status.ok(), call.name);
    operations = disk.operations();
  }
  Answers answers;
  int faults = 0;
  const std::int64_t every = scaled(100) >= 100 ? 1 : 100 / scaled(100);
  for (std::int64_t at = 0; at < operations; at += every) {
    for (const FaultKind& kind : kFaults) {
      CrashDisk disk(start);
      disk.set_powersafe_overwrite(powersafe);
      CrashDisk::seed_sqlite(1);
      disk.fault_at(at, kind.fault, kind.for_good);
      const std::vector<Call> calls = live(disk);
      if (!disk.fault_met()) continue;
      ++faults;
      const std::string where = std::string(kind.name) + " at operation " + std::to_string(at);
      compare(calls, disk.image(DiskState::kEverything), false, where, answers);
      compare(calls, disk.image(DiskState::kNothing), true, where + ", then a power cut", answers);
    }
  }
  MESSAGE(faults << " faults at " << operations << " operations: " << answers.ok / 2
                 << " calls ok, " << answers.unknown / 2 << " unknown, " << answers.failed / 2
                 << " failed; " << answers.unknown_there << " unknown ones were there");
  CHECK(faults > 0);
  // "failed" would have been a lie. Which faults leave that behind is for all of them to show, not
  // for a sample.
  if (every == 1) CHECK(answers.unknown_there > 0);
}

}  // namespace

TEST_CASE("an I/O error at any operation: what a call returned matches what is there (G2)") {
  fault_everywhere(true);
}

TEST_CASE(
    "the same on a drive without powersafe overwrite, where a commit is followed by padding") {
  fault_everywhere(false);
}

TEST_CASE("init that met an error at any operation can be done again, and is then whole") {
  std::int64_t operations = 1;
  int refused = 0;
  for (std::int64_t at = 0; at < operations; ++at) {
    for (const FaultKind& kind : kFaults) {
      CrashDisk disk;
      const std::string path = disk.path(kDatabase);
      disk.fault_at(at, kind.fault, kind.for_good);
      const Status status = Store::init(path, {}, nullptr);
      operations = std::max(operations, disk.operations());
      disk.no_fault();
      if (!status.ok()) ++refused;
      disk.reboot(status.ok() ? DiskState::kNothing : DiskState::kEverything);
      InitResult result;
      const Status again = Store::init(path, {}, &result);
      const std::string where = std::string(kind.name) + " at operation " + std::to_string(at) +
                                ": " + status.text() + " / " + again.text();
      CHECK_MESSAGE(again.ok(), where);
      if (status.ok()) CHECK_MESSAGE(!result.created, where);
      Connection db(path);
      CHECK_MESSAGE(db.number("SELECT count(*) FROM outbox_destination") == 1, where);
      CHECK_MESSAGE(db.text("PRAGMA integrity_check") == "ok", where);
    }
  }
  CHECK(refused > 50);
}
