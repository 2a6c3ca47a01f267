// What the devices committed against what the gateway applied, by SQL on the databases themselves.
//
//   demo_compare GATEWAY_DB {DEVICE_DB PRINTED}…            the table; 1 if anything is wrong
//   demo_compare --control GATEWAY_DB {DEVICE_DB PRINTED}…  breaks copies; 1 if one goes unnoticed
//   demo_compare --await TIMEOUT_MS GATEWAY_DB DEVICE_DB…   ms until the gateway has an event of
//   each
//                                                           device that is not there yet
//
// PRINTED is the file to which the device printed the id of each reading after its COMMIT returned.
// The comparison works on copies in memory; the databases are only read.
#include <sqlite3.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "holdfast/store.hpp"

namespace {

constexpr long kAwaitPollNs = 2'000'000;

int fail(const std::string& what, const char* why) {
  std::fprintf(stderr, "compare: %s: %s\n", what.c_str(), why);
  return 2;
}

// The first column of the first row; exits on an error, for then nothing can be said.
sqlite3_int64 number(sqlite3* db, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, nullptr) != SQLITE_OK ||
      sqlite3_step(statement) != SQLITE_ROW)
    std::exit(fail(sql, sqlite3_errmsg(db)));
  const sqlite3_int64 value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return value;
}

void execute(sqlite3* db, const char* sql) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    std::exit(fail(sql, sqlite3_errmsg(db)));
}

sqlite3* open_to_read(const std::string& path) {
  sqlite3* db = nullptr;
  if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK)
    std::exit(fail(path, sqlite3_errmsg(db)));
  sqlite3_busy_timeout(db, 5000);
  return db;
}

void copy_into(sqlite3* to, const char* schema, const std::string& path) {
  sqlite3* from = open_to_read(path);
  sqlite3_backup* backup = sqlite3_backup_init(to, schema, from, "main");
  if (backup == nullptr || sqlite3_backup_step(backup, -1) != SQLITE_DONE)
    std::exit(fail(path, sqlite3_errmsg(to)));
  sqlite3_backup_finish(backup);
  sqlite3_close(from);
}

struct Device {
  std::string path;
  std::string printed;
};

// main: a copy of the gateway's database. device: of the device's. printed: what it printed.
// The guards of the log are taken off these copies, so that the control can break them.
sqlite3* load(const std::string& gateway, const Device& device) {
  sqlite3* db = nullptr;
  if (sqlite3_open(":memory:", &db) != SQLITE_OK) std::exit(fail(":memory:", "cannot open"));
  copy_into(db, "main", gateway);
  execute(db, "ATTACH ':memory:' AS device");
  copy_into(db, "device", device.path);
  for (const char* name : {"replace", "order", "update", "newest", "pending"}) {
    execute(db, ("DROP TRIGGER main.outbox_event_guard_" + std::string(name)).c_str());
    execute(db, ("DROP TRIGGER device.outbox_event_guard_" + std::string(name)).c_str());
  }
  execute(db, "CREATE TEMP TABLE printed(id INTEGER)");
  std::FILE* file = std::fopen(device.printed.c_str(), "r");
  if (file == nullptr) std::exit(fail(device.printed, "cannot be read"));
  execute(db, "BEGIN");
  char line[32];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strchr(line, '\n') == nullptr) break;  // killed within the line
    execute(db, ("INSERT INTO printed VALUES(" + std::to_string(std::atoll(line)) + ")").c_str());
  }
  execute(db, "COMMIT");
  std::fclose(file);
  // The device's part of the gateway's log, and both sides with the reading that they carry.
  execute(
      db,
      "CREATE TEMP TABLE sent AS SELECT seq, lower(event_id) AS event_id, aggregate_id, payload,"
      " json_extract(payload, '$.id') AS reading FROM device.outbox_event;"
      "CREATE INDEX temp.sent_id ON sent(event_id);"
      "CREATE INDEX temp.sent_reading ON sent(reading)");
  return db;
}

void collect_delivered(sqlite3* db) {
  execute(db,
          "DROP TABLE IF EXISTS delivered;"
          "CREATE TEMP TABLE delivered AS SELECT seq, lower(event_id) AS event_id, aggregate_type,"
          " aggregate_id, source_seq, payload, json_extract(payload, '$.id') AS reading"
          " FROM main.outbox_event WHERE source_stream ="
          " (SELECT value FROM device.holdfast_meta WHERE key = 'stream_id');"
          "CREATE INDEX temp.delivered_id ON delivered(event_id);"
          "CREATE INDEX temp.delivered_reading ON delivered(reading)");
}

struct Line {
  const char* title;
  bool must_be_zero;
  const char* sql;
};

