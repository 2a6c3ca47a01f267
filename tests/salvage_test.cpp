// doctor --salvage: every readable event and its state in a fresh database, what is gone counted
// and told to the gateway, and no number given twice (G9, G10, G11).
#include <doctest/doctest.h>
#include <signal.h>

#include <map>
#include <set>

#include "holdfast/outbox.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/damage.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr std::uint64_t kSeed = 51;
constexpr std::int64_t kAckedSeq = 110, kDiscardedSeq = 50;  // of realistic_database(), both lanes

// seq → all that the event is.
using Events = std::map<std::int64_t, std::string>;

Events events_of(const std::string& path) {
  Connection db(path);
  Events events;
  for (const std::string& row : db.column(
           "SELECT seq||' '||hex(event_id)||' '||event_type||' '||aggregate_id||' '||"
           "aggregate_version||' '||created_at||' '||lane||' '||content_type||' '||headers||' '||"
           "payload FROM outbox_event WHERE event_type<>'holdfast.lost'"))
    events[std::stoll(row)] = row;
  return events;
}

std::vector<std::string> rows_of(const std::string& path, const std::string& query) {
  Connection db(path);
  return db.column(query);
}

// What stays as it was, whatever the new database has of its own.
const char* const kSameRows[] = {
    "SELECT destination_id||' '||seq||' '||lane||' '||status||' '||attempts||' '||"
    "ifnull(last_error,'') FROM outbox_exception ORDER BY 1",
    "SELECT destination_id||' '||lane||' '||first_seq||' '||last_seq||' '||reason FROM outbox_gap"
    " ORDER BY 1",
    "SELECT name||' '||acked_seq||' '||urgent_acked_seq||' '||sent FROM outbox_destination ORDER BY"
    " 1",
    "SELECT hex(event_id)||' '||consumer||' '||status FROM inbox_event ORDER BY 1",
    "SELECT hex(stream)||' '||lane||' '||consumer||' '||device||' '||mark_seq FROM inbox_stream"
    " ORDER BY 1",
    "SELECT hex(stream)||' '||first_seq||' '||last_seq||' '||count||' '||state FROM inbox_gap ORDER"
    " BY 1",
    "SELECT consumer||' '||aggregate_id||' '||version FROM inbox_aggregate ORDER BY 1",
    "SELECT value FROM holdfast_meta WHERE key IN ('device','store_id') ORDER BY key",
};

struct Case {
  TemporaryDirectory directory;
  std::string path = directory.file("app.db"), fresh = directory.file("new.db");
  SalvageReport report;

  Status salvage(const FilePair& files) {
    for (const char* end : {"", "-wal", "-shm"}) std::remove((fresh + end).c_str());
    place(files, path);
    return Store::salvage(path, fresh, report);
  }
};

bool within(const std::vector<SeqRange>& ranges, std::int64_t seq) {
  for (const SeqRange& each : ranges)
    if (each.first <= seq && seq <= each.last) return true;
  return false;
}

// Every event of before is there as it was, or counted as lost; "" if so.
std::string unaccounted(const Events& before, const Events& after, const SalvageReport& report) {
  std::string problem;
  for (const auto& [seq, text] : before) {
    const auto found = after.find(seq);
    const bool as_if_purged = seq <= kAckedSeq && (after.empty() || seq < after.begin()->first);
    const bool newest = report.newest_lost && seq > report.lost_events.back().last;
    if (found == after.end() && !within(report.lost_events, seq) && !as_if_purged && !newest &&
        seq != kDiscardedSeq)  // of that there is a gap record already
      problem += "seq " + std::to_string(seq) + " is gone without a word; ";
    if (found != after.end() && within(report.lost_events, seq))
      problem += "seq " + std::to_string(seq) + " is there and called lost; ";
  }
  for (const auto& [seq, text] : after) {
    const auto found = before.find(seq);
    if (found == before.end())
      problem += "seq " + std::to_string(seq) + " was never emitted; ";
    else if (found->second != text && seq % 16 != 0)  // over several pages: no checksum tells
      problem += "seq " + std::to_string(seq) + " is another; ";
  }
  return problem;
}

FilePair with_page(FilePair files, std::size_t page, char filling) {
  std::fill_n(files.db.begin() + static_cast<std::ptrdiff_t>(page * kDamagePageBytes),
              kDamagePageBytes, filling);
  return files;
}

}  // namespace

TEST_CASE("an undamaged database is salvaged whole, under a new stream (G11)") {
  Case c;
  const FilePair files = realistic_database();
  must(c.salvage(files));
  CHECK(c.report.complete());
  CHECK(c.report.lost_count == 0);
  CHECK(c.report.lost_pending == 0);
  CHECK(events_of(c.fresh) == events_of(c.path));
  for (const char* query : kSameRows) {
    CAPTURE(query);
    CHECK(rows_of(c.fresh, query) == rows_of(c.path, query));
  }
  const char* const stream = "SELECT hex(value) FROM holdfast_meta WHERE key='stream_id'";
  CHECK(rows_of(c.fresh, stream) != rows_of(c.path, stream));
  CHECK(rows_of(c.fresh, "PRAGMA integrity_check")[0] == "ok");
}

