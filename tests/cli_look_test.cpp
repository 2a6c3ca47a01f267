// holdfast ls, show, stats: what they print, and that they cannot be used against the person or the
// database that they are for (G8, G9, CASES 12).
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <regex>
#include <set>

#include "holdfast/store.hpp"
#include "support/command_line.hpp"

using namespace holdfast::test;

namespace {

// Every way known to the author by which text drives a terminal or deceives its reader.
const std::string kHostile =
    "start\x1b[31m\x1b]0;title\x07\r\b\x7f\xc2\x9b"
    "31m\xe2\x80\xae"
    "reversed\n\ttab \xff\xc0\xaf\xed\xa0\x80 end";

std::vector<std::string> seqs(const std::string& json_text) {
  std::vector<std::string> out;
  for (const Json& each : json_lines(json_text)) out.push_back(each.at("seq").dump());
  return out;
}

std::int64_t file_bytes(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::int64_t>(info.st_size) : -1;
}

// The text exposition format, strictly: returns the samples (with labels) and fails on anything
// that is not in the format's grammar.
std::map<std::string, double> parse_prometheus(const std::string& text,
                                               std::map<std::string, std::string>& types) {
  const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) .+");
  const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)");
  const std::regex sample(
      "([a-zA-Z_:][a-zA-Z0-9_:]*)"
      "(\\{[a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\\n]|\\\\[\\\\\"n])*\""
      "(,[a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\\n]|\\\\[\\\\\"n])*\")*\\})?"
      " ([+-]?[0-9.]+(e[+-]?[0-9]+)?|\\+Inf)");
  std::map<std::string, double> samples;
  std::string family;
  std::set<std::string> helped;
  REQUIRE(!text.empty());
  REQUIRE(text.back() == '\n');
  for (const std::string& line : lines_of(text)) {
    CAPTURE(line);
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      family = match[1];
      CHECK(helped.insert(family).second);  // a family's lines are together
    } else if (std::regex_match(line, match, type)) {
      CHECK(match[1] == family);
      CHECK(types.emplace(match[1], match[2]).second);
    } else {
      REQUIRE(std::regex_match(line, match, sample));
      const std::string name = match[1];
      CHECK(types.count(family) == 1);
      const bool histogram = types[family] == "histogram";
      CHECK(
          (name == family || (histogram && (name == family + "_bucket" || name == family + "_sum" ||
                                            name == family + "_count"))));
      if (types[family] == "counter") CHECK(family.substr(family.size() - 6) == "_total");
      const std::string value = match[6];
      CHECK(samples.emplace(name + match[2].str(), value == "+Inf" ? 1e300 : std::stod(value))
                .second);
    }
  }
  return samples;
}

}  // namespace

TEST_CASE("ls lists pending events by default, and others by state, type and aggregate") {
  const Database db;
  db.emit("sensor/1");
  db.emit("sensor/2");
  db.emit("sensor/1");
  db.emit("valve/1", "{}", {"--lane", "urgent"});
  db.emit("sensor/3");
  db.set_acked(3);
  db.reject(2, "DEAD", 10, "bad reading");
  const auto ls = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"ls", db.path(), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = command(arguments);
    CAPTURE(result.err);
    CHECK(result.code() == 0);
    return seqs(result.out);
  };
  using Seqs = std::vector<std::string>;
  CHECK(ls({}) == Seqs{"2", "4", "5"});
  CHECK(ls({"--status", "all"}) == Seqs{"1", "2", "3", "4", "5"});
  CHECK(ls({"--status", "sent"}) == Seqs{"1", "3"});
  CHECK(ls({"--status", "SENT,dead"}) == Seqs{"1", "2", "3"});
  CHECK(ls({"--aggregate", "sensor/1", "--status", "all"}) == Seqs{"1", "3"});
  CHECK(ls({"--aggregate", "valve"}) == Seqs{"4"});
  CHECK(ls({"--type", "sensor.reading.v1", "--limit", "1"}) == Seqs{"2"});
  CHECK(ls({"--type", "nothing"}).empty());
  CHECK(ls({"--after", "4"}) == Seqs{"5"});
  CHECK(ls({"--destination", "upstream"}) == Seqs{"2", "4", "5"});
  const Json dead = json_lines(command({"ls", db.path(), "--status", "dead", "--json"}).out).at(0);
  CHECK(dead.at("status") == "DEAD");
  CHECK(dead.at("attempts") == 10);
  CHECK(dead.at("last_error") == "bad reading");
}

