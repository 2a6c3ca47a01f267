#include "holdfast/writer.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <atomic>
#include <stdexcept>

#include "holdfast/store.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/scale.hpp"
#include "support/together.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

int execute(sqlite3* db, const char* sql) {
  return sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
}

Status insert(sqlite3* db, int n) {
  const std::string sql = "INSERT INTO reading VALUES(" + std::to_string(n) + ")";
  const int rc = execute(db, sql.c_str());
  return rc == SQLITE_OK ? Status()
                         : Status::native_error(Code::invalid, rc, "%s", sqlite3_errmsg(db));
}

// A business row and its event.
Writer::Work reading(int n) {
  return [n](sqlite3* db, Outbox& outbox) {
    const Status status = insert(db, n);
    return status.ok() ? outbox.emit(sensor_event("a")) : status;
  };
}

struct Fixture {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  std::atomic<int> commits{0};
  Writer writer;

  explicit Fixture(WriterOptions options = {}) {
    options.setup = [](sqlite3* db) {
      CHECK(execute(db, "PRAGMA foreign_keys=ON") == SQLITE_OK);
      return Status();
    };
    make_database(path);
    look().run(
        "CREATE TABLE reading(n INTEGER PRIMARY KEY);"
        "CREATE TABLE child(n REFERENCES reading DEFERRABLE INITIALLY DEFERRED)");
    options.on_commit = [this] { ++commits; };
    must(Writer::open(path, options, writer));
  }
  Connection& look() {
    if (!connection) connection = std::make_unique<Connection>(path);
    return *connection;
  }
  std::string readings() { return look().text("SELECT group_concat(n) FROM reading ORDER BY n"); }
  std::int64_t events() { return look().number("SELECT count(*) FROM outbox_event"); }

 private:
  std::unique_ptr<Connection> connection;
};

// The readings 1 and 3 with `odd` between them, in one group.
struct Trio : Fixture {
  Status first, odd, last;

  explicit Trio(const Writer::Work& work) : Fixture(groups_of(3)) {
    const std::vector<Status> told = run_together(writer, {reading(1), work, reading(3)});
    first = told[0];
    odd = told[1];
    last = told[2];
    CHECK_MESSAGE(first.ok(), std::string(first.text()));
    CHECK_MESSAGE(last.ok(), std::string(last.text()));
    CHECK(readings() == "1,3");
    CHECK(events() == 2);
  }
};

}  // namespace

TEST_CASE("many threads: each one's row and event are there once it was told ok (G1, G2)") {
  Fixture f;
  const int threads = 16, each = scaled(60);
  std::atomic<int> failed{0}, missing{0};
  std::vector<std::thread> producers;
  for (int t = 0; t < threads; ++t)
    producers.emplace_back([&, t] {
      Connection mine(f.path);
      for (int i = 0; i < each; ++i) {
        const int n = t * 10'000 + i;
        if (!f.writer.run(reading(n)).ok()) ++failed;
        if (mine.number("SELECT count(*) FROM reading WHERE n=" + std::to_string(n)) != 1)
          ++missing;
      }
    });
  for (std::thread& thread : producers) thread.join();
  CHECK(failed == 0);
  CHECK(missing == 0);
  CHECK(f.look().number("SELECT count(*) FROM reading") == threads * each);
  CHECK(f.events() == threads * each);
  CHECK(f.commits <= threads * each);
  MESSAGE(threads * each << " transactions in " << f.commits.load() << " commits");
}

TEST_CASE("those who wait are committed together, with one commit") {
  Fixture f(groups_of(8));
  std::vector<Writer::Work> works;
  for (int n = 0; n < 8; ++n) works.push_back(reading(n));
  for (const Status& told : run_together(f.writer, works))
    CHECK_MESSAGE(told.ok(), std::string(told.text()));
  CHECK(f.events() == 8);
  CHECK(f.commits == 1);
}

TEST_CASE("control: with groups of one, each has a commit of its own") {
  Fixture f(groups_of(1));
  std::vector<Writer::Work> works;
  for (int n = 0; n < 8; ++n) works.push_back(reading(n));
  for (const Status& told : run_together(f.writer, works)) CHECK(told.ok());
  CHECK(f.commits == 8);
}

