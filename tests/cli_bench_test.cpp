// holdfast bench: all figures there, nothing left behind, nothing of others touched.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/command_line.hpp"

using namespace holdfast::test;

namespace {

constexpr int kSoonMs = 60'000;

// What a directory holds, by name and content.
std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& each : std::filesystem::directory_iterator(directory)) {
    const std::string name = each.path().filename();
    if (each.is_directory()) {
      out[name] = "a directory";
      continue;
    }
    std::ifstream file(each.path(), std::ios::binary);
    out[name] = {std::istreambuf_iterator<char>(file), {}};
  }
  return out;
}

// A directory in which somebody has a database, and files whose names are like the bench's own.
struct Occupied {
  TemporaryDirectory directory;
  std::map<std::string, std::string> before;
  Occupied() {
    REQUIRE(command({"init", directory.file("emit.db")}).code() == 0);
    for (const char* name : {"device.db", "limit", "holdfast-bench-000000"}) {
      std::ofstream(directory.file(name)) << "of somebody else";
    }
    before = contents(directory.path());
  }
};

std::string suffix(int producers) { return "_" + std::to_string(producers); }

std::set<std::string> expected_names() {
  std::set<std::string> names = {
      "drain_tcp", "drain_tls", "drain_ipc",    "wire_bytes_per_event", "wire_overhead_per_event",
      "fill_10k",  "start_10k", "relay_rss_10k"};
  for (const int producers : {1, 16, 64}) {
    for (const char* name : {"sync_limit", "emit", "emit_p99", "syncs_per_commit",
                             "bytes_per_event", "disk_bytes_per_event"}) {
      names.insert(name + suffix(producers));
    }
  }
  for (const char* name : {"wake_up", "wake_up_noticed", "deliver"}) {
    names.insert(std::string(name) + "_p50");
    names.insert(std::string(name) + "_p99");
  }
  for (const char* name : {"inbox_new", "inbox_duplicate"}) {
    names.insert(std::string(name) + "_1");
    names.insert(std::string(name) + "_256");
  }
  return names;
}

}  // namespace

TEST_CASE("bench prints each figure as a JSON object and leaves its directory as it was") {
  Occupied place;
  const RunResult result = command({"bench", "--quick", "--json", "--seconds", "0.1", "--rows",
                                    "10000", place.directory.path()});
  REQUIRE_MESSAGE(result.code() == 0, result.err);
  std::set<std::string> names;
  for (const std::string& line : lines_of(result.out)) {
    const auto figure = nlohmann::json::parse(line);
    const std::string name = figure.at("name");
    CAPTURE(line);
    CHECK(names.insert(name).second);
    CHECK(figure.at("value").get<double>() >= 0);
    CHECK_FALSE(figure.at("unit").get<std::string>().empty());
    CHECK(figure.contains("of_limit") == (name.compare(0, 6, "inbox_") == 0 || name == "emit_1" ||
                                          name == "emit_16" || name == "emit_64"));
  }
  CHECK(names == expected_names());
  CHECK(contents(place.directory.path()) == place.before);
}

TEST_CASE("bench works in the current directory, if none is named") {
  Occupied place;
  SpawnOptions options;
  options.directory = place.directory.path();
  const RunResult result = command({"bench", "--seconds", "0.05", "--rows", "0"}, options);
  CHECK_MESSAGE(result.code() == 0, result.err);
  CHECK(result.out.find("drain_ipc") != std::string::npos);
  CHECK(contents(place.directory.path()) == place.before);
}

TEST_CASE("bench leaves nothing behind when a signal ends it") {
  for (const int number : {SIGTERM, SIGINT}) {
    Occupied place;
    Process bench =
        start_command({"bench", "--seconds", "30", "--rows", "0", place.directory.path()});
    // Control: it was at work there.
    bool working = false;
    for (int i = 0; i < 1000 && !working; ++i) {
      working = contents(place.directory.path()).size() > place.before.size();
      if (!working) CHECK(bench.wait_for_stderr("never said", 10).empty());
    }
    CHECK(working);
    bench.kill(number);
    const ExitStatus status = bench.wait(kSoonMs);
    CHECK(status.code == 1);
    CHECK(bench.stderr_text().find("interrupted") != std::string::npos);
    CHECK(contents(place.directory.path()) == place.before);
  }
}

TEST_CASE("bench refuses what it cannot do before it writes anything") {
  TemporaryDirectory directory;
  const RunResult missing = command({"bench", directory.file("missing")});
  CHECK(missing.code() != 0);
  CHECK(missing.err.find("missing") != std::string::npos);
  CHECK(command({"bench", "--seconds", "0", directory.path()}).code() == 2);
  CHECK(contents(directory.path()).empty());
  // 600 s of emit and drain and 10M rows: 86 GB.
  if (std::filesystem::space("/dev/shm").available > 80'000'000'000) {
    MESSAGE("/dev/shm is too large for the case of too little room");
    return;
  }
  const RunResult small = command({"bench", "--seconds", "600", "/dev/shm"});
  CHECK(small.code() == 1);
  CHECK(small.err.find("needed") != std::string::npos);
}
