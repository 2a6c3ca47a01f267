// doctor: what it finds, and that it names a remedy for it. File systems are made in images and
// mounted, which takes root; without, those cases are skipped and say so.
#include <doctest/doctest.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "holdfast/store.hpp"
#include "support/command_line.hpp"
#include "support/small_disk.hpp"

using namespace holdfast::test;

namespace {

struct Report {
  int code = -1;
  std::vector<Json> findings;

  // The worst level of a check whose text holds `text`; "" if there is none.
  std::string level(const std::string& check, const std::string& text = "") const {
    for (const char* level : {"fail", "warn", "note", "ok"})
      for (const Json& each : findings)
        if (each.at("check") == check && each.at("level") == level &&
            each.at("text").get<std::string>().find(text) != std::string::npos)
          return level;
    return "";
  }
};

Report doctor(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "doctor");
  arguments.push_back("--json");
  const RunResult result = command(arguments);
  Report report{result.code(), json_lines(result.out)};
  bool worry = false;
  for (const Json& each : report.findings) {
    const bool bad = each.at("level") == "warn" || each.at("level") == "fail";
    worry = worry || bad;
    CHECK_MESSAGE((!bad || each.contains("advice")), each.dump());
  }
  if (report.code != 3) CHECK((report.code == 4) == worry);
  return report;
}

// A file system, mounted in a new directory for its lifetime; usable() says if that worked.
class Mount {
 public:
  Mount(const std::string& type, const std::string& options) {
    const bool memory = type == "tmpfs" || type == "overlay";
    const std::string source = memory ? type : directory_.file("image");
    ::mkdir(point().c_str(), 0755);
    if (!memory &&
        run({"sh", "-c", "truncate -s 32M \"$0\" && mkfs -t \"$1\" \"$0\"", source, type}).code() !=
            0)
      return;
    const RunResult done =
        run({"mount", "-t", type, "-o", (memory ? "" : "loop,") + options, source, point()});
    usable_ = done.code() == 0;
    if (!usable_) MESSAGE("skipped: " << type << " with " << options << ": " << done.err);
  }
  ~Mount() {
    if (usable_) run({"umount", "-l", point()});
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  bool usable() const { return usable_; }
  std::string point() const { return directory_.file("disk"); }
  std::string file(const std::string& name) const { return directory_.file("disk/" + name); }

 private:
  TemporaryDirectory directory_;
  bool usable_ = false;
};

Report doctor_on(const Mount& mount) {
  REQUIRE(command({"init", mount.file("app.db")}).code() == 0);
  return doctor({mount.file("app.db")});
}

}  // namespace

TEST_CASE("doctor finds a healthy database healthy, and says what it looked at") {
  const Database db;
  db.emit();
  const RunResult result = command({"doctor", db.path(), "--json"});
  CHECK((result.code() == 0 || result.code() == 4));  // the storage under a test may be memory
  bool worry = false;
  std::map<std::string, std::string> levels;
  for (const Json& each : json_lines(result.out)) {
    levels[each.at("check")] = each.at("level");
    worry = worry || each.at("level") == "warn" || each.at("level") == "fail";
  }
  CHECK((result.code() == 4) == worry);
  for (const char* check : {"database", "integrity", "journal", "synchronous", "triggers"}) {
    CHECK_MESSAGE(levels[check] == "ok", check);
  }
  for (const char* check : {"sqlite", "file system", "space", "sync", "clock", "size", "relay"}) {
    CHECK_MESSAGE(levels.count(check) == 1, check);
  }
  const RunResult text = command({"doctor", db.path()});
  CHECK(text.out.find("integrity") != std::string::npos);
  CHECK(!drives_terminal(text.out));
}

