// relay and gateway as processes, over loopback: delivered once in effect, in order, whatever is
// stopped or killed on the way (G3, G4, G5, G6).
#include <doctest/doctest.h>
#include <signal.h>

#include <set>

#include "support/command_line.hpp"

using namespace holdfast::test;

namespace {

constexpr int kSoonMs = 20'000;

struct Gateway {
  Process process;
  std::string url;
};

Gateway start_gateway(const std::string& database, const std::string& listen,
                      const std::vector<std::string>& more = {}, SpawnOptions options = {}) {
  std::vector<std::string> arguments = {"gateway", database, "--listen", listen};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Gateway gateway;
  gateway.process = start_command(arguments, std::move(options));
  const std::string line = gateway.process.wait_for_stderr("listening on ", kSoonMs);
  if (line.empty()) throw std::runtime_error("gateway: " + gateway.process.stderr_text());
  gateway.url = line.substr(std::string("listening on ").size());
  return gateway;
}

RunResult drain(const Database& db, const std::string& url,
                const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"relay", db.path(), "--to", url, "--drain"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return command(arguments);
}

std::vector<std::string> payloads(const std::string& json_text) {
  std::vector<std::string> out;
  for (const Json& each : json_lines(json_text)) out.push_back(each.at("payload"));
  return out;
}

void emit_numbered(const Database& db, int first, int last) {
  std::string lines;
  for (int i = first; i <= last; ++i) {
    lines += R"({"event_type":"t","aggregate_type":"a","aggregate_id":"1","payload":")" +
             std::to_string(i) + "\"}\n";
  }
  SpawnOptions options;
  options.stdin_text = lines;
  REQUIRE(command({"emit", db.path(), "--ndjson", "-", "--batch", "100"}, options).code() == 0);
}

std::vector<std::string> numbers(int first, int last) {
  std::vector<std::string> out;
  for (int i = first; i <= last; ++i) out.push_back(std::to_string(i));
  return out;
}

}  // namespace

TEST_CASE("a drain delivers everything in order, and each event once") {
  const Database db;
  emit_numbered(db, 1, 500);
  Gateway gateway = start_gateway(db.file("gateway.db"), "tcp://127.0.0.1:0");
  const RunResult first = drain(db, gateway.url);
  CAPTURE(first.err);
  CHECK(first.code() == 0);
  CHECK(first.err.find("500 events delivered") != std::string::npos);
  CHECK(drain(db, gateway.url).code() == 0);
  const std::string listed =
      command({"ls", db.file("gateway.db"), "--limit", "0", "--status", "all", "--json"}).out;
  CHECK(payloads(listed) == numbers(1, 500));
  CHECK(json_lines(listed).at(0).at("source").get<std::string>().size() > 0);
  CHECK(lines_of(command({"inbox", "ls", db.file("gateway.db"), "--limit", "0", "--json"}).out)
            .size() == 500);
  const Json inbox =
      json_lines(command({"inbox", "stats", db.file("gateway.db"), "--json"}).out).at(0);
  CHECK(inbox.at("kind") == "inbox");
  CHECK(inbox.at("applied") == 500);
  CHECK(inbox.at("streams") == 1);
  const std::string id = db.text("SELECT event_id FROM outbox_event WHERE seq=1");
  CHECK(command({"inbox", "show", db.file("gateway.db"), id}).code() == 0);
  CHECK(command({"inbox", "show", db.file("gateway.db"), "0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e"})
            .code() == 3);
  CHECK(command({"ls", db.path(), "--json"}).out.empty());
  gateway.process.kill(SIGTERM);
  CHECK(gateway.process.wait(kSoonMs).code == 0);
}

TEST_CASE("a drain with an unreachable gateway is status 75, and counts no attempt (G6)") {
  const Database db;
  emit_numbered(db, 1, 3);
  const RunResult result =
      drain(db, "tcp://127.0.0.1:1", {"--drain-timeout", "1s", "--log-level", "error"});
  CHECK(result.code() == 75);
  CHECK(result.out.empty());
  CHECK(error_line_problem(result.err, "relay") == "");
  CHECK(result.err.find("3 events still pending") != std::string::npos);
  CHECK(db.number("SELECT count(*) FROM outbox_exception") == 0);
}