TEST_CASE("ls says when there is more than it shows") {
  const Database db;
  db.sql(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<250)"
      " INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
      " SELECT 't','a',i,'x' FROM n");
  const RunResult some = command({"ls", db.path()});
  CHECK(some.code() == 0);
  CHECK(lines_of(some.out).size() == 101);
  CHECK(some.err.find("--limit 0 shows all") != std::string::npos);
  const RunResult all = command({"ls", db.path(), "--limit", "0"});
  CHECK(lines_of(all.out).size() == 251);
  CHECK(all.err.empty());
  CHECK(command({"ls", db.path(), "--limit", "250"}).err.empty());
}

TEST_CASE("ls for people is aligned, with ages, and coloured on a terminal only") {
  const Database db;
  db.emit("sensor/1", "short");
  db.emit("a-longer-type/with-a-longer-id", "é");
  db.sql(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,created_at,payload)"
      " VALUES('t','a','1',CAST((julianday('now')-2440587.5)*86400000.0 AS INTEGER)-200000,'x')");
  const RunResult plain = command({"ls", db.path()});
  CHECK(!drives_terminal(plain.out));
  const std::vector<std::string> lines = lines_of(plain.out);
  REQUIRE(lines.size() == 4);
  const std::size_t column = lines[0].find("DETAIL");
  REQUIRE(column != std::string::npos);
  CHECK(lines[1].find("short") == column);
  CHECK(lines[2].find("é") == column);
  CHECK(lines[3].find("3 min") != std::string::npos);

  SpawnOptions terminal;
  terminal.terminal = true;
  CHECK(command({"ls", db.path()}, terminal).out.find("\x1b[1m") != std::string::npos);
  CHECK(command({"ls", db.path(), "--json"}, terminal).out.find('\x1b') == std::string::npos);
  terminal.env["NO_COLOR"] = "1";
  CHECK(command({"ls", db.path()}, terminal).out.find('\x1b') == std::string::npos);
  terminal.env["NO_COLOR"] = "";
  terminal.env["TERM"] = "dumb";
  CHECK(command({"ls", db.path()}, terminal).out.find('\x1b') == std::string::npos);
}

TEST_CASE("no text from an event drives the terminal, in any format (G10)") {
  const Database db;
  std::string hex;
  for (const char c : kHostile) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    hex += two;
  }
  const std::string text = "CAST(x'" + hex + "' AS TEXT)";
  // As any SQL program could write it, past emit's own checks.
  db.sql(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,content_type,trace,source,"
      "payload) VALUES(" +
      text + "," + text + "," + text + "," + text + "," + text + "," + text + "," + text + ")");
  db.set_acked(1);
  db.sql(
      "INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts,last_error)"
      " SELECT id,1,0,'DEAD',1," +
      text + " FROM outbox_destination");
  db.sql("UPDATE outbox_destination SET link_failures=1,last_error_at=1,last_error=" + text);
  db.sql("INSERT INTO inbox_event VALUES(randomblob(16)," + text + ",'FAILED',1,1,1," + text + ")");
  db.sql("INSERT INTO inbox_stream VALUES(randomblob(16),0," + text + "," + text +
         ",1,randomblob(16),1,1)");
  db.sql("INSERT INTO inbox_gap VALUES(randomblob(16),0," + text + ",1,2,2,'DEAD','a','1',NULL," +
         text + ",1)");
  const std::vector<std::vector<std::string>> looks = {
      {"ls", db.path()},
      {"ls", db.path(), "--json"},
      {"show", db.path(), "1"},
      {"show", db.path(), "1", "--json"},
      {"resolve", db.path(), "0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e"},
      {"stats", db.path()},
      {"stats", db.path(), "--json"},
      {"destination", "ls", db.path()},
      {"inbox", "ls", db.path()},
      {"inbox", "ls", db.path(), "--json"},
      {"inbox", "stats", db.path()},
      {"inbox", "stats", db.path(), "--json"},
      {"doctor", db.path(), "--sync-rounds", "0"},
      {"doctor", db.path(), "--sync-rounds", "0", "--json"},
      {"retry", db.path(), "1"},
      {"retry", db.path(), "1"},
  };
  for (const auto& look : looks) {
    CAPTURE(look[0]);
    const RunResult result = command(look);
    CHECK(result.code() != -1);
    CHECK_MESSAGE(!drives_terminal(result.out), result.out);
    CHECK_MESSAGE(!drives_terminal(result.err), result.err);
    if (look.back() == "--json") {
      CHECK(json_lines(result.out).size() > 0);
    }
  }
  const std::string listed = command({"ls", db.path(), "--status", "all"}).out;
  CHECK(listed.find("start\\x1b[31m") != std::string::npos);
  CHECK(lines_of(listed).size() == 2);

  SpawnOptions terminal;
  terminal.terminal = true;
  const std::string shown = command({"show", db.path(), "1", "--payload"}, terminal).out;
  CHECK(shown.find('\x1b') == std::string::npos);
  CHECK(command({"show", db.path(), "1", "--payload"}).out == kHostile);
}