TEST_CASE("any page destroyed: each event is there as it was, or counted as lost (G9, G10)") {
  Case c;
  const FilePair whole = realistic_database();
  place(whole, c.path);
  const Events before = events_of(c.path);
  // All of it in the database's own file, so that each page holds the newest version of itself.
  Connection(c.path).run("PRAGMA wal_checkpoint(TRUNCATE)");
  const FilePair files{read_file(c.path), ""};
  const std::size_t pages = files.db.size() / kDamagePageBytes;
  const std::size_t step = std::max<std::size_t>(1, pages / static_cast<std::size_t>(scaled(200)));
  std::int64_t lost = 0, worst = 0, tried = 0;
  for (std::size_t page = 0; page < pages; page += step) {
    for (const char filling : {'\0', '\xa5'}) {
      CAPTURE(page);
      CAPTURE(static_cast<int>(filling));
      const Status status = c.salvage(with_page(files, page, filling));
      REQUIRE_MESSAGE(status.ok(), status.text());
      const Events after = events_of(c.fresh);
      CHECK(unaccounted(before, after, c.report) == "");
      CHECK(rows_of(c.fresh, "PRAGMA integrity_check")[0] == "ok");
      std::int64_t gone = 0;
      for (const auto& event : before) gone += after.count(event.first) == 0 ? 1 : 0;
      lost += gone;
      worst = std::max(worst, gone);
      ++tried;
    }
  }
  MESSAGE(tried << " damaged databases, " << lost << " events lost, at most " << worst << " of "
                << before.size() << " by one page");
  CHECK(lost > 0);
  CHECK(worst < 16);  // what one page of 1,024 bytes holds, and the events that run through it
}

TEST_CASE("control: an event that is missing, invented or changed is noticed") {
  Case c;
  must(c.salvage(realistic_database()));
  const Events before = events_of(c.path);
  Events after = before;
  CHECK(unaccounted(before, after, c.report) == "");
  after.erase(after.find(130));
  CHECK(unaccounted(before, after, c.report) != "");
  after = before;
  after[9999] = "invented";
  CHECK(unaccounted(before, after, c.report) != "");
  after = before;
  after.begin()->second += "x";
  CHECK(unaccounted(before, after, c.report) != "");
}

TEST_CASE("any damage at all: salvage ends with a database that works, or a clear error (G10)") {
  const std::uint64_t start = seed(kSeed);
  CAPTURE(start);  // HOLDFAST_TEST_SEED
  Case c;
  const FilePair files = realistic_database();
  place(files, c.path);
  const Events before = events_of(c.path);
  const std::vector<Damage> all = every_damage(files, start);
  const std::size_t step =
      std::max<std::size_t>(1, all.size() / static_cast<std::size_t>(scaled(300)));
  int good = 0, refused = 0;
  for (std::size_t i = 0; i < all.size(); i += step) {
    CAPTURE(all[i].text());
    FilePair bad = files;
    all[i].apply(bad);
    const Status status = c.salvage(bad);
    if (!status.ok()) {
      ++refused;
      CHECK((status.code() == Code::corrupt || status.code() == Code::not_found));
      CHECK(std::string(status.text()).find(c.path) != std::string::npos);
      continue;
    }
    ++good;
    const Events after = events_of(c.fresh);
    CHECK(rows_of(c.fresh, "PRAGMA integrity_check")[0] == "ok");
    for (const auto& [seq, text] : after) {
      // A free page may still hold what was purged: sent, and listed as such.
      const auto found = before.find(seq);
      if (found == before.end()) CHECK(seq <= 40);
    }
    Connection db(c.fresh);
    Outbox outbox;
    must(Outbox::attach(db, {}, outbox));
    db.run("BEGIN IMMEDIATE");
    Emitted emitted;
    must(outbox.emit(sensor_event("after"), &emitted));
    db.run("COMMIT");
    if (!after.empty()) CHECK(emitted.seq > after.rbegin()->first);
  }
  MESSAGE(good << " salvaged, " << refused << " refused");
  CHECK(good > refused);
}