TEST_CASE("a drain that leaves rejected events lists them with status 4") {
  const Database db;
  emit_numbered(db, 1, 3);
  db.set_acked(2);
  db.reject(2, "DEAD", 10, "bad reading");
  Gateway gateway = start_gateway(db.file("gateway.db"), "tcp://127.0.0.1:0");
  const RunResult result = drain(db, gateway.url);
  CAPTURE(result.err);
  CHECK(result.code() == 4);
  CHECK(result.out.find("DEAD") != std::string::npos);
  CHECK(result.out.find("bad reading") != std::string::npos);
  CHECK(result.err.find("1 event remains") != std::string::npos);
}

TEST_CASE("a drain of nothing is done at once") {
  const Database db;
  Gateway gateway = start_gateway(db.file("gateway.db"), "tcp://127.0.0.1:0");
  CHECK(drain(db, gateway.url).code() == 0);
}

TEST_CASE("a relay delivers what other processes commit, and stops on SIGTERM and SIGINT") {
  const Database db;
  Gateway gateway = start_gateway(db.file("gateway.db"), "ipc://" + db.file("socket"), {"--print"});
  for (const int signal : {SIGTERM, SIGINT}) {
    Process relay = start_command({"relay", db.path(), "--to", gateway.url});
    CHECK(relay.wait_for_stderr("forwarding", kSoonMs) != "");
    const std::string id = db.emit();
    CHECK(gateway.process.wait_for_stdout(id, kSoonMs) != "");
    relay.kill(signal);
    CHECK(relay.wait(kSoonMs).code == 0);
  }
  const std::vector<Json> printed = json_lines(gateway.process.stdout_text());
  REQUIRE(printed.size() == 2);
  CHECK(printed[0].at("event_type") == "sensor.reading.v1");
  CHECK(printed[0].at("payload") == "{\"celsius\":71.5}");
  CHECK(!printed[0].contains("status"));
}

TEST_CASE(
    "--print goes on after a restart where it stopped; kill -9 repeats at most, never skips") {
  const Database db;
  std::set<std::string> seen;
  std::vector<std::string> order;
  std::string url = "tcp://127.0.0.1:0";
  const int kRounds = 4, kPerRound = 50;
  for (int round = 0; round < kRounds; ++round) {
    Gateway gateway = start_gateway(db.file("gateway.db"), url, {"--print"});
    url = gateway.url;
    emit_numbered(db, round * kPerRound + 1, (round + 1) * kPerRound);
    Process relay = start_command({"relay", db.path(), "--to", url});
    const bool last = round + 1 == kRounds;
    // In the middle of it, except in the last round.
    const std::string number = std::to_string(round * kPerRound + (last ? kPerRound : 5));
    CHECK(gateway.process.wait_for_stdout("\"payload\":\"" + number + "\"", kSoonMs) != "");
    gateway.process.kill(last ? SIGTERM : SIGKILL);
    relay.kill(last ? SIGTERM : SIGKILL);
    gateway.process.wait(kSoonMs);
    relay.wait(kSoonMs);
    std::string text = gateway.process.stdout_text();
    text.resize(text.rfind('\n') + 1);  // a line that was cut by the kill is printed again
    for (const std::string& payload : payloads(text)) {
      if (seen.insert(payload).second) order.push_back(payload);
    }
  }
  CHECK(order == numbers(1, kRounds * kPerRound));
}

TEST_CASE("a reader of --print that goes away stops the gateway with one line, and loses nothing") {
  const Database db;
  Gateway gateway = start_gateway(db.file("gateway.db"), "tcp://127.0.0.1:0",
                                  {"--print", "--log-level", "error"});
  emit_numbered(db, 1, 1);
  CHECK(drain(db, gateway.url).code() == 0);
  CHECK(gateway.process.wait_for_stdout_lines(1, kSoonMs));
  gateway.process.close_stdout();
  const ExitStatus status = gateway.process.wait(kSoonMs);
  CHECK(status.exited);
  CHECK(status.code == 1);
  const std::vector<std::string> lines = lines_of(gateway.process.stderr_text());
  CHECK(lines.back().find("holdfast: gateway: the reader of standard output is gone") == 0);

  Gateway again = start_gateway(db.file("gateway.db"), "tcp://127.0.0.1:0", {"--print"});
  emit_numbered(db, 2, 2);
  CHECK(drain(db, again.url).code() == 0);
  CHECK(again.process.wait_for_stdout("\"payload\":\"2\"", kSoonMs) != "");
}

