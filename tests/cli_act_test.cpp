// init, retry, discard, purge, destination, backup and capture: what a person does to a
// database, and what must never happen by it (G3, G9, G11).
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include "holdfast/store.hpp"
#include "support/command_line.hpp"

using namespace holdfast::test;

namespace {

std::string state_of(const Database& db, std::int64_t seq, const std::string& destination = "") {
  for (const Json& each :
       json_lines(command({"show", db.path(), std::to_string(seq), "--json"}).out)) {
    if (destination.empty() || each.at("destination") == destination) return each.at("status");
  }
  return "(not found)";
}

// Five events; 1 is sent, 2 DEAD, 3 RETRY, 4 HELD, 5 pending.
void make_rejected(const Database& db) {
  for (int i = 1; i <= 5; ++i) db.emit("sensor/1");
  db.set_acked(4);
  db.reject(2, "DEAD", 10, "bad reading");
  db.reject(3, "RETRY", 2, "busy");
  db.reject(4, "HELD", 0, "");
}

}  // namespace

TEST_CASE("init makes a database that is ready, and is harmless when repeated") {
  const Database db(Database::NoInit{});
  const RunResult first = command({"init", db.path(), "--device", "boiler-7", "--json"});
  REQUIRE(first.code() == 0);
  const Json made = json_lines(first.out).at(0);
  CHECK(made.at("created") == true);
  CHECK(made.at("from_version") == 0);
  CHECK(made.at("to_version") == holdfast::kSchemaVersion);
  db.emit();
  const Json again = json_lines(command({"init", db.path(), "--json"}).out).at(0);
  CHECK(again.at("created") == false);
  CHECK(again.at("from_version") == holdfast::kSchemaVersion);
  CHECK(again.at("stream") == made.at("stream"));
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 1);
  CHECK(db.text("PRAGMA journal_mode") == "wal");
  const Json stats = json_lines(command({"stats", db.path(), "--json"}).out).at(0);
  CHECK(stats.at("device") == "boiler-7");
  CHECK(stats.at("stream") == made.at("stream"));
  CHECK(command({"init", db.path()}).out.find("ready already") != std::string::npos);
}

TEST_CASE("init in an application's own database leaves its tables alone") {
  const Database db(Database::NoInit{});
  REQUIRE(run({"sh", "-c", ": > \"$0\"", db.path()}).code() == 0);
  db.sql("CREATE TABLE reading(x); INSERT INTO reading VALUES(42)");
  CHECK(command({"init", db.path(), "--no-destination"}).code() == 0);
  CHECK(db.number("SELECT x FROM reading") == 42);
  CHECK(db.number("SELECT count(*) FROM outbox_destination") == 0);
  db.emit();
  // Goes nowhere, so nothing waits.
  CHECK(command({"ls", db.path(), "--json"}).out.empty());
  const Json event = json_lines(command({"ls", db.path(), "--status", "all", "--json"}).out).at(0);
  CHECK(!event.contains("destination"));
}

TEST_CASE("init sets the page size of a new file") {
  const Database db(Database::NoInit{});
  CHECK(command({"init", db.path(), "--page-size", "8192"}).code() == 0);
  CHECK(db.number("PRAGMA page_size") == 8192);
  CHECK(command({"init", db.path(), "--page-size", "1000"}).code() == 2);
}

TEST_CASE("retry offers rejected events again, by seq and by id") {
  const Database db;
  make_rejected(db);
  const std::string id = db.text("SELECT event_id FROM outbox_event WHERE seq=3");
  const RunResult result = command({"retry", db.path(), "2", id});
  CAPTURE(result.err);
  CHECK(result.code() == 0);
  CHECK(result.out == "event 2 offered again\nevent 3 offered again\n");
  const Json dead = json_lines(command({"show", db.path(), "2", "--json"}).out).at(0);
  CHECK(dead.at("status") != "DEAD");
  CHECK(dead.at("attempts") == 0);
  CHECK(db.number("SELECT count(*) FROM holdfast_audit") >= 2);
}

TEST_CASE("retry of what is in no state for it says so with status 1, and does the others") {
  const Database db;
  make_rejected(db);
  const RunResult result = command({"retry", db.path(), "1", "2"});
  CHECK(result.code() == 1);
  CHECK(result.out == "event 2 offered again\n");
  CHECK(error_line_problem(result.err, "retry") == "");
  CHECK(result.err.find("SENT at upstream") != std::string::npos);
  const RunResult missing = command({"retry", db.path(), "77", "2"});
  CHECK(missing.code() == 3);
  CHECK(missing.err.find("77") != std::string::npos);
  const RunResult nonsense = command({"retry", db.path(), "2", "odd"});
  CHECK(nonsense.code() == 2);
  CHECK(nonsense.out.empty());
}

