#include "retention.hpp"

#include <doctest/doctest.h>

#include "powered_time.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr std::int64_t kHour = 3'600'000, kDay = 24 * kHour;

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  ManualClock clock;
  std::unique_ptr<Connection> app;
  Store store;

  Fixture() {
    make_database(path, "upstream", &clock);
    app = std::make_unique<Connection>(path);
    StoreOptions options;
    options.clock = &clock;
    must(Store::open(path, Access::read_write, options, store));
  }
  void acked(const std::string& destination, std::int64_t seq) const {
    app->run("UPDATE outbox_destination SET acked_seq=" + std::to_string(seq) + " WHERE name='" +
             destination + "'");
  }
  PurgeResult purge(std::int64_t older_than_ms = 0, int step_rows = kPurgeStepRows) {
    PurgeOptions options;
    options.outbox_older_than_ms = older_than_ms;
    options.inbox_older_than_ms = -1;
    options.step_rows = step_rows;
    PurgeResult result;
    must(store.purge(options, result));
    return result;
  }
  std::string left() const {
    return app->text(
        "SELECT ifnull(min(seq)||'-'||max(seq)||' '||count(*),'none') FROM outbox_event");
  }
};

}  // namespace

TEST_CASE("the newest event is never purged, so that its seq is never used again (G3)") {
  Fixture f;
  insert_events(*f.app, 10);
  f.acked("upstream", 10);
  CHECK(f.purge().outbox_rows == 9);
  CHECK(f.left() == "10-10 1");
  CHECK(f.purge().outbox_rows == 0);
}

TEST_CASE("nothing is purged before every destination has it (G3)") {
  Fixture f;
  must(f.store.add_destination("archive"));
  insert_events(*f.app, 10);
  f.acked("upstream", 10);
  CHECK(f.purge().outbox_rows == 0);
  f.acked("archive", 4);
  CHECK(f.purge().outbox_rows == 4);
  CHECK(f.left() == "5-10 6");
}

TEST_CASE("an urgent event that waits, or one with an exception, keeps what follows it (G3)") {
  Fixture f;
  insert_events(*f.app, 3);
  insert_events(*f.app, 1, "alarm", kLaneUrgent);  // 4
  insert_events(*f.app, 6);
  f.acked("upstream", 10);
  CHECK(f.purge().outbox_rows == 3);
  CHECK(f.left() == "4-10 7");
  f.app->run("UPDATE outbox_destination SET urgent_acked_seq=4");
  for (const char* status : {"RETRY", "HELD", "DEAD"}) {
    f.app->run(
        "INSERT OR REPLACE INTO outbox_exception(destination_id,seq,lane,status)"
        " VALUES(1,7,0,'" +
        std::string(status) + "')");
    f.purge();
    CHECK(f.left() == "7-10 4");
  }
  f.app->run("DELETE FROM outbox_exception");
  f.purge();
  CHECK(f.left() == "10-10 1");
}

TEST_CASE("retention is a matter of powered time, not of created_at (G7)") {
  Fixture f;
  insert_events(*f.app, 5);
  f.acked("upstream", 5);
  f.clock.set_wall(f.clock.wall_ms() + 10 * 365 * kDay);
  CHECK(f.purge(7 * kDay).outbox_rows == 0);
  f.clock.set_wall(0);
  CHECK(f.purge(7 * kDay).outbox_rows == 0);
  must(sample_time(*f.app, f.clock, true));
  f.clock.advance(7 * kDay - 1);
  CHECK(f.purge(7 * kDay).outbox_rows == 0);
  f.clock.advance(1);
  CHECK(f.purge(7 * kDay).outbox_rows == 4);
}

TEST_CASE("a purge goes in steps of at most 5,000 rows, and says that there is more (G8)") {
  Fixture f;
  insert_events(*f.app, 12'001);
  f.acked("upstream", 12'001);
  PurgeResult result = f.purge();
  CHECK(result.outbox_rows == kPurgeStepRows);
  CHECK(result.more);
  result = f.purge();
  CHECK(result.outbox_rows == kPurgeStepRows);
  CHECK(result.more);
  result = f.purge();
  CHECK(result.outbox_rows == 2'000);
  CHECK_FALSE(result.more);
  CHECK(f.left() == "12001-12001 1");
  PurgeOptions options;
  options.step_rows = kPurgeStepRows + 1;
  CHECK(f.store.purge(options, result).code() == Code::invalid);
  options.step_rows = 0;
  CHECK(f.store.purge(options, result).code() == Code::invalid);
}

TEST_CASE("a log without destinations keeps its events for their time only") {
  TemporaryDirectory directory;
  ManualClock clock;
  make_database(directory.file("gw.db"), "", &clock);
  Connection app(directory.file("gw.db"));
  StoreOptions options;
  options.clock = &clock;
  Store store;
  must(Store::open(directory.file("gw.db"), Access::read_write, options, store));
  insert_events(app, 4);
  must(sample_time(app, clock, true));
  clock.advance(kDay);
  PurgeOptions purge;
  purge.outbox_older_than_ms = kDay;
  PurgeResult result;
  must(store.purge(purge, result));
  CHECK(result.outbox_rows == 3);
}

TEST_CASE("old inbox rows go, young ones stay, in steps that walk all of them") {
  Fixture f;
  Inbox inbox;
  InboxOptions options;
  options.clock = &f.clock;
  must(Inbox::attach(*f.app, options, inbox));
  const auto receive = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Applied applied = Applied::rejected;
      must(inbox.once(
          sensor_record("a"), "log",
          [](const EventRecord&, sqlite3*) { return HandlerResult::done(); }, applied));
    }
  };
  receive(25);
  f.clock.advance(10 * kDay);
  receive(10);
  f.clock.advance(4 * kDay);
  PurgeOptions purge;
  purge.outbox_older_than_ms = -1;
  purge.step_rows = 7;
  PurgeResult result;
  for (int i = 0; i < 6; ++i) must(f.store.purge(purge, result));
  CHECK(result.inbox_rows == 25);
  CHECK(f.app->number("SELECT count(*) FROM inbox_event") == 10);
  purge.inbox_older_than_ms = -1;
  must(f.store.purge(purge, result));
  CHECK(f.app->number("SELECT count(*) FROM inbox_event") == 10);
}
