#include "holdfast/inbox.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>

#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  ManualClock clock;
  std::unique_ptr<Connection> app;
  Inbox inbox;
  int calls = 0;

  explicit Fixture(VersionGuard guard = VersionGuard::apply_all) {
    make_database(path, "", &clock);
    app = std::make_unique<Connection>(path);
    app->run("CREATE TABLE effect(n)");
    InboxOptions options;
    options.clock = &clock;
    options.guard = guard;
    must(Inbox::attach(*app, options, inbox));
  }

  // Writes a row, then says what it was told to say.
  Handler handler(HandlerResult result = HandlerResult::done()) {
    return [this, result](const EventRecord&, sqlite3* db) {
      ++calls;
      sqlite3_exec(db, "INSERT INTO effect VALUES(1)", nullptr, nullptr, nullptr);
      return result;
    };
  }
  Applied once(const EventRecord& event, const Handler& fn, const char* consumer = "billing") {
    Applied applied = Applied::rejected;
    must(inbox.once(event, consumer, fn, applied));
    return applied;
  }
  std::int64_t effects() const { return app->number("SELECT count(*) FROM effect"); }
  std::int64_t counter(const std::string& name) const {
    return app->number("SELECT value FROM holdfast_counter WHERE name='" + name + "'");
  }
};

}  // namespace

TEST_CASE("the effect of an event happens once, however often it is offered (G4)") {
  Fixture f;
  const EventRecord event = sensor_record("a");
  CHECK(f.once(event, f.handler()) == Applied::done);
  for (int i = 0; i < 5; ++i) CHECK(f.once(event, f.handler()) == Applied::duplicate);
  CHECK(f.calls == 1);
  CHECK(f.effects() == 1);
  CHECK(f.counter("inbox_applied") == 1);
  CHECK(f.counter("inbox_duplicates") == 5);
}

TEST_CASE("two consumers of one database each get the event once (G4)") {
  Fixture f;
  const EventRecord event = sensor_record("a");
  for (const char* consumer : {"billing", "alarms", "billing", "alarms"})
    f.once(event, f.handler(), consumer);
  CHECK(f.calls == 2);
  CHECK(f.effects() == 2);
  CHECK(f.app->text("SELECT group_concat(consumer) FROM inbox_event") == "alarms,billing");
}

TEST_CASE("a handler that fails leaves nothing but the record of its failure, and may run again") {
  Fixture f;
  const EventRecord event = sensor_record("a");
  CHECK(f.once(event, f.handler(HandlerResult::retry_later(500, "printer is out of paper"))) ==
        Applied::retry_later);
  CHECK(f.once(event, f.handler(HandlerResult::reject("no such meter"))) == Applied::rejected);
  CHECK(f.effects() == 0);
  CHECK(f.app->text("SELECT status||' '||attempts||' '||last_error FROM inbox_event") ==
        "FAILED 2 no such meter");
  CHECK(f.counter("handler_failures") == 2);
  CHECK(f.once(event, f.handler()) == Applied::done);
  CHECK(f.effects() == 1);
  CHECK(f.app->text("SELECT status||' '||attempts||' '||ifnull(last_error,'-') FROM inbox_event") ==
        "DONE 3 -");
  CHECK(f.once(event, f.handler()) == Applied::duplicate);
  CHECK(f.effects() == 1);
}

TEST_CASE("control: a consumer without an inbox counts a redelivered event twice") {
  Fixture f;
  const EventRecord event = sensor_record("a");
  const Handler naive = f.handler();
  for (int i = 0; i < 2; ++i) naive(event, *f.app);
  CHECK(f.effects() == 2);
}

TEST_CASE("inside the caller's transaction the effect lives and dies with it (G4)") {
  Fixture f;
  const EventRecord event = sensor_record("a");
  f.app->run("BEGIN IMMEDIATE; INSERT INTO effect VALUES(7)");
  CHECK(f.once(event, f.handler()) == Applied::done);
  CHECK(f.once(event, f.handler(HandlerResult::reject("no")), "other") == Applied::rejected);
  CHECK(f.effects() == 2);  // the caller's own row and one effect
  f.app->run("ROLLBACK");
  CHECK(f.effects() == 0);
  CHECK(f.app->number("SELECT count(*) FROM inbox_event") == 0);
  f.app->run("BEGIN IMMEDIATE");
  CHECK(f.once(event, f.handler()) == Applied::done);
  f.app->run("COMMIT");
  CHECK(f.once(event, f.handler()) == Applied::duplicate);
  CHECK(f.effects() == 1);
}

