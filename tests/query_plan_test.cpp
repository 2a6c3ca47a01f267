// How SQLite would run each statement of the product: nothing walks a table that grows, nothing is
// sorted, unless it is on the list below with the reason. The statements are those of schema.hpp
// themselves: statements.inc is made from it by CMake, and tidy_test sees to it that SQL text is
// nowhere else.
#include <doctest/doctest.h>
#include <sqlite3.h>

#include <algorithm>
#include <regex>
#include <set>

#include "schema.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

struct Named {
  const char* name;
  const char* sql;
};
const Named kStatements[] = {
#include "statements.inc"
};

// A statement of the product may have these steps. `statement`: a name, the beginning of names
// ("k…*"), or "*", for what the triggers of outbox_event add to whatever writes to it.
struct Permitted {
  const char* statement;
  const char* step;  // as EXPLAIN QUERY PLAN words it
  const char* reason;
};
const char* const kFewDestinations = "a row for each destination: a few";
const char* const kFewExceptions = "at most kMaxExceptionsPerDestination rows a destination";
const char* const kSamples = "a sample an hour, and read once for all events between two of them";
const char* const kEndOfKey =
    "min or max of its key: one look at the end (the next case checks that)";
const char* const kNewestRows = "in the order of its key, and ends at its LIMIT";
const char* const kOnRequest =
    "grows with a gateway's devices, not with events; when a person asks";
const char* const kRanges = "ranges, not events; those that were reported go with their events";
const char* const kSetting = "a value of SQLite's own, not a table";
const char* const kSchemaRows = "as many rows as there are tables and triggers";
const char* const kOnce = "reads everything once, into the new database or for the new cap";
const Permitted kPermitted[] = {
    {"*", "SCAN d", kFewDestinations},
    {"*", "SCAN outbox_destination", kFewDestinations},
    {"*", "SCAN (subquery-3)", kFewDestinations},  // of the view outbox_settled
    {"*", "SCAN x", kFewExceptions},
    {"*", "SEARCH outbox_event", kEndOfKey},
    {"*", "SEARCH holdfast_time", kSamples},
    {"kAuditTrim", "SEARCH holdfast_audit", kEndOfKey},
    {"kDestinationCount",
     "SCAN outbox_destination USING COVERING INDEX sqlite_autoindex_outbox_destination_1",
     kFewDestinations},
    {"kExceptionCounts", "USE TEMP B-TREE FOR GROUP BY", kFewExceptions},
    {"kCounterAll", "SCAN holdfast_counter", "a fixed set of names"},
    {"kAuditList", "SCAN holdfast_audit", kNewestRows},
    {"kTimeLatest", "SCAN holdfast_time", kNewestRows},
    {"kTimeKnownWall", "SCAN holdfast_time", kSamples},
    {"kTimeBefore", "SCAN holdfast_time", kSamples},
    {"kTimeBefore", "USE TEMP B-TREE FOR ORDER BY", kSamples},
    {"kTimeAfter", "SCAN holdfast_time", kSamples},
    {"kTimeAfter", "USE TEMP B-TREE FOR ORDER BY", kSamples},
    {"kTimeSetAfter", "SCAN holdfast_time", kSamples},
    {"kTimeSetBefore", "SCAN holdfast_time", kSamples},
    {"kGapUnreported", "SCAN outbox_gap", kRanges},
    {"kGapTrim", "SCAN outbox_gap", kRanges},
    {"kFindId", "SCAN outbox_event",
     "newest first; an index on the id would cost each emit a page"},
    {"kFindId", "SCAN (subquery-1)", "as the line before"},
    {"kStreamsOfDevice", "SCAN inbox_stream", "only when a device begins another stream"},
    {"kStreamCount", "SCAN inbox_stream", kOnRequest},
    {"kReplacedStreams", "SCAN inbox_stream", kOnRequest},
    {"kReplacedStreams", "USE TEMP B-TREE FOR count(DISTINCT)", kOnRequest},
    {"kStreamAll", "SCAN s", kOnRequest},
    {"kStreamAll", "USE TEMP B-TREE FOR ORDER BY", kOnRequest},
    {"kInboxGapAll", "SCAN inbox_gap", kOnRequest},
    {"kInboxGapCounts", "SCAN inbox_gap", kOnRequest},
    {"kCertificateStreams", "SCAN o", kOnRequest},
    {"kCertificateStreams", "SCAN inbox_owner", kOnRequest},
    {"kCertificateStreams", "SCAN inbox_denied", kOnRequest},
    {"kCertificateStreams", "USE TEMP B-TREE FOR ORDER BY", kOnRequest},
    {"kEventCountReset", "SCAN outbox_event", kOnce},
    {"kSalvage*", "SCAN outbox_event", kOnce},
    {"kSalvage*", "SCAN outbox_exception", kOnce},
    {"kSalvage*", "SCAN outbox_gap", kOnce},
    {"kSalvage*", "USE TEMP B-TREE FOR ORDER BY", kOnce},
    {"kBytesUsed", "SCAN pragma_page_count VIRTUAL TABLE INDEX 0:", kSetting},
    {"kBytesUsed", "SCAN pragma_freelist_count VIRTUAL TABLE INDEX 0:", kSetting},
    {"kBytesUsed", "SCAN pragma_page_size VIRTUAL TABLE INDEX 0:", kSetting},
    {"kPageCount", "SCAN pragma_page_count VIRTUAL TABLE INDEX 0:", kSetting},
    {"kPageCount", "SCAN pragma_page_size VIRTUAL TABLE INDEX 0:", kSetting},
    {"kFirstColumn", "SCAN pragma_table_info VIRTUAL TABLE INDEX 0:", kSetting},
    {"kHasMeta", "SCAN sqlite_schema", kSchemaRows},
    {"kGuardTriggers", "SCAN sqlite_schema", kSchemaRows},
    {"kTriggerNames", "SCAN sqlite_schema", kSchemaRows},
    {"kTableExists", "SCAN sqlite_schema", kSchemaRows},
};

