// SQLite's WAL-reset race (3.7.0 to 3.51.2; sqlite.org/wal.html#walresetbug): a checkpoint that
// reads how far the WAL reaches just before a commit starts the WAL anew marks frames as moved that
// are not in the database yet, and later commits vanish. Here the race is made to happen each time:
// SQLite calls xUnfetch(file, 0, 0) of the checkpointing connection inside the window, so the
// writer's commit is run from there. The last cases leave it to chance: a writer and two
// checkpointers, each a process of its own.
#include <doctest/doctest.h>
#include <sqlite3.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "db.hpp"
#include "holdfast/clock.hpp"
#include "support/connection.hpp"
#include "support/process.hpp"
#include "support/programs.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kFixedInSqlite = 3'051'003;

// Runs `in_window` once, at the next chance, in the window of a checkpoint of this connection.
class Window {
 public:
  explicit Window(sqlite3* db) {
    REQUIRE(sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file_) == SQLITE_OK);
    original_ = file_->pMethods;
    patched_ = *original_;
    patched_.xUnfetch = unfetch;
    current = this;
    file_->pMethods = &patched_;
  }
  ~Window() {
    file_->pMethods = original_;
    current = nullptr;
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  void arm(std::function<void()> in_window) { in_window_ = std::move(in_window); }
  bool armed() const { return in_window_ != nullptr; }

 private:
  static int unfetch(sqlite3_file* file, sqlite3_int64 offset, void* page) {
    if (page == nullptr && offset == 0 && current->in_window_) {
      const std::function<void()> run = std::move(current->in_window_);
      current->in_window_ = nullptr;
      run();
    }
    return current->original_->xUnfetch(file, offset, page);
  }

  static Window* current;
  sqlite3_file* file_ = nullptr;
  const sqlite3_io_methods* original_ = nullptr;
  sqlite3_io_methods patched_{};
  std::function<void()> in_window_;
};
Window* Window::current = nullptr;

constexpr const char* kFill =
    "CREATE TABLE bulk(id INTEGER PRIMARY KEY,b);CREATE TABLE message(id INTEGER PRIMARY KEY,x);"
    "WITH s(i) AS(SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<60)"
    " INSERT INTO bulk SELECT NULL,randomblob(1500) FROM s;"
    "CREATE INDEX bulk_b ON bulk(b);UPDATE bulk SET b=randomblob(1500);";

constexpr const char* kCommitInWindow =
    "BEGIN;UPDATE bulk SET b=randomblob(1500) WHERE id<5;INSERT INTO message(x) VALUES('window');"
    "COMMIT";

struct Aftermath {
  bool reached = false;       // the window was there
  std::int64_t promised = 0;  // commits of `message` that returned OK
  std::int64_t found = 0;     // -1: could not be read
  std::string integrity;
  bool whole() const { return found == promised && integrity == "ok"; }
};

using Checkpoint = std::function<void(sqlite3* checkpointer)>;

void look(const std::string& path, Aftermath& after) {
  Connection fresh(path);
  try {
    after.found = fresh.number("SELECT count(*) FROM message");
    after.integrity = fresh.text("PRAGMA integrity_check(2)");
  } catch (const std::exception& error) {
    after.found = -1;
    after.integrity = error.what();
  }
}

// Two checkpoints, the second with a commit in its window, then ordinary traffic.
Aftermath run_with(const std::string& path, const Checkpoint& checkpoint) {
  Aftermath after;
  Connection writer(path);
  Connection checkpointer(path);
  for (Connection* each : {&writer, &checkpointer}) each->run("PRAGMA wal_autocheckpoint=0");
  writer.run(kFill);
  Window window(checkpointer);
  const auto commit = [&](const char* sql) {
    if (writer.attempt(sql) == SQLITE_OK) {
      ++after.promised;
    } else if (sqlite3_get_autocommit(writer) == 0) {
      writer.run("ROLLBACK");
    }
  };
  checkpoint(checkpointer);
  window.arm([&] { commit(kCommitInWindow); });
  checkpoint(checkpointer);
  after.reached = !window.armed();
  for (int i = 0; i < 3; ++i) commit("INSERT INTO message(x) VALUES('after')");
  writer.attempt("UPDATE bulk SET b=randomblob(1500)");
  writer.attempt("INSERT INTO bulk SELECT NULL,randomblob(1500) FROM bulk");
  writer.attempt("UPDATE bulk SET b=randomblob(1500) WHERE id%3=0");
  checkpoint(checkpointer);
  commit("INSERT INTO message(x) VALUES('last')");
  look(path, after);
  return after;
}

void plain_checkpoint(sqlite3* db) {
  sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
}

// --- by chance ---

// No power goes here: without syncs there are more commits and checkpoints to meet each other.
constexpr const char* kFast = "PRAGMA synchronous=OFF";
constexpr int kLookEvery = 200;  // commits
constexpr int kLost = 3;         // exit status of a writer that missed what it had committed

