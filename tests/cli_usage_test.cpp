// How commands are called: help, wrong usage, the database argument, durations. lib/docs and
// `holdfast --help` state the contract; scripts depend on it.
#include <doctest/doctest.h>

#include "support/command_line.hpp"

using namespace holdfast::test;

namespace {

constexpr const char* kId = "0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e";

const std::vector<std::vector<std::string>> kCommands = {{"init"},
                                                         {"emit"},
                                                         {"ls"},
                                                         {"show"},
                                                         {"resolve"},
                                                         {"stats"},
                                                         {"retry"},
                                                         {"discard"},
                                                         {"purge"},
                                                         {"relay"},
                                                         {"gateway"},
                                                         {"inbox"},
                                                         {"inbox", "ls"},
                                                         {"inbox", "show"},
                                                         {"inbox", "stats"},
                                                         {"doctor"},
                                                         {"destination"},
                                                         {"destination", "ls"},
                                                         {"destination", "add"},
                                                         {"destination", "rm"},
                                                         {"backup"},
                                                         {"capture"},
                                                         {"version"}};

std::string name_of(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

}  // namespace

TEST_CASE("holdfast --help lists every command in a group") {
  const RunResult result = command({"--help"});
  CHECK(result.code() == 0);
  CHECK(result.err.empty());
  for (const auto& words : kCommands) {
    CHECK_MESSAGE(result.out.find("\n  " + words.front() + " ") != std::string::npos,
                  words.front());
  }
  for (const char* group : {"Set up and write:", "Look:", "Move events:", "Act and maintain:"}) {
    CHECK_MESSAGE(result.out.find(group) != std::string::npos, group);
  }
}

TEST_CASE("every command has a --help on stdout with description, usage and exit statuses") {
  for (const auto& words : kCommands) {
    CAPTURE(name_of(words));
    std::vector<std::string> arguments = words;
    arguments.emplace_back("--help");
    const RunResult result = command(arguments);
    CHECK(result.code() == 0);
    CHECK(result.err.empty());
    CHECK(result.out.find("Usage: holdfast " + name_of(words)) != std::string::npos);
    CHECK(result.out.find("Exit status: 0") != std::string::npos);
    CHECK(lines_of(result.out).front().size() > 20);
    for (const std::string& line : lines_of(result.out)) CHECK_MESSAGE(line.size() <= 110, line);
    const bool group = words.size() == 1 && (words[0] == "inbox" || words[0] == "destination");
    if (!group) CHECK(result.out.find("\n  holdfast " + name_of(words)) != std::string::npos);
  }
}

TEST_CASE("wrong usage is status 2 and one line that points to the right help") {
  struct Case {
    std::vector<std::string> arguments;
    const char* name;
    const char* says;
  };
  const std::vector<Case> cases = {
      {{"ls", "x.db", "--nonsense"}, "ls", "--nonsense"},
      {{"ls", "x.db", "more"}, "ls", "more"},
      {{"ls", "x.db", "--status", "lost"}, "ls", "there is no state \"lost\""},
      {{"ls", "x.db", "--limit", "many"}, "ls", "--limit"},
      {{"ls", "x.db", "--limit", "-1"}, "ls", "--limit"},
      {{"emit", "x.db"}, "emit", "--type"},
      {{"emit", "x.db", "--type", "t"}, "emit", "--aggregate"},
      {{"emit", "x.db", "--type", "t", "--aggregate", "noslash"}, "emit", "TYPE/ID"},
      {{"emit", "x.db", "--type", "t", "--aggregate", "a/1", "--id", "7"}, "emit", "not a UUID"},
      {{"emit", "x.db", "--type", "t", "--aggregate", "a/1", "--lane", "9"}, "emit", "urgent"},
      {{"emit", "x.db", "--ndjson", "-", "--type", "t"}, "emit", "excludes"},
      {{"emit", "x.db", "--type", "t", "--aggregate", "a/1", "--batch", "5"}, "emit", "--ndjson"},
      {{"emit", "x.db", "--ndjson", "-", "--batch", "0"}, "emit", "--batch"},
      {{"show", "x.db"}, "show", "ID|SEQ"},
      {{"show", "x.db", "banana"}, "show", "neither a UUID nor a seq"},
      {{"show", "x.db", "0"}, "show", "neither a UUID nor a seq"},
      {{"show", "x.db", "1", "2"}, "show", "2"},
      {{"resolve", "x.db"}, "resolve", "ID"},
      {{"resolve", "x.db", "1"}, "resolve", "not a UUID"},
      {{"resolve", "x.db", kId, "--seq", "0"}, "resolve", "--seq"},
      {{"retry", "x.db"}, "retry", "--all-dead"},
      {{"retry", "x.db", "1", "--all-dead"}, "retry", "--all-dead"},
      {{"discard", "x.db", "1"}, "discard", "--reason"},
      {{"discard", "x.db", "1", "--reason", ""}, "discard", "--reason"},
      {{"purge", "x.db", "--older-than", "7"}, "purge", "is not a duration"},
      {{"purge", "x.db", "--older-than", "-7d"}, "purge", "is not a duration"},
      {{"relay", "x.db"}, "relay", "--to"},
      {{"relay", "x.db", "--to", "tcp://localhost:1", "--dead-after", "0"},
       "relay",
       "--dead-after"},
      {{"relay", "x.db", "--to", "tcp://localhost:1", "--log-level", "loud"},
       "relay",
       "--log-level"},
      {{"gateway", "x.db"}, "gateway", "--listen"},
      {{"stats", "x.db", "--json", "--prometheus"}, "stats", "--prometheus"},
      {{"stats", "x.db", "--watch=fast"}, "stats", "--watch"},
      {{"backup", "x.db"}, "backup", "NEW"},
      {{"capture", "x.db"}, "capture", "--table"},
      {{"capture", "x.db", "--table", "t", "--on", "insert"}, "capture", "--type"},
      {{"capture", "x.db", "--table", "t", "--remove", "--on", "insert"}, "capture", "--remove"},
      {{"inbox"}, "inbox", "ls, show, stats"},
      {{"inbox", "ls", "x.db", "--status", "odd"}, "inbox ls", "--status"},
      {{"inbox", "show", "x.db", "7"}, "inbox show", "not a UUID"},
      {{"destination", "add", "x.db"}, "destination add", "NAME"},
  };
  for (const Case& each : cases) {
    CAPTURE(name_of(each.arguments));
    const RunResult result = command(each.arguments);
    CHECK(result.code() == 2);
    CHECK(result.out.empty());
    CHECK(error_line_problem(result.err, each.name) == "");
    CHECK_MESSAGE(result.err.find(each.says) != std::string::npos, result.err);
  }
}

TEST_CASE("a command that does not exist is named, and controls in it are escaped") {
  const RunResult missing = command({});
  CHECK(missing.code() == 2);
  CHECK(missing.err == "holdfast: a command is missing; see `holdfast --help`\n");
  const RunResult option = command({"--frobnicate"});
  CHECK(option.code() == 2);
  CHECK(option.err ==
        "holdfast: there is no option --frobnicate before a command; see `holdfast --help`\n");
  const RunResult version = command({"--version"});
  CHECK(version.code() == 0);
  CHECK(version.out == "holdfast " HOLDFAST_VERSION_STRING "\n");
  const RunResult odd = command({"fro\x1b[31mbnicate\n"});
  CHECK(odd.code() == 2);
  CHECK(odd.err ==
        "holdfast: there is no command \"fro\\x1b[31mbnicate\\n\"; see `holdfast "
        "--help`\n");
  CHECK(command({""}).code() == 2);
}

TEST_CASE("HOLDFAST_DB is the database where none is given") {
  const Database db;
  db.emit();
  SpawnOptions options;
  options.env["HOLDFAST_DB"] = db.path();
  CHECK(command({"ls", "--json"}, options).out == command({"ls", db.path(), "--json"}).out);
  CHECK(lines_of(command({"ls"}, options).out).size() == 2);
  CHECK(command({"show", "1", "--json"}, options).out ==
        command({"show", db.path(), "1", "--json"}).out);
  CHECK(json_lines(command({"show", db.path(), "1", "--json"}).out).at(0).at("seq") == 1);
  CHECK(command({"emit", "--type", "t", "--aggregate", "a/1"}, options).code() == 0);
  CHECK(command({"destination", "add", "cloud"}, options).out == "added cloud\n");
  // retry takes several ids: all of them are ids here, and the database when it is named.
  CHECK(command({"retry", "1", "2"}, options).err.find(db.path()) != std::string::npos);
  CHECK(command({"retry", db.path(), "1", "2"}, options).err ==
        command({"retry", "1", "2"}, options).err);
  const RunResult copied = command({"backup", db.file("copy.db")}, options);
  CHECK(copied.code() == 0);
  CHECK(command({"ls", db.file("copy.db")}).code() == 0);
}

TEST_CASE("a database may have the name of a command or option-like characters in it") {
  const Database db(Database::NoInit{});
  SpawnOptions there;
  there.directory = db.path().substr(0, db.path().rfind('/'));
  for (const char* name : {"ls", "show", "[a,b]", "with space", "per%cent?x=1#y"}) {
    CAPTURE(name);
    CHECK(command({"init", name}, there).code() == 0);
    CHECK(command({"emit", name, "--type", "t", "--aggregate", "a/1"}, there).code() == 0);
    CHECK(lines_of(command({"ls", name, "--json"}, there).out).size() == 1);
    CHECK(command({"show", name, "1", "--json"}, there).code() == 0);
    CHECK(!read_file(there.directory + "/" + name).empty());
  }
  CHECK(command({"init", "--", "-dash.db"}, there).code() == 0);
  CHECK(!read_file(there.directory + "/-dash.db").empty());
}

TEST_CASE("durations are read with their unit") {
  const Database db;
  for (const char* good : {"250ms", "10s", "1.5h", "5min", "5m", "7d", "2w", "0", "0s", "never"}) {
    CHECK_MESSAGE(command({"purge", db.path(), "--older-than", good}).code() == 0, good);
  }
  for (const char* bad : {"", "7", "d", "7 d", "7days", "-1s", "1e3s", "1..5s", ".5s", "1.s", "inf",
                          "99999999999999999d", "1000000w", "7d "}) {
    const RunResult result = command({"purge", db.path(), "--older-than", bad});
    CHECK_MESSAGE(result.code() == 2, bad);
    CHECK_MESSAGE(error_line_problem(result.err, "purge") == "", result.err);
  }
}

TEST_CASE("version names everything linked in") {
  const RunResult text = command({"version"});
  CHECK(text.code() == 0);
  for (const char* name : {"holdfast", "SQLite", "NNG"}) {
    CHECK(text.out.find(name) != std::string::npos);
  }
  const Json json = json_lines(command({"version", "--json"}).out).at(0);
  CHECK(json.at("holdfast") == "0.1.0");
  CHECK(json.at("sqlite").get<std::string>().substr(0, 2) == "3.");
  CHECK(json.at("nng").get<std::string>().find('.') != std::string::npos);
}

TEST_CASE("closed standard streams are an error, never a file that gets what we print") {
  const Database db;
  db.emit();
  const std::string program = holdfast_program();
  const RunResult result = run({"sh", "-c", "\"$0\" ls \"$1\" >&-", program, db.path()});
  CHECK(result.code() == 1);
  CHECK(error_line_problem(result.err, "ls") == "");
  CHECK(run({"sh", "-c", "\"$0\" ls \"$1\" <&- 2>&-", program, db.path()}).code() == 0);
  CHECK(run({"sh", "-c", "\"$0\" emit \"$1\" --type t --aggregate a/1 <&- >&- 2>&-", program,
             db.path()})
            .code() == 1);  // written, but its id could not be printed
  CHECK(db.text("PRAGMA integrity_check") == "ok");
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 2);
}
