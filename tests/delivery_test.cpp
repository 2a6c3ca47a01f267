#include "delivery.hpp"

#include <doctest/doctest.h>

#include "platform.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr std::int64_t kLease = 10'000;

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  ManualClock clock;
  std::unique_ptr<Connection> app;

  Fixture() {
    make_database(path, "upstream", &clock);
    app = std::make_unique<Connection>(path);
  }
  void open(Delivery& delivery) { must(delivery.open(path, "upstream", false, clock)); }
  bool acquire(Delivery& delivery, const std::string& owner, std::int64_t& epoch) {
    bool acquired = false;
    DestinationRow row;
    must(delivery.acquire(owner, kLease, acquired, row));
    if (acquired) epoch = row.lease_epoch;
    return acquired;
  }
  CursorFlush cursor_at(std::int64_t acked, std::int64_t claimed) const {
    CursorFlush flush;
    flush.lanes[0].acked_seq = acked;
    flush.lanes[0].claimed_seq = claimed;
    flush.lease_until_ms = clock.boot_ms() + kLease;
    return flush;
  }
};

}  // namespace

TEST_CASE("one of two relays has the lease; the other takes over when it ran out (G3)") {
  Fixture f;
  Delivery first, second;
  f.open(first);
  f.open(second);
  std::int64_t epoch1 = 0, epoch2 = 0;
  CHECK(f.acquire(first, "one", epoch1));
  CHECK_FALSE(f.acquire(second, "two", epoch2));
  f.clock.advance(kLease - 1);
  CHECK_FALSE(f.acquire(second, "two", epoch2));
  f.clock.advance(2);
  CHECK(f.acquire(second, "two", epoch2));
  CHECK(epoch2 > epoch1);
  CHECK_FALSE(f.acquire(first, "one", epoch1));
}

TEST_CASE("a relay that was suspended past its lease marks nothing (G3)") {
  Fixture f;
  insert_events(*f.app, 10);
  Delivery first, second;
  f.open(first);
  f.open(second);
  std::int64_t epoch1 = 0, epoch2 = 0;
  REQUIRE(f.acquire(first, "one", epoch1));
  f.clock.advance(kLease + 1);
  REQUIRE(f.acquire(second, "two", epoch2));
  must(second.flush("two", epoch2, f.cursor_at(3, 5)));
  CursorFlush late = f.cursor_at(10, 10);
  late.put.push_back({4, 0, ExceptionStatus::dead, 10, 0, false, "late", ""});
  CHECK(first.flush("one", epoch1, late).code() == Code::lease_lost);
  CHECK(f.app->number("SELECT acked_seq FROM outbox_destination") == 3);
  CHECK(f.app->number("SELECT count(*) FROM outbox_exception") == 0);
  const Status released = first.release("one", epoch1);
  CHECK((released.ok() || released.code() == Code::lease_lost));
  CHECK(f.app->text("SELECT lease_owner FROM outbox_destination") == "two");
}

TEST_CASE("after a reboot every old lease is void at once, whatever the clock says (G7)") {
  Fixture f;
  Delivery first, second;
  f.open(first);
  std::int64_t epoch = 0;
  REQUIRE(f.acquire(first, "one", epoch));
  f.clock.reboot(1, false);
  f.open(second);
  CHECK(f.acquire(second, "two", epoch));
}

TEST_CASE("the lease of a process that is gone is void at once; that of a living one is not") {
  Fixture f;
  const Clock& clock = system_clock();
  Delivery second;
  must(second.open(f.path, "upstream", false, clock));
  // It names a process by pid namespace, pid and start time.
  const std::string token = platform::process_token();
  Delivery mine;
  must(mine.open(f.path, "upstream", false, clock));
  std::int64_t epoch = 0;
  REQUIRE(f.acquire(mine, token + "/1", epoch));
  CHECK_FALSE(f.acquire(second, "two", epoch));
  // The same pid, started at another time: the process that took the lease is gone.
  std::size_t start = token.find(':', token.find(':') + 1) + 1;
  std::string gone = token;
  gone.replace(start, token.find(':', start) - start, "1");
  f.app->run("UPDATE outbox_destination SET lease_owner='" + gone + "/1'");
  CHECK(f.acquire(second, "two", epoch));
}

TEST_CASE("wall clock jumps neither prolong nor end a lease (G7)") {
  Fixture f;
  Delivery first, second;
  f.open(first);
  f.open(second);
  std::int64_t epoch = 0;
  REQUIRE(f.acquire(first, "one", epoch));
  for (const std::int64_t wall : {std::int64_t{0}, std::int64_t{4'000'000'000'000}}) {
    f.clock.set_wall(wall);
    CHECK_FALSE(f.acquire(second, "two", epoch));
  }
  f.clock.advance(kLease + 1);
  CHECK(f.acquire(second, "two", epoch));
}