// Commits large and small transactions for so long, and looks whether all are there.
int run_race_writer(const Arguments& arguments) {
  const std::string path = arguments.text("db");
  Connection writer(path);
  writer.run("PRAGMA wal_autocheckpoint=0");
  writer.run(kFast);
  const std::int64_t until = system_clock().boot_ms() + arguments.number("ms");
  Aftermath after;
  while (system_clock().boot_ms() < until) {
    const bool large = after.promised % 2 == 0;
    writer.run("BEGIN IMMEDIATE");
    writer.run(large ? "UPDATE bulk SET b=randomblob(3500) WHERE id<30"
                     : "UPDATE bulk SET b=randomblob(3500) WHERE id=7");
    // A page of its own, never written again: what went missing does not heal by itself.
    writer.run("INSERT INTO message(x) VALUES(randomblob(3500))");
    writer.run("COMMIT");
    ++after.promised;
    if (after.promised % kLookEvery != 0) continue;
    look(path, after);
    if (after.whole()) continue;
    std::printf("lost: %lld of %lld there, integrity_check: %s\n",
                static_cast<long long>(after.found), static_cast<long long>(after.promised),
                after.integrity.c_str());
    return kLost;
  }
  look(path, after);
  std::printf("commits %lld\n", static_cast<long long>(after.promised));
  return after.whole() ? 0 : kLost;
}

int run_race_checkpointer(const Arguments& arguments) {
  const std::string path = arguments.text("db");
  const bool guarded = arguments.text("guard") == "yes";
  Connection checkpointer(path);
  checkpointer.run("PRAGMA wal_autocheckpoint=0");
  checkpointer.run(kFast);
  Db guard;
  if (guarded) must(Db::open(path, OpenMode::read_write, 0, guard));
  for (;;) {
    if (!guarded) {
      plain_checkpoint(checkpointer);
      continue;
    }
    CheckpointResult result;
    const Status status = guarded_checkpoint(checkpointer, guard, result);
    if (!status.ok() && status.code() != Code::busy) must(status);
  }
}

const Program kRaceWriter("race_writer", run_race_writer);
const Program kRaceCheckpointer("race_checkpointer", run_race_checkpointer);

// Exit status of the writer.
int race(const char* guard, int ms) {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  make_database(path);
  Connection(path).run(kFill);
  std::vector<Process> checkpointers;
  for (int i = 0; i < 2; ++i)
    checkpointers.push_back(start_program("race_checkpointer", {{"db", path}, {"guard", guard}}));
  Process writer = start_program("race_writer", {{"db", path}, {"ms", std::to_string(ms)}});
  const ExitStatus status = writer.wait(ms + 60'000);
  MESSAGE(writer.stdout_text() << writer.stderr_text());
  for (Process& each : checkpointers) {
    CHECK(each.running());  // neither has failed
    each.kill(SIGKILL);
  }
  return status.exited ? status.code : -1;
}

}  // namespace

TEST_CASE("control: SQLite's own checkpoint loses a commit that falls into its window (G12)") {
  TemporaryDirectory directory;
  const Aftermath after = run_with(directory.file("app.db"), plain_checkpoint);
  CHECK(after.promised >= 4);
  if (sqlite3_libversion_number() >= kFixedInSqlite) {
    MESSAGE("SQLite " << sqlite3_libversion() << " has no such race; nothing to lose");
    CHECK(after.whole());
  } else {
    REQUIRE(after.reached);
    CHECK_FALSE(after.whole());
  }
}

TEST_CASE("a guarded checkpoint loses nothing, whatever commits in its window (G12)") {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  make_database(path);
  Db guard;
  must(Db::open(path, OpenMode::read_write, 0, guard));
  int checkpoints = 0;
  const Aftermath after = run_with(path, [&](sqlite3* db) {
    CheckpointResult result;
    must(guarded_checkpoint(db, guard, result));
    checkpoints += result.moved_frames > 0 ? 1 : 0;
  });
  CHECK(checkpoints >= 2);
  CHECK(after.promised >= 4);
  CHECK(after.found == after.promised);
  CHECK(after.integrity == "ok");
}

TEST_CASE("control: a writer and two plain checkpointers soon lose commits (G12)") {
  constexpr int kMs = 25'000;
  if (sqlite3_libversion_number() >= kFixedInSqlite) {
    MESSAGE("SQLite " << sqlite3_libversion() << " has no such race; nothing to lose");
  } else if (scaled(100) < 100) {
    MESSAGE("left out: too slow to meet by chance here; the case above makes it happen");
  } else {
    // A matter of chance: mostly within seconds, but a busy machine may not meet it. The control
    // that must fail is the first case.
    const int status = race("no", kMs);
    CHECK((status == kLost || status == 0));
    if (status == 0) MESSAGE("not met by chance this time; the first case makes it happen");
  }
}

TEST_CASE("a writer and two guarded checkpointers lose nothing over a longer run (G12)") {
  constexpr int kMs = 30'000;
  CHECK(race("yes", scaled(kMs)) == 0);
}
