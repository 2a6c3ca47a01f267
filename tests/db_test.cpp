#include "db.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <thread>

#include "holdfast/clock.hpp"
#include "platform.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

std::int64_t size_of(const std::string& path) {
  struct stat facts{};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_size : -1;
}

std::string pragma(Db& db, const char* name) {
  std::string value;
  must(db.query_text(("PRAGMA " + std::string(name)).c_str(), value, name));
  return value;
}

}  // namespace

TEST_CASE("a connection of Holdfast syncs every commit and never checkpoints by itself (G2, G12)") {
  TemporaryDirectory directory;
  make_database(directory.file("app.db"));
  Db db;
  must(Db::open(directory.file("app.db"), OpenMode::read_write, 100, db));
  CHECK(pragma(db, "journal_mode") == "wal");
  CHECK(pragma(db, "synchronous") == "2");
  CHECK(pragma(db, "wal_autocheckpoint") == "0");
  must(db.relax_synchronous());
  CHECK(pragma(db, "synchronous") == "1");
}

TEST_CASE("what cannot be opened says why, and opening makes no file that was not asked for") {
  TemporaryDirectory directory;
  Db db;
  CHECK(Db::open(directory.file("none.db"), OpenMode::read_write, 0, db).code() == Code::not_found);
  CHECK(size_of(directory.file("none.db")) == -1);
  CHECK(Db::open(directory.path(), OpenMode::read_write, 0, db).code() == Code::invalid);
  write_file(directory.file("text.db"), std::string(5000, 'x'));
  const Status text = Db::open(directory.file("text.db"), OpenMode::read_write, 0, db);
  CHECK(text.code() == Code::corrupt);
  CHECK(std::string(text.text()).find("holdfast doctor") != std::string::npos);
  CHECK(Db::open(directory.file("no/such/folder.db"), OpenMode::create, 0, db).code() ==
        Code::not_found);
  CHECK_FALSE(db.is_open());
}

TEST_CASE("a transaction that goes out of scope is rolled back (G1)") {
  TemporaryDirectory directory;
  make_database(directory.file("app.db"));
  Connection app(directory.file("app.db"));
  {
    Transaction transaction(app);
    must(transaction.begin());
    insert_events(app, 1);
  }
  CHECK(app.number("SELECT count(*) FROM outbox_event") == 0);
  {
    Transaction transaction(app);
    must(transaction.begin());
    insert_events(app, 1);
    must(transaction.commit());
    CHECK_FALSE(transaction.active());
  }
  CHECK(app.number("SELECT count(*) FROM outbox_event") == 1);
}

TEST_CASE(
    "a writer waits for the lock as long as it was told and then says busy, nothing written") {
  TemporaryDirectory directory;
  make_database(directory.file("app.db"));
  const WriteLock lock(directory.file("app.db"));
  Db db;
  must(Db::open(directory.file("app.db"), OpenMode::read_write, 150, db));
  Transaction transaction(db.handle());
  const std::int64_t began = system_clock().boot_ms();
  CHECK(transaction.begin().code() == Code::busy);
  CHECK(system_clock().boot_ms() - began >= 150);
  CHECK_FALSE(transaction.active());
}

TEST_CASE("a commit that a constraint refuses is certainly not there, not unknown (G2)") {
  TemporaryDirectory directory;
  Connection app(directory.file("app.db"));
  app.run(
      "PRAGMA foreign_keys=ON; CREATE TABLE a(id INTEGER PRIMARY KEY);"
      "CREATE TABLE b(a REFERENCES a(id) DEFERRABLE INITIALLY DEFERRED)");
  Transaction transaction(app);
  must(transaction.begin());
  app.run("INSERT INTO b VALUES(1)");
  CHECK(transaction.commit().code() == Code::invalid);
  CHECK_FALSE(in_transaction(app));
  CHECK(app.number("SELECT count(*) FROM b") == 0);
}

TEST_CASE(
    "a guarded checkpoint moves the whole WAL, and stops at a reader without an error (G12)") {
  TemporaryDirectory directory;
  make_database(directory.file("app.db"));
  Connection app(directory.file("app.db"));
  app.run("PRAGMA wal_autocheckpoint=0");
  Db guard;
  must(Db::open(directory.file("app.db"), OpenMode::read_write, 0, guard));
  insert_events(app, 100);
  CheckpointResult result;
  must(guarded_checkpoint(app, guard, result));
  CHECK(result.wal_frames > 0);
  CHECK(result.complete());

  Connection reader(directory.file("app.db"));
  reader.run("BEGIN");
  CHECK(reader.number("SELECT count(*) FROM outbox_event") == 100);
  insert_events(app, 100);
  must(guarded_checkpoint(app, guard, result));
  CHECK_FALSE(result.complete());
  reader.run("COMMIT");
  must(guarded_checkpoint(app, guard, result));
  CHECK(result.complete());
  CHECK(app.text("PRAGMA integrity_check") == "ok");
}

TEST_CASE("a second statement smuggled into one is refused") {
  TemporaryDirectory directory;
  Db db;
  must(Db::open(directory.file("app.db"), OpenMode::create, 0, db));
  must(db.exec_one("CREATE TABLE t(a)", "test"));
  CHECK(db.exec_one("INSERT INTO t VALUES(1); DROP TABLE t", "test").code() == Code::invalid);
  std::int64_t rows = -1;
  must(db.query_int("SELECT count(*) FROM t", rows, "test"));
  CHECK(rows == 0);
}

namespace {

// Whether this connection still waits for a lock when it is held for so long, and then gets it.
bool waits_out(sqlite3* db, Connection& holder, int held_ms) {
  holder.run("BEGIN IMMEDIATE");
  std::thread release([&] {
    platform::sleep_us(held_ms * 1000);
    holder.run("COMMIT");
  });
  Transaction transaction(db);
  const bool got = transaction.begin().ok();
  release.join();
  return got;
}

}  // namespace

TEST_CASE("a connection gets a way to wait for locks only where it has none") {
  TemporaryDirectory directory;
  Connection holder(directory.file("app.db"));
  Connection bare(directory.file("app.db"), Connection::Kind::bare);
  ensure_busy_wait(bare, 0);
  CHECK_FALSE(waits_out(bare, holder, 50));  // control: such a connection does not wait
  ensure_busy_wait(bare, 5'000);
  CHECK(waits_out(bare, holder, 50));
  ensure_busy_wait(bare, 1);  // it has one now
  CHECK(waits_out(bare, holder, 50));
  bare.run("PRAGMA busy_timeout=321");
  ensure_busy_wait(bare, 999);
  CHECK(bare.number("PRAGMA busy_timeout") == 321);
}

TEST_CASE("a connection's waiting for locks ends after its timeout") {
  TemporaryDirectory directory;
  Connection holder(directory.file("app.db"));
  Connection bare(directory.file("app.db"), Connection::Kind::bare);
  ensure_busy_wait(bare, 100);
  holder.run("BEGIN IMMEDIATE");
  const std::int64_t began = system_clock().boot_ms();
  CHECK(Transaction(bare).begin().code() == Code::busy);
  CHECK(system_clock().boot_ms() - began >= 99);
  CHECK(system_clock().boot_ms() - began < 5'000);
}

TEST_CASE("a connection of Holdfast's own keeps its way to wait for locks when it is attached") {
  TemporaryDirectory directory;
  Connection holder(directory.file("app.db"));
  Db db;
  must(Db::open(directory.file("app.db"), OpenMode::read_write, 5'000, db));
  ensure_busy_wait(db.handle(), 1);
  CHECK(waits_out(db.handle(), holder, 50));
}