bool covers(const std::string& pattern, const std::string& name) {
  if (pattern.back() != '*') return pattern == name;
  return name.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0;
}

using Lines = std::vector<std::string>;

// With what the triggers do. Each statement of a text that has several.
Lines plan_of(Connection& db, const std::string& sql) {
  Lines lines;
  const char* rest = sql.c_str();
  while (*rest != 0) {
    sqlite3_stmt* statement = nullptr;
    const std::string text = "EXPLAIN QUERY PLAN " + std::string(rest);
    const char* tail = nullptr;
    const int rc = sqlite3_prepare_v2(db, text.c_str(), -1, &statement, &tail);
    INFO(text << ": " << sqlite3_errmsg(db));
    REQUIRE(rc == SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW)
      lines.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(statement, 3)));
    sqlite3_finalize(statement);
    rest += text.size() - std::string(tail).size() - std::string("EXPLAIN QUERY PLAN ").size();
  }
  return lines;
}

// The steps that cost more the more rows there are.
Lines findings(const Lines& plan) {
  Lines found;
  for (const std::string& step : plan) {
    const bool walks = step.rfind("SCAN ", 0) == 0 && step != "SCAN CONSTANT ROW";
    // SQLite calls max(x) a search, also when no index is there and it is a walk.
    const bool seeks_end = std::regex_match(step, std::regex("SEARCH \\w+"));
    const bool sorts = step.rfind("USE TEMP B-TREE", 0) == 0;
    const bool indexes = step.find("AUTOMATIC") != std::string::npos;
    if (walks || seeks_end || sorts || indexes) found.push_back(step);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db");
  std::unique_ptr<Connection> db;
  Fixture() {
    make_database(path);
    db = std::make_unique<Connection>(path);
    REQUIRE(sqlite3_db_config(*db, SQLITE_DBCONFIG_TRIGGER_EQP, 1, nullptr) == SQLITE_OK);
  }
};

}  // namespace

TEST_CASE(
    "no statement of the product walks or sorts a table that grows, but for a list with reasons") {
  Fixture f;
  std::set<const Permitted*> used;
  for (const Named& statement : kStatements) {
    for (const std::string& step : findings(plan_of(*f.db, statement.sql))) {
      bool permitted = false;
      for (const Permitted& entry : kPermitted) {
        if (step != entry.step || !covers(entry.statement, statement.name)) continue;
        permitted = true;
        used.insert(&entry);
      }
      const std::string what = std::string(statement.name) + ": " + step + "\n  " + statement.sql;
      INFO(what);
      CHECK(permitted);
    }
  }
  for (const Permitted& entry : kPermitted) {
    const std::string what =
        std::string("permitted, but no statement does it: ") + entry.statement + ": " + entry.step;
    INFO(what);
    CHECK(used.count(&entry) == 1);
  }
}