const Line kLines[] = {
    {"committed readings", false, "SELECT count(*) FROM device.reading"},
    {"events in the outbox", false, "SELECT count(*) FROM sent"},
    {"delivered to the gateway", false, "SELECT count(*) FROM delivered"},
    {"readings taken back", true,  // printed, and not there or given out again
     "SELECT count(*) - (SELECT count(DISTINCT id) FROM printed WHERE id IN"
     " (SELECT id FROM device.reading)) FROM printed"},
    {"readings without event", true,
     "SELECT count(*) FROM device.reading WHERE id NOT IN (SELECT reading FROM sent)"},
    {"events without reading", true,
     "SELECT count(*) - (SELECT count(DISTINCT reading) FROM sent WHERE reading IN"
     " (SELECT id FROM device.reading)) FROM sent"},
    {"lost", true,
     "SELECT count(*) FROM device.reading WHERE id NOT IN (SELECT reading FROM delivered)"},
    {"twice", true,
     "SELECT count(*) - min(count(DISTINCT event_id), count(DISTINCT reading)) FROM delivered"},
    {"out of order", true,
     "SELECT count(*) FROM (SELECT source_seq, lag(source_seq) OVER (PARTITION BY aggregate_type,"
     " aggregate_id ORDER BY seq) AS before FROM delivered) WHERE source_seq <= before"},
    {"changed, or unknown", true,
     "SELECT count(*) FROM delivered d LEFT JOIN sent s USING(event_id) WHERE s.seq IS NOT"
     " d.source_seq OR s.payload IS NOT d.payload OR s.aggregate_id IS NOT d.aggregate_id"},
};

struct Fault {
  const char* what;
  const char* noticed_as;
  const char* sql;
};

const Fault kFaults[] = {
    {"an event the gateway lost", "lost",
     "DELETE FROM main.outbox_event WHERE seq = (SELECT seq FROM delivered LIMIT 1 OFFSET 7)"},
    {"the newest event not delivered", "lost",
     "DELETE FROM main.outbox_event WHERE seq = (SELECT max(seq) FROM delivered)"},
    {"an event applied twice", "twice",
     "INSERT INTO main.outbox_event(event_id, event_type, aggregate_type, aggregate_id, payload,"
     " source, source_stream, source_seq) SELECT event_id, event_type, aggregate_type,"
     " aggregate_id, payload, source, source_stream, source_seq FROM main.outbox_event WHERE seq ="
     " (SELECT max(seq) FROM delivered)"},
    {"a reading sent as two events", "twice",
     "INSERT INTO main.outbox_event(event_type, aggregate_type, aggregate_id, payload, source,"
     " source_stream, source_seq) SELECT event_type, aggregate_type, aggregate_id, payload, source,"
     " source_stream, source_seq + 1 FROM main.outbox_event WHERE seq ="
     " (SELECT max(seq) FROM delivered)"},
    {"an event that came after later ones of its sensor", "out of order",
     "UPDATE main.outbox_event SET seq = (SELECT max(seq) + 1 FROM main.outbox_event) WHERE seq ="
     " (SELECT min(seq) FROM delivered)"},
    {"a payload changed on the way", "changed, or unknown",
     "UPDATE main.outbox_event SET payload = json_set(payload, '$.value', -1) WHERE seq ="
     " (SELECT max(seq) FROM delivered)"},
    {"a reading committed without its event", "readings without event",
     "INSERT INTO device.reading(sensor, value, at) VALUES('boiler-1', 0, 0)"},
    {"an event committed without its reading", "events without reading",
     "DELETE FROM device.reading WHERE id = (SELECT max(id) FROM device.reading)"},
    {"a commit that was taken back", "readings taken back",
     "INSERT INTO temp.printed SELECT max(id) + 1 FROM device.reading"},
    {"a reading's id given out again", "readings taken back",
     "INSERT INTO temp.printed SELECT max(id) FROM temp.printed"},
};

std::string grouped(sqlite3_int64 value) {
  std::string text = std::to_string(value);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(at, ",");
  return text;
}

std::string device_name(sqlite3* db) {
  sqlite3_stmt* statement = nullptr;
  std::string name = "?";
  if (sqlite3_prepare_v2(db, "SELECT value FROM device.holdfast_meta WHERE key = 'device'", -1,
                         &statement, nullptr) == SQLITE_OK &&
      sqlite3_step(statement) == SQLITE_ROW)
    name = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
  sqlite3_finalize(statement);
  return name;
}

bool wrong(const Line& line, sqlite3_int64 value) { return line.must_be_zero && value != 0; }

