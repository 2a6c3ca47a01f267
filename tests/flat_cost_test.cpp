// What a call costs must not depend on how much there is (G8). Judged by SQLite's own counts, which
// are the same each time: nothing here is timed. `make soak` compares with 10 million events
// (flat_cost_soak.sh).
#include <doctest/doctest.h>
#include <sqlite3.h>

#include <map>

#include "delivery.hpp"
#include "gateway_core.hpp"
#include "holdfast/outbox.hpp"
#include "retention.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/scale.hpp"
#include "support/sql_cost.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr std::int64_t kFew = 10'000;
constexpr std::int64_t kLeast = 100'000;  // below that a tree has the same height
constexpr int kBatch = 256;

std::int64_t many() { return std::max(kLeast, std::int64_t{scaled(200'000)}); }

void fill(const std::string& path, const std::string& insert, std::int64_t rows) {
  Connection db(path);
  REQUIRE(sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr) == SQLITE_OK);
  db.run("PRAGMA synchronous=OFF");
  db.run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<" +
         std::to_string(rows) + ") " + insert);
  db.run("PRAGMA wal_checkpoint(TRUNCATE)");
}

using Costs = std::map<std::string, Cost>;

// A device's day with so many events in the log: half sent, half waiting.
class Device {
 public:
  explicit Device(std::int64_t events) : events_(events) {
    make_database(path_);
    fill(path_,
         "INSERT INTO outbox_event(event_id,event_type,aggregate_type,aggregate_id,lane,created_at,"
         "payload) SELECT printf('%08x-0000-7000-8000-%012x',i,i),'t','sensor',i%100,i>" +
             std::to_string(events - 20) + " AND i%2,1767225600000+i,'{\"n\":'||i||'}' FROM n",
         events);
    Connection db(path_);
    middle_ = events / 2;
    db.run("UPDATE outbox_destination SET acked_seq=" + std::to_string(middle_) +
           ",claimed_seq=acked_seq,urgent_acked_seq=acked_seq");
    for (int i = 1; i <= 40; ++i)
      db.run("INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts) VALUES(1," +
             std::to_string(middle_ - i) + ",0,'DEAD',10)");
  }

  Costs costs() {
    Costs all;
    look(all);
    move(all);
    write(all);
    return all;
  }

  // What is known to be not flat; see lib/docs/DESIGN.md.
  Cost look_up_of_the_oldest_id() {
    Store store;
    must(Store::open(path_, Access::read_only, {}, store));
    std::vector<EventView> views;
    return meter_.of([&] { must(store.find(id_of(1), views)); });
  }

 private:
  EventId id_of(std::int64_t seq) {
    EventId id;
    Connection db(path_);
    REQUIRE(EventId::parse(
        db.text("SELECT event_id FROM outbox_event WHERE seq=" + std::to_string(seq)), id));
    return id;
  }

  void look(Costs& all) {
    Store store;
    must(Store::open(path_, Access::read_only, {}, store));
    std::vector<EventView> views;
    StoreStats stats;
    const auto list = [&](ListFilter filter) {
      filter.limit = 50;
      return meter_.of([&] {
        int rows = 0;
        must(store.list(filter, [&](const EventView&) { return ++rows > 0; }));
        CHECK(rows > 0);
      });
    };
    all["ls, first page"] = list({});
    ListFilter dead;
    dead.states = {EventState::dead};
    all["ls --status dead"] = list(dead);
    ListFilter every;
    every.all_states = true;
    all["ls --status all, first page"] = list(every);
    all["show SEQ"] = meter_.of([&] { must(store.find(middle_ + 1, views)); });
    const EventId newest = id_of(events_);
    all["show ID of the newest"] = meter_.of([&] { must(store.find(newest, views)); });
    all["stats"] = meter_.of([&] { must(store.stats(stats)); });
    CHECK(stats.destinations.at(0).pending > events_ / 3);
    CHECK(stats.destinations.at(0).dead == 40);
  }

  void move(Costs& all) {
    Delivery delivery;
    DestinationRow row;
    bool acquired = false;
    all["start of a relay"] = meter_.of([&] {
      std::vector<ExceptionRow> exceptions;
      std::vector<OutboxGap> gaps;
      must(delivery.open(path_, "upstream", false, system_clock()));
      must(delivery.acquire("one", kLeaseMs, acquired, row));
      must(delivery.load_exceptions(exceptions));
      must(delivery.load_gaps(gaps));
    });
    REQUIRE(acquired);
    int read = 0;
    all["claim of 256"] = meter_.of([&] {
      must(delivery.read(kLaneNormal, middle_, 2 * kBatch,
                         [&](EventRecord&&, const Status&) { return ++read < kBatch; }));
    });
    CHECK(read == kBatch);
    CursorFlush flush;
    flush.lanes[kLaneNormal].acked_seq = flush.lanes[kLaneNormal].claimed_seq = middle_ + kBatch;
    flush.lanes[kLaneUrgent].acked_seq = flush.lanes[kLaneUrgent].claimed_seq = middle_;
    all["ack of 256"] = meter_.of([&] { must(delivery.flush("one", row.lease_epoch, flush)); });
    std::int64_t pending = 0;
    all["count of what is pending"] =
        meter_.of([&] { must(delivery.count_pending(flush.lanes, pending)); });
    CHECK(pending == events_ - middle_ - kBatch);
  }

  void write(Costs& all) {
    Connection app(path_);
    Outbox outbox;
    must(Outbox::attach(app, {}, outbox));
    Emitted emitted;
    all["emit"] = meter_.of([&] {
      app.run("BEGIN IMMEDIATE");
      must(outbox.emit(sensor_event("a"), &emitted));
      app.run("COMMIT");
    });
    CHECK(emitted.seq == events_ + 1);
    Fate fate = Fate::absent;
    all["resolve"] = meter_.of([&] { must(outbox.resolve(emitted, fate)); });
    CHECK(fate == Fate::committed);
    outbox.detach();
    Store store;
    must(Store::open(path_, Access::read_write, {}, store));
    std::int64_t changed = 0;
    all["retry"] = meter_.of([&] { must(store.retry(middle_ - 1, "upstream", changed)); });
    all["discard"] =
        meter_.of([&] { must(store.discard(middle_ - 2, "upstream", "test", changed)); });
    CHECK(changed == 1);
    app.run("UPDATE holdfast_time SET last_seq=" + std::to_string(events_));
    PurgeOptions options;
    options.outbox_older_than_ms = 0;
    options.step_rows = 1000;
    PurgeResult result;
    all["purge step of 1000"] = meter_.of([&] { must(store.purge(options, result)); });
    CHECK(result.outbox_rows == 1000);
  }

  const std::int64_t events_;
  std::int64_t middle_ = 0;
  TemporaryDirectory directory_;
  const std::string path_ = directory_.file("app.db");
  SqlCost meter_;
};

// A gateway that has stored so many events.
class Site {
 public:
  explicit Site(std::int64_t events) {
    make_database(path_, "");
    fill(path_,
         "INSERT INTO outbox_event(event_id,event_type,aggregate_type,aggregate_id,payload,source,"
         "source_stream,source_seq) SELECT printf('%08x-0000-7000-8000-%012x',i,i),'t','sensor',"
         "i%100,'{}','board-1',x'00112233445566778899aabbccddeeff',i FROM n",
         events);
    fill(path_,
         "INSERT INTO inbox_event(event_id,consumer,status,attempts,received_ms,received_at)"
         " SELECT CAST(printf('%016d',i) AS BLOB),'log','DONE',1,0,1767225600000 FROM n",
         events);
  }

  Costs costs() {
    Costs all;
    Db db;
    must(Db::open(path_, OpenMode::read_write, 1000, db));
    GatewayCore core(db.handle(), system_clock(), {});
    must(core.open());
    wire::Hello hello;
    hello.stream = EventId::make_random();
    hello.session = 1;
    hello.device = "board-1";
    all["hello"] = meter_.of([&] { exchange(core, hello); });
    wire::Batch batch;
    batch.stream = hello.stream;
    batch.session = hello.session;
    batch.frame_no = 1;
    batch.start = true;
    for (int i = 1; i <= kBatch; ++i) batch.events.push_back(sensor_record("a", i));
    all["a batch of 256"] = meter_.of([&] { CHECK(exchange(core, batch) == kBatch); });
    Store store;
    must(Store::open(path_, Access::read_write, {}, store));
    StoreStats stats;
    all["stats"] = meter_.of([&] { must(store.stats(stats)); });
    std::vector<InboxRow> rows;
    all["inbox show"] = meter_.of([&] { must(store.find_inbox(batch.events[9].id, rows)); });
    all["inbox ls, first page"] = meter_.of(
        [&] { must(store.list_inbox({"", "", 50}, [](const InboxRow&) { return true; })); });
    PurgeOptions options;
    options.outbox_older_than_ms = -1;
    options.inbox_older_than_ms = 0;
    options.step_rows = 1000;
    PurgeResult result;
    all["inbox purge step of 1000"] = meter_.of([&] { must(store.purge(options, result)); });
    CHECK(result.inbox_rows == 1000);
    return all;
  }

 private:
  static int exchange(GatewayCore& core, const wire::Message& message) {
    std::string frame, reply;
    must(wire::encode(message, frame));
    must(core.begin());
    must(core.accept(frame, 1, reply));
    must(core.commit());
    wire::Message answer;
    wire::RefusedCode code;
    must(wire::decode(reply, answer, code));
    const auto* ack = std::get_if<wire::Ack>(&answer);
    return ack == nullptr ? 0 : static_cast<int>(ack->outcomes.size());
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.file("site.db");
  SqlCost meter_;
};

// Each level that a tree is higher costs a page more for each look-up; else nothing may grow.
void compare(const Costs& few, const Costs& much, double height_ratio) {
  constexpr double kTolerance = 1.1;
  constexpr std::int64_t kReadsMore = 4;  // the added level, in the trees that a call looks into
  for (const auto& [call, small] : few) {
    const Cost large = much.at(call);
    INFO(call << ": " << small.steps << " and " << large.steps << " steps, " << small.pages
              << " and " << large.pages << " pages, " << small.reads << " and " << large.reads
              << " read");
    CHECK(static_cast<double>(large.steps) <= kTolerance * static_cast<double>(small.steps));
    CHECK(static_cast<double>(large.pages) <=
          kTolerance * height_ratio * static_cast<double>(small.pages));
    CHECK(static_cast<double>(large.reads) <=
          kTolerance * static_cast<double>(small.reads + kReadsMore));
    CHECK(small.steps > 0);
  }
}

double ratio(std::int64_t large, std::int64_t small) {
  return static_cast<double>(large) / static_cast<double>(small);
}

}  // namespace

TEST_CASE("a device's calls cost the same with many events in the log as with few (G8)") {
  const Costs few = Device(kFew).costs(), much = Device(many()).costs();
  // resolve is one look-up: as many pages as the tree has levels.
  const double heights = ratio(much.at("resolve").pages, few.at("resolve").pages);
  MESSAGE(kFew << " and " << many() << " events: claim of 256 takes "
               << few.at("claim of 256").steps << " and " << much.at("claim of 256").steps
               << " steps; the log's tree has " << few.at("resolve").pages << " and "
               << much.at("resolve").pages << " levels");
  CHECK(heights <= 5.0 / 3);
  compare(few, much, heights);
}

TEST_CASE("a gateway's calls cost the same with many events stored as with few (G8)") {
  const Costs few = Site(kFew).costs(), much = Site(many()).costs();
  compare(few, much, 5.0 / 3);
}

TEST_CASE("control: the count shows what is not flat, the look-up of an old id") {
  const Cost few = Device(kFew).look_up_of_the_oldest_id();
  const Cost much = Device(kLeast).look_up_of_the_oldest_id();
  CHECK(ratio(much.steps, few.steps) > 0.9 * ratio(kLeast, kFew));
  CHECK(ratio(much.reads, few.reads) > 0.9 * ratio(kLeast, kFew));
}
