#include "holdfast/store.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "holdfast/outbox.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  Store store;
  std::unique_ptr<Connection> app;

  Fixture() {
    make_database(path);
    must(Store::open(path, Access::read_write, {}, store));
    app = std::make_unique<Connection>(path);
  }
  std::vector<EventView> list(const ListFilter& filter = {}) {
    std::vector<EventView> out;
    must(store.list(filter, [&](const EventView& view) {
      out.push_back(view);
      return true;
    }));
    return out;
  }
  void except(std::int64_t seq, const char* status, const char* destination = "upstream") const {
    app->run("INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts) SELECT id," +
             std::to_string(seq) + ",0,'" + status + "',1 FROM outbox_destination WHERE name='" +
             destination + "'");
  }
};

CaptureSpec reading_spec() {
  CaptureSpec spec;
  spec.table = "reading";
  spec.on_insert = spec.on_update = spec.on_delete = true;
  spec.event_type = "reading.{op}";
  spec.aggregate_type = "sensor";
  spec.aggregate_id = "NEW.sensor";
  spec.payload = "json_object('id',NEW.id,'celsius',NEW.celsius)";
  return spec;
}

}  // namespace

TEST_CASE("an init that did not end leaves nothing, and repeating it makes all of it (G3)") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  InitOptions wrong;
  wrong.destination = "two words";
  CHECK(Store::init(path, wrong, nullptr).code() == Code::invalid);
  InitResult result;
  must(Store::init(path, {}, &result));
  CHECK(result.created);
  Store store;
  must(Store::open(path, Access::read_only, {}, store));
  StoreStats stats;
  must(store.stats(stats));
  REQUIRE(stats.destinations.size() == 1);
  CHECK(stats.destinations[0].name == kDefaultDestination);
}

TEST_CASE("captured tables: insert, update and delete are events in the same transaction (G1)") {
  Fixture f;
  f.app->run("CREATE TABLE reading(id INTEGER PRIMARY KEY, sensor TEXT, celsius)");
  must(f.store.capture(reading_spec()));
  f.app->run("BEGIN; INSERT INTO reading VALUES(1,'NEW.a',20); ROLLBACK");
  CHECK(f.app->number("SELECT count(*) FROM outbox_event") == 0);
  f.app->run(
      "BEGIN; INSERT INTO reading VALUES(1,'boiler',20); UPDATE reading SET celsius=21;"
      "DELETE FROM reading; COMMIT");
  const std::vector<EventView> events = f.list();
  REQUIRE(events.size() == 3);
  CHECK(events[0].event.event_type == "reading.insert");
  CHECK(events[0].event.aggregate_id == "boiler");
  CHECK(events[0].event.payload == R"({"id":1,"celsius":20})");
  CHECK(events[0].event.content_type == "application/json");
  CHECK(events[1].event.event_type == "reading.update");
  CHECK(events[1].event.payload == R"({"id":1,"celsius":21})");
  CHECK(events[2].event.event_type == "reading.delete");
  CHECK(events[2].event.payload == R"({"id":1,"celsius":21})");
}

TEST_CASE("captures are replaced as a whole, and removed") {
  Fixture f;
  f.app->run("CREATE TABLE reading(id INTEGER PRIMARY KEY, sensor TEXT, celsius)");
  must(f.store.capture(reading_spec()));
  CaptureSpec only_insert = reading_spec();
  only_insert.on_update = only_insert.on_delete = false;
  must(f.store.capture(only_insert));
  f.app->run("INSERT INTO reading VALUES(1,'a',20); UPDATE reading SET celsius=21");
  CHECK(f.list().size() == 1);
  int removed = 0;
  must(f.store.remove_capture("reading", removed));
  CHECK(removed == 1);
  f.app->run("INSERT INTO reading VALUES(2,'a',20)");
  CHECK(f.list().size() == 1);
  must(f.store.remove_capture("reading", removed));
  CHECK(removed == 0);
}

TEST_CASE("a capture that would not work, or would do more, is refused and changes nothing (G10)") {
  Fixture f;
  f.app->run("CREATE TABLE reading(id INTEGER PRIMARY KEY, sensor TEXT, celsius)");
  must(f.store.capture(reading_spec()));
  const std::string before = f.app->text("SELECT group_concat(sql) FROM sqlite_schema");
  const auto refused = [&](const CaptureSpec& spec) {
    const Status status = f.store.capture(spec);
    CAPTURE(status.text());
    CHECK_FALSE(status.ok());
    CHECK(f.app->text("SELECT group_concat(sql) FROM sqlite_schema") == before);
  };
  CaptureSpec spec = reading_spec();
  spec.payload = "'x'); END; DROP TABLE reading; --";
  refused(spec);
  spec = reading_spec();
  spec.payload = "'x')); DELETE FROM reading; INSERT INTO reading(id) VALUES((1";
  refused(spec);
  spec = reading_spec();
  spec.aggregate_id = "NEW.no_such_column";
  refused(spec);
  spec = reading_spec();
  spec.aggregate_id = "";
  refused(spec);
  spec = reading_spec();
  spec.event_type = "";
  refused(spec);
  spec = reading_spec();
  spec.on_insert = spec.on_update = spec.on_delete = false;
  refused(spec);
  spec = reading_spec();
  spec.table = "outbox_event";
  refused(spec);
  spec.table = "nowhere";
  refused(spec);
  CHECK(f.app->number("SELECT count(*) FROM reading") == 0);
}

