// The disk that loses power (support/crash_disk.hpp) does what a disk may do, and no more.
#include "support/crash_disk.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <set>

#include "holdfast/outbox.hpp"
#include "support/connection.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

void emit_one(Store& store, const char* aggregate) {
  Outbox outbox;
  must(Outbox::attach(store.connection(), {}, outbox));
  must(store.begin());
  must(outbox.emit(sensor_event(aggregate)));
  must(store.commit());
}

std::int64_t newest(const std::string& path) {
  Store store;
  must(Store::open(path, Access::read_only, {}, store));
  StoreStats stats;
  must(store.stats(stats));
  return stats.newest_seq;
}

}  // namespace

TEST_CASE("crash disk: a committed event survives a cut that loses whatever was not synced (G2)") {
  CrashDisk disk;
  const std::string path = disk.path("app.db");
  make_database(path);
  {
    Store store;
    must(Store::open(path, Access::read_write, {}, store));
    emit_one(store, "a");
    disk.reboot(DiskState::kNothing);
    CHECK(store.begin().code() == Code::io);  // the old connection has no disk any more
  }
  CHECK(newest(path) == 1);
}

TEST_CASE("crash disk: with synchronous OFF a commit is lost, unless everything was written") {
  CrashDisk disk;
  const std::string path = disk.path("app.db");
  make_database(path);
  Connection application(path);
  application.run("PRAGMA synchronous=OFF");
  insert_events(application, 3);
  std::set<std::int64_t> seen;
  for (std::uint64_t variant = 0; variant < 40; ++variant) {
    CrashDisk after(disk.image(variant));
    seen.insert(newest(after.path("app.db")));
    if (variant == DiskState::kNothing) CHECK(newest(after.path("app.db")) == 0);
    if (variant == DiskState::kEverything) CHECK(newest(after.path("app.db")) == 3);
  }
  CHECK(seen == std::set<std::int64_t>{0, 3});
}

TEST_CASE("crash disk: connections of one process exclude each other as on a real disk") {
  CrashDisk disk;
  const std::string path = disk.path("app.db");
  make_database(path);
  Connection one(path), two(path);
  two.run("PRAGMA busy_timeout=0");
  one.run("BEGIN IMMEDIATE");
  CHECK(two.attempt("BEGIN IMMEDIATE") == SQLITE_BUSY);
  CHECK(two.number("SELECT count(*) FROM outbox_event") == 0);
  one.run("COMMIT");
  insert_events(two, 1);
  CHECK(one.number("SELECT count(*) FROM outbox_event") == 1);
}

TEST_CASE("crash disk: the power can go at any operation, and stays off until the reboot") {
  int committed = 0, absent = 0;
  for (std::int64_t at = 0; at < 60; ++at) {
    CrashDisk disk;
    const std::string path = disk.path("app.db");
    make_database(path);
    Status status;
    {
      Store store;
      must(Store::open(path, Access::read_write, {}, store));
      Outbox outbox;
      must(Outbox::attach(store.connection(), {}, outbox));
      disk.fault_at(disk.operations() + at, DiskFault::power_off);
      status = store.begin();
      if (status.ok()) status = outbox.emit(sensor_event("a"));
      if (status.ok()) status = store.commit();
    }
    disk.reboot(static_cast<std::uint64_t>(at));
    const std::int64_t events = newest(path);
    if (status.ok()) CHECK(events == 1);
    ++(events == 1 ? committed : absent);
  }
  CHECK(committed > 0);
  CHECK(absent > 0);
}
