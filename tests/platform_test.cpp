// The contract of a platform (platforms/README.md), tested on Linux.
#include "platform.hpp"

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "support/process.hpp"

using namespace holdfast;
using namespace holdfast::platform;
using holdfast::test::Process;
using holdfast::test::TemporaryDirectory;

namespace {

using Steady = std::chrono::steady_clock;

std::int64_t ms_since(Steady::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now() - start).count();
}

// A connection of this process that keeps the -wal file in existence.
class Database {
 public:
  explicit Database(const std::string& path) {
    REQUIRE(sqlite3_open(path.c_str(), &db_) == SQLITE_OK);
    run("PRAGMA journal_mode=WAL");
  }
  ~Database() { sqlite3_close(db_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  void run(const char* sql) {
    REQUIRE(sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK);
  }

 private:
  sqlite3* db_ = nullptr;
};

// Writes through a connection of another process.
void write_elsewhere(const std::string& database, const std::string& sql) {
  const holdfast::test::RunResult result = holdfast::test::run({"sqlite3", database, sql});
  INFO("sqlite3: " << result.err);
  REQUIRE(result.code() == 0);
}

// The files this process has open, by descriptor.
std::multiset<std::string> open_files() {
  std::multiset<std::string> files;
  DIR* const directory = opendir("/proc/self/fd");
  REQUIRE(directory != nullptr);
  while (const dirent* entry = readdir(directory)) {
    char target[PATH_MAX] = {0};
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(link.c_str(), target, sizeof target - 1) > 0) files.insert(target);
  }
  closedir(directory);
  return files;
}

std::size_t open_below(const std::string& directory) {
  const std::multiset<std::string> files = open_files();
  return static_cast<std::size_t>(std::count_if(
      files.begin(), files.end(),
      [&](const std::string& file) { return file.compare(0, directory.size(), directory) == 0; }));
}

// Each read of a watch tells at least one write; SQLite makes several. Returns false if none came.
bool woken_by_write(WriteWatcher& watcher, std::int64_t timeout_ms) {
  Waker waker;
  return watcher.wait(waker, timeout_ms).by_write;
}

void drain(WriteWatcher& watcher) {
  while (woken_by_write(watcher, 20)) {
  }
}

void touch(const std::string& path, const char* text) {
  std::ofstream(path, std::ios::app) << text;
}

constexpr std::int64_t kLongMs = 10'000;
constexpr std::int64_t kIdleMs = 150;

}  // namespace

TEST_CASE("the boot clock never goes back and runs as fast as a steady clock (G7)") {
  const Clock& clock = system_clock();
  const auto before_first = Steady::now();
  const std::int64_t first = clock.boot_ms();
  const auto after_first = Steady::now();
  std::int64_t last = first;
  while (ms_since(before_first) < 50) {
    const std::int64_t now = clock.boot_ms();
    CHECK(now >= last);
    last = now;
  }
  // Between the two readings lies at least, and at most, what the steady clock saw around them; a
  // busy machine may stop us anywhere. 2 ms: both are rounded.
  const std::int64_t least = ms_since(after_first);
  last = clock.boot_ms();
  CHECK(last - first >= least - 2);
  CHECK(last - first <= ms_since(before_first) + 2);
}

TEST_CASE("the boot id is the kernel's, and the same for every process of this boot (G7)") {
  std::string kernel;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> kernel;
  CHECK(system_clock().boot_id() == kernel);
  CHECK(system_clock().boot_id().size() == 36);
}

TEST_CASE("the wall clock is the system's") {
  CHECK(std::abs(system_clock().wall_ms() - static_cast<std::int64_t>(time(nullptr)) * 1000) <
        2000);
}

TEST_CASE("random numbers differ") {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_u64());
  CHECK(seen.size() == 1000);
}

