// Bad input, everywhere: each command answers each kind of broken database, path or permission with
// exactly one clear line, the right exit status, and no harm done (G10, CASES 4).
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "support/command_line.hpp"

using namespace holdfast::test;

namespace {

constexpr const char* kId = "0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e";

struct Call {
  std::string name;
  std::vector<std::string> before;  // the database
  std::vector<std::string> after;
  bool writes = false;
};

const std::vector<Call> kCalls = {
    {"ls", {"ls"}, {}},
    {"show", {"show"}, {"1"}},
    {"resolve", {"resolve"}, {kId}},
    {"stats", {"stats"}, {}},
    {"inbox ls", {"inbox", "ls"}, {}},
    {"inbox show", {"inbox", "show"}, {kId}},
    {"inbox stats", {"inbox", "stats"}, {}},
    {"destination ls", {"destination", "ls"}, {}},
    {"emit", {"emit"}, {"--type", "t", "--aggregate", "a/1"}, true},
    {"retry", {"retry"}, {"1"}, true},
    {"retry", {"retry"}, {"--all-dead"}, true},
    {"discard", {"discard"}, {"1", "--reason", "r"}, true},
    {"purge", {"purge"}, {}, true},
    {"destination add", {"destination", "add"}, {"cloud"}, true},
    {"destination rm", {"destination", "rm"}, {"upstream"}, true},
    {"capture", {"capture"}, {"--table", "t", "--remove"}, true},
    {"relay", {"relay"}, {"--to", "tcp://127.0.0.1:1", "--drain", "--drain-timeout", "1s"}, true},
};

RunResult call(const Call& each, const std::string& database) {
  std::vector<std::string> arguments = each.before;
  arguments.push_back(database);
  arguments.insert(arguments.end(), each.after.begin(), each.after.end());
  return command(arguments);
}

void check_refused(const Call& each, const std::string& database, int status, const char* says) {
  const RunResult result = call(each, database);
  CAPTURE(each.name);
  CHECK(result.code() == status);
  CHECK(result.out.empty());
  CHECK(error_line_problem(result.err, each.name) == "");
  CHECK_MESSAGE(result.err.find(database) != std::string::npos, result.err);
  CHECK_MESSAGE(result.err.find(says) != std::string::npos, result.err);
}

}  // namespace

TEST_CASE("a missing file is status 3, and is not made") {
  const Database db(Database::NoInit{});
  for (const Call& each : kCalls) {
    check_refused(each, db.path(), 3, "");
    check_refused(each, db.file("no/such/folder/x.db"), 3, "");
  }
  struct stat info{};
  CHECK(::stat(db.path().c_str(), &info) != 0);
}

TEST_CASE("a file that is no database is status 1, says so, and stays as it is") {
  const Database db(Database::NoInit{});
  const std::string contents = "This is a letter, not a database.\n" + std::string(5000, '?');
  write_file(db.path(), contents);
  for (const Call& each : kCalls) check_refused(each, db.path(), 1, "database");
  const RunResult init = command({"init", db.path()});
  CHECK(init.code() == 1);
  CHECK(error_line_problem(init.err, "init") == "");
  CHECK(read_file(db.path()) == contents);
}

TEST_CASE("a folder is refused") {
  const Database db(Database::NoInit{});
  const std::string folder = db.file("folder");
  REQUIRE(::mkdir(folder.c_str(), 0755) == 0);
  for (const Call& each : kCalls) check_refused(each, folder, 2, "directory");
  const RunResult init = command({"init", folder});
  CHECK(init.code() == 2);
  CHECK(error_line_problem(init.err, "init") == "");
}

TEST_CASE("a database without Holdfast's tables is status 1 and says how to get them") {
  const Database db(Database::NoInit{});
  REQUIRE(run({"sh", "-c", ": > \"$0\"", db.path()}).code() == 0);
  db.sql("CREATE TABLE mine(x)");
  for (const Call& each : kCalls) check_refused(each, db.path(), 1, "holdfast init");
  CHECK(db.number("SELECT count(*) FROM sqlite_schema") == 1);
}

TEST_CASE("a newer schema is refused by name and not written to") {
  const Database db;
  db.emit();
  db.sql("UPDATE holdfast_meta SET value=99 WHERE key IN('schema_version','min_writer')");
  for (const Call& each : kCalls) check_refused(each, db.path(), 1, "99");
  const RunResult init = command({"init", db.path()});
  CHECK(init.code() == 1);
  CHECK(error_line_problem(init.err, "init") == "");
  CHECK(init.err.find("99") != std::string::npos);
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 1);
  CHECK(db.number("SELECT count(*) FROM holdfast_audit") == 0);
}

