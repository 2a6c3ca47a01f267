// Firmware of a small device, in C++: reads its sensors for ever, and writes each reading and the
// event that tells the world about it in one transaction. A relay of its own (`holdfast relay`)
// carries the events to the gateway.
//
//   demo_sensor DB [DEVICE_NAME [READINGS_PER_SECOND [FULL|NORMAL]]]
//
// NORMAL is for a control: a commit that a power cut may take back.
//
// Prints the id of each reading once its COMMIT returned: from then on, no power cut takes it back.
// Built with -fno-exceptions -fno-rtti, as firmware often is.
#include <signal.h>
#include <sqlite3.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"

namespace {

constexpr int kSensors = 5;
constexpr int kBusyTimeoutMs = 2000;

volatile sig_atomic_t stop_asked = 0;
void on_signal(int) { stop_asked = 1; }

// A statement of this program, finalised with it.
class Sql {
 public:
  Sql(sqlite3* db, const char* text) { sqlite3_prepare_v2(db, text, -1, &statement_, nullptr); }
  ~Sql() { sqlite3_finalize(statement_); }
  Sql(const Sql&) = delete;
  Sql& operator=(const Sql&) = delete;
  sqlite3_stmt* get() const { return statement_; }
  int run() {
    const int rc = sqlite3_step(statement_);
    sqlite3_reset(statement_);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

struct Reading {
  std::string sensor;
  double value = 0;
  long long at = 0;  // Unix seconds
};

Reading read_sensor(long long n) {
  return {"boiler-" + std::to_string(n % kSensors + 1),
          20.0 + static_cast<double>(n * 7919 % 1000) / 100.0,
          static_cast<long long>(time(nullptr))};
}

int fail(const char* what, const char* why) {
  std::fprintf(stderr, "sensor: %s: %s\n", what, why);
  return 1;
}

class Recorder {
 public:
  Recorder(sqlite3* db, holdfast::Outbox& outbox)
      : db_(db),
        outbox_(outbox),
        begin_(db, "BEGIN IMMEDIATE"),
        insert_(db, "INSERT INTO reading(sensor, value, at) VALUES(?1, ?2, ?3)"),
        commit_(db, "COMMIT"),
        rollback_(db, "ROLLBACK") {}

  // The reading and its event, or neither. False: this device cannot go on; why is on stderr.
  bool record(const Reading& reading) {
    const int rc = begin_.run();
    if (rc == SQLITE_BUSY) return true;  // nothing was written; the next reading will be
    if (rc != SQLITE_OK) return fail("begin", sqlite3_errmsg(db_)) == 0;
    if (!write(reading)) {
      rollback_.run();
      return false;
    }
    // An I/O error here means "unknown": a firmware reopens the database and asks
    // Outbox::resolve. This one ends; whoever restarts it sees what is there.
    if (commit_.run() != SQLITE_OK) return fail("commit", sqlite3_errmsg(db_)) == 0;
    std::printf("%lld\n", static_cast<long long>(id_));
    std::fflush(stdout);
    return true;
  }

 private:
  bool write(const Reading& reading) {
    sqlite3_bind_text(insert_.get(), 1, reading.sensor.c_str(), -1, SQLITE_STATIC);
    sqlite3_bind_double(insert_.get(), 2, reading.value);
    sqlite3_bind_int64(insert_.get(), 3, reading.at);
    if (insert_.run() != SQLITE_OK) return fail("insert", sqlite3_errmsg(db_)) == 0;
    id_ = sqlite3_last_insert_rowid(db_);

    char payload[160];
    std::snprintf(payload, sizeof(payload), R"({"id":%lld,"sensor":"%s","value":%.2f,"at":%lld})",
                  static_cast<long long>(id_), reading.sensor.c_str(), reading.value, reading.at);
    holdfast::Event event;
    event.event_type = "sensor.reading.v1";
    event.aggregate_type = "sensor";
    event.aggregate_id = reading.sensor;
    event.payload = payload;
    event.payload_is_text = true;
    event.content_type = holdfast::kContentTypeJson;
    const holdfast::Status status = outbox_.emit(event);
    return status.ok() || fail("emit", status.text()) == 0;
  }

  sqlite3* db_;
  holdfast::Outbox& outbox_;
  Sql begin_, insert_, commit_, rollback_;
  sqlite3_int64 id_ = 0;
};

int run(sqlite3* db, double per_second, bool relaxed) {
  holdfast::Outbox outbox;
  holdfast::OutboxOptions options;
  if (relaxed) options.durability = holdfast::Durability::relaxed;
  const holdfast::Status status = holdfast::Outbox::attach(db, options, outbox);
  if (!status.ok()) return fail("attach", status.text());
  Recorder recorder(db, outbox);
  const long pause_ns = static_cast<long>(1e9 / per_second);
  for (long long n = 0; stop_asked == 0; ++n) {
    if (!recorder.record(read_sensor(n))) return 1;
    const timespec pause{pause_ns / 1'000'000'000, pause_ns % 1'000'000'000};
    nanosleep(&pause, nullptr);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const double per_second = argc > 3 ? std::atof(argv[3]) : 100;
  const std::string synchronous = argc > 4 ? argv[4] : "FULL";
  const bool relaxed = synchronous == "NORMAL";
  if (argc < 2 || argc > 5 || per_second < 0.01 || (!relaxed && synchronous != "FULL")) {
    std::fprintf(stderr,
                 "usage: demo_sensor DB [DEVICE_NAME [READINGS_PER_SECOND [FULL|NORMAL]]]\n");
    return 2;
  }
  signal(SIGTERM, on_signal);
  signal(SIGINT, on_signal);

  holdfast::InitOptions init;  // at each start: makes or migrates the tables
  if (argc > 2) init.device = argv[2];
  const holdfast::Status status = holdfast::Store::init(argv[1], init, nullptr);
  if (!status.ok()) return fail("init", status.text());

  sqlite3* db = nullptr;
  int result = 1;
  if (sqlite3_open(argv[1], &db) != SQLITE_OK ||
      sqlite3_busy_timeout(db, kBusyTimeoutMs) != SQLITE_OK ||
      sqlite3_exec(db, ("PRAGMA synchronous=" + synchronous).c_str(), nullptr, nullptr, nullptr) !=
          SQLITE_OK ||
      sqlite3_exec(db,
                   "CREATE TABLE IF NOT EXISTS reading"
                   "(id INTEGER PRIMARY KEY, sensor TEXT, value REAL, at INTEGER)",
                   nullptr, nullptr, nullptr) != SQLITE_OK) {
    fail(argv[1], sqlite3_errmsg(db));
  } else {
    result = run(db, per_second, relaxed);
  }
  sqlite3_close(db);
  return result;
}