TEST_CASE("doctor leaves nothing behind") {
  const Database db;
  const RunResult before = run({"ls", "-A", db.file("")});
  CHECK(command({"doctor", db.path()}).status.exited);
  const RunResult after = run({"ls", "-A", db.file("")});
  for (const std::string& name : lines_of(after.out)) {
    CHECK_MESSAGE((before.out.find(name) != std::string::npos || name == "app.db-wal" ||
                   name == "app.db-shm"),
                  name);
  }
}

TEST_CASE("doctor of a missing file is status 3, and still looks at the storage") {
  const Database db(Database::NoInit{});
  for (const std::string& path : {db.path(), db.file("no/such/folder/x.db")}) {
    const RunResult result = command({"doctor", path, "--json"});
    CHECK(result.code() == 3);
    bool storage = false;
    for (const Json& each : json_lines(result.out)) {
      storage = storage || each.at("check") == "file system";
      if (each.at("check") == "database") CHECK(each.at("level") == "fail");
    }
    CHECK(storage);
  }
}

TEST_CASE("doctor finds missing guard triggers") {
  const Database db;
  db.sql("DROP TRIGGER outbox_event_guard_order");
  const RunResult result = command({"doctor", db.path(), "--sync-rounds", "0"});
  CHECK(result.code() == 4);
  CHECK(result.out.find("triggers") != std::string::npos);
  CHECK(result.out.find("fail") != std::string::npos);
}