TEST_CASE("show tells everything of one event, by seq and by id") {
  const Database db;
  const std::string id = db.emit("sensor/boiler-1", "line one\nline two",
                                 {"--content-type", "text/plain", "--headers", "{\"a\":1}"});
  CHECK(command({"destination", "add", db.path(), "cloud"}).code() == 0);
  const RunResult text = command({"show", db.path(), "1"});
  CHECK(text.code() == 0);
  CHECK(!drives_terminal(text.out));
  for (const char* part : {"boiler-1", "text/plain", "line one\nline two", "upstream", "cloud",
                           "PENDING", "{\"a\":1}"}) {
    CHECK_MESSAGE(text.out.find(part) != std::string::npos, part);
  }
  CHECK(text.out.find(id) != std::string::npos);
  CHECK(command({"show", db.path(), id}).code() == 0);
  const std::vector<Json> json = json_lines(command({"show", db.path(), id, "--json"}).out);
  REQUIRE(json.size() == 2);
  CHECK(json[0].at("destination") != json[1].at("destination"));
  CHECK(json[0].at("payload") == "line one\nline two");
}

TEST_CASE("show of what is not there is status 3") {
  const Database db;
  db.emit();
  for (const char* name : {"2", "0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e", "9223372036854775807"}) {
    const RunResult result = command({"show", db.path(), name});
    CHECK(result.code() == 3);
    CHECK(result.out.empty());
    CHECK(error_line_problem(result.err, "show") == "");
    CHECK(result.err.find(name) != std::string::npos);
  }
}

TEST_CASE("show of an id that was emitted twice shows the newest") {
  const Database db;
  const char* id = "0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e";
  db.emit("a/1", "first", {"--id", id});
  db.emit("a/1", "second", {"--id", id});
  const RunResult result = command({"show", db.path(), id, "--json"});
  CHECK(json_lines(result.out).at(0).at("payload") == "second");
  CHECK(json_lines(result.out).size() == 1);
}

TEST_CASE("stats counts what is there") {
  const Database db;
  for (int i = 0; i < 5; ++i) db.emit("sensor/" + std::to_string(i));
  db.set_acked(3);
  db.reject(2, "DEAD", 10, "bad");
  db.reject(3, "RETRY", 1, "busy");
  const Json stats = json_lines(command({"stats", db.path(), "--json"}).out).at(0);
  CHECK(stats.at("newest_seq") == 5);
  CHECK(stats.at("oldest_seq") == 1);
  CHECK(stats.at("schema_version") == holdfast::kSchemaVersion);
  CHECK(stats.at("db_bytes") > 0);
  CHECK(stats.at("wal_bytes") >= 0);
  const Json upstream = stats.at("destinations").at(0);
  CHECK(upstream.at("destination") == "upstream");
  CHECK(upstream.at("pending") == 2);
  CHECK(upstream.at("dead") == 1);
  CHECK(upstream.at("retry") == 1);
  CHECK(upstream.at("held") == 0);
  CHECK(upstream.at("oldest_pending_age_ms") >= 0);
  CHECK(upstream.at("leased") == false);
  const RunResult text = command({"stats", db.path()});
  CHECK(text.code() == 0);
  CHECK(text.out.find("upstream") != std::string::npos);
  CHECK(text.out.find("seq 1 to 5") != std::string::npos);
}