TEST_CASE("a gateway whose output nobody reads still accepts, and stops when asked") {
  const Database db;
  SpawnOptions unread;
  unread.raw_stdout = true;
  Gateway gateway = start_gateway(db.file("gateway.db"), "tcp://127.0.0.1:0", {"--print"}, unread);
  emit_numbered(db, 1, 3000);  // far more than a pipe takes
  CHECK(drain(db, gateway.url).code() == 0);
  gateway.process.kill(SIGTERM);
  CHECK(gateway.process.wait(kSoonMs).code == 0);
}

TEST_CASE("the gateway's log is forwarded by a relay of its own: one mechanism, every hop") {
  const Database db;
  emit_numbered(db, 1, 20);
  Gateway first = start_gateway(db.file("first.db"), "tcp://127.0.0.1:0");
  Gateway second = start_gateway(db.file("second.db"), "tcp://127.0.0.1:0", {"--print"});
  CHECK(drain(db, first.url).code() == 0);
  CHECK(command({"relay", db.file("first.db"), "--to", second.url, "--drain"}).code() == 0);
  CHECK(second.process.wait_for_stdout_lines(20, kSoonMs));
  CHECK(payloads(second.process.stdout_text()) == numbers(1, 20));
}

TEST_CASE("logs are one line each, and JSON when asked") {
  const Database db;
  Process relay = start_command(
      {"relay", db.path(), "--to", "tcp://127.0.0.1:1", "--log-json", "--log-level", "debug"});
  CHECK(relay.wait_for_stderr("forwarding", kSoonMs) != "");
  db.emit();
  CHECK(relay.wait(1000).running);
  relay.kill(SIGTERM);
  CHECK(relay.wait(kSoonMs).code == 0);
  for (const Json& each : json_lines(relay.stderr_text())) {
    CHECK(each.at("component") == "relay");
    CHECK(each.at("level").is_string());
    CHECK(each.at("text").is_string());
    CHECK(each.at("time").is_number());
  }
}

TEST_CASE("a second relay on a destination stands by and takes over") {
  const Database db;
  Gateway gateway = start_gateway(db.file("gateway.db"), "tcp://127.0.0.1:0", {"--print"});
  const std::vector<std::string> arguments = {"relay", db.path(), "--to", gateway.url};
  Process first = start_command(arguments);
  db.emit("a/1", "one");
  CHECK(gateway.process.wait_for_stdout("\"payload\":\"one\"", kSoonMs) != "");
  Process second = start_command(arguments);
  CHECK(second.wait_for_stderr("forwarding", kSoonMs) != "");
  first.kill(SIGKILL);
  first.wait(kSoonMs);
  db.emit("a/1", "two");
  CHECK(gateway.process.wait_for_stdout("\"payload\":\"two\"", kSoonMs) != "");
  second.kill(SIGTERM);
  CHECK(second.wait(kSoonMs).code == 0);
  CHECK(payloads(gateway.process.stdout_text()) == std::vector<std::string>{"one", "two"});
}

TEST_CASE("a drain shows its progress on a terminal, and none elsewhere") {
  const Database db;
  emit_numbered(db, 1, 2000);
  Gateway gateway = start_gateway(db.file("gateway.db"), "tcp://127.0.0.1:0");
  SpawnOptions terminal;
  terminal.terminal = true;
  const RunResult shown = command({"relay", db.path(), "--to", gateway.url, "--drain"}, terminal);
  CHECK(shown.code() == 0);
  CHECK(shown.out.find("remaining") != std::string::npos);
  emit_numbered(db, 2001, 2010);
  CHECK(drain(db, gateway.url).err.find("remaining") == std::string::npos);
}