TEST_CASE("a table with a quote in its name is captured like any other") {
  Fixture f;
  f.app->run("CREATE TABLE \"odd \"\"name\"(id INTEGER PRIMARY KEY)");
  CaptureSpec spec = reading_spec();
  spec.table = "odd \"name";
  spec.event_type = "it's.odd";
  spec.aggregate_id = "NEW.id";
  spec.payload = "'NEW.'||NEW.id";
  must(f.store.capture(spec));
  f.app->run("INSERT INTO \"odd \"\"name\" VALUES(5); DELETE FROM \"odd \"\"name\"");
  const std::vector<EventView> events = f.list();
  REQUIRE(events.size() == 2);
  CHECK(events[0].event.event_type == "it's.odd");
  CHECK(events[1].event.payload == "NEW.5");
}

TEST_CASE("retry offers DEAD events again, discard leaves a gap; both are audited (G9)") {
  Fixture f;
  insert_events(*f.app, 5);
  f.app->run("UPDATE outbox_destination SET acked_seq=5");
  f.except(2, "DEAD");
  f.except(3, "DEAD");
  f.except(4, "HELD");
  std::int64_t changed = 0;
  must(f.store.retry(2, "", changed));
  CHECK(changed == 1);
  must(f.store.retry_all_dead("upstream", changed));
  CHECK(changed == 1);
  must(f.store.discard(4, "upstream", "not wanted", changed));
  CHECK(changed == 1);
  must(f.store.discard(5, "", "was sent", changed));
  CHECK(changed == 0);
  must(f.store.retry(99, "", changed));
  CHECK(changed == 0);
  CHECK(f.store.retry(2, "nowhere", changed).code() == Code::not_found);
  CHECK(f.store.discard(2, "", "", changed).code() == Code::invalid);
  ListFilter all;
  all.all_states = true;
  std::vector<std::string> states;
  for (const EventView& view : f.list(all)) states.emplace_back(state_name(view.state));
  CHECK(states == std::vector<std::string>{"SENT", "RETRY", "RETRY", "GONE", "SENT"});
  CHECK(f.list(all)[3].gone_reason == "discarded: not wanted");
  std::vector<AuditRow> audit;
  must(f.store.audit(10, audit));
  REQUIRE(audit.size() == 3);
  CHECK(audit[0].action == "discard");
}

TEST_CASE("destinations: named, counted, never lost with pending events unless forced (G3)") {
  Fixture f;
  CHECK(f.store.add_destination("bad name").code() == Code::invalid);
  CHECK(f.store.add_destination("").code() == Code::invalid);
  CHECK(f.store.add_destination("upstream").code() == Code::exists);
  for (int i = 1; i < kMaxDestinations; ++i) must(f.store.add_destination("d" + std::to_string(i)));
  CHECK(f.store.add_destination("one-more").code() == Code::full);
  must(f.store.remove_destination("d1", false));
  insert_events(*f.app, 2);
  CHECK(f.store.remove_destination("d2", false).code() == Code::misuse);
  must(f.store.remove_destination("d2", true));
  CHECK(f.store.remove_destination("d2", true).code() == Code::not_found);
}

TEST_CASE("a backup is whole, taken under load, and speaks on a stream of its own (G11)") {
  Fixture f;
  insert_events(*f.app, 500);
  const std::string copy = f.directory.file("copy.db");
  must(f.store.backup(copy, nullptr));
  CHECK(f.store.backup(copy, nullptr).code() == Code::exists);
  StoreStats original, reading, writing;
  must(f.store.stats(original));
  Store store;
  must(Store::open(copy, Access::read_only, {}, store));
  must(store.stats(reading));
  CHECK(reading.stream == original.stream);  // nobody has written to it yet
  {
    Connection app(copy);
    Outbox outbox;
    must(Outbox::attach(app, {}, outbox));
    CHECK(app.number("SELECT count(*) FROM outbox_event") == 500);
    CHECK(app.text("PRAGMA integrity_check") == "ok");
  }
  must(store.stats(writing));
  CHECK(writing.stream != original.stream);
  CHECK(writing.forks == original.forks + 1);
  {
    Connection app(copy);
    Outbox outbox;
    must(Outbox::attach(app, {}, outbox));
  }
  StoreStats again;
  must(store.stats(again));
  CHECK(again.stream == writing.stream);  // once
  must(f.store.stats(reading));
  CHECK(reading.stream == original.stream);
}