int compare(const std::string& gateway, const std::vector<Device>& devices) {
  std::vector<sqlite3*> dbs;
  std::printf("%-26s", "");
  for (const Device& device : devices) {
    dbs.push_back(load(gateway, device));
    collect_delivered(dbs.back());
    std::printf("%14s", device_name(dbs.back()).c_str());
  }
  std::printf("\n");
  int bad = 0;
  for (const Line& line : kLines) {
    std::printf("%-26s", line.title);
    bool line_bad = false;
    for (sqlite3* db : dbs) {
      const sqlite3_int64 value = number(db, line.sql);
      std::printf("%14s", grouped(value).c_str());
      line_bad = line_bad || wrong(line, value);
    }
    std::printf("%s\n", line_bad ? "   WRONG" : "");
    if (line_bad) ++bad;
  }
  holdfast::Store store;
  holdfast::StoreStats stats;
  holdfast::Status status = holdfast::Store::open(gateway, holdfast::Access::read_only, {}, store);
  if (status.ok()) status = store.stats(stats);
  if (!status.ok()) return fail(gateway, status.text());
  std::printf("%-26s%14s\n", "duplicates filtered (all)", grouped(stats.inbox.duplicates).c_str());
  bool empty = false;
  for (sqlite3* db : dbs) {
    empty = empty || number(db, "SELECT count(*) FROM delivered") == 0;
    sqlite3_close(db);
  }
  if (empty) return fail(gateway, "nothing was delivered, so nothing was compared");
  return bad == 0 ? 0 : 1;
}

int control(const std::string& gateway, const std::vector<Device>& devices) {
  int noticed = 0, made = 0;
  for (const Device& device : devices) {
    for (const Fault& fault : kFaults) {
      sqlite3* db = load(gateway, device);
      collect_delivered(db);
      execute(db, fault.sql);
      ++made;
      collect_delivered(db);
      bool seen = false;
      for (const Line& line : kLines)
        if (std::strcmp(line.title, fault.noticed_as) == 0)
          seen = wrong(line, number(db, line.sql));
      if (seen) ++noticed;
      if (!seen) std::printf("control: not noticed: %s\n", fault.what);
      sqlite3_close(db);
    }
  }
  std::printf("control: %d of %d faults made in copies were noticed\n", noticed, made);
  return noticed == made ? 0 : 1;
}

long long now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1'000'000;
}

// Waits for events that do not exist yet: they can only come from processes that work again.
int await(long long timeout_ms, const std::string& gateway, const std::vector<Device>& devices) {
  const long long start = now_ms();
  sqlite3* db = open_to_read(gateway);
  sqlite3_stmt* mark = nullptr;
  if (sqlite3_prepare_v2(db, "SELECT max(mark_seq) FROM inbox_stream WHERE stream = ?1", -1, &mark,
                         nullptr) != SQLITE_OK)
    return fail(gateway, sqlite3_errmsg(db));
  for (const Device& device : devices) {
    sqlite3* device_db = open_to_read(device.path);
    const sqlite3_int64 newest = number(device_db, "SELECT ifnull(max(seq), 0) FROM outbox_event");
    sqlite3_stmt* stream = nullptr;
    if (sqlite3_prepare_v2(device_db, "SELECT value FROM holdfast_meta WHERE key = 'stream_id'", -1,
                           &stream, nullptr) != SQLITE_OK ||
        sqlite3_step(stream) != SQLITE_ROW)
      return fail(device.path, sqlite3_errmsg(device_db));
    sqlite3_bind_blob(mark, 1, sqlite3_column_blob(stream, 0), sqlite3_column_bytes(stream, 0),
                      SQLITE_TRANSIENT);
    sqlite3_finalize(stream);
    sqlite3_close(device_db);
    for (;;) {
      const bool there = sqlite3_step(mark) == SQLITE_ROW && sqlite3_column_int64(mark, 0) > newest;
      sqlite3_reset(mark);
      if (there) break;
      if (now_ms() - start > timeout_ms) return fail(device.path, "no new event at the gateway");
      const timespec pause{0, kAwaitPollNs};
      nanosleep(&pause, nullptr);
    }
  }
  sqlite3_finalize(mark);
  sqlite3_close(db);
  std::printf("%lld\n", now_ms() - start);
  return 0;
}

int usage() {
  std::fprintf(stderr,
               "usage: demo_compare [--control] GATEWAY_DB {DEVICE_DB PRINTED}...\n"
               "       demo_compare --await TIMEOUT_MS GATEWAY_DB DEVICE_DB...\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::vector<Device> devices;
  if (words.size() >= 4 && words[0] == "--await") {
    for (std::size_t i = 3; i < words.size(); ++i) devices.push_back({words[i], ""});
    return await(std::atoll(words[1].c_str()), words[2], devices);
  }
  const bool breaking = !words.empty() && words[0] == "--control";
  if (breaking) words.erase(words.begin());
  if (words.size() < 3 || words.size() % 2 == 0) return usage();
  for (std::size_t i = 1; i < words.size(); i += 2) devices.push_back({words[i], words[i + 1]});
  return breaking ? control(words[0], devices) : compare(words[0], devices);
}