TEST_CASE("the gateway is told what was lost, gets the rest once, and no number means two events") {
  Case c;
  const std::string gateway_db = c.directory.file("gateway.db");
  REQUIRE(command({"init", gateway_db, "--no-destination"}).code() == 0);
  const std::string socket = "ipc://" + c.directory.file("gateway.sock");
  Process gateway = start_command({"gateway", gateway_db, "--listen", socket});
  REQUIRE_FALSE(gateway.wait_for_stderr("listening", 20'000).empty());

  REQUIRE(command({"init", c.path, "--device", "board-9"}).code() == 0);
  const auto emit = [](const std::string& db, int count, const std::string& letter) {
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines +=
          "{\"event_type\":\"t\",\"aggregate_type\":\"sensor\",\"aggregate_id\":\"x\","
          "\"payload\":\"" +
          letter + std::to_string(i) + std::string(200, '.') + "\"}\n";
    SpawnOptions options;
    options.stdin_text = lines;
    REQUIRE(command({"emit", db, "--ndjson", "-", "--batch", "20"}, options).code() == 0);
  };
  emit(c.path, 100, "a");
  REQUIRE(command({"relay", c.path, "--to", socket, "--drain"}).code() == 0);
  emit(c.path, 100, "b");
  Connection(c.path).run("PRAGMA wal_checkpoint(TRUNCATE)");
  // A page with unsent events is destroyed.
  std::string bytes = read_file(c.path);
  const std::size_t at = bytes.find("b50....");
  REQUIRE(at != std::string::npos);
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at / 4096 * 4096), 4096, '\xff');
  write_file(c.path, bytes);
  CHECK(command({"doctor", c.path, "--sync-rounds", "0"}).code() == 4);

  const RunResult result = command({"doctor", c.path, "--salvage", c.fresh, "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code() == 4);
  const Json report = json_lines(result.out).at(0);
  const std::int64_t lost = report.at("lost_pending");
  CHECK(report.at("complete") == false);
  CHECK(report.at("lost_count") == lost);
  CHECK(lost > 0);
  CHECK(lost < 30);
  emit(c.fresh, 10, "c");
  const RunResult drained = command({"relay", c.fresh, "--to", socket, "--drain"});
  CAPTURE(drained.err);
  CHECK(drained.code() == 0);
  const Json inbox = json_lines(command({"inbox", "stats", gateway_db, "--json"}).out).at(0);
  CHECK(inbox.at("gone") == lost);
  CHECK(inbox.at("replaced_streams") == 1);
  gateway.kill(SIGTERM);
  gateway.wait(20'000);
  Connection log(gateway_db);
  CHECK(log.number("SELECT count(*) FROM outbox_event") == 100 + 100 - lost + 10);
  CHECK(log.number("SELECT count(DISTINCT event_id) FROM outbox_event") == 210 - lost);
  CHECK(log.number("SELECT count(*) FROM (SELECT 1 FROM outbox_event GROUP BY"
                   " source_stream,source_seq HAVING count(*)>1)") == 0);
  CHECK(log.number("SELECT count(*) FROM outbox_event WHERE payload LIKE 'c%'") == 10);
}

TEST_CASE("a salvaged gateway applies nothing twice (G4)") {
  Case c;
  const std::string device = c.directory.file("device.db");
  const std::string socket = "ipc://" + c.directory.file("gateway.sock");
  REQUIRE(command({"init", c.path, "--no-destination"}).code() == 0);
  REQUIRE(command({"init", device}).code() == 0);
  {
    Connection db(device);
    insert_events(db, 50);
  }
  const auto drain_to = [&](const std::string& gateway_db) {
    Process gateway = start_command({"gateway", gateway_db, "--listen", socket});
    REQUIRE_FALSE(gateway.wait_for_stderr("listening", 20'000).empty());
    const RunResult result = command({"relay", device, "--to", socket, "--drain"});
    CAPTURE(result.err);
    CHECK(result.code() == 0);
    gateway.kill(SIGTERM);
    gateway.wait(20'000);
  };
  drain_to(c.path);
  must(Store::salvage(c.path, c.fresh, c.report));
  CHECK(c.report.complete());
  {
    Connection db(device);  // the device lost what it knew, and sends everything again
    db.run("UPDATE outbox_destination SET acked_seq=0,claimed_seq=0,acked_id=NULL");
    insert_events(db, 5, "b");
  }
  drain_to(c.fresh);
  CHECK(Connection(c.fresh).number("SELECT count(*) FROM outbox_event") == 55);
}

TEST_CASE("salvage touches nothing that it should not") {
  Case c;
  place(realistic_database(), c.path);
  const std::string before = read_file(c.path), wal = read_file(c.path + "-wal");
  CHECK(command({"doctor", c.path, "--salvage", c.path}).code() == 1);
  CHECK(command({"doctor", c.directory.file("none.db"), "--salvage", c.fresh}).code() == 3);
  CHECK(command({"doctor", "/etc/hostname", "--salvage", c.fresh}).code() == 1);
  const RunResult none = command({"ls", c.fresh});
  CHECK(none.code() == 3);
  const RunResult text = command({"doctor", c.path, "--salvage", c.fresh});
  CAPTURE(text.err);
  CHECK(text.code() == 0);
  CHECK(text.out.find("outbox_event: 240 rows") != std::string::npos);
  CHECK(text.out.find("everything is in") != std::string::npos);
  CHECK(read_file(c.path) == before);
  CHECK(read_file(c.path + "-wal") == wal);
  const RunResult again = command({"doctor", c.path, "--salvage", c.fresh});
  CHECK(again.code() == 1);
  CHECK(again.err.find("exists already") != std::string::npos);
  Connection user(c.path);
  user.run("BEGIN; SELECT count(*) FROM outbox_event");
  const RunResult busy = command({"doctor", c.path, "--salvage", c.directory.file("other.db")});
  CHECK(busy.code() == 75);
  CHECK(busy.err.find("is in use") != std::string::npos);
}