TEST_CASE("stats --prometheus is valid exposition format") {
  const Database db;
  CHECK(command({"destination", "add", db.path(), "cloud"}).code() == 0);
  db.emit();
  db.emit();
  db.set_acked(1);
  db.reject(1, "DEAD", 10, "bad");
  db.sql(
      "UPDATE holdfast_meta SET value='a \"quoted\\ name"
      "\n"
      "' WHERE key='device'");
  const RunResult result = command({"stats", db.path(), "--prometheus"});
  CHECK(result.code() == 0);
  std::map<std::string, std::string> types;
  std::map<std::string, double> samples = parse_prometheus(result.out, types);
  CHECK(samples.at("holdfast_backlog_events{destination=\"cloud\",lane=\"normal\"}") == 1);
  CHECK(samples.at("holdfast_dead_events{destination=\"upstream\"}") == 1);
  CHECK(samples.at("holdfast_newest_seq") == 2);
  CHECK(samples.at("holdfast_db_bytes") > 0);
  CHECK(samples.count("holdfast_handler_seconds_bucket{le=\"+Inf\"}") == 1);
  CHECK(samples.at("holdfast_handler_seconds_bucket{le=\"+Inf\"}") ==
        samples.at("holdfast_handler_seconds_count"));
  for (const char* name :
       {"holdfast_oldest_pending_age_seconds", "holdfast_sent_total", "holdfast_rejected_total",
        "holdfast_retries_total", "holdfast_gaps", "holdfast_inbox_duplicates_total",
        "holdfast_handler_seconds", "holdfast_handler_failures_total", "holdfast_wal_bytes",
        "holdfast_link_failures", "holdfast_forks_total"}) {
    CHECK_MESSAGE(types.count(name) == 1, name);
  }
}

TEST_CASE("stats --watch repeats until it is asked to stop") {
  const Database db;
  Process process = start_command({"stats", db.path(), "--json", "--watch=50ms"});
  CHECK(process.wait_for_stdout_lines(3, 10'000));
  db.emit();
  CHECK(process.wait_for_stdout("\"newest_seq\":1", 10'000) != "");
  process.kill(SIGINT);
  CHECK(process.wait(10'000).code == 0);
  CHECK(json_lines(process.stdout_text()).size() >= 3);
}

TEST_CASE("a reader that goes away ends ls quietly, as SIGPIPE does") {
  const Database db;
  db.sql(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<20000)"
      " INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
      " SELECT 't','a',i,'some payload' FROM n");
  for (const char* before : {"", "trap '' PIPE; "}) {
    const RunResult result =
        run({"bash", "-c",
             std::string(before) + "\"$0\" ls \"$1\" --limit 0 | head -n 1; echo ${PIPESTATUS[0]}",
             holdfast_program(), db.path()});
    CHECK(lines_of(result.out).size() == 2);
    CHECK(lines_of(result.out).back() == "141");
    CHECK(result.err.empty());
  }
}

TEST_CASE("a full disk behind stdout is an error, not success") {
  const Database db;
  db.emit();
  for (const char* name : {"ls", "stats", "doctor"}) {
    const RunResult result =
        run({"sh", "-c", "\"$0\" \"$1\" \"$2\" >/dev/full", holdfast_program(), name, db.path()});
    CHECK(result.code() == 1);
    CHECK(error_line_problem(result.err, name) == "");
  }
}

TEST_CASE(
    "ls that waits for its reader holds no read transaction: the WAL still shrinks (CASES 12)") {
  const Database db;
  db.sql(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<5000)"
      " INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
      " SELECT 't','a',i,hex(randomblob(100)) FROM n");
  SpawnOptions unread;
  unread.raw_stdout = true;
  Process slow = start_command({"ls", db.path(), "--limit", "0", "--json"}, unread);
  CHECK(slow.wait(500).running);  // its pipe is full
  // Far more than the checkpoint threshold of 500 frames, in many commits.
  std::string lines;
  for (int i = 0; i < 3000; ++i) {
    lines += R"({"event_type":"t","aggregate_type":"a","aggregate_id":"x","payload":")" +
             std::string(3000, 'x') + "\"}\n";
  }
  SpawnOptions input;
  input.stdin_text = lines;
  CHECK(command({"emit", db.path(), "--ndjson", "-", "--batch", "50"}, input).code() == 0);
  CHECK(slow.running());
  CHECK(file_bytes(db.path() + "-wal") < 8 * 1024 * 1024);
  slow.kill(SIGKILL);
}