TEST_CASE(
    "skip_stale applies an aggregate's versions upwards only; without a version always (G4)") {
  Fixture f(VersionGuard::skip_stale);
  const auto versioned = [](std::int64_t version) {
    EventRecord event = sensor_record("a");
    event.aggregate_version = version;
    return event;
  };
  CHECK(f.once(versioned(5), f.handler()) == Applied::done);
  CHECK(f.once(versioned(4), f.handler()) == Applied::stale);
  CHECK(f.once(versioned(5), f.handler()) == Applied::stale);
  CHECK(f.once(sensor_record("a"), f.handler()) == Applied::done);
  CHECK(f.once(versioned(6), f.handler(HandlerResult::reject("no"))) == Applied::rejected);
  CHECK(f.once(versioned(6), f.handler()) == Applied::done);  // a rejected version was not applied
  EventRecord other = versioned(1);
  other.aggregate_id = "b";
  CHECK(f.once(other, f.handler()) == Applied::done);
  CHECK(f.once(versioned(1), f.handler(), "alarms") == Applied::done);
  CHECK(f.counter("inbox_stale") == 2);
  CHECK(f.effects() == 5);
  CHECK(f.app->number("SELECT count(*) FROM inbox_event WHERE status='STALE'") == 2);
}

TEST_CASE("two devices' aggregates of one name do not meet in the version guard (G5)") {
  Fixture f(VersionGuard::skip_stale);
  for (int device = 0; device < 2; ++device) {
    EventRecord event = sensor_record("a");
    event.aggregate_version = 1;
    event.source_stream = EventId::make_random();
    event.source = "board";
    event.source_seq = 1;
    CHECK(f.once(event, f.handler()) == Applied::done);
  }
}

TEST_CASE("a handler that ends the transaction is found out, and nothing of it counts") {
  Fixture f;
  const EventRecord event = sensor_record("a");
  Applied applied = Applied::done;
  const Status status = f.inbox.once(
      event, "billing",
      [](const EventRecord&, sqlite3* db) {
        sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
        return HandlerResult::done();
      },
      applied);
  CHECK(status.code() == Code::misuse);
  CHECK(f.app->number("SELECT count(*) FROM inbox_event") == 0);
  CHECK(f.counter("inbox_applied") == 0);
  CHECK(f.once(event, f.handler()) == Applied::done);
  CHECK(f.counter("inbox_applied") == 1);
}

TEST_CASE("once waits for the write lock and says busy when it does not come; nothing is applied") {
  Fixture f;
  f.app->run("PRAGMA busy_timeout=50");
  const EventRecord event = sensor_record("a");
  {
    const WriteLock lock(f.path);
    Applied applied = Applied::done;
    CHECK(f.inbox.once(event, "billing", f.handler(), applied).code() == Code::busy);
    CHECK(f.calls == 0);
  }
  CHECK(f.once(event, f.handler()) == Applied::done);
}

TEST_CASE("attach and once refuse what they cannot serve") {
  Fixture f;
  Applied applied = Applied::done;
  const EventRecord event = sensor_record("a");
  CHECK(f.inbox.once(event, "", f.handler(), applied).code() == Code::invalid);
  CHECK(f.inbox.once(event, std::string(65, 'c'), f.handler(), applied).code() == Code::invalid);
  CHECK(f.inbox.once(event, "c", {}, applied).code() == Code::misuse);
  EventRecord bad = event;
  bad.aggregate_id.clear();
  CHECK(f.inbox.once(bad, "c", f.handler(), applied).code() == Code::invalid);
  CHECK(f.calls == 0);
  Inbox none;
  CHECK(none.once(event, "c", f.handler(), applied).code() == Code::misuse);
  f.app->run("PRAGMA synchronous=NORMAL");
  CHECK(Inbox::attach(*f.app, {}, none).code() == Code::not_durable);
  Connection empty(f.directory.file("empty.db"));
  CHECK(Inbox::attach(empty, {}, none).code() == Code::no_schema);
}

TEST_CASE("the handler histogram counts every call and its failures") {
  Fixture f;
  for (int i = 0; i < 3; ++i) f.once(sensor_record("a"), f.handler());
  f.once(sensor_record("a"), f.handler(HandlerResult::reject("no")));
  Store store;
  must(Store::open(f.path, Access::read_only, {}, store));
  StoreStats stats;
  must(store.stats(stats));
  REQUIRE_FALSE(stats.inbox.handler_seconds.empty());
  CHECK(stats.inbox.handler_seconds.back().count == 4);
  CHECK(stats.inbox.handler_failures == 1);
  CHECK(stats.inbox.applied == 3);
  CHECK(stats.inbox.rejected == 1);
}
