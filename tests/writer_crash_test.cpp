// Groups of a Writer and power: who was told ok is there after a cut, who was told an error is not,
// and nobody is there in part.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <set>
#include <unordered_set>

#include "db.hpp"
#include "holdfast/store.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/crash_disk.hpp"
#include "support/programs.hpp"
#include "support/scale.hpp"
#include "support/together.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kMembers = 4;
constexpr const char* kTable = "CREATE TABLE reading(n INTEGER PRIMARY KEY)";

// Row n, and its event of aggregate n.
Status write_reading(sqlite3* db, Outbox& outbox, int n) {
  const std::string text = std::to_string(n);
  Statement insert;
  Status status = insert.prepare(db, "INSERT INTO reading VALUES(?1)");
  if (status.ok()) status = insert.bind(1, std::int64_t{n}).run("reading");
  return status.ok() ? outbox.emit(sensor_event(text)) : status;
}

Status fails() { return Status::error(Code::not_found, "no such boiler"); }

// What a database holds: readings with an event, and readings or events alone.
struct Found {
  std::set<int> whole;
  int halves = 0;
  std::string trouble;
};

Found look(const std::string& path) {
  Found found;
  Connection db(path);
  found.trouble = db.text("PRAGMA integrity_check");
  if (found.trouble == "ok") found.trouble.clear();
  if (db.number("SELECT count(*) FROM sqlite_schema WHERE name='reading'") == 0) return found;
  std::set<int> events;
  for (const std::string& id : db.column("SELECT aggregate_id FROM outbox_event"))
    events.insert(std::stoi(id));
  for (const std::string& n : db.column("SELECT n FROM reading"))
    if (events.erase(std::stoi(n)) == 1)
      found.whole.insert(std::stoi(n));
    else
      ++found.halves;
  found.halves += static_cast<int>(events.size());
  return found;
}

enum class Told { when_told, before_the_commit };  // the second is the control

// Groups of kMembers, one of each failing; marks in the disk's log what each was told.
void run_groups(CrashDisk& disk, DiskLog& log, int groups, Told told) {
  const std::string path = disk.path("app.db");
  disk.record(&log);
  Writer writer;
  must(Writer::open(path, groups_of(kMembers), writer));
  for (int group = 0; group < groups; ++group) {
    std::vector<Writer::Work> works;
    for (int i = 0; i < kMembers; ++i)
      works.push_back([&, n = group * kMembers + i](sqlite3* db, Outbox& outbox) {
        const Status status = write_reading(db, outbox, n);
        if (!status.ok() || n % (kMembers + 1) == 0) return fails();
        if (told == Told::before_the_commit) disk.mark("ok", n);
        return Status();
      });
    const std::vector<Status> results = run_together(writer, works);
    for (int i = 0; i < kMembers; ++i) {
      const bool ok = results[static_cast<std::size_t>(i)].ok();
      if (told == Told::when_told || !ok) disk.mark(ok ? "ok" : "error", group * kMembers + i);
    }
  }
  disk.record(nullptr);
}

struct Verdict {
  int images = 0, lost = 0, undead = 0, in_part = 0;
  std::string first;
  void report(int& count, const std::string& what, std::size_t operation) {
    ++count;
    if (first.empty()) first = what + " after operation " + std::to_string(operation);
  }
};

// A group is there as a whole or not at all: its members that succeed.
bool groups_whole(const std::set<int>& whole) {
  std::map<int, int> there, expected;
  for (const int n : whole) ++there[n / kMembers];
  for (int n = 0; n < (static_cast<int>(there.size()) + 1) * kMembers; ++n)
    if (n % (kMembers + 1) != 0) ++expected[n / kMembers];
  for (const auto& [group, count] : there)
    if (count != expected[group]) return false;
  return true;
}

// Cuts the power after each operation.
Verdict cut_everywhere(const DiskImage& start, const DiskLog& log, int variants) {
  Verdict verdict;
  DiskState state(start);
  std::set<int> promised, errors;
  std::unordered_set<std::uint64_t> known;
  std::size_t marks = 0;
  for (std::size_t at = 0; at < log.size(); ++at) {
    const DiskOperation& operation = *log[at];
    if (operation.kind == DiskOperation::Kind::mark) {
      ++marks;
      (operation.name == "ok" ? promised : errors).insert(static_cast<int>(operation.offset));
    }
    state.apply(log[at]);
    for (int variant = 0; variant < variants; ++variant) {
      const DiskImage image = state.image(variant < 2 ? static_cast<std::uint64_t>(variant)
                                                      : static_cast<std::uint64_t>(variant) +
                                                            at * std::uint64_t{1'000'003});
      if (!known.insert(image.hash() ^ (marks * 0x9E3779B97F4A7C15u)).second) continue;
      ++verdict.images;
      CrashDisk after(image);
      const Found found = look(after.path("app.db"));
      if (!found.trouble.empty() || found.halves > 0 || !groups_whole(found.whole))
        verdict.report(verdict.in_part, found.trouble + " in part", at);
      for (const int n : promised)
        if (found.whole.count(n) == 0)
          verdict.report(verdict.lost, std::to_string(n) + " is lost", at);
      for (const int n : errors)
        if (found.whole.count(n) == 1)
          verdict.report(verdict.undead, std::to_string(n) + " is there", at);
    }
  }
  return verdict;
}

Verdict cut_groups(Told told) {
  CrashDisk::seed_sqlite(7);
  CrashDisk disk;
  DiskLog log;
  const std::string path = disk.path("app.db");
  make_database(path);
  Connection(path).run(kTable);
  const DiskImage start = disk.image(DiskState::kEverything);
  run_groups(disk, log, scaled(24) < 6 ? 6 : scaled(24), told);
  return cut_everywhere(start, log, 10);
}

}  // namespace

