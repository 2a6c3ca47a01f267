// holdfast emit: what is printed is durable, what is refused is not there (G1, G2, CASES 24).
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cmath>

#include "support/command_line.hpp"

using namespace holdfast::test;

namespace {

constexpr const char* kTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr const char* kId = "0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e";

Json only_event(const Database& db) {
  const std::vector<Json> events = json_lines(command({"ls", db.path(), "--json"}).out);
  REQUIRE(events.size() == 1);
  return events.front();
}

RunResult emit_lines(const Database& db, const std::string& lines,
                     const std::vector<std::string>& more = {}) {
  SpawnOptions options;
  options.stdin_text = lines;
  std::vector<std::string> arguments = {"emit", db.path(), "--ndjson", "-"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return command(arguments, options);
}

std::string line(const std::string& aggregate_id, const std::string& more = "") {
  return R"({"event_type":"t","aggregate_type":"a","aggregate_id":")" + aggregate_id + "\"" + more +
         "}\n";
}

}  // namespace

TEST_CASE("emit prints the id of an event that is there") {
  const Database db;
  const std::string id = db.emit();
  CHECK(id.size() == 36);
  CHECK(id[14] == '7');
  const Json event = only_event(db);
  CHECK(event.at("seq") == 1);
  CHECK(event.at("event_id") == id);
  CHECK(event.at("event_type") == "sensor.reading.v1");
  CHECK(event.at("aggregate_type") == "sensor");
  CHECK(event.at("aggregate_id") == "boiler-1");
  CHECK(event.at("payload") == "{\"celsius\":71.5}");
  CHECK(event.at("lane") == 0);
  CHECK(event.at("destination") == "upstream");
  CHECK(event.at("status") == "PENDING");
  CHECK(event.at("attempts") == 0);
  CHECK(event.at("created_at").get<std::int64_t>() > 1'704'067'200'000);
  for (const char* unset : {"aggregate_version", "content_type", "trace", "headers", "source",
                            "payload_base64", "next_attempt_ms", "last_error"}) {
    CHECK_MESSAGE(!event.contains(unset), unset);
  }
}

TEST_CASE("emit takes every field") {
  const Database db;
  const RunResult result = command({"emit",
                                    db.path(),
                                    "--type",
                                    "alarm.v1",
                                    "--aggregate",
                                    "tank/a/b",
                                    "--payload",
                                    "hot",
                                    "--id",
                                    kId,
                                    "--content-type",
                                    "text/plain",
                                    "--trace",
                                    kTrace,
                                    "--headers",
                                    R"({"k": [1, 2.50]})",
                                    "--aggregate-version",
                                    "-3",
                                    "--lane",
                                    "urgent",
                                    "--created-at",
                                    "1700000000123",
                                    "--json"});
  REQUIRE(result.code() == 0);
  const Json printed = json_lines(result.out).at(0);
  CHECK(printed.at("seq") == 1);
  CHECK(printed.at("event_id") == kId);
  const Json event = only_event(db);
  CHECK(event.at("event_id") == kId);
  CHECK(event.at("aggregate_type") == "tank");
  CHECK(event.at("aggregate_id") == "a/b");
  CHECK(event.at("content_type") == "text/plain");
  CHECK(event.at("trace") == kTrace);
  CHECK(event.at("headers").at("k") == Json::array({1, 2.5}));
  CHECK(event.at("aggregate_version") == -3);
  CHECK(event.at("lane") == 1);
  CHECK(event.at("created_at") == 1700000000123);
}

TEST_CASE("emit takes a payload as it is: text, file, stdin, empty, odd") {
  const std::string binary("\x00\xff\x80 bin\n", 8);
  struct Case {
    std::vector<std::string> arguments;
    std::string stdin_text;
    std::string expected;
  };
  const Database files(Database::NoInit{});
  write_file(files.file("payload"), binary);
  const std::vector<Case> cases = {
      {{"--payload", "-"}, "from stdin\n", "from stdin\n"},
      {{"--payload", "-"}, "", ""},
      {{"--payload", "@" + files.file("payload")}, "", binary},
      {{"--payload", ""}, "", ""},
      {{"--payload="}, "", ""},
      {{"--payload=--type"}, "", "--type"},
      {{"--payload", "--type"}, "", "--type"},
      {{"--payload", "[1,2]"}, "", "[1,2]"},
      {{"--payload", "a b\tc\n"}, "", "a b\tc\n"},
      {{}, "", ""},
  };
  for (const Case& each : cases) {
    const Database db;
    SpawnOptions options;
    options.stdin_text = each.stdin_text;
    std::vector<std::string> arguments = {"emit", db.path(), "--type", "t", "--aggregate", "a/1"};
    arguments.insert(arguments.end(), each.arguments.begin(), each.arguments.end());
    const RunResult result = command(arguments, options);
    CAPTURE(each.expected);
    CAPTURE(result.err);
    CHECK(result.code() == 0);
    CHECK(command({"show", db.path(), "1", "--payload"}).out == each.expected);
  }
}