TEST_CASE("sleep_us sleeps at least so long") {
  const auto start = Steady::now();
  sleep_us(20'000);
  CHECK(ms_since(start) >= 20);
  sleep_us(0);
  sleep_us(-5);
}

TEST_CASE("a wake before the wait is not lost, and wakes are merged") {
  Waker waker;
  REQUIRE(waker.open_status().ok());
  CHECK_FALSE(waker.wait(0));
  for (int i = 0; i < 1000; ++i) waker.wake();
  CHECK(waker.wait(kLongMs));
  CHECK_FALSE(waker.wait(0));
}

TEST_CASE("a wait without wake ends at its timeout, not before") {
  Waker waker;
  const auto start = Steady::now();
  CHECK_FALSE(waker.wait(30));
  CHECK(ms_since(start) >= 29);
}

TEST_CASE("a waiting thread is woken by another thread") {
  Waker waker;
  std::thread other([&waker] { waker.wake(); });
  CHECK(waker.wait(-1));
  other.join();
}

namespace {
Waker* signalled_waker = nullptr;
void wake_from_signal(int) { signalled_waker->wake(); }
}  // namespace

TEST_CASE("a signal handler may wake, and other signals do not end a wait") {
  Waker waker;
  signalled_waker = &waker;
  struct sigaction action{};
  action.sa_handler = wake_from_signal;
  struct sigaction before{};
  sigaction(SIGUSR1, &action, &before);
  struct sigaction nothing{};
  nothing.sa_handler = [](int) {};
  struct sigaction before2{};
  sigaction(SIGUSR2, &nothing, &before2);

  const pthread_t waiting = pthread_self();
  std::thread other([waiting] {
    for (int i = 0; i < 5; ++i) {
      pthread_kill(waiting, SIGUSR2);
      sleep_us(2000);
    }
    pthread_kill(waiting, SIGUSR1);
  });
  const auto start = Steady::now();
  CHECK(waker.wait(-1));
  CHECK(ms_since(start) >= 9);
  other.join();
  sigaction(SIGUSR1, &before, nullptr);
  sigaction(SIGUSR2, &before2, nullptr);
}

TEST_CASE("a commit of another process wakes the watcher") {
  TemporaryDirectory directory;
  const std::string path = directory.file("events.db");
  Database keep(path);
  keep.run("CREATE TABLE t(x)");
  WriteWatcher watcher;
  REQUIRE(watcher.open(path).ok());
  drain(watcher);
  for (int round = 0; round < 3; ++round) {
    INFO("round " << round);
    write_elsewhere(path, "INSERT INTO t VALUES(1)");
    CHECK(woken_by_write(watcher, kLongMs));
    drain(watcher);
  }
}

TEST_CASE("an idle database and other files of its directory wake nobody") {
  TemporaryDirectory directory;
  const std::string path = directory.file("events.db");
  Database keep(path);
  keep.run("CREATE TABLE t(x)");
  WriteWatcher watcher;
  REQUIRE(watcher.open(path).ok());
  drain(watcher);
  touch(directory.file("log.txt"), "nothing to do with it");
  touch(directory.file("events.db-wal2"), "nor this");
  CHECK_FALSE(woken_by_write(watcher, kIdleMs));
  write_elsewhere(path, "SELECT count(*) FROM t");  // a reader
  CHECK_FALSE(woken_by_write(watcher, kIdleMs));
  write_elsewhere(path, "INSERT INTO t VALUES(1)");  // the control
  CHECK(woken_by_write(watcher, kLongMs));
}

TEST_CASE("the watcher finds a WAL that is made after it, deleted, and made again") {
  TemporaryDirectory directory;
  const std::string path = directory.file("events.db");
  WriteWatcher watcher;
  REQUIRE(watcher.open(path).ok());
  touch(directory.file("other.txt"), "x");
  CHECK_FALSE(woken_by_write(watcher, kIdleMs));
  for (int round = 0; round < 3; ++round) {
    INFO("round " << round);
    {
      Database database(path);
      database.run("CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES(1)");
      CHECK(woken_by_write(watcher, kLongMs));
      drain(watcher);
      database.run("INSERT INTO t VALUES(2)");
      CHECK(woken_by_write(watcher, kLongMs));
    }  // the last close deletes the WAL
    CHECK(access((path + "-wal").c_str(), F_OK) != 0);
    drain(watcher);
  }
}

TEST_CASE("the watcher follows a WAL that was replaced while the old one is still open") {
  TemporaryDirectory directory;
  const std::string path = directory.file("events.db");
  const std::string wal = path + "-wal";
  touch(wal, "old");
  const int old_fd = open(wal.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(old_fd >= 0);
  WriteWatcher watcher;
  REQUIRE(watcher.open(path).ok());
  REQUIRE(unlink(wal.c_str()) == 0);
  drain(watcher);
  touch(wal, "new");
  CHECK(woken_by_write(watcher, kLongMs));
  drain(watcher);
  touch(wal, "more");
  CHECK(woken_by_write(watcher, kLongMs));
  drain(watcher);
  REQUIRE(rename(wal.c_str(), directory.file("moved").c_str()) == 0);
  drain(watcher);
  touch(directory.file("moved"), "not ours any more");
  CHECK_FALSE(woken_by_write(watcher, kIdleMs));
  touch(wal, "made again");
  CHECK(woken_by_write(watcher, kLongMs));
  close(old_fd);
}

TEST_CASE("a database behind a symbolic link is watched where SQLite puts its WAL") {
  TemporaryDirectory directory;
  REQUIRE(mkdir(directory.file("real").c_str(), 0755) == 0);
  const std::string path = directory.file("real/events.db");
  Database keep(path);
  keep.run("CREATE TABLE t(x)");
  REQUIRE(symlink(path.c_str(), directory.file("link.db").c_str()) == 0);
  WriteWatcher watcher;
  REQUIRE(watcher.open(directory.file("link.db")).ok());
  drain(watcher);
  write_elsewhere(path, "INSERT INTO t VALUES(1)");
  CHECK(woken_by_write(watcher, kLongMs));
}

TEST_CASE("the watcher of a directory that does not exist says which") {
  WriteWatcher watcher;
  const Status status = watcher.open("/nonexistent/events.db");
  CHECK(status.code() == Code::not_found);
  CHECK(std::string(status.text()).find("/nonexistent/events.db") != std::string::npos);
  Waker waker;
  waker.wake();
  CHECK(watcher.wait(waker, -1).by_waker);  // of use all the same
  CHECK_FALSE(watcher.wait(waker, 10).by_waker);
}

TEST_CASE("the watcher also waits for a waker and for its timeout") {
  TemporaryDirectory directory;
  WriteWatcher watcher;
  REQUIRE(watcher.open(directory.file("events.db")).ok());
  Waker waker;
  const auto start = Steady::now();
  WriteWatcher::Woken woken = watcher.wait(waker, 30);
  CHECK_FALSE(woken.by_write);
  CHECK_FALSE(woken.by_waker);
  CHECK(ms_since(start) >= 29);
  waker.wake();
  woken = watcher.wait(waker, -1);
  CHECK(woken.by_waker);
  CHECK_FALSE(woken.by_write);
}

// Closing any descriptor of a database file drops SQLite's POSIX locks on it in this process.
TEST_CASE("neither watching nor probing opens a file of the database") {
  TemporaryDirectory directory;
  const std::string path = directory.file("events.db");
  Database keep(path);
  keep.run("CREATE TABLE t(x)");
  keep.run("BEGIN IMMEDIATE");  // a lock that would be dropped
  keep.run("INSERT INTO t VALUES(1)");
  const std::multiset<std::string> before = open_files();
  const std::size_t of_sqlite = open_below(directory.path());
  CHECK(of_sqlite == 3);  // the control: this would show a descriptor
  {
    WriteWatcher watcher;
    REQUIRE(watcher.open(path).ok());
    CHECK(open_below(directory.path()) == of_sqlite);
    woken_by_write(watcher, 0);
    CHECK(open_below(directory.path()) == of_sqlite);
    probe_storage(path);
    std::vector<std::int64_t> us;
    REQUIRE(probe_sync(path, 3, us).ok());
    REQUIRE(sync_parent_directory(path).ok());
  }
  CHECK(open_files() == before);
  // The write lock is still held: another process cannot take it.
  CHECK(holdfast::test::run({"sqlite3", path, "INSERT INTO t VALUES(2)"}).code() != 0);
  keep.run("COMMIT");
  CHECK(holdfast::test::run({"sqlite3", path, "INSERT INTO t VALUES(2)"}).code() == 0);
}

TEST_CASE("a process that ended is gone, also when its pid lives on as somebody else (G7)") {
  const std::string self = process_token();
  CHECK(process_life(self) == ProcessLife::alive);
  CHECK(process_token() == self);

  int to_parent[2];
  int to_child[2];
  REQUIRE(pipe(to_parent) == 0);
  REQUIRE(pipe(to_child) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string token = process_token();
    char byte = 0;
    const bool good =
        write(to_parent[1], token.data(), token.size()) > 0 && read(to_child[0], &byte, 1) == 1;
    _exit(good ? 0 : 1);
  }
  char text[256] = {0};
  REQUIRE(read(to_parent[0], text, sizeof text - 1) > 0);
  const std::string token = text;
  CHECK(token != self);
  CHECK(process_life(token) == ProcessLife::alive);
  REQUIRE(write(to_child[1], "x", 1) == 1);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(process_life(token) == ProcessLife::gone);  // a zombie
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(process_life(token) == ProcessLife::gone);
  for (const int fd : {to_parent[0], to_parent[1], to_child[0], to_child[1]}) close(fd);

  // The same pid, started at another time: our own, with a start time that is not ours.
  std::string other = self;
  const std::size_t start = other.find(':', other.find(':') + 1) + 1;
  other[start] = other[start] == '1' ? '2' : '1';
  CHECK(process_life(other) == ProcessLife::gone);
}

TEST_CASE("of another pid namespace, another boot or nonsense nothing is said (G7)") {
  const std::string self = process_token();
  std::string name_space = self;
  name_space[0] = name_space[0] == '1' ? '2' : '1';
  CHECK(process_life(name_space) == ProcessLife::cannot_tell);
  std::string boot = self;
  boot.back() = boot.back() == '0' ? '1' : '0';
  CHECK(process_life(boot) == ProcessLife::cannot_tell);
  for (const char* token : {"", ":", "::", ":::", "1:2:3", "1:2:3:", "x:1:1:b", "1:-1:1:b",
                            "1:0:1:b", "1:1:99999999999999999999999:b", "1 :1:1:b"}) {
    INFO(token);
    CHECK(process_life(token) == ProcessLife::cannot_tell);
  }
}

// A program whose name tries to look like the fields behind it.
TEST_CASE("a process with blanks and parentheses in its name is recognised") {
  TemporaryDirectory directory;
  const std::string program = directory.file("a) R 1 (b");
  REQUIRE(symlink("/bin/sleep", program.c_str()) == 0);
  Process process = Process::spawn({program, "30"});
  const std::string pid = std::to_string(process.pid());
  std::string stat;
  // exec(2) gives the name: wait for it.
  while (stat.find("(a) R 1 (b)") == std::string::npos) {
    std::getline(std::ifstream("/proc/" + pid + "/stat"), stat);
    REQUIRE(process.running());
  }
  // Field 22, counted from behind the name, as proc(5) numbers them.
  std::string rest = stat.substr(stat.rfind(')') + 2);
  for (int field = 3; field < 22; ++field) rest = rest.substr(rest.find(' ') + 1);
  const std::string started = rest.substr(0, rest.find(' '));
  const std::string self = process_token();
  const std::string name_space = self.substr(0, self.find(':'));
  const std::string token = name_space + ":" + pid + ":" + started + ":" + system_clock().boot_id();
  CHECK(process_life(token) == ProcessLife::alive);
  process.kill(SIGKILL);
  process.wait(5000);
  CHECK(process_life(token) == ProcessLife::gone);
}

TEST_CASE("a directory can be synced, and an error names it (G2)") {
  TemporaryDirectory directory;
  CHECK(sync_parent_directory(directory.file("new.db")).ok());
  CHECK(sync_parent_directory("relative.db").ok());
  CHECK(sync_parent_directory("/root-level.db").ok());
  const Status status = sync_parent_directory("/nonexistent/a.db");
  CHECK(status.code() == Code::not_found);
  CHECK(std::string(status.text()).find("/nonexistent") != std::string::npos);
}

TEST_CASE("the storage probe tells file system, mount and space of a path") {
  TemporaryDirectory directory;
  const StorageFacts facts = probe_storage(directory.file("does-not-exist-yet.db"));
  CHECK_FALSE(facts.file_system.empty());
  CHECK(facts.mount_point.substr(0, 1) == "/");
  CHECK(facts.mount_options.find("rw") != std::string::npos);
  CHECK(facts.free_bytes >= 0);
  CHECK(facts.total_bytes >= facts.free_bytes);
  CHECK_FALSE(facts.read_only);
}

TEST_CASE("memory that looks like a disk is recognised (G2)") {
  if (access("/dev/shm", W_OK) != 0) {
    MESSAGE("skipped: no /dev/shm here");
    return;
  }
  const StorageFacts facts = probe_storage("/dev/shm/events.db");
  CHECK(facts.file_system == "tmpfs");
  CHECK(facts.mount_point == "/dev/shm");
  CHECK(facts.memory);
  CHECK_FALSE(facts.network);
  CHECK_FALSE(probe_storage("/proc").memory);  // the control
}

TEST_CASE("the sync probe measures in a file of its own and leaves nothing behind") {
  TemporaryDirectory directory;
  const std::string path = directory.file("events.db");
  touch(path, "the database");
  std::vector<std::int64_t> us;
  REQUIRE(probe_sync(path, 20, us).ok());
  CHECK(us.size() == 20);
  CHECK(std::is_sorted(us.begin(), us.end()));
  std::string text;
  std::getline(std::ifstream(path), text);
  CHECK(text == "the database");
  CHECK(open_below(directory.path()) == 0);
  CHECK(holdfast::test::lines_of(holdfast::test::run({"ls", directory.path()}).out).size() == 1);
  CHECK(probe_sync(path, 0, us).code() == Code::invalid);
  CHECK(probe_sync("/nonexistent/x", 1, us).code() == Code::not_found);
}