TEST_CASE("what may not be read or written is refused") {
  // As root nothing is forbidden: then these run as nobody, if that is possible here.
  std::vector<std::string> prefix;
  if (running_as_root()) {
    prefix = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    std::vector<std::string> probe = prefix;
    probe.insert(probe.end(), {holdfast_program(), "version"});
    if (run(probe).code() != 0) {
      MESSAGE("skipped: cannot run as an ordinary user here");
      return;
    }
  }
  const Database db;
  db.emit();
  const std::string folder = db.path().substr(0, db.path().rfind('/'));
  REQUIRE(::chmod(folder.c_str(), 0755) == 0);
  const auto check = [&](const Call& each) {
    std::vector<std::string> argv = prefix;
    argv.push_back(holdfast_program());
    argv.insert(argv.end(), each.before.begin(), each.before.end());
    argv.push_back(db.path());
    argv.insert(argv.end(), each.after.begin(), each.after.end());
    const RunResult result = run(argv);
    CAPTURE(each.name);
    CHECK(result.code() == 1);
    CHECK(result.out.empty());
    CHECK(error_line_problem(result.err, each.name) == "");
    CHECK_MESSAGE(result.err.find(db.path()) != std::string::npos, result.err);
  };
  REQUIRE(::chmod(db.path().c_str(), 0000) == 0);
  for (const Call& each : kCalls) check(each);
  REQUIRE(::chmod(db.path().c_str(), 0444) == 0);
  for (const Call& each : kCalls) {
    if (each.writes) check(each);
  }
  REQUIRE(::chmod(db.path().c_str(), 0644) == 0);
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 1);
}

TEST_CASE("a damaged database never crashes a command, and is never silently fine to doctor") {
  const Database whole;
  whole.sql(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<2000)"
      " INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
      " SELECT 't','a',i,'some payload' FROM n");
  whole.sql("PRAGMA journal_mode=DELETE; PRAGMA journal_mode=WAL");  // all of it in one file
  const std::string bytes = read_file(whole.path());
  REQUIRE(bytes.size() > 50'000);
  std::vector<std::string> damaged;
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{4095}, std::size_t{4096},
        std::size_t{10'000}, bytes.size() / 2}) {
    damaged.push_back(bytes.substr(0, length));
  }
  const auto overwrite = [&](std::size_t at) {
    damaged.push_back(bytes);
    damaged.back().replace(at, 300, std::string(300, '\xa5'));
  };
  for (const std::size_t at : {0, 16, 100}) overwrite(at);
  // What follows may escape SQLite's notice: a page has no checksum.
  const std::size_t surely = damaged.size();
  damaged.push_back(bytes.substr(0, bytes.size() - 1));
  for (const std::size_t at : {std::size_t{4096}, std::size_t{20'000}, bytes.size() - 5000}) {
    overwrite(at);
  }
  for (std::size_t i = 0; i < damaged.size(); ++i) {
    CAPTURE(i);
    const Database db(Database::NoInit{});
    write_file(db.path(), damaged[i]);
    for (const Call& each : kCalls) {
      if (each.name == "relay") continue;  // has its own test
      const RunResult result = call(each, db.path());
      CAPTURE(each.name);
      CAPTURE(result.err);
      CHECK(result.status.exited);
      CHECK((result.code() <= 4 || result.code() == 75));
      if (result.code() != 0) CHECK(error_line_problem(result.err, each.name) == "");
    }
    write_file(db.path(), damaged[i]);
    const RunResult doctor = command({"doctor", db.path(), "--sync-rounds", "0", "--json"});
    if (i < surely) CHECK(doctor.code() == 4);
    CHECK((doctor.code() == 0 || doctor.code() == 4));
    CHECK(json_lines(doctor.out).size() > 2);
  }
}

TEST_CASE("relay and gateway refuse bad addresses with status 2 and an example") {
  const Database db;
  for (const char* url : {"", "gateway", "http://x:1", "tcp://", "tcp://host", "tcp://host:port",
                          "tcp://host:99999", "ipc://relative", "tcp://a b:1", "\x1b[31m"}) {
    CAPTURE(url);
    for (const auto& arguments : std::vector<std::vector<std::string>>{
             {"relay", db.path(), "--to", url}, {"gateway", db.file("g.db"), "--listen", url}}) {
      const RunResult result = command(arguments);
      CHECK(result.code() == 2);
      CHECK(error_line_problem(result.err, arguments[0]) == "");
    }
  }
}

TEST_CASE("a gateway that cannot bind says so and why") {
  const Database db(Database::NoInit{});
  Process first = start_command({"gateway", db.file("one.db"), "--listen", "tcp://127.0.0.1:0"});
  const std::string line = first.wait_for_stderr("listening on ", 10'000);
  REQUIRE(!line.empty());
  const std::string url = line.substr(line.find("tcp://"));
  const RunResult second = command({"gateway", db.file("two.db"), "--listen", url});
  CHECK((second.code() == 75 || second.code() == 1));
  CHECK(error_line_problem(second.err, "gateway") == "");
  CHECK(second.err.find(url) != std::string::npos);
  const RunResult elsewhere =
      command({"gateway", db.file("two.db"), "--insecure", "--listen", "tcp://192.0.2.1:7447"});
  CHECK(elsewhere.code() != 0);
  CHECK(error_line_problem(elsewhere.err, "gateway") == "");
  const RunResult folder =
      command({"gateway", db.file("two.db"), "--listen", "ipc:///no/such/folder/socket"});
  CHECK(folder.code() != 0);
  CHECK(error_line_problem(folder.err, "gateway") == "");
}

TEST_CASE("init refuses what it cannot make, and names it") {
  const Database db(Database::NoInit{});
  const RunResult missing = command({"init", db.file("no/such/folder/x.db")});
  CHECK((missing.code() == 3 || missing.code() == 1));
  CHECK(error_line_problem(missing.err, "init") == "");
  const RunResult odd = command({"init", db.path(), "--destination", "a b"});
  CHECK(odd.code() == 2);
  CHECK(error_line_problem(odd.err, "init") == "");
}