TEST_CASE("a bad event is refused by name, with status 2, and nothing is written") {
  const Database db;
  const std::string long_text(200, 'x');
  struct Case {
    std::vector<std::string> arguments;
    const char* says;
  };
  const std::vector<Case> cases = {
      {{"--type", long_text, "--aggregate", "a/1"}, "event_type"},
      {{"--type", "bad\xff", "--aggregate", "a/1"}, "event_type"},
      {{"--type", "t", "--aggregate", long_text + "/1"}, "aggregate_type"},
      {{"--type", "t", "--aggregate", "a/" + long_text + long_text}, "aggregate_id"},
      {{"--type", "t", "--aggregate", "a/1", "--headers", "[1]"}, "headers"},
      {{"--type", "t", "--aggregate", "a/1", "--headers", "{"}, "headers"},
      {{"--type", "t", "--aggregate", "a/1", "--content-type", long_text}, "content_type"},
      {{"--type", "t", "--aggregate", "a/1", "--trace", long_text}, "trace"},
      {{"--type", "t", "--aggregate", "a/1", "--payload", "@" + db.path()}, "database itself"},
      {{"--type", "t", "--aggregate", "a/1", "--payload", "@/dev/zero"}, "larger than"},
  };
  for (const Case& each : cases) {
    std::vector<std::string> arguments = {"emit", db.path()};
    arguments.insert(arguments.end(), each.arguments.begin(), each.arguments.end());
    const RunResult result = command(arguments);
    CAPTURE(each.says);
    CHECK(result.code() == 2);
    CHECK(result.out.empty());
    CHECK(error_line_problem(result.err, "emit") == "");
    CHECK_MESSAGE(result.err.find(each.says) != std::string::npos, result.err);
  }
  const RunResult missing = command({"emit", db.path(), "--type", "t", "--aggregate", "a/1",
                                     "--payload", "@" + db.file("nothing")});
  CHECK(missing.code() == 3);
  CHECK(error_line_problem(missing.err, "emit") == "");
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 0);
}

TEST_CASE("emit on a locked database waits, then says so with status 75, and nothing is written") {
  const Database db;
  RunResult result;
  {
    const WriteLock lock(db.path());
    result = command({"emit", db.path(), "--type", "t", "--aggregate", "a/1"});
  }
  CHECK(result.code() == 75);
  CHECK(result.out.empty());
  CHECK(error_line_problem(result.err, "emit") == "");
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 0);
  CHECK(!db.emit().empty());
}

TEST_CASE("emit waits for a writer that is soon done") {
  const Database db;
  Process process;
  {
    const WriteLock lock(db.path());
    process = start_command({"emit", db.path(), "--type", "t", "--aggregate", "a/1"});
    CHECK(process.wait(500).running);
  }
  CHECK(process.wait(10'000).code == 0);
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 1);
}

TEST_CASE("NDJSON: each line is an event, in order, with its fields") {
  const Database db;
  const RunResult result = emit_lines(
      db, line("1", R"(,"payload":"text \u00e9\n")") + "\n  \n" +
              line("2", R"(,"payload":{"b":1.50,"a":[12345678901234567890123, "\u0041"]})") +
              line("3", R"(,"payload_base64":"AP+A","lane":"urgent","headers":{"x":1})") +
              line("4", R"(,"aggregate_version":7,"created_at":5,"event_id":")" + std::string(kId) +
                            "\"") +
              R"({"event_type":"t","aggregate_type":"a","aggregate_id":"5"})");
  CAPTURE(result.err);
  REQUIRE(result.code() == 0);
  const std::vector<Json> events = json_lines(command({"ls", db.path(), "--json"}).out);
  REQUIRE(events.size() == 5);
  const std::vector<std::string> ids = lines_of(result.out);
  REQUIRE(ids.size() == 5);
  for (std::size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i].at("event_id") == ids[i]);
    CHECK(events[i].at("aggregate_id") == std::to_string(i + 1));
  }
  CHECK(events[0].at("payload") == "text \u00e9\n");
  // Byte for byte: no number was read and written again.
  CHECK(events[1].at("payload") == R"({"b":1.50,"a":[12345678901234567890123, "\u0041"]})");
  CHECK(events[1].at("content_type") == "application/json");
  CHECK(events[2].at("payload_base64") == "AP+A");
  CHECK(events[2].at("lane") == 1);
  CHECK(events[2].at("headers") == Json{{"x", 1}});
  CHECK(events[3].at("aggregate_version") == 7);
  CHECK(events[3].at("created_at") == 5);
  CHECK(ids[3] == kId);
  CHECK(events[4].at("payload") == "");
}

