// Databases of released versions: today's code opens, lists and drains them. To write the one of a
// new schema version: HOLDFAST_WRITE_GOLDEN=1 and this file's cases.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/sinks.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 30'000;

std::string golden_path(int version) {
  return HOLDFAST_SOURCE "/tests/golden/databases/v" + std::to_string(version) + ".db";
}

std::map<EventState, std::vector<std::int64_t>> states(const std::string& path) {
  Store store;
  must(Store::open(path, Access::read_only, {}, store));
  ListFilter filter;
  filter.all_states = true;
  filter.limit = -1;
  std::map<EventState, std::vector<std::int64_t>> out;
  must(store.list(filter, [&](const EventView& view) {
    out[view.state].push_back(view.event.seq);
    return true;
  }));
  return out;
}

}  // namespace

TEST_CASE("golden: write the database of this schema version" *
          doctest::skip(std::getenv("HOLDFAST_WRITE_GOLDEN") == nullptr)) {
  TemporaryDirectory directory;
  const std::string path = directory.file("golden.db");
  InitOptions options;
  options.device = "golden-board";
  options.page_size = 1024;
  must(Store::init(path, options, nullptr));
  {
    Connection app(path);
    app.run("CREATE TABLE reading(id INTEGER PRIMARY KEY, celsius)");
    for (const char* aggregate : {"a", "b", "a", "c", "d", "a", "e", "f"})
      app.run(
          "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,aggregate_version,"
          "content_type,trace,headers,payload) VALUES('sensor.reading.v1','sensor','" +
          std::string(aggregate) +
          "',1,'application/json','00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',"
          "'{\"site\":\"north\"}','{\"celsius\":71.5}')");
    app.run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,lane,payload)"
        " VALUES('alarm','sensor','a',1,x'00ff')");
    app.run(
        "UPDATE outbox_destination SET acked_seq=6,claimed_seq=6,sent=3,"
        "acked_id=NULL");
    app.run(
        "INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts,last_error)"
        " VALUES(1,3,0,'RETRY',2,'not now'),(1,6,0,'HELD',0,NULL),(1,5,0,'DEAD',10,'never')");
    app.run("PRAGMA wal_checkpoint(TRUNCATE)");
  }
  write_file(golden_path(kSchemaVersion), read_file(path));
}

TEST_CASE("a database of every released schema opens, lists and drains with its backlog (G3)") {
  for (int version = 1; version <= kSchemaVersion; ++version) {
    CAPTURE(version);
    TemporaryDirectory directory;
    const std::string path = directory.file("old.db");
    const std::string bytes = read_file(golden_path(version));
    REQUIRE_FALSE(bytes.empty());
    write_file(path, bytes);
    InitResult result;
    must(Store::init(path, {}, &result));
    CHECK(result.from_version == version);
    CHECK(result.to_version == kSchemaVersion);
    auto before = states(path);
    CHECK(before[EventState::sent] == std::vector<std::int64_t>{1, 2, 4});
    CHECK(before[EventState::retry] == std::vector<std::int64_t>{3});
    CHECK(before[EventState::held] == std::vector<std::int64_t>{6});
    CHECK(before[EventState::dead] == std::vector<std::int64_t>{5});
    CHECK(before[EventState::pending] == std::vector<std::int64_t>{7, 8, 9});

    const RunResult listed = command({"ls", path, "--status", "all", "--json"});
    CHECK(listed.code() == 0);
    CHECK(json_lines(listed.out).size() == 9);

    MemorySink sink;
    RelayOptions options;
    options.database = path;
    options.sink = &sink;
    Relay relay;
    must(Relay::start(options, relay));
    CHECK(sink.wait_for(5, kWaitMs));
    must(relay.stop());
    std::vector<std::int64_t> seqs;
    for (const EventRecord& event : sink.stored()) seqs.push_back(event.seq);
    CHECK(std::find(seqs.begin(), seqs.end(), 3) < std::find(seqs.begin(), seqs.end(), 6));
    std::sort(seqs.begin(), seqs.end());
    CHECK(seqs == std::vector<std::int64_t>{3, 6, 7, 8, 9});
    auto after = states(path);
    CHECK(after[EventState::dead] == std::vector<std::int64_t>{5});
    CHECK(after[EventState::sent].size() == 8);
  }
}