TEST_CASE("a backup ends although somebody commits between any two of its steps") {
  Fixture f;
  const std::string filler(64 * 1024, 'x');
  f.app->run("CREATE TABLE filler(x)");
  for (int i = 0; i < 64; ++i) f.app->run("INSERT INTO filler VALUES('" + filler + "')");
  int steps = 0;
  const std::string copy = f.directory.file("copy.db");
  must(f.store.backup(copy, [&](std::int64_t, std::int64_t) {
    // A copy that is started again by each commit would still be going at 100.
    if (++steps < 100) f.app->run("INSERT INTO filler VALUES(1)");
  }));
  CHECK(steps > 1);
  CHECK(steps < 100);
  CHECK(Connection(copy).text("PRAGMA integrity_check") == "ok");
  CHECK(Connection(copy).number("SELECT count(*) FROM filler") == 64);  // the state at its begin
}

TEST_CASE("a listing holds no read transaction: the WAL can be moved between two rows (G8)") {
  Fixture f;
  insert_events(*f.app, 1000);
  int rows = 0;
  bool moved = false;
  ListFilter filter;
  filter.limit = -1;
  must(f.store.list(filter, [&](const EventView&) {
    if (++rows == 400) {
      insert_events(*f.app, 1);
      moved = f.app->text("PRAGMA wal_checkpoint(TRUNCATE)") == "0";
    }
    return true;
  }));
  CHECK(moved);
  CHECK(rows == 1001);
}

// What stats says without walking the log is what walking it says.
TEST_CASE("counts are right in any state that deliveries, people and purges can make (G9)") {
  const std::uint64_t start = seed(20'261);
  const int rounds = scaled(60);
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t this_seed = start + static_cast<std::uint64_t>(round);
    CAPTURE(this_seed);
    std::mt19937_64 random(this_seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Fixture f;
    if (below(2) == 0) must(f.store.add_destination("archive"));
    f.app->run("BEGIN");
    const std::int64_t events = below(120);
    for (std::int64_t i = 0; i < events; ++i)
      insert_events(*f.app, 1, "a", below(4) == 0 ? kLaneUrgent : kLaneNormal);
    f.app->run("COMMIT");
    const std::vector<std::string> ids = f.app->column("SELECT id FROM outbox_destination");
    for (const std::string& id : ids) {
      const std::int64_t acked = events == 0 ? 0 : below(events + 1);
      const std::int64_t urgent = events == 0 ? 0 : below(events + 1);
      f.app->run("UPDATE outbox_destination SET acked_seq=" + std::to_string(acked) +
                 ",urgent_acked_seq=" + std::to_string(urgent) + " WHERE id=" + id);
      for (std::int64_t i = 0; i < events / 8; ++i) {
        const char* const states[] = {"RETRY", "HELD", "DEAD"};
        f.app->run(
            "INSERT OR IGNORE INTO outbox_exception(destination_id,seq,lane,status) SELECT " + id +
            ",seq,lane,'" + states[below(3)] +
            "' FROM outbox_event WHERE seq=" + std::to_string(1 + below(events)));
      }
      for (const std::string& seq :
           f.app->column("SELECT seq FROM outbox_exception WHERE destination_id=" + id)) {
        std::int64_t changed = 0;
        if (below(4) == 0)
          must(f.store.discard(std::stoll(seq),
                               f.app->text("SELECT name FROM outbox_destination WHERE id=" + id),
                               "test", changed));
      }
    }
    PurgeOptions purge;
    purge.outbox_older_than_ms = 0;
    purge.step_rows = static_cast<int>(1 + below(40));
    PurgeResult purged;
    if (below(2) == 0) must(f.store.purge(purge, purged));

    StoreStats stats;
    must(f.store.stats(stats));
    for (const DestinationStats& destination : stats.destinations) {
      CAPTURE(destination.name);
      const auto count = [&](const char* status) {
        return f.app->number("SELECT count(*) FROM outbox_status WHERE destination='" +
                             destination.name + "' AND status='" + status + "'");
      };
      CHECK(destination.pending == count("PENDING"));
      CHECK(destination.retry == count("RETRY"));
      CHECK(destination.held == count("HELD"));
      CHECK(destination.dead == count("DEAD"));
      std::map<EventState, std::int64_t> listed;
      ListFilter filter;
      filter.destination = destination.name;
      filter.limit = -1;
      for (const EventView& view : f.list(filter)) ++listed[view.state];
      CHECK(listed[EventState::pending] == destination.pending);
      CHECK(listed[EventState::retry] == destination.retry);
      CHECK(listed[EventState::held] == destination.held);
      CHECK(listed[EventState::dead] == destination.dead);
      CHECK((destination.oldest_pending_age_ms >= 0) == (destination.pending > 0));
    }
    CHECK(stats.newest_seq == events);
  }
}