TEST_CASE("releasing the lease gives back what was claimed but not answered") {
  Fixture f;
  insert_events(*f.app, 10);
  Delivery delivery;
  f.open(delivery);
  std::int64_t epoch = 0;
  REQUIRE(f.acquire(delivery, "one", epoch));
  must(delivery.flush("one", epoch, f.cursor_at(3, 8)));
  CHECK(f.app->text(
            "SELECT group_concat(status) FROM (SELECT status FROM outbox_status ORDER BY seq)") ==
        "SENT,SENT,SENT,PROCESSING,PROCESSING,PROCESSING,PROCESSING,PROCESSING,PENDING,PENDING");
  must(delivery.release("one", epoch));
  CHECK(f.app->number("SELECT count(*) FROM outbox_status WHERE status='PENDING'") == 7);
}

TEST_CASE("a flush writes cursor, exceptions and reports all together, and they are read back") {
  Fixture f;
  insert_events(*f.app, 10);
  Delivery delivery;
  f.open(delivery);
  std::int64_t epoch = 0;
  REQUIRE(f.acquire(delivery, "one", epoch));
  CursorFlush flush = f.cursor_at(10, 10);
  flush.sent = 8;
  flush.rejected = 2;
  flush.put.push_back({4, 0, ExceptionStatus::retry, 2, 5'000, false, "no", ""});
  flush.put.push_back({6, 0, ExceptionStatus::held, 0, 0, false, "", ""});
  must(delivery.flush("one", epoch, flush));
  std::vector<ExceptionRow> rows;
  must(delivery.load_exceptions(rows));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].seq == 4);
  CHECK(rows[0].attempts == 2);
  CHECK(rows[0].next_attempt_ms == 5'000);
  CHECK(rows[1].status == ExceptionStatus::held);
  flush = f.cursor_at(10, 10);
  flush.erase = {4, 6};
  must(delivery.flush("one", epoch, flush));
  must(delivery.load_exceptions(rows));
  CHECK(rows.empty());
  CHECK(f.app->number("SELECT sent FROM outbox_destination") == 8);
}

TEST_CASE("an event that a person discarded does not come back as an exception (G9)") {
  Fixture f;
  insert_events(*f.app, 10);
  Delivery delivery;
  f.open(delivery);
  std::int64_t epoch = 0;
  REQUIRE(f.acquire(delivery, "one", epoch));
  CursorFlush flush = f.cursor_at(10, 10);
  flush.put.push_back({4, 0, ExceptionStatus::dead, 10, 0, false, "no", ""});
  must(delivery.flush("one", epoch, flush));
  Store store;
  must(Store::open(f.path, Access::read_write, {}, store));
  std::int64_t changed = 0;
  must(store.discard(4, "", "by hand", changed));
  CHECK(changed == 1);
  must(delivery.flush("one", epoch, flush));
  CHECK(f.app->number("SELECT count(*) FROM outbox_exception") == 0);
  std::vector<OutboxGap> gaps;
  must(delivery.load_gaps(gaps));
  REQUIRE(gaps.size() == 1);
  CHECK(gaps[0].reason == "discarded");
}

TEST_CASE("a damaged row is handed out alone, with the reason; its neighbours are whole (G10)") {
  Fixture f;
  insert_events(*f.app, 1);
  f.app->run("PRAGMA ignore_check_constraints=ON");
  f.app->run(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,lane,payload)"
      " VALUES('','a','x','?',7)");
  f.app->run("PRAGMA ignore_check_constraints=OFF");
  insert_events(*f.app, 1);
  Delivery delivery;
  f.open(delivery);
  std::vector<std::pair<std::int64_t, Code>> seen;
  must(delivery.read(0, 0, 100, [&](EventRecord&& event, const Status& bad) {
    seen.emplace_back(event.seq, bad.code());
    return true;
  }));
  CHECK(seen == std::vector<std::pair<std::int64_t, Code>>{
                    {1, Code::ok}, {2, Code::invalid}, {3, Code::ok}});
}

TEST_CASE("a destination that is not there is an error unless it may be made") {
  Fixture f;
  Delivery delivery;
  CHECK(delivery.open(f.path, "nowhere", false, f.clock).code() == Code::not_found);
  must(delivery.open(f.path, "archive", true, f.clock));
  CHECK(f.app->text("SELECT name FROM outbox_destination ORDER BY id DESC LIMIT 1") == "archive");
}