TEST_CASE("retry --all-dead takes every DEAD event, and none is no error") {
  const Database db;
  make_rejected(db);
  CHECK(command({"retry", db.path(), "--all-dead"}).out == "1 event will be offered again\n");
  CHECK(state_of(db, 2) != "DEAD");
  const RunResult none = command({"retry", db.path(), "--all-dead"});
  CHECK(none.code() == 0);
  CHECK(none.out == "0 events will be offered again\n");
  const RunResult unknown = command({"retry", db.path(), "--all-dead", "--destination", "nowhere"});
  CHECK(unknown.code() == 3);
  CHECK(error_line_problem(unknown.err, "retry") == "");
}

TEST_CASE("discard gives up for good, with its reason, and retry then refuses") {
  const Database db;
  make_rejected(db);
  const RunResult result = command({"discard", db.path(), "2", "--reason", "in calibration"});
  CAPTURE(result.err);
  CHECK(result.code() == 0);
  CHECK(result.out == "event 2 discarded\n");
  CHECK(state_of(db, 2) == "GONE");
  CHECK(db.text("SELECT reason||':'||detail FROM outbox_gap WHERE first_seq=2") ==
        "discarded:in calibration");
  const Json gone = json_lines(command({"show", db.path(), "2", "--json"}).out).at(0);
  CHECK(gone.at("gone_reason").get<std::string>().find("discarded") != std::string::npos);
  CHECK(command({"retry", db.path(), "2"}).code() == 1);
  CHECK(json_lines(command({"stats", db.path(), "--json"}).out).at(0).at("gaps_unreported") == 1);
}

TEST_CASE("purge removes what every destination has, and nothing else") {
  const Database db;
  make_rejected(db);
  const RunResult result =
      command({"purge", db.path(), "--older-than", "0", "--inbox-older-than", "0", "--json"});
  CAPTURE(result.err);
  CHECK(result.code() == 0);
  CHECK(json_lines(result.out).at(0).at("outbox_rows") == 1);
  CHECK(db.number("SELECT min(seq) FROM outbox_event") == 2);
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 4);
  CHECK(command({"purge", db.path()}).out == "removed 0 events and 0 inbox rows\n");
  CHECK(command({"purge", db.path(), "--older-than", "never"}).code() == 0);
}

TEST_CASE("purge goes on through many steps") {
  const Database db;
  db.sql(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<12001)"
      " INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
      " SELECT 't','a',i,'x' FROM n");
  db.set_acked(12001);
  const RunResult result = command({"purge", db.path(), "--older-than", "0"});
  CHECK(result.code() == 0);
  CHECK(result.out == "removed 12,000 events and 0 inbox rows\n");
  CHECK(db.number("SELECT max(seq) FROM outbox_event") == 12001);
}

TEST_CASE("destinations are added, listed and removed; pending events are not given up unasked") {
  const Database db;
  db.emit();
  CHECK(command({"destination", "add", db.path(), "cloud"}).out == "added cloud\n");
  const RunResult twice = command({"destination", "add", db.path(), "cloud"});
  CHECK(twice.code() == 1);
  CHECK(error_line_problem(twice.err, "destination add") == "");
  const RunResult bad = command({"destination", "add", db.path(), "no/such name"});
  CHECK(bad.code() == 2);
  CHECK(error_line_problem(bad.err, "destination add") == "");
  const std::vector<Json> list =
      json_lines(command({"destination", "ls", db.path(), "--json"}).out);
  REQUIRE(list.size() == 2);
  CHECK(list[1].at("destination") == "cloud");
  CHECK(list[1].at("pending") == 1);
  CHECK(command({"destination", "ls", db.path()}).out.find("cloud") != std::string::npos);

  const RunResult pending = command({"destination", "rm", db.path(), "cloud"});
  CHECK(pending.code() == 1);
  CHECK(error_line_problem(pending.err, "destination rm") == "");
  CHECK(command({"destination", "rm", db.path(), "cloud", "--force"}).out == "removed cloud\n");
  const RunResult missing = command({"destination", "rm", db.path(), "cloud"});
  CHECK(missing.code() == 3);
  CHECK(error_line_problem(missing.err, "destination rm") == "");
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 1);
}