TEST_CASE("NDJSON: what ls --json prints can be emitted into another database") {
  const Database from;
  from.emit("sensor/1", "one", {"--trace", kTrace, "--headers", "{\"a\":{\"b\":[]}}"});
  from.emit("sensor/2", std::string("\xc3\xa9\x1b[31m"), {"--lane", "urgent"});
  from.sql(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
      " VALUES('t','a','1',x'00ff')");
  const std::string printed = command({"ls", from.path(), "--json"}).out;
  const Database to;
  const RunResult result = emit_lines(to, printed);
  CAPTURE(result.err);
  CHECK(result.code() == 0);
  CHECK(command({"ls", to.path(), "--json"}).out == printed);
}

TEST_CASE("NDJSON: a bad line is named, its batch is not written, the batches before it stand") {
  struct Case {
    std::string bad;
    const char* says;
  };
  const std::vector<Case> cases = {
      {"not json\n", "not valid JSON"},
      {"[1]\n", "not a JSON object"},
      {"{}\n", "event_type is missing"},
      {"{\"event_type\":\"t\",\"aggregate_type\":\"a\"}\n", "aggregate_id is missing"},
      {line("9", R"(,"paylod":"x")"), "unknown field \"paylod\""},
      {line("9", R"(,"payload":"x","payload":"y")"), "twice"},
      {line("9", R"(,"payload":"x","payload_base64":"eA==")"), "both"},
      {line("9", R"(,"payload":7)"), "payload must be"},
      {line("9", R"(,"payload":null)"), "payload must be"},
      {line("9", R"(,"payload_base64":"A")"), "base64"},
      {line("9", R"(,"payload_base64":"A===")"), "base64"},
      {line("9", R"(,"event_id":"7")"), "UUID"},
      {line("9", R"(,"lane":2)"), "lane"},
      {line("9", R"(,"headers":[1])"), "headers"},
      {line("9", R"(,"created_at":"now")"), "created_at"},
      {line("9", R"(,"aggregate_version":1.5)"), "aggregate_version"},
      {line("9", R"(,"aggregate_version":99999999999999999999)"), "aggregate_version"},
      {line(std::string(300, 'x')), "aggregate_id"},
      {line(""), "aggregate_id"},
      {line("9", ",\"trace\":\"\xff\""), "UTF-8"},
      {line("9", ",\"payload\":" + std::string(100, '[') + std::string(100, ']')), "deep"},
      {line("9", R"(,"lane\n\u001b[31m":1)"), "unknown field \"lane\\n\\x1b[31m\""},
  };
  for (const Case& each : cases) {
    CAPTURE(each.bad);
    const Database db;
    const RunResult result = emit_lines(
        db, line("1") + line("2") + line("3") + line("4") + line("5") + each.bad + line("7"),
        {"--batch", "4"});
    CHECK(result.code() == 2);
    CHECK(error_line_problem(result.err, "emit") == "");
    CHECK_MESSAGE(result.err.find("line 6: ") != std::string::npos, result.err);
    CHECK_MESSAGE(result.err.find(each.says) != std::string::npos, result.err);
    CHECK_MESSAGE(result.err.find("4 events before are") != std::string::npos, result.err);
    CHECK(lines_of(result.out).size() == 4);
    CHECK(db.number("SELECT count(*) FROM outbox_event") == 4);
  }
}

TEST_CASE("NDJSON: ids are printed as soon as their batch is committed") {
  const Database db;
  SpawnOptions options;
  options.keep_stdin_open = true;
  Process process = start_command({"emit", db.path(), "--ndjson", "-", "--batch", "2"}, options);
  process.write(line("1") + line("2") + line("3"));
  CHECK(process.wait_for_stdout_lines(2, 10'000));
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 2);
  process.write(line("4"));
  CHECK(process.wait_for_stdout_lines(4, 10'000));
  process.write(line("5"));
  process.close_stdin();
  CHECK(process.wait(10'000).code == 0);
  CHECK(lines_of(process.stdout_text()).size() == 5);
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 5);
}

TEST_CASE("NDJSON: a line without end is refused in bounded memory (G8)") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const std::string limit;  // sanitizers reserve far more than they use
#else
  const std::string limit = "ulimit -v 200000; ";
#endif
  const Database db;
  const RunResult result =
      run({"bash", "-c",
           limit + "head -c 100000000 /dev/zero | tr '\\0' ' ' | \"$0\" emit \"$1\" --ndjson -",
           holdfast_program(), db.path()});
  CHECK(result.code() == 2);
  CHECK(error_line_problem(result.err, "emit") == "");
  CHECK(result.err.find("line 1: longer than") != std::string::npos);
}

TEST_CASE("NDJSON: files, byte order marks and line ends of other systems") {
  const Database db;
  write_file(db.file("in.ndjson"), "\xef\xbb\xbf" + line("1") + "\r\n" +
                                       line("2").substr(0, line("2").size() - 1) + "\r\n");
  CHECK(lines_of(command({"emit", db.path(), "--ndjson", db.file("in.ndjson")}).out).size() == 2);
  const RunResult missing = command({"emit", db.path(), "--ndjson", db.file("none")});
  CHECK(missing.code() == 3);
  CHECK(error_line_problem(missing.err, "emit") == "");
  const RunResult itself = command({"emit", db.path(), "--ndjson", db.path()});
  CHECK(itself.code() == 2);
  CHECK(error_line_problem(itself.err, "emit") == "");
  const RunResult folder = command({"emit", db.path(), "--ndjson", "/"});
  CHECK(folder.code() == 1);
  CHECK(error_line_problem(folder.err, "emit") == "");
  CHECK(emit_lines(db, "").code() == 0);
}

TEST_CASE("NDJSON: a big batch is one transaction") {
  const Database db;
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += line(std::to_string(i));
  const RunResult result = emit_lines(db, lines, {"--batch", "5000"});
  CHECK(result.code() == 0);
  CHECK(lines_of(result.out).size() == 5000);
  CHECK(db.number("SELECT max(seq) FROM outbox_event") == 5000);
}

TEST_CASE("an id that could not be printed is an error, and its event is there") {
  const Database db;
  const RunResult result =
      run({"sh", "-c", "\"$0\" emit \"$1\" --type t --aggregate a/1 > /dev/full",
           holdfast_program(), db.path()});
  CHECK(result.code() == 1);
  CHECK(error_line_problem(result.err, "emit") == "");
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 1);
}

TEST_CASE("resolve tells whether an event is there, by id alone and with its seq (G2)") {
  const Database db;
  const std::string id = db.emit(), other = kId;
  const std::vector<std::vector<std::string>> there = {{id}, {id, "--seq", "1"}};
  for (std::vector<std::string> each : there) {
    each.insert(each.begin(), {"resolve", db.path()});
    const RunResult result = command(each);
    CHECK(result.code() == 0);
    CHECK(result.out == "committed\n");
  }
  const std::vector<std::vector<std::string>> absent = {
      {other}, {other, "--seq", "1"}, {id, "--seq", "2"}};
  for (std::vector<std::string> each : absent) {
    each.insert(each.begin(), {"resolve", db.path()});
    const RunResult result = command(each);
    CHECK(result.code() == 3);
    CHECK(result.out == "absent\n");
    CHECK(error_line_problem(result.err, "resolve") == "");
  }
  const Json line = json_lines(command({"resolve", db.path(), id, "--json"}).out).at(0);
  CHECK(line.at("fate") == "committed");
  CHECK(line.at("event_id") == id);
  CHECK(line.at("seq") == 1);
}

TEST_CASE(
    "an I/O error at COMMIT: emit prints no id on stdout, and says what became of the event") {
  const Database db;
  const std::string id = kId;
  // The kernel refuses writes beyond 48 KiB of a file: the WAL's at COMMIT.
  write_file(db.file("payload"), std::string(100'000, 'x'));
  const RunResult result = run({"bash", "-c", "trap '' XFSZ; ulimit -f 48; exec \"$@\"", "bash",
                                HOLDFAST_BIN, "emit", db.path(), "--type", "t", "--aggregate",
                                "a/1", "--id", id, "--payload", "@" + db.file("payload")});
  CHECK(result.code() == 1);
  CHECK(result.out.empty());
  CHECK_MESSAGE(result.err.find("COMMIT met an I/O error") != std::string::npos, result.err);
  CHECK_MESSAGE(result.err.find("nothing was written") != std::string::npos, result.err);
  CHECK(command({"resolve", db.path(), id}).out == "absent\n");
}