// EXPLAIN QUERY PLAN words max(x) the same way with an index and without.
TEST_CASE("the log's min and max are of its key alone, in statements, triggers and views") {
  Fixture f;
  std::vector<std::string> texts =
      f.db->column("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL");
  for (const Named& statement : kStatements) texts.emplace_back(statement.sql);
  const std::regex of_log(
      "\\b(?:min|max)\\((?:\\w+\\.)?(\\w+)\\)(?:[^()]*\\))?\\s*(?:-\\s*1\\s*)?(?:AS \\w+ )?FROM "
      "outbox_event");
  int found = 0;
  for (const std::string& text : texts) {
    for (std::sregex_iterator at(text.begin(), text.end(), of_log), end; at != end; ++at, ++found) {
      INFO(text);
      CHECK((*at)[1] == "seq");
    }
  }
  CHECK(found > 10);
}

TEST_CASE("the statements that were looked at are all there are") {
  const std::string source = read_file(std::string(HOLDFAST_SOURCE) + "/lib/src/schema.hpp");
  const std::regex declared("\\bchar\\s*\\*\\s*(const\\s+)?(k[A-Za-z0-9]+)");
  std::set<std::string> names;
  for (std::sregex_iterator at(source.begin(), source.end(), declared), end; at != end; ++at)
    if ((*at)[2].str().rfind("kSchemaV", 0) != 0) names.insert((*at)[2]);  // CREATE, run once
  std::set<std::string> looked_at;
  for (const Named& statement : kStatements) looked_at.insert(statement.name);
  CHECK(looked_at == names);
  CHECK(looked_at.size() > 100);
}

TEST_CASE("what reads the urgent lane uses its index, which only literals in the statement allow") {
  Fixture f;
  const auto uses_index = [&](const std::string& sql) {
    for (const std::string& step : plan_of(*f.db, sql))
      if (step.find("INDEX outbox_event_urgent (lane=? AND seq>?)") != std::string::npos)
        return true;
    return false;
  };
  std::string bound = sql::kUrgentAfter;
  for (const char* sql : {sql::kReadUrgent, sql::kFirstUrgentAfter, sql::kUrgentAfter})
    CHECK(uses_index(sql));
  // The control: the same with a bound value.
  bound.replace(bound.find("lane>0 AND lane=1"), 17, "lane=?2");
  CHECK_FALSE(uses_index(bound));
}

TEST_CASE("a captured write of an application adds no walk but over the destinations") {
  Fixture f;
  f.db->run("CREATE TABLE reading(id INTEGER PRIMARY KEY, value)");
  CaptureSpec spec;
  spec.table = "reading";
  spec.event_type = "reading.{op}";
  spec.aggregate_type = "reading";
  spec.aggregate_id = "NEW.id";
  spec.payload = "json_object('value',NEW.value)";
  for (const char* op : {"insert", "update", "delete"}) f.db->run(capture_trigger_sql(spec, op));
  for (const char* sql : {"INSERT INTO reading(value) VALUES(1)", "DELETE FROM reading WHERE id=1",
                          "UPDATE reading SET value=2 WHERE id=1"}) {
    for (const std::string& step : findings(plan_of(*f.db, sql))) {
      const std::string what = std::string(sql) + ": " + step;
      INFO(what);
      bool permitted = false;
      for (const Permitted& entry : kPermitted)
        permitted = permitted || (std::string(entry.statement) == "*" && step == entry.step);
      CHECK(permitted);
    }
  }
}

TEST_CASE("control: statements as they should not be are found") {
  Fixture f;
  const auto found = [&](const char* sql) { return findings(plan_of(*f.db, sql)); };
  CHECK(found("SELECT seq FROM outbox_event ORDER BY created_at LIMIT 1") ==
        Lines{"SCAN outbox_event", "USE TEMP B-TREE FOR ORDER BY"});
  CHECK(found("SELECT count(*) FROM outbox_event WHERE lane=?1") == Lines{"SCAN outbox_event"});
  CHECK(
      found(
          "SELECT seq FROM outbox_event WHERE seq=1; SELECT 1 FROM inbox_event WHERE status='x'") ==
      Lines{"SCAN inbox_event"});
  CHECK(found("SELECT DISTINCT event_type FROM outbox_event WHERE seq>5") ==
        Lines{"USE TEMP B-TREE FOR DISTINCT"});
  CHECK(found("SELECT max(created_at) FROM outbox_event") == Lines{"SEARCH outbox_event"});
  CHECK(found("SELECT 1 FROM outbox_event WHERE seq=?1").empty());
  // In a trigger, too.
  f.db->run(
      "CREATE TRIGGER bad AFTER INSERT ON inbox_stream BEGIN"
      " DELETE FROM inbox_event WHERE consumer=NEW.consumer; END");
  CHECK(found(sql::kStreamPut) == Lines{"SCAN inbox_event"});
}