TEST_CASE("a function that returns an error is undone alone, and hears its own error (G1)") {
  Trio trio([](sqlite3* db, Outbox& outbox) {
    must(insert(db, 2));
    must(outbox.emit(sensor_event("b")));
    return Status::error(Code::not_found, "no such boiler");
  });
  CHECK(trio.odd.code() == Code::not_found);
  CHECK(std::string(trio.odd.text()) == "no such boiler");
  CHECK(trio.commits == 1);
}

TEST_CASE("a constraint that a function meets is its own affair") {
  Trio trio([](sqlite3* db, Outbox&) {
    must(insert(db, 2));
    return insert(db, 2);
  });
  CHECK(trio.odd.code() == Code::invalid);
  CHECK(trio.commits == 1);
}

TEST_CASE("an exception undoes its function alone, and is thrown on its caller's thread") {
  Fixture f(groups_of(2));
  std::string caught;
  std::thread thrower([&] {
    try {
      (void)f.writer.run([](sqlite3* db, Outbox&) -> Status {
        must(insert(db, 2));
        throw std::runtime_error("boiler on fire");
      });
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
  });
  must(f.writer.run(reading(1)));
  thrower.join();
  CHECK(caught == "boiler on fire");
  CHECK(f.readings() == "1");
}

TEST_CASE("a function cannot end the transaction: it alone fails, and nothing of others is lost") {
  for (const char* sql : {"COMMIT", "ROLLBACK", "ROLLBACK; BEGIN", "COMMIT; BEGIN", "END",
                          "RELEASE holdfast_member", "ATTACH ':memory:' AS other"}) {
    CAPTURE(sql);
    Trio trio([sql](sqlite3* db, Outbox&) {
      must(insert(db, 2));
      (void)execute(db, sql);
      return Status();
    });
    CHECK(trio.odd.code() == Code::misuse);
    CHECK(trio.commits == 1);
  }
}

TEST_CASE("a function that gets round the guard loses its own work, not that of others") {
  for (const char* sql : {"COMMIT", "ROLLBACK"}) {
    CAPTURE(sql);
    Trio trio([sql](sqlite3* db, Outbox&) {
      must(insert(db, 2));
      sqlite3_set_authorizer(db, nullptr, nullptr);
      (void)execute(db, sql);
      return Status();
    });
    CHECK(trio.odd.code() == Code::misuse);
  }
}

TEST_CASE("savepoints of a function, and statements that it keeps, are its own") {
  Fixture f;
  sqlite3_stmt* kept = nullptr;
  for (int n = 1; n <= 3; ++n)
    must(f.writer.run([&](sqlite3* db, Outbox&) {
      if (kept == nullptr)
        CHECK(sqlite3_prepare_v2(db, "INSERT INTO reading VALUES(?1)", -1, &kept, nullptr) == 0);
      sqlite3_bind_int(kept, 1, n);
      CHECK(sqlite3_step(kept) == SQLITE_DONE);
      sqlite3_reset(kept);
      CHECK(execute(db, "SAVEPOINT mine; DELETE FROM reading; ROLLBACK TO mine; RELEASE mine") ==
            SQLITE_OK);
      return Status();
    }));
  must(f.writer.run([&](sqlite3*, Outbox&) {
    sqlite3_finalize(kept);
    return Status();
  }));
  CHECK(f.readings() == "1,2,3");
}

TEST_CASE("an error that rolls everything back: the others are run again, and told the truth") {
  // What a full disk may do to a transaction (sqlite.org/lang_transaction.html), at will.
  for (const bool admits : {true, false}) {
    Trio trio([admits](sqlite3* db, Outbox&) {
      must(insert(db, 2));
      const int rc = execute(db, "INSERT OR ROLLBACK INTO reading VALUES(2)");
      return admits ? Status::native_error(Code::no_space, rc, "full") : Status();
    });
    CHECK(trio.odd.code() == (admits ? Code::no_space : Code::misuse));
  }
}

TEST_CASE("a deferred foreign key that one function leaves broken does not take others down") {
  Trio trio([](sqlite3* db, Outbox&) {
    CHECK(execute(db, "INSERT INTO child VALUES(99)") == SQLITE_OK);
    return insert(db, 2);
  });
  CHECK(trio.odd.code() == Code::invalid);
  CHECK(trio.commits == 1);
}

TEST_CASE("a COMMIT that a constraint refuses is tried again, each function alone") {
  Fixture f(groups_of(3));
  std::atomic<int> refusals{1}, runs{0};
  const auto once = [&](int n) {
    return [&, n](sqlite3* db, Outbox& outbox) {
      ++runs;
      sqlite3_commit_hook(
          db,
          [](void* left) { return static_cast<std::atomic<int>*>(left)->fetch_sub(1) > 0 ? 1 : 0; },
          &refusals);
      return reading(n)(db, outbox);
    };
  };
  for (const Status& told : run_together(f.writer, {once(1), once(2), once(3)}))
    CHECK_MESSAGE(told.ok(), std::string(told.text()));
  CHECK(runs.load() == 6);
  CHECK(f.readings() == "1,2,3");
  CHECK(f.events() == 3);
}

TEST_CASE("run inside of run is refused, and the outer one goes on") {
  Fixture f;
  must(f.writer.run([&](sqlite3* db, Outbox& outbox) {
    CHECK(f.writer.run(reading(2)).code() == Code::misuse);
    return reading(1)(db, outbox);
  }));
  CHECK(f.readings() == "1");
}

TEST_CASE("a statement that was left in the middle holds nobody up") {
  sqlite3_stmt* left = nullptr;
  Trio trio([&](sqlite3* db, Outbox&) {
    CHECK(sqlite3_prepare_v2(db, "INSERT INTO reading VALUES(2),(4) RETURNING n", -1, &left,
                             nullptr) == SQLITE_OK);
    CHECK(sqlite3_step(left) == SQLITE_ROW);
    return Status();
  });
  CHECK(trio.odd.code() == Code::misuse);
  sqlite3_finalize(left);

  Fixture f;
  must(f.writer.run(reading(1)));
  sqlite3_stmt* reader = nullptr;
  must(f.writer.run([&](sqlite3* db, Outbox&) {
    CHECK(sqlite3_prepare_v2(db, "SELECT n FROM reading UNION SELECT 7", -1, &reader, nullptr) ==
          SQLITE_OK);
    CHECK(sqlite3_step(reader) == SQLITE_ROW);
    return Status();
  }));
  f.look().run("INSERT INTO reading VALUES(8)");  // an open snapshot would be stale now
  must(f.writer.run(reading(9)));
  must(f.writer.run([&](sqlite3*, Outbox&) {
    sqlite3_finalize(reader);
    return Status();
  }));
  CHECK(f.readings() == "1,8,9");
}

TEST_CASE("a lock that is held too long is busy for all who waited so long; nothing was run") {
  WriterOptions options = groups_of(3);
  options.busy_timeout_ms = 50;
  options.wait_us = 20'000;
  Fixture f(options);
  f.look().run("BEGIN IMMEDIATE");
  std::atomic<int> runs{0};
  const Writer::Work work = [&](sqlite3*, Outbox&) {
    ++runs;
    return Status();
  };
  for (const Status& told : run_together(f.writer, {work, work, work}))
    CHECK(told.code() == Code::busy);
  CHECK(runs == 0);
  f.look().run("COMMIT");
  must(f.writer.run(reading(1)));
}

TEST_CASE("a writer that is not open, or has an option out of its range, says so") {
  Writer closed;
  CHECK(closed.run(reading(1)).code() == Code::misuse);
  TemporaryDirectory directory;
  make_database(directory.file("app.db"));
  Writer writer;
  WriterOptions options;
  options.members_max = 0;
  CHECK(Writer::open(directory.file("app.db"), options, writer).code() == Code::invalid);
  options = {};
  options.wait_us = -1;
  CHECK(Writer::open(directory.file("app.db"), options, writer).code() == Code::invalid);
  CHECK(Writer::open(directory.file("none.db"), {}, writer).code() == Code::not_found);
}
