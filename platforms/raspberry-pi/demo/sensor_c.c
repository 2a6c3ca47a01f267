// Firmware of a small device, in C99: as sensor.cpp, but with the relay inside the same process,
// which is all that a device without an init system needs.
//
//   demo_sensor_c DB GATEWAY_URL [DEVICE_NAME [READINGS_PER_SECOND]]
//
// Prints the id of each reading once its COMMIT returned: from then on, no power cut takes it back.
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "holdfast/holdfast.h"

enum { kSensors = 5, kBusyTimeoutMs = 2000 };

typedef struct device {
  sqlite3* db;
  sqlite3_stmt* insert;
  holdfast_outbox* outbox;
  holdfast_relay* relay;
} device;

static volatile sig_atomic_t stop_asked = 0;
static void on_signal(int number) {
  (void)number;
  stop_asked = 1;
}

static int fail(const char* what, const char* why) {
  fprintf(stderr, "sensor_c: %s: %s\n", what, why);
  return 0;
}

static int execute(sqlite3* db, const char* sql) { return sqlite3_exec(db, sql, NULL, NULL, NULL); }

static void on_log(void* context, int level, const char* text) {
  (void)context;
  if (level >= HOLDFAST_LOG_INFO) fprintf(stderr, "relay: %s\n", text);
}

static void on_commit(void* relay) { holdfast_relay_wake(relay); }

static int open_device(device* d, const char* path, const char* url, const char* name) {
  holdfast_status status;
  holdfast_init_options init = {.struct_size = sizeof(init)};
  holdfast_relay_options relay = {.struct_size = sizeof(relay)};
  holdfast_outbox_options outbox = {.struct_size = sizeof(outbox)};

  init.device = name;  // at each start: makes or migrates the tables
  if (holdfast_store_init(path, &init, NULL, &status) != HOLDFAST_OK)
    return fail("init", status.text);
  if (sqlite3_open(path, &d->db) != SQLITE_OK ||
      sqlite3_busy_timeout(d->db, kBusyTimeoutMs) != SQLITE_OK ||
      execute(d->db, "PRAGMA synchronous=FULL") != SQLITE_OK ||
      execute(d->db,
              "CREATE TABLE IF NOT EXISTS reading"
              "(id INTEGER PRIMARY KEY, sensor TEXT, value REAL, at INTEGER)") != SQLITE_OK ||
      sqlite3_prepare_v2(d->db, "INSERT INTO reading(sensor, value, at) VALUES(?1, ?2, ?3)", -1,
                         &d->insert, NULL) != SQLITE_OK)
    return fail(path, sqlite3_errmsg(d->db));

  relay.database = path;
  relay.url = url;
  relay.log = on_log;
  if (holdfast_relay_start(&relay, &d->relay, &status) != HOLDFAST_OK)
    return fail("relay", status.text);
  outbox.on_commit = on_commit;
  outbox.context = d->relay;
  if (holdfast_outbox_attach(d->db, &outbox, &d->outbox, &status) != HOLDFAST_OK)
    return fail("attach", status.text);
  return 1;
}

static int close_device(device* d) {
  holdfast_status status;
  int ok = 1;
  holdfast_outbox_detach(d->outbox);
  if (holdfast_relay_stop(d->relay, &status) != HOLDFAST_OK) ok = fail("relay", status.text);
  holdfast_relay_close(d->relay);
  sqlite3_finalize(d->insert);
  sqlite3_close(d->db);
  return ok;
}

// The row and its event, in the transaction that is open.
static int write_reading(device* d, long long n, long long* id) {
  holdfast_status status;
  holdfast_event event = {.struct_size = sizeof(event)};
  char sensor[32], payload[160];
  const double value = 40.0 + (double)(n * 7919 % 1000) / 100.0;
  const long long at = (long long)time(NULL);
  int rc;

  snprintf(sensor, sizeof(sensor), "pump-%lld", n % kSensors + 1);
  sqlite3_bind_text(d->insert, 1, sensor, -1, SQLITE_STATIC);
  sqlite3_bind_double(d->insert, 2, value);
  sqlite3_bind_int64(d->insert, 3, at);
  rc = sqlite3_step(d->insert);
  sqlite3_reset(d->insert);
  if (rc != SQLITE_DONE) return fail("insert", sqlite3_errmsg(d->db));
  *id = sqlite3_last_insert_rowid(d->db);

  snprintf(payload, sizeof(payload), "{\"id\":%lld,\"sensor\":\"%s\",\"value\":%.2f,\"at\":%lld}",
           *id, sensor, value, at);
  event.event_type = "sensor.reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = sensor;
  event.payload = payload;
  event.payload_size = strlen(payload);
  event.payload_is_text = 1;
  event.content_type = "application/json";
  if (holdfast_outbox_emit(d->outbox, &event, NULL, &status) != HOLDFAST_OK)
    return fail("emit", status.text);
  return 1;
}

// The reading and its event, or neither. 0: this device cannot go on; why is on stderr.
static int record(device* d, long long n) {
  long long id = 0;
  const int rc = execute(d->db, "BEGIN IMMEDIATE");
  if (rc == SQLITE_BUSY) return 1;  // nothing was written; the next reading will be
  if (rc != SQLITE_OK) return fail("begin", sqlite3_errmsg(d->db));
  if (!write_reading(d, n, &id)) {
    execute(d->db, "ROLLBACK");
    return 0;
  }
  // An I/O error here means "unknown": a firmware reopens the database and asks
  // holdfast_outbox_resolve. This one ends; whoever restarts it sees what is there.
  if (execute(d->db, "COMMIT") != SQLITE_OK) return fail("commit", sqlite3_errmsg(d->db));
  printf("%lld\n", id);
  fflush(stdout);
  return 1;
}

int main(int argc, char** argv) {
  device d = {NULL, NULL, NULL, NULL};
  const double per_second = argc > 4 ? atof(argv[4]) : 100;
  struct timespec pause;
  int ok;
  long long n;
  if (argc < 3 || argc > 5 || per_second < 0.01) {
    fprintf(stderr, "usage: demo_sensor_c DB GATEWAY_URL [DEVICE_NAME [READINGS_PER_SECOND]]\n");
    return 2;
  }
  signal(SIGTERM, on_signal);
  signal(SIGINT, on_signal);
  pause.tv_sec = (time_t)(1 / per_second);
  pause.tv_nsec = (long)((1 / per_second - (double)pause.tv_sec) * 1e9);
  ok = open_device(&d, argv[1], argv[2], argc > 3 ? argv[3] : NULL);
  for (n = 0; ok && !stop_asked; ++n) {
    ok = record(&d, n);
    nanosleep(&pause, NULL);
  }
  if (!close_device(&d)) ok = 0;
  return ok ? 0 : 1;
}