TEST_CASE("doctor names other programs that have the database open: they may checkpoint") {
  const Database db;
  CHECK(doctor({db.path()}).level("open by", "no other program") == "ok");
  Process other = Process::spawn({"sh", "-c", "exec sleep 60 <\"$0\" && :", db.path()});
  const std::string pid = "sleep (pid " + std::to_string(other.pid()) + ")";
  Report report;
  for (int i = 0; i < 100 && report.level("open by", pid).empty(); ++i) {
    ::usleep(20'000);
    report = doctor({db.path(), "--sync-rounds", "0"});
  }
  // A SQLite without the race would make it "ok".
  CHECK(report.level("open by", pid) ==
        (report.level("sqlite") == "note" ? std::string("note") : "ok"));
  other.kill(SIGKILL);
  other.wait(5000);
  CHECK(doctor({db.path()}).level("open by", pid).empty());

  // Under another name it is the same file; a relay of this program is no stranger.
  REQUIRE(::symlink(db.path().c_str(), db.file("alias.db").c_str()) == 0);
  Process relay = start_command({"relay", db.path(), "--to", "ipc://" + db.file("nobody")});
  const std::string ours = "holdfast (pid " + std::to_string(relay.pid()) + ")";
  for (int i = 0; i < 100 && report.level("open by", ours).empty(); ++i) {
    ::usleep(20'000);
    report = doctor({db.file("alias.db"), "--sync-rounds", "0"});
  }
  CHECK(report.level("open by", ours) == "ok");
}

TEST_CASE("doctor says whether the relay's user could open the database, as the kernel would") {
  if (!running_as_root() || ::getpwnam("nobody") == nullptr) {
    MESSAGE("skipped: needs root and a user `nobody`");
    return;
  }
  const Database db;
  const auto mode = [&](mode_t file, mode_t folder) {
    for (const char* suffix : {"", "-wal", "-shm"}) {
      const std::string path = db.path() + suffix;
      REQUIRE((::chmod(path.c_str(), file) == 0 || *suffix != 0));
    }
    REQUIRE(::chmod(db.file("").c_str(), folder) == 0);
  };
  mode(0666, 0777);
  const auto kernel_lets = [&] {
    return run({"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
                holdfast_program(), "emit", db.path(), "--type", "t", "--aggregate", "a/b",
                "--payload", "1"})
               .code() == 0;
  };
  const auto says = [&] {
    return doctor({db.path(), "--user", "nobody", "--sync-rounds", "0"}).level("permissions");
  };
  CHECK(says() == "ok");
  CHECK(kernel_lets());
  mode(0640, 0777);
  CHECK(says() == "fail");
  CHECK_FALSE(kernel_lets());
  mode(0666, 0755);  // no -wal can be made
  CHECK(says() == "fail");
  REQUIRE(::chown(db.file("").c_str(), 0, ::getpwnam("nobody")->pw_gid) == 0);
  mode(0666, 0770);
  CHECK(says() == "ok");
  CHECK(kernel_lets());
  mode(0666, 0700);
  CHECK(says() == "fail");
  CHECK_FALSE(kernel_lets());
  CHECK(doctor({db.path(), "--user", "root"}).level("permissions") == "ok");
  CHECK(doctor({db.path(), "--user", "no-such-user"}).level("permissions") == "fail");
}

TEST_CASE("doctor compares the cap in bytes with the room there is") {
  const Database db;
  CHECK(doctor({db.path()}).level("cap", "none") == "ok");
  REQUIRE(command({"init", db.path(), "--max-bytes", "1MiB"}).code() == 0);
  CHECK(doctor({db.path()}).level("cap", "1.0 MiB") == "ok");
  REQUIRE(command({"init", db.path(), "--max-bytes", "4000000GiB"}).code() == 0);
  CHECK(doctor({db.path()}).level("cap", "the disk is full before") == "warn");
}

TEST_CASE("doctor finds what a file system or its mount options take away from a sync") {
  if (!SmallDisk::possible()) return;
  struct Case {
    const char *type, *options, *check, *text, *level;
  };
  for (const Case& each : {Case{"ext4", "rw", "storage", "barrier", ""},
                           {"ext4", "barrier=0", "storage", "barriers are off", "warn"},
                           {"ext4", "data=writeback", "storage", "data=writeback", "note"},
                           {"ext2", "rw", "storage", "no journal", "warn"},
                           {"vfat", "rw", "storage", "no journal", "warn"},
                           {"tmpfs", "size=16m", "file system", "memory", "fail"}}) {
    CAPTURE(std::string(each.type) + " " + each.options);
    const Mount mount(each.type, each.options);
    if (mount.usable()) CHECK(doctor_on(mount).level(each.check, each.text) == each.level);
  }
}

TEST_CASE("doctor looks below an overlay, and finds one that leaves out syncs") {
  if (!SmallDisk::possible()) return;
  const Mount memory("tmpfs", "size=16m");
  REQUIRE(memory.usable());
  for (const char* name : {"lower", "upper", "work"})
    REQUIRE(::mkdir(memory.file(name).c_str(), 0755) == 0);
  const std::string layers = "lowerdir=" + memory.file("lower") +
                             ",upperdir=" + memory.file("upper") +
                             ",workdir=" + memory.file("work");
  {
    const Mount overlay("overlay", layers);
    if (!overlay.usable()) return;
    const Report report = doctor_on(overlay);
    CHECK(report.level("file system", "memory") == "fail");
    CHECK(report.level("storage", "overlay: written to") == "note");
    CHECK(report.level("storage", "volatile").empty());
  }
  REQUIRE(run({"rm", "-rf", memory.file("work")}).code() == 0);
  REQUIRE(::mkdir(memory.file("work").c_str(), 0755) == 0);
  const Mount loose("overlay", layers + ",volatile");
  if (loose.usable()) CHECK(doctor({loose.file("app.db")}).level("storage", "volatile") == "warn");
}

TEST_CASE("doctor on a file system that became read-only") {
  if (!SmallDisk::possible()) return;
  const Mount mount("ext4", "rw");
  if (!mount.usable()) return;
  const Report before = doctor_on(mount);
  CHECK(before.level("mount") == "ok");
  CHECK(before.level("folder sync") == "ok");
  REQUIRE(run({"mount", "-o", "remount,ro", mount.point()}).code() == 0);
  const Report report = doctor({mount.file("app.db")});
  CHECK(report.code == 4);
  CHECK(report.level("mount", "read-only") == "fail");
  CHECK(report.level("sync") == "warn");
}
