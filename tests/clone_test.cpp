// Copies, restores and replacements of databases, with the built program (G11): nothing is
// swallowed, every event is applied once by its id, and both sides say what they saw.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>

#include "support/command_line.hpp"

using namespace holdfast::test;
namespace fs = std::filesystem;

namespace {

constexpr int kSoonMs = 20'000;

// One device and one gateway, whose files a case copies and replaces while nothing has them open.
struct Site {
  TemporaryDirectory directory;
  std::string device = directory.file("device.db"), gateway = directory.file("gateway.db");
  Process server;
  std::string url;

  Site() {
    init();
    serve();
  }
  void init() const { REQUIRE(command({"init", device, "--device", "boiler"}).code() == 0); }
  void serve() {
    server = start_command({"gateway", gateway, "--listen", "tcp://127.0.0.1:0"});
    const std::string mark = "listening on ";
    const std::string line = server.wait_for_stderr(mark, kSoonMs);
    REQUIRE(line != "");
    url = line.substr(mark.size());
  }
  void stop() {
    server.kill(SIGTERM);
    REQUIRE(server.wait(kSoonMs).code == 0);
  }
  static void erase(const std::string& db) {
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(db + end);
  }
  static void replace(const std::string& by, const std::string& db) {
    erase(db);
    fs::rename(by, db);
  }
  static void emit(const std::string& db, const std::string& payload) {
    REQUIRE(
        command({"emit", db, "--type", "t", "--aggregate", "a/1", "--payload", payload}).code() ==
        0);
  }
  // What the relay said.
  std::string drain(const std::string& db) const {
    const RunResult result = command({"relay", db, "--to", url, "--drain"});
    CHECK_MESSAGE(result.code() == 0, result.err);
    return result.err;
  }
  std::string applied() const {
    std::string all;
    for (const Json& each :
         json_lines(command({"ls", gateway, "--status", "all", "--limit", "0", "--json"}).out))
      all += each.at("payload").get<std::string>();
    return all;
  }
  static Json stats(const std::string& db) {
    return json_lines(command({"stats", db, "--json"}).out).at(0);
  }
  Json inbox() const {
    return json_lines(command({"inbox", "stats", gateway, "--json"}).out).at(0);
  }
  bool gateway_tells() { return server.wait_for_stderr("boiler begins stream ", kSoonMs) != ""; }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a copied database and its original take turns: all arrives, both sides tell (G11)") {
  Site site;
  const std::string copy = site.directory.file("copy.db");
  Site::emit(site.device, "a");
  Site::emit(site.device, "b");
  site.drain(site.device);
  fs::copy_file(site.device, copy);
  Site::emit(site.device, "L");
  Site::emit(copy, "C");
  CHECK_FALSE(contains(site.drain(site.device), "taking a new stream"));
  CHECK(site.inbox().at("streams") == 1);
  CHECK(site.inbox().at("replaced_streams") == 0);
  CHECK(contains(site.drain(copy), "taking a new stream"));
  CHECK(site.gateway_tells());
  Site::emit(copy, "D");
  Site::emit(site.device, "M");
  site.drain(copy);
  site.drain(site.device);
  CHECK(site.applied() == "abLCDM");
  CHECK(site.inbox().at("streams") == 2);
  CHECK(site.inbox().at("replaced_streams") == 1);
  CHECK(Site::stats(copy).at("forks") == 1);
  CHECK(Site::stats(site.device).at("forks") == 0);
  CHECK(Site::stats(copy).at("stream") != Site::stats(site.device).at("stream"));
}

TEST_CASE("control: a copy that sends the same events again is counted, and nothing is applied") {
  Site site;
  const std::string copy = site.directory.file("copy.db");
  Site::emit(site.device, "a");
  Site::emit(site.device, "b");
  fs::copy_file(site.device, copy);
  site.drain(site.device);
  site.drain(copy);
  CHECK(site.applied() == "ab");
  CHECK(Site::stats(copy).at("destinations").at(0).at("duplicates") == 2);
  CHECK(site.inbox().at("duplicates") == 2);
  CHECK(Site::stats(copy).at("forks") == 0);
}

TEST_CASE("an old copy restored over the live database loses no new event (G11)") {
  for (const int emitted_since : {1, 2, 5}) {  // below, at and beyond the gateway's mark
    CAPTURE(emitted_since);
    Site site;
    const std::string old = site.directory.file("old.db");
    Site::emit(site.device, "a");
    site.drain(site.device);
    fs::copy_file(site.device, old);
    Site::emit(site.device, "b");
    Site::emit(site.device, "c");
    site.drain(site.device);
    Site::replace(old, site.device);
    for (int i = 0; i < emitted_since; ++i) Site::emit(site.device, "N");
    CHECK(contains(site.drain(site.device), "taking a new stream"));
    CHECK(site.gateway_tells());
    CHECK(site.applied() == "abc" + std::string(static_cast<std::size_t>(emitted_since), 'N'));
    CHECK(Site::stats(site.device).at("forks") == 1);
  }
}

TEST_CASE("a database deleted and made anew under the same name swallows nothing (G11)") {
  Site site;
  Site::emit(site.device, "a");
  Site::emit(site.device, "b");
  site.drain(site.device);
  Site::erase(site.device);
  site.init();
  Site::emit(site.device, "N");
  site.drain(site.device);
  CHECK(site.gateway_tells());
  CHECK(site.applied() == "abN");
  CHECK(site.inbox().at("streams") == 2);
}

TEST_CASE("a gateway restored from a backup, or a fresh one, gets everything kept (G3, G11)") {
  Site site;
  const std::string backup = site.directory.file("backup.db");
  Site::emit(site.device, "a");
  site.drain(site.device);
  REQUIRE(command({"backup", site.gateway, backup}).code() == 0);
  Site::emit(site.device, "b");
  site.drain(site.device);
  CHECK(Site::stats(site.device).at("destinations").at(0).at("rewinds") == 0);
  site.stop();
  Site::replace(backup, site.gateway);
  site.serve();
  Site::emit(site.device, "c");
  CHECK(contains(site.drain(site.device), "restored or replaced"));
  CHECK(site.applied() == "abc");
  site.stop();
  Site::erase(site.gateway);
  site.serve();
  Site::emit(site.device, "d");
  CHECK(contains(site.drain(site.device), "restored or replaced"));
  CHECK(site.applied() == "abcd");
  const Json stats = Site::stats(site.device);
  CHECK(stats.at("destinations").at(0).at("rewinds") == 2);
  CHECK(stats.at("forks") == 0);
}