TEST_CASE(
    "power cuts: each member of a group that was told ok is there, none that failed (G1, G2)") {
  const Verdict verdict = cut_groups(Told::when_told);
  MESSAGE(verdict.images << " images");
  CHECK_MESSAGE(verdict.lost == 0, verdict.first);
  CHECK_MESSAGE(verdict.undead == 0, verdict.first);
  CHECK_MESSAGE(verdict.in_part == 0, verdict.first);
  CHECK(verdict.images > 100);
}

TEST_CASE("power cuts: control: told ok before the group's COMMIT, members are lost") {
  const Verdict verdict = cut_groups(Told::before_the_commit);
  MESSAGE(verdict.lost << " lost in " << verdict.images << " images; " << verdict.first);
  CHECK(verdict.lost > 0);
  CHECK(verdict.in_part == 0);
}

TEST_CASE("a disk's error at any operation of a group: what each member was told is so (G2)") {
  int unknown_there = 0, told_errors = 0, faults = 0;
  for (const DiskFault fault :
       {DiskFault::io_error, DiskFault::no_space, DiskFault::short_write, DiskFault::power_off}) {
    for (std::int64_t at = 0; at < 200; ++at) {
      CrashDisk disk;
      const std::string path = disk.path("app.db");
      make_database(path);
      Connection(path).run(kTable);
      Writer writer;
      must(Writer::open(path, groups_of(3), writer));
      disk.fault_at(disk.operations() + at, fault, fault == DiskFault::no_space);
      std::vector<Writer::Work> works;
      for (int n = 1; n <= 3; ++n)
        works.push_back([n](sqlite3* db, Outbox& outbox) { return write_reading(db, outbox, n); });
      const std::vector<Status> told = run_together(writer, works);
      if (!disk.fault_met()) break;
      ++faults;
      for (const std::uint64_t variant : {DiskState::kNothing, DiskState::kEverything}) {
        CrashDisk after(disk.image(variant));
        const Found found = look(after.path("app.db"));
        CAPTURE(at);
        CAPTURE(static_cast<int>(fault));
        CHECK(found.trouble == "");
        CHECK(found.halves == 0);
        for (int n = 1; n <= 3; ++n) {
          const Status& status = told[static_cast<std::size_t>(n - 1)];
          const bool there = found.whole.count(n) == 1;
          CAPTURE(std::string(status.text()));
          if (status.ok()) CHECK(there);
          if (status.code() == Code::unknown)
            unknown_there += there ? 1 : 0;
          else if (!status.ok())
            CHECK_FALSE(there);
          told_errors += status.ok() ? 0 : 1;
        }
      }
    }
  }
  MESSAGE(faults << " faults, " << told_errors << " errors told, " << unknown_there
                 << " unknown ones were there");
  CHECK(told_errors > 0);
  CHECK(unknown_there > 0);  // control: to call these failed would have been a lie
}

// --- kill -9 -------------------------------------------------------------------------------------

namespace {

void tell(int n) {  // one write(2): a line is whole or not there
  const std::string line = std::to_string(n) + "\n";
  (void)!::write(STDOUT_FILENO, line.data(), line.size());
}

// Threads that write readings and print each once they were told ok; killed in function number
// `kill_in_work`, or when a group's COMMIT has returned and nobody was told yet.
int run_group_and_die(const Arguments& arguments) {
  const bool too_early = arguments.number("too_early") != 0;
  std::int64_t left = arguments.number("kill_in_work", -1);  // functions run one at a time
  std::int64_t commits_left = arguments.number("kill_after_commit", -1);
  WriterOptions options;
  options.on_commit = [&] {
    if (--commits_left == 0) die();
  };
  Writer writer;
  must(Writer::open(arguments.text("db"), options, writer));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int n = t * 10'000;; ++n) {
        const Status status = writer.run([&](sqlite3* db, Outbox& outbox) {
          const Status written = write_reading(db, outbox, n);
          if (too_early) tell(n);
          if (--left == 0) die();
          return written;
        });
        if (!status.ok()) _exit(1);
        if (!too_early) tell(n);
      }
    });
  for (std::thread& each : threads) each.join();
  return 0;
}
const Program kGroupAndDie("group_and_die", run_group_and_die);

struct Killed {
  std::size_t printed = 0;
  int missing = 0;
  Found found;
};

Killed kill_group(const std::string& point, int number, bool too_early) {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  make_database(path);
  Connection(path).run(kTable);
  Process process = start_program(
      "group_and_die",
      {{"db", path}, {point, std::to_string(number)}, {"too_early", too_early ? "1" : "0"}});
  CHECK(process.wait(60'000).signal == SIGKILL);
  Killed killed;
  killed.found = look(path);
  for (const std::string& line : lines_of(process.stdout_text())) {
    ++killed.printed;
    if (killed.found.whole.count(std::stoi(line)) == 0) ++killed.missing;
  }
  CHECK(killed.found.trouble == "");
  CHECK(killed.found.halves == 0);
  return killed;
}

}  // namespace

TEST_CASE("kill -9 inside a group or after its COMMIT: whoever was told ok is there (G1, G2)") {
  for (const int at : {50, 211, 500}) {
    const Killed in_work = kill_group("kill_in_work", at, false);
    CHECK(in_work.missing == 0);
    CHECK(in_work.printed > 0);
    const Killed after = kill_group("kill_after_commit", at / 10, false);
    CHECK(after.missing == 0);
    CHECK(after.found.whole.size() > after.printed);  // committed, and nobody was told
  }
}

TEST_CASE("kill -9: control: a member that says ok inside its function is missing afterwards") {
  CHECK(kill_group("kill_in_work", 100, true).missing > 0);
}