TEST_CASE("backup copies a live database, and the copy takes a stream of its own (G11)") {
  const Database db;
  db.emit();
  const std::string stream =
      json_lines(command({"stats", db.path(), "--json"}).out).at(0).at("stream");
  const RunResult result = command({"backup", db.path(), db.file("copy.db")});
  CAPTURE(result.err);
  CHECK(result.code() == 0);
  CHECK(json_lines(command({"ls", db.file("copy.db"), "--json"}).out).size() == 1);
  CHECK(command({"emit", db.file("copy.db"), "--type", "t", "--aggregate", "a/1"}).code() == 0);
  CHECK(json_lines(command({"stats", db.file("copy.db"), "--json"}).out).at(0).at("stream") !=
        stream);
  CHECK(json_lines(command({"stats", db.path(), "--json"}).out).at(0).at("stream") == stream);
  const RunResult exists = command({"backup", db.path(), db.file("copy.db")});
  CHECK(exists.code() == 1);
  CHECK(error_line_problem(exists.err, "backup") == "");
  CHECK(json_lines(command({"ls", db.file("copy.db"), "--json"}).out).size() == 2);
  const RunResult nowhere = command({"backup", db.path(), db.file("no/such/folder/x.db")});
  CHECK((nowhere.code() == 1 || nowhere.code() == 3));
  CHECK(error_line_problem(nowhere.err, "backup") == "");
}

TEST_CASE("capture makes a table's changes events in the same transaction (G1)") {
  const Database db;
  db.sql("CREATE TABLE reading(id INTEGER PRIMARY KEY, sensor TEXT, celsius REAL)");
  const std::vector<std::string> what = {"capture",
                                         db.path(),
                                         "--table",
                                         "reading",
                                         "--on",
                                         "insert,update,delete",
                                         "--type",
                                         "reading.{op}.v1",
                                         "--aggregate-type",
                                         "sensor",
                                         "--aggregate-id",
                                         "NEW.sensor",
                                         "--payload",
                                         "json_object('celsius',NEW.celsius)"};
  const RunResult result = command(what);
  CAPTURE(result.err);
  REQUIRE(result.code() == 0);
  db.sql("INSERT INTO reading VALUES(1,'boiler-1',71.5)");
  db.sql("UPDATE reading SET celsius=72");
  db.sql("BEGIN; INSERT INTO reading VALUES(2,'boiler-2',1); ROLLBACK");
  db.sql("DELETE FROM reading");
  const std::vector<Json> events = json_lines(command({"ls", db.path(), "--json"}).out);
  REQUIRE(events.size() == 3);
  CHECK(events[0].at("event_type") == "reading.insert.v1");
  CHECK(events[0].at("payload") == "{\"celsius\":71.5}");
  CHECK(events[1].at("event_type") == "reading.update.v1");
  CHECK(events[2].at("event_type") == "reading.delete.v1");
  CHECK(events[2].at("aggregate_id") == "boiler-1");
  CHECK(command(what).code() == 0);  // replaces

  CHECK(command({"capture", db.path(), "--table", "reading", "--remove"}).code() == 0);
  db.sql("INSERT INTO reading VALUES(3,'boiler-3',1)");
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 3);
  const RunResult none = command({"capture", db.path(), "--table", "reading", "--remove"});
  CHECK(none.code() == 3);
  CHECK(error_line_problem(none.err, "capture") == "");
}

TEST_CASE("capture refuses bad tables and expressions, and leaves the table usable") {
  const Database db;
  db.sql("CREATE TABLE reading(id INTEGER PRIMARY KEY, x)");
  const auto capture = [&](const char* table, const char* id, const char* payload) {
    return command({"capture", db.path(), "--table", table, "--on", "insert", "--type", "t",
                    "--aggregate-type", "a", "--aggregate-id", id, "--payload", payload});
  };
  const RunResult missing = capture("nothing", "NEW.id", "NEW.x");
  CHECK(missing.code() == 3);
  CHECK(error_line_problem(missing.err, "capture") == "");
  for (const char* bad :
       {"NEW.nonsense", "(", "1); DROP TABLE reading; --", "nonsense()", "\"", ""}) {
    const RunResult result = capture("reading", "NEW.id", bad);
    CAPTURE(std::string(bad));
    CHECK(result.code() == 2);
    CHECK(error_line_problem(result.err, "capture") == "");
  }
  db.sql("INSERT INTO reading VALUES(1,1)");
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 0);
  CHECK(db.number("SELECT count(*) FROM reading") == 1);
}
