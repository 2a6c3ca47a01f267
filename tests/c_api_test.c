// The C interface, from C99: what holdfast.h promises, and the whole path in one process.
#define _XOPEN_SOURCE 700  // mkdtemp
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "holdfast/holdfast.h"

static int failures = 0;
static int checks = 0;
static char folder[] = "/tmp/holdfast-c-api-XXXXXX";

#define CHECK(condition) check((condition) != 0, #condition, __LINE__)
#define CHECK_OK(call) check_code((call), HOLDFAST_OK, #call, __LINE__)
#define CHECK_CODE(call, code) check_code((call), (code), #call, __LINE__)

static holdfast_status status;

static void check(int ok, const char* what, int line) {
  ++checks;
  if (ok) return;
  ++failures;
  fprintf(stderr, "c_api_test.c:%d: not so: %s\n", line, what);
}

static void check_code(int got, int expected, const char* what, int line) {
  check(got == expected, what, line);
  if (got != expected)
    fprintf(stderr, "  expected %s, got %s: %s\n", holdfast_code_name(expected),
            holdfast_code_name(got), status.text);
}

static const char* path_of(const char* name) {
  static char paths[8][256];
  static int next = 0;
  char* path = paths[next++ % 8];
  snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
  return path;
}

static sqlite3* open_database(const char* path, int synchronous) {
  sqlite3* db = NULL;
  char pragma[64];
  CHECK(sqlite3_open(path, &db) == SQLITE_OK);
  snprintf(pragma, sizeof(pragma), "PRAGMA synchronous=%d", synchronous);
  CHECK(sqlite3_exec(db, pragma, NULL, NULL, NULL) == SQLITE_OK);
  return db;
}

static int execute(sqlite3* db, const char* sql) {
  return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static long long number(sqlite3* db, const char* sql) {
  sqlite3_stmt* statement = NULL;
  long long value = -1;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
      sqlite3_step(statement) == SQLITE_ROW)
    value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return value;
}

static holdfast_event reading(const char* sensor, const char* payload) {
  holdfast_event event = {.struct_size = sizeof(event)};
  event.event_type = "reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = sensor;
  event.payload = payload;
  event.payload_size = strlen(payload);
  event.payload_is_text = 1;
  return event;
}

static void emit(sqlite3* db, holdfast_outbox* outbox, const char* sensor, const char* payload) {
  const holdfast_event event = reading(sensor, payload);
  CHECK(execute(db, "BEGIN IMMEDIATE"));
  CHECK_OK(holdfast_outbox_emit(outbox, &event, NULL, &status));
  CHECK(execute(db, "COMMIT"));
}

// --- ids, names --------------------------------------------------------------------------------

static void names_and_ids(void) {
  holdfast_id id, other;
  char text[HOLDFAST_ID_TEXT_BYTES];
  CHECK(strcmp(holdfast_version(), HOLDFAST_VERSION) == 0);
  CHECK(strcmp(holdfast_code_name(HOLDFAST_NOT_DURABLE), "not_durable") == 0);
  CHECK(strcmp(holdfast_code_name(-1), "?") == 0);
  CHECK(strcmp(holdfast_state_name(HOLDFAST_STATE_DEAD), "DEAD") == 0);
  holdfast_id_make(&id);
  holdfast_id_text(&id, text);
  CHECK(strlen(text) == HOLDFAST_ID_TEXT_BYTES - 1 && text[14] == '7');
  CHECK(holdfast_id_parse(text, &other) && memcmp(&id, &other, sizeof(id)) == 0);
  CHECK(!holdfast_id_parse("not an id", &other));
  CHECK(!holdfast_id_parse(NULL, &other));
}

// --- outbox ------------------------------------------------------------------------------------

static int count_view(void* context, const holdfast_view* view) {
  int* count = context;
  CHECK(view->struct_size == sizeof(*view) && view->event->seq > 0);
  return ++*count < 2;  // stops at the second
}

static int keep_record(void* context, const holdfast_view* view) {
  const holdfast_record* event = view->event;
  *(int*)context += 1;
  CHECK(view->state == HOLDFAST_STATE_PENDING);
  CHECK(strcmp(view->destination, "upstream") == 0);
  CHECK(strcmp(event->aggregate_id, "boiler") == 0 && strcmp(event->headers, "{\"a\":1}") == 0);
  CHECK(event->payload_size == 3 && memcmp(event->payload, "a\0b", 3) == 0);
  CHECK(event->has_aggregate_version && event->aggregate_version == 7);
  CHECK(event->lane == HOLDFAST_LANE_URGENT && event->created_at_ms == 1234);
  CHECK(strcmp(event->source, "") == 0 && event->source_seq == 0);
  return 1;
}

static void count_commit(void* context) { ++*(int*)context; }

static void an_event_commits_with_the_data_or_not_at_all(void) {
  const char* path = path_of("outbox.db");
  holdfast_init_options init = {.struct_size = sizeof(init)};
  holdfast_init_result made = {.struct_size = sizeof(made)};
  holdfast_outbox_options options = {.struct_size = sizeof(options)};
  holdfast_event event = reading("boiler", "21.5");
  holdfast_emitted emitted, lost;
  holdfast_outbox* outbox = NULL;
  holdfast_fate fate;
  holdfast_store* store = NULL;
  sqlite3* db;
  int commits = 0, views = 0;

  init.device = "board-1";
  CHECK_OK(holdfast_store_init(path, &init, &made, &status));
  CHECK(made.created && made.to_version == 4);
  CHECK_OK(holdfast_store_init(path, &init, &made, NULL));
  CHECK(!made.created);

  db = open_database(path, 2);
  options.on_commit = count_commit;
  options.context = &commits;
  CHECK_OK(holdfast_outbox_attach(db, &options, &outbox, &status));
  CHECK(status.code == HOLDFAST_OK && status.text[0] == '\0');
  CHECK(execute(db, "CREATE TABLE reading(id INTEGER PRIMARY KEY, value)"));

  CHECK_CODE(holdfast_outbox_emit(outbox, &event, &emitted, &status), HOLDFAST_NO_TRANSACTION);
  CHECK(strstr(status.text, "BEGIN") != NULL);

  CHECK(execute(db, "BEGIN IMMEDIATE; INSERT INTO reading VALUES(41, 21.5)"));
  CHECK_OK(holdfast_outbox_emit(outbox, &event, &emitted, &status));
  CHECK(sqlite3_last_insert_rowid(db) == 41);
  CHECK(execute(db, "COMMIT"));
  CHECK(commits == 1 && emitted.seq == 1);

  CHECK(execute(db, "BEGIN IMMEDIATE; INSERT INTO reading VALUES(42, 22)"));
  CHECK_OK(holdfast_outbox_emit(outbox, &event, &lost, &status));
  CHECK(execute(db, "ROLLBACK"));
  CHECK(number(db, "SELECT count(*) FROM outbox_event") == 1);
  CHECK(number(db, "SELECT count(*) FROM reading") == 1);

  CHECK_OK(holdfast_outbox_resolve(outbox, &emitted, &fate, &status));
  CHECK(fate == HOLDFAST_COMMITTED);
  CHECK_OK(holdfast_outbox_resolve(outbox, &lost, &fate, &status));
  CHECK(fate == HOLDFAST_ABSENT);
  CHECK_OK(holdfast_outbox_resolve_id(outbox, &emitted.id, 100, &fate, &status));
  CHECK(fate == HOLDFAST_COMMITTED);
  CHECK_OK(holdfast_outbox_resolve_id(outbox, &lost.id, 100, &fate, &status));
  CHECK(fate == HOLDFAST_ABSENT);

  // every field, there and back
  holdfast_id_make(&event.id);
  event.payload = "a\0b";
  event.payload_size = 3;
  event.payload_is_text = 0;
  event.headers = "{\"a\":1}";
  event.lane = HOLDFAST_LANE_URGENT;
  event.has_aggregate_version = 1;
  event.aggregate_version = 7;
  event.created_at_ms = 1234;
  CHECK(execute(db, "BEGIN IMMEDIATE"));
  CHECK_OK(holdfast_outbox_emit(outbox, &event, &emitted, &status));
  CHECK(memcmp(&emitted.id, &event.id, sizeof(event.id)) == 0);

  // a bad one leaves the transaction as it was
  event.event_type = NULL;
  CHECK_CODE(holdfast_outbox_emit(outbox, &event, &lost, &status), HOLDFAST_INVALID);
  CHECK(strstr(status.text, "event_type") != NULL);
  event.event_type = "reading.v1";
  event.payload = NULL;
  CHECK_CODE(holdfast_outbox_emit(outbox, &event, &lost, &status), HOLDFAST_INVALID);
  CHECK(execute(db, "COMMIT"));
  CHECK(number(db, "SELECT count(*) FROM outbox_event") == 2);

  CHECK_OK(holdfast_store_open(path, HOLDFAST_ACCESS_READ_ONLY, NULL, &store, &status));
  CHECK_OK(holdfast_store_find_id(store, &emitted.id, keep_record, &views, &status));
  CHECK(views == 1);
  CHECK_CODE(holdfast_store_find(store, 99, keep_record, &views, &status), HOLDFAST_NOT_FOUND);
  views = 0;
  CHECK_OK(holdfast_store_list(store, NULL, count_view, &views, &status));
  CHECK(views == 2);
  holdfast_store_close(store);
  holdfast_outbox_detach(outbox);
  sqlite3_close(db);
}

static void what_is_not_durable_is_refused(void) {
  const char* path = path_of("relaxed.db");
  holdfast_outbox_options options = {.struct_size = sizeof(options)};
  holdfast_outbox* outbox = NULL;
  sqlite3* db;
  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  db = open_database(path, 1);
  CHECK_CODE(holdfast_outbox_attach(db, NULL, &outbox, &status), HOLDFAST_NOT_DURABLE);
  CHECK(strstr(status.text, "PRAGMA synchronous") != NULL && outbox == NULL);
  options.relaxed = 1;
  CHECK_OK(holdfast_outbox_attach(db, &options, &outbox, &status));
  holdfast_outbox_detach(outbox);
  sqlite3_close(db);

  db = open_database(path_of("empty.db"), 2);
  CHECK(execute(db, "PRAGMA journal_mode=WAL"));
  CHECK_CODE(holdfast_outbox_attach(db, NULL, &outbox, &status), HOLDFAST_NO_SCHEMA);
  sqlite3_close(db);
}

static void null_and_unset_sizes_are_errors_and_nothing_worse(void) {
  holdfast_event event = {0};
  holdfast_stats stats = {0};
  holdfast_store* store = NULL;
  holdfast_outbox* outbox = NULL;
  struct {
    holdfast_store_options options;
    char newer[16];
  } newer = {{0}, {0}};
  const char* path = path_of("null.db");
  CHECK_OK(holdfast_store_init(path, NULL, NULL, NULL));
  CHECK_CODE(holdfast_store_init(NULL, NULL, NULL, NULL), HOLDFAST_INVALID);
  CHECK_CODE(
      holdfast_store_open(path_of("missing.db"), HOLDFAST_ACCESS_READ_WRITE, NULL, &store, &status),
      HOLDFAST_NOT_FOUND);
  CHECK(store == NULL);
  CHECK_CODE(holdfast_store_stats(NULL, &stats, &status), HOLDFAST_INVALID);
  CHECK_CODE(holdfast_outbox_emit(NULL, &event, NULL, &status), HOLDFAST_INVALID);
  CHECK_CODE(holdfast_outbox_attach(NULL, NULL, &outbox, &status), HOLDFAST_MISUSE);
  CHECK_CODE(holdfast_store_begin(NULL, &status), HOLDFAST_INVALID);
  holdfast_store_close(NULL);
  holdfast_outbox_detach(NULL);
  holdfast_inbox_detach(NULL);
  holdfast_relay_close(NULL);
  holdfast_relay_wake(NULL);
  holdfast_gateway_close(NULL);
  CHECK(holdfast_gateway_url(NULL, 0) == NULL);

  // a caller built with a newer header: fine while the newer fields are zero
  newer.options.struct_size = sizeof(newer);
  CHECK_OK(holdfast_store_open(path, HOLDFAST_ACCESS_READ_WRITE, &newer.options, &store, &status));
  CHECK_CODE(holdfast_store_stats(store, &stats, &status), HOLDFAST_INVALID);
  CHECK(strstr(status.text, "struct_size") != NULL);
  // one built with an older header gets what it has room for
  stats.struct_size = offsetof(holdfast_stats, db_bytes);
  stats.db_bytes = 99;
  CHECK_OK(holdfast_store_stats(store, &stats, &status));
  CHECK(stats.schema_version == 4 && stats.db_bytes == 99);
  CHECK(stats.struct_size == offsetof(holdfast_stats, db_bytes));
  holdfast_store_close(store);
  newer.newer[0] = 1;
  CHECK_CODE(holdfast_store_open(path, HOLDFAST_ACCESS_READ_WRITE, &newer.options, &store, &status),
             HOLDFAST_INVALID);
}

// --- inbox -------------------------------------------------------------------------------------

typedef struct plan {
  int verdict;
  int calls;
} plan;

static int apply(void* context, const holdfast_record* event, struct sqlite3* db,
                 holdfast_answer* answer) {
  plan* p = context;
  char sql[160];
  ++p->calls;
  snprintf(sql, sizeof(sql), "INSERT INTO applied(aggregate, payload) VALUES('%s', '%.*s')",
           event->aggregate_id, (int)event->payload_size, (const char*)event->payload);
  CHECK(execute(db, sql));
  if (p->verdict == HOLDFAST_RETRY_LATER) answer->delay_ms = 50;
  if (p->verdict != HOLDFAST_DONE)
    memset(answer->reason, 'x', sizeof(answer->reason));  // without its zero byte: cut, no more
  return p->verdict;
}

static int failed_row(void* context, const holdfast_inbox_row* row) {
  *(int*)context += 1;
  CHECK(strcmp(row->status, "FAILED") == 0 && row->attempts == 2);
  CHECK(strlen(row->last_error) == HOLDFAST_REASON_BYTES - 1);
  return 1;
}

static void an_effect_happens_once(void) {
  const char* path = path_of("inbox.db");
  holdfast_record event = {.struct_size = sizeof(event)};
  holdfast_inbox* inbox = NULL;
  holdfast_store* store = NULL;
  holdfast_applied applied;
  plan p = {HOLDFAST_REJECT, 0};
  sqlite3* db;
  int rows = 0;
  event.seq = 1;
  event.event_type = "reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = "boiler";
  event.payload = "21.5";
  event.payload_size = 4;
  holdfast_id_make(&event.id);

  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  db = open_database(path, 2);
  CHECK(execute(db, "CREATE TABLE applied(aggregate, payload)"));
  CHECK_OK(holdfast_inbox_attach(db, NULL, &inbox, &status));

  CHECK_OK(holdfast_inbox_once(inbox, &event, "billing", apply, &p, &applied, &status));
  CHECK(applied == HOLDFAST_APPLIED_REJECTED);
  p.verdict = HOLDFAST_RETRY_LATER;
  CHECK_OK(holdfast_inbox_once(inbox, &event, "billing", apply, &p, &applied, &status));
  CHECK(applied == HOLDFAST_APPLIED_RETRY_LATER);
  CHECK(number(db, "SELECT count(*) FROM applied") == 0);
  CHECK_OK(holdfast_store_open(path, HOLDFAST_ACCESS_READ_WRITE, NULL, &store, &status));
  CHECK_OK(holdfast_store_list_inbox(store, NULL, failed_row, &rows, &status));
  CHECK(rows == 1);
  holdfast_store_close(store);

  p.verdict = HOLDFAST_DONE;
  CHECK_OK(holdfast_inbox_once(inbox, &event, "billing", apply, &p, &applied, &status));
  CHECK(applied == HOLDFAST_APPLIED_DONE && p.calls == 3);
  CHECK_OK(holdfast_inbox_once(inbox, &event, "billing", apply, &p, &applied, &status));
  CHECK(applied == HOLDFAST_APPLIED_DUPLICATE && p.calls == 3);
  CHECK_OK(holdfast_inbox_once(inbox, &event, "audit", apply, &p, &applied, &status));
  CHECK(applied == HOLDFAST_APPLIED_DONE && p.calls == 4);
  CHECK(number(db, "SELECT count(*) FROM applied") == 2);

  CHECK_CODE(holdfast_inbox_once(inbox, &event, "", apply, &p, &applied, &status),
             HOLDFAST_INVALID);
  CHECK_CODE(holdfast_inbox_once(inbox, &event, "billing", NULL, &p, &applied, &status),
             HOLDFAST_INVALID);
  memset(&event.id, 0, sizeof(event.id));
  CHECK_CODE(holdfast_inbox_once(inbox, &event, "billing", apply, &p, &applied, &status),
             HOLDFAST_INVALID);
  holdfast_inbox_detach(inbox);
  sqlite3_close(db);
}

// --- store -------------------------------------------------------------------------------------

static int count_destination(void* context, const holdfast_destination* destination) {
  *(int*)context += 1;
  CHECK(strlen(destination->name) > 0 && destination->pending == 1);
  return 1;
}

static int count_any(void* context) { return ++*(int*)context; }
static int count_text(void* context, const char* text) {
  (void)text;
  return count_any(context);
}
static int count_audit(void* context, const holdfast_audit_row* row) {
  (void)row;
  return count_any(context);
}
static int count_bucket(void* context, const holdfast_bucket* bucket) {
  (void)bucket;
  return count_any(context);
}
static void count_progress(void* context, int64_t done, int64_t total) {
  CHECK(done <= total);
  (void)count_any(context);
}

static void firmware_does_what_the_command_line_does(void) {
  const char* path = path_of("store.db");
  holdfast_store* store = NULL;
  holdfast_stats stats = {.struct_size = sizeof(stats)};
  holdfast_health health = {.struct_size = sizeof(health)};
  holdfast_capture capture = {.struct_size = sizeof(capture)};
  holdfast_purge_result purged = {.struct_size = sizeof(purged)};
  sqlite3* db;
  int count = 0, removed = 0;
  int64_t changed = -1;
  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  CHECK_OK(holdfast_store_open(path, HOLDFAST_ACCESS_READ_WRITE, NULL, &store, &status));
  db = holdfast_store_connection(store);
  CHECK(execute(db, "CREATE TABLE alarm(id INTEGER PRIMARY KEY, level)"));
  capture.table = "alarm";
  capture.on_insert = 1;
  capture.event_type = "alarm.{op}";
  capture.aggregate_type = "alarm";
  capture.aggregate_id = "NEW.id";
  capture.payload = "NEW.level";
  CHECK_OK(holdfast_store_capture(store, &capture, &status));
  CHECK_OK(holdfast_store_begin(store, &status));
  CHECK(execute(db, "INSERT INTO alarm(level) VALUES('high')"));
  CHECK_OK(holdfast_store_rollback(store, &status));
  CHECK_OK(holdfast_store_begin(store, &status));
  CHECK(execute(db, "INSERT INTO alarm(level) VALUES('high')"));
  CHECK_OK(holdfast_store_commit(store, &status));
  CHECK_OK(holdfast_store_add_destination(store, "archive", &status));
  CHECK_CODE(holdfast_store_add_destination(store, "no spaces", &status), HOLDFAST_INVALID);
  CHECK_OK(holdfast_store_destinations(store, count_destination, &count, &status));
  CHECK(count == 2);
  CHECK_OK(holdfast_store_stats(store, &stats, &status));
  CHECK(stats.newest_seq == 1 && stats.pending == 2 && stats.dead == 0 && stats.db_bytes > 0);
  CHECK(stats.oldest_pending_age_ms >= 0);
  CHECK_CODE(holdfast_store_remove_destination(store, "archive", 0, &status), HOLDFAST_MISUSE);
  CHECK_OK(holdfast_store_remove_destination(store, "archive", 1, &status));
  CHECK_OK(holdfast_store_remove_capture(store, "alarm", &removed, &status));
  CHECK(removed == 1);
  CHECK_OK(holdfast_store_retry_all_dead(store, NULL, &changed, &status));
  CHECK(changed == 0);
  CHECK_OK(holdfast_store_purge(store, NULL, &purged, &status));
  CHECK(purged.outbox_rows == 0 && !purged.more);
  count = 0;
  CHECK_OK(holdfast_store_audit(store, 100, count_audit, &count, &status));
  CHECK(count >= 4);
  count = 0;
  CHECK_OK(holdfast_store_health(store, 1, &health, count_text, &count, &status));
  CHECK(count == health.findings && strcmp(health.integrity, "ok") == 0);
  CHECK(strcmp(health.journal_mode, "wal") == 0 && health.application_triggers_ok);
  count = 0;
  CHECK_OK(holdfast_store_handler_seconds(store, count_bucket, &count, &status));
  CHECK(count > 2);
  count = 0;
  CHECK_OK(holdfast_store_backup(store, path_of("backup.db"), count_progress, &count, &status));
  CHECK_CODE(holdfast_store_backup(store, path_of("backup.db"), NULL, NULL, &status),
             HOLDFAST_EXISTS);
  CHECK_OK(holdfast_store_new_stream(store, &status));
  holdfast_store_close(store);
}

// --- relay and gateway -------------------------------------------------------------------------

typedef struct station {
  int applied;
  int logged;
  int bad_lines;
  int reject_sensor_2;
} station;

static int receive(void* context, const holdfast_record* event, struct sqlite3* db,
                   holdfast_answer* answer) {
  station* s = context;
  char sql[160];
  CHECK(strcmp(event->source, "board-1") == 0 && event->source_seq > 0);
  if (s->reject_sensor_2 && strcmp(event->aggregate_id, "2") == 0) {
    strcpy(answer->reason, "sensor 2 is not known here");
    return HOLDFAST_REJECT;
  }
  ++s->applied;
  snprintf(sql, sizeof(sql), "INSERT INTO applied VALUES('%s', '%.*s')", event->aggregate_id,
           (int)event->payload_size, (const char*)event->payload);
  return execute(db, sql) ? HOLDFAST_DONE : HOLDFAST_REJECT;
}

// On the gateway's thread or the relay's: counts in the one's own struct, read when it stopped.
static void limits_are_kept_in_the_database(void) {
  holdfast_status status;
  const char* path = path_of("limits.db");
  holdfast_limits limits = {.struct_size = sizeof(limits)};
  holdfast_event event = reading("boiler", "21.5");
  holdfast_store* store = NULL;
  holdfast_outbox* outbox = NULL;

  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  CHECK_OK(holdfast_store_open(path, HOLDFAST_ACCESS_READ_WRITE, NULL, &store, &status));
  CHECK_OK(holdfast_store_limits(store, &limits, &status));
  CHECK(limits.max_events == 0 && limits.max_bytes == 0 && limits.when_full == HOLDFAST_REFUSE);
  limits.max_events = 1;
  CHECK_OK(holdfast_store_set_limits(store, &limits, &status));
  limits.when_full = 7;
  CHECK_CODE(holdfast_store_set_limits(store, &limits, &status), HOLDFAST_INVALID);
  CHECK_OK(holdfast_outbox_attach(holdfast_store_connection(store), NULL, &outbox, &status));
  CHECK_OK(holdfast_store_begin(store, &status));
  CHECK_OK(holdfast_outbox_emit(outbox, &event, NULL, &status));
  CHECK_CODE(holdfast_outbox_emit(outbox, &event, NULL, &status), HOLDFAST_FULL);
  CHECK_OK(holdfast_store_commit(store, &status));
  holdfast_outbox_detach(outbox);
  holdfast_store_close(store);
}

static void what_is_readable_is_salvaged(void) {
  const char* path = path_of("damaged.db");
  const char* fresh = path_of("salvaged.db");
  holdfast_salvage_report report = {.struct_size = sizeof(report)};
  holdfast_event event = reading("boiler", "21.5");
  holdfast_store* store = NULL;
  holdfast_outbox* outbox = NULL;
  int i;
  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  CHECK_OK(holdfast_store_open(path, HOLDFAST_ACCESS_READ_WRITE, NULL, &store, &status));
  CHECK_OK(holdfast_outbox_attach(holdfast_store_connection(store), NULL, &outbox, &status));
  CHECK_OK(holdfast_store_begin(store, &status));
  for (i = 0; i < 10; ++i) CHECK_OK(holdfast_outbox_emit(outbox, &event, NULL, &status));
  CHECK_OK(holdfast_store_commit(store, &status));
  holdfast_outbox_detach(outbox);
  CHECK_CODE(holdfast_store_salvage(path, fresh, &report, &status), HOLDFAST_BUSY);
  holdfast_store_close(store);
  CHECK_OK(holdfast_store_salvage(path, fresh, &report, &status));
  CHECK(report.complete && report.events == 10 && report.lost_count == 0);
  CHECK_CODE(holdfast_store_salvage(path, fresh, &report, &status), HOLDFAST_EXISTS);
  CHECK_CODE(holdfast_store_salvage(path_of("no.db"), path_of("x.db"), &report, &status),
             HOLDFAST_NOT_FOUND);
  CHECK_CODE(holdfast_store_salvage(NULL, fresh, &report, &status), HOLDFAST_INVALID);
}

static int one_is_given_up(void* context, const holdfast_relay_state* state) {
  (void)context;
  return state->sent_events == 1 && state->drained;
}

static int note_ttl(void* context, const holdfast_record* events, size_t count,
                    holdfast_outcome* outcomes) {
  (void)outcomes;
  if (count > 0) *(int*)context = (int)events[count - 1].ttl_ms;
  return HOLDFAST_OK;
}

static void an_event_past_its_time_to_live_is_given_up(void) {
  const char* path = path_of("ttl.db");
  holdfast_event event = reading("boiler", "1");
  holdfast_relay_options from = {.struct_size = sizeof(from)};
  holdfast_stats stats = {.struct_size = sizeof(stats)};
  holdfast_relay* relay = NULL;
  holdfast_outbox* outbox = NULL;
  holdfast_store* store = NULL;
  int ttl_seen = 0;
  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  CHECK_OK(holdfast_store_open(path, HOLDFAST_ACCESS_READ_WRITE, NULL, &store, &status));
  CHECK_OK(holdfast_outbox_attach(holdfast_store_connection(store), NULL, &outbox, &status));
  CHECK_OK(holdfast_store_begin(store, &status));
  event.ttl_ms = 1;
  CHECK_OK(holdfast_outbox_emit(outbox, &event, NULL, &status));
  event.ttl_ms = 86400000;
  CHECK_OK(holdfast_outbox_emit(outbox, &event, NULL, &status));
  event.ttl_ms = -1;
  CHECK_CODE(holdfast_outbox_emit(outbox, &event, NULL, &status), HOLDFAST_INVALID);
  CHECK_OK(holdfast_store_commit(store, &status));
  nanosleep(&(struct timespec){0, 20000000}, NULL);
  from.database = path;
  from.sink = note_ttl;
  from.context = &ttl_seen;
  CHECK_OK(holdfast_relay_start(&from, &relay, &status));
  CHECK(holdfast_relay_wait(relay, 20000, one_is_given_up, NULL));
  CHECK_OK(holdfast_relay_stop(relay, &status));
  CHECK(ttl_seen == 86400000);
  CHECK_OK(holdfast_store_stats(store, &stats, &status));
  CHECK(stats.expired == 1 && stats.capped == 0 && stats.pending == 0);
  holdfast_relay_close(relay);
  holdfast_outbox_detach(outbox);
  holdfast_store_close(store);
}

static void note(void* context, int level, const char* text) {
  station* s = context;
  if (level < HOLDFAST_LOG_DEBUG || level > HOLDFAST_LOG_ERROR || strchr(text, '\n') != NULL)
    ++s->bad_lines;
  ++s->logged;
}

static void wake_relay(void* relay) { holdfast_relay_wake(relay); }

static int is_drained(void* context, const holdfast_relay_state* state) {
  return state->drained && state->sent_events >= *(int*)context;
}
static int has_dead(void* context, const holdfast_relay_state* state) {
  (void)context;
  return state->dead > 0;
}

// Serves the gateway on this thread until the relay, on its own, is where it should be.
static int serve_until(holdfast_gateway* gateway, holdfast_relay* relay,
                       int (*done)(void*, const holdfast_relay_state*), void* context) {
  int i;
  for (i = 0; i < 3000; ++i) {
    CHECK_OK(holdfast_gateway_poll(gateway, 10, &status));
    if (holdfast_relay_wait(relay, 0, done, context)) return 1;
  }
  return 0;
}

static int is_dead(void* context, const holdfast_view* view) {
  *(int64_t*)context = view->event->seq;
  CHECK(strstr(view->last_error, "not known here") != NULL);
  return 1;
}

static void the_whole_path_from_c(void) {
  const char* device = path_of("device.db");
  const char* central = path_of("gateway.db");
  const char* listen[1] = {"tcp://127.0.0.1:0"};
  const char* ways[1];
  const char* everywhere[1] = {"tcp://0.0.0.0:0"};
  holdfast_init_options init = {.struct_size = sizeof(init)};
  holdfast_gateway_options to = {.struct_size = sizeof(to)};
  holdfast_relay_options from = {.struct_size = sizeof(from)};
  holdfast_outbox_options options = {.struct_size = sizeof(options)};
  holdfast_relay_state state = {.struct_size = sizeof(state)};
  holdfast_filter filter = {.struct_size = sizeof(filter)};
  holdfast_gateway* gateway = NULL;
  holdfast_relay* relay = NULL;
  holdfast_outbox* outbox = NULL;
  holdfast_store* store = NULL;
  sqlite3 *device_db, *central_db;
  station s = {0, 0, 0, 0}, relay_side = {0, 0, 0, 0};
  int64_t dead_seq = 0, changed = 0;
  int i, wanted = 10;
  char payload[32];

  CHECK_OK(holdfast_store_init(central, NULL, NULL, &status));
  central_db = open_database(central, 2);
  CHECK(execute(central_db, "CREATE TABLE applied(sensor, payload)"));
  to.database = central;
  to.listen = everywhere;
  to.listen_count = 1;
  to.consumer = "readings";
  to.handler = receive;
  to.log = note;
  to.context = &s;
  CHECK_CODE(holdfast_gateway_start(&to, &gateway, &status), HOLDFAST_INVALID);
  to.insecure = 1;
  CHECK_OK(holdfast_gateway_start(&to, &gateway, &status));
  holdfast_gateway_close(gateway);
  to.listen = listen;
  to.insecure = 0;
  CHECK_OK(holdfast_gateway_start(&to, &gateway, &status));
  CHECK(strncmp(holdfast_gateway_url(gateway, 0), "tcp://127.0.0.1:", 16) == 0);
  CHECK(holdfast_gateway_url(gateway, 1) == NULL);

  init.device = "board-1";
  CHECK_OK(holdfast_store_init(device, &init, NULL, &status));
  from.database = device;
  CHECK_CODE(holdfast_relay_start(&from, &relay, &status), HOLDFAST_INVALID);
  from.url = "tcp://no port";
  CHECK_CODE(holdfast_relay_start(&from, &relay, &status), HOLDFAST_INVALID);
  from.url = "tls+tcp://127.0.0.1:7447";
  from.tls.ca_file = "/no such/ca.crt";
  CHECK_CODE(holdfast_relay_start(&from, &relay, &status), HOLDFAST_INVALID);
  from.tls.cert_file = from.tls.key_file = from.tls.ca_file;
  CHECK_CODE(holdfast_relay_start(&from, &relay, &status), HOLDFAST_NOT_FOUND);
  CHECK(strstr(status.text, "/no such/ca.crt") != NULL);
  memset(&from.tls, 0, sizeof(from.tls));
  from.url = "tcp://127.0.0.1:1"; /* nobody listens there */
  from.more_urls_count = 1;
  CHECK_CODE(holdfast_relay_start(&from, &relay, &status), HOLDFAST_INVALID);
  ways[0] = holdfast_gateway_url(gateway, 0);
  from.more_urls = ways;
  from.log = note;
  from.context = &relay_side;
  from.dead_after = 1;
  CHECK_OK(holdfast_relay_start(&from, &relay, &status));

  device_db = open_database(device, 2);
  options.on_commit = wake_relay;
  options.context = relay;
  CHECK_OK(holdfast_outbox_attach(device_db, &options, &outbox, &status));
  for (i = 0; i < wanted; ++i) {
    snprintf(payload, sizeof(payload), "%d", i);
    emit(device_db, outbox, i % 2 ? "1" : "0", payload);
  }
  CHECK(serve_until(gateway, relay, is_drained, &wanted));
  CHECK(s.applied == 10);
  CHECK(number(central_db, "SELECT count(DISTINCT payload) FROM applied") == 10);

  // rejected, found, asked for again
  s.reject_sensor_2 = 1;
  emit(device_db, outbox, "2", "x");
  CHECK(serve_until(gateway, relay, has_dead, NULL));
  CHECK_OK(holdfast_store_open(device, HOLDFAST_ACCESS_READ_WRITE, NULL, &store, &status));
  filter.states = HOLDFAST_STATE_BIT(HOLDFAST_STATE_DEAD);
  for (i = 0; i < 1000 && dead_seq == 0; ++i) {  // it is written within flush_interval_ms
    CHECK_OK(holdfast_gateway_poll(gateway, 10, &status));
    CHECK_OK(holdfast_store_list(store, &filter, is_dead, &dead_seq, &status));
  }
  CHECK(dead_seq == 11);
  s.reject_sensor_2 = 0;
  CHECK_OK(holdfast_store_retry(store, dead_seq, NULL, &changed, &status));
  CHECK(changed == 1);
  holdfast_store_close(store);
  wanted = 11;
  CHECK(serve_until(gateway, relay, is_drained, &wanted));
  CHECK(s.applied == 11);

  CHECK_OK(holdfast_relay_get_state(relay, &state, &status));
  CHECK(state.sent_events == 11 && state.dead == 0 && state.pending_events == 0);
  CHECK(state.last_error.code == HOLDFAST_OK);
  CHECK(holdfast_phase_name(state.phase)[0] != '?');
  holdfast_outbox_detach(outbox);
  CHECK_OK(holdfast_relay_stop(relay, &status));
  CHECK(relay_side.logged > 0 && relay_side.bad_lines == 0);
  holdfast_relay_close(relay);
  holdfast_gateway_close(gateway);
  CHECK(s.bad_lines == 0);
  sqlite3_close(device_db);
  sqlite3_close(central_db);
}

typedef struct sink_plan {
  int answers;
  int received;
  int wrong;
} sink_plan;

// On the relay's thread.
static int deliver(void* context, const holdfast_record* events, size_t count,
                   holdfast_outcome* outcomes) {
  sink_plan* p = context;
  size_t i;
  if (p->answers++ == 0) return HOLDFAST_UNAVAILABLE;
  for (i = 0; i < count; ++i) {
    if (events[i].seq <= 0 || outcomes[i].kind != HOLDFAST_OUTCOME_STORED) ++p->wrong;
    if (events[i].seq == 2) {
      outcomes[i].kind = HOLDFAST_OUTCOME_INVALID;
      strcpy(outcomes[i].reason, "no");
    } else {
      ++p->received;
    }
  }
  return HOLDFAST_OK;
}

static int one_is_dead(void* context, const holdfast_relay_state* state) {
  (void)context;
  return state->dead == 1 && state->sent_events == 2;
}

static void a_gateway_bars_certificates(void) {
  const char* path = path_of("bars.db");
  const char* listen[1] = {"tls+tcp://127.0.0.1:0"};
  const holdfast_id unknown = {{7}};
  holdfast_gateway_options options = {.struct_size = sizeof(options)};
  holdfast_gateway* gateway = NULL;
  holdfast_store* store = NULL;
  sqlite3* db;
  int both;

  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  CHECK_OK(holdfast_store_open(path, HOLDFAST_ACCESS_READ_WRITE, NULL, &store, &status));
  db = open_database(path, 2);
  CHECK_OK(holdfast_store_deny_certificate(store, "pump7", &status));
  CHECK(number(db, "SELECT count(*) FROM inbox_denied WHERE name='pump7'") == 1);
  CHECK_OK(holdfast_store_allow_certificate(store, "pump7", NULL, &status));
  CHECK(number(db, "SELECT count(*) FROM inbox_denied") == 0);
  CHECK_CODE(holdfast_store_allow_certificate(store, "pump7", &unknown, &status),
             HOLDFAST_NOT_FOUND);
  CHECK_CODE(holdfast_store_deny_certificate(store, "", &status), HOLDFAST_INVALID);
  CHECK_CODE(holdfast_store_deny_certificate(NULL, "pump7", &status), HOLDFAST_INVALID);
  sqlite3_close(db);
  holdfast_store_close(store);

  // The list is read with the other files, and never taken for empty.
  options.database = path;
  options.listen = listen;
  options.listen_count = 1;
  options.tls_revoked_file = "/no such/revoked";
  for (both = 0; both < 2; ++both) {
    CHECK(holdfast_gateway_start(&options, &gateway, &status) != HOLDFAST_OK);
    options.tls.ca_file = options.tls.cert_file = options.tls.key_file = "/no such/ca.crt";
  }
  CHECK(strstr(status.text, "/no such/ca.crt") != NULL);
}

static void a_sink_in_c_gets_every_event(void) {
  const char* path = path_of("sink.db");
  holdfast_relay_options from = {.struct_size = sizeof(from)};
  holdfast_relay* relay = NULL;
  holdfast_outbox* outbox = NULL;
  sink_plan p = {0, 0, 0};
  sqlite3* db;
  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  db = open_database(path, 2);
  CHECK_OK(holdfast_outbox_attach(db, NULL, &outbox, &status));
  emit(db, outbox, "a", "1");
  emit(db, outbox, "b", "2");
  emit(db, outbox, "c", "3");
  from.database = path;
  from.sink = deliver;
  from.context = &p;
  from.link_delay_min_ms = 1;
  from.link_delay_max_ms = 5;
  CHECK_OK(holdfast_relay_start(&from, &relay, &status));
  CHECK(holdfast_relay_wait(relay, 20000, one_is_dead, NULL));
  CHECK_OK(holdfast_relay_stop(relay, &status));
  CHECK(p.received == 2 && p.wrong == 0);
  holdfast_relay_close(relay);
  holdfast_outbox_detach(outbox);
  sqlite3_close(db);
}

typedef struct work_context {
  const char* sensor;
  int fails;
} work_context;

static holdfast_code write_reading(void* context, sqlite3* db, holdfast_outbox* outbox,
                                   holdfast_status* told) {
  const work_context* work = context;
  const holdfast_event event = reading(work->sensor, "{}");
  if (!execute(db, "INSERT INTO reading VALUES(1)")) return HOLDFAST_INVALID;
  if (work->fails == 2) execute(db, "COMMIT");
  if (holdfast_outbox_emit(outbox, &event, NULL, told) != HOLDFAST_OK) return told->code;
  return work->fails == 1 ? HOLDFAST_FULL : HOLDFAST_OK;
}

static holdfast_code make_table(void* context, sqlite3* db) {
  (void)context;
  return execute(db, "CREATE TABLE IF NOT EXISTS reading(n)") ? HOLDFAST_OK : HOLDFAST_INVALID;
}

static void a_writer_commits_the_work_of_threads(void) {
  const char* path = path_of("writer.db");
  int commits = 0;
  work_context works = {"a", 0}, fails = {"b", 1}, ends = {"c", 2};
  holdfast_writer* writer = NULL;
  holdfast_writer_options options = {.struct_size = sizeof(options)};
  sqlite3* db;
  options.setup = make_table;
  options.on_commit = count_commit;
  options.context = &commits;
  CHECK_CODE(holdfast_writer_open(path, &options, &writer, &status), HOLDFAST_NOT_FOUND);
  CHECK_OK(holdfast_store_init(path, NULL, NULL, &status));
  CHECK_OK(holdfast_writer_open(path, &options, &writer, &status));
  CHECK_OK(holdfast_writer_run(writer, write_reading, &works, &status));
  CHECK_CODE(holdfast_writer_run(writer, write_reading, &fails, &status), HOLDFAST_FULL);
  CHECK_CODE(holdfast_writer_run(writer, write_reading, &ends, &status), HOLDFAST_MISUSE);
  CHECK_CODE(holdfast_writer_run(writer, NULL, NULL, &status), HOLDFAST_INVALID);
  CHECK_CODE(holdfast_writer_run(NULL, write_reading, &works, &status), HOLDFAST_INVALID);
  holdfast_writer_close(writer);
  holdfast_writer_close(NULL);
  CHECK(commits == 1);
  db = open_database(path, 2);
  CHECK(number(db, "SELECT count(*) FROM reading") == 1);
  CHECK(number(db, "SELECT count(*) FROM outbox_event") == 1);
  sqlite3_close(db);
}

int main(void) {
  char command[64];
  if (mkdtemp(folder) == NULL) return 1;
  names_and_ids();
  an_event_commits_with_the_data_or_not_at_all();
  a_writer_commits_the_work_of_threads();
  what_is_not_durable_is_refused();
  null_and_unset_sizes_are_errors_and_nothing_worse();
  an_effect_happens_once();
  firmware_does_what_the_command_line_does();
  limits_are_kept_in_the_database();
  an_event_past_its_time_to_live_is_given_up();
  what_is_readable_is_salvaged();
  the_whole_path_from_c();
  a_sink_in_c_gets_every_event();
  a_gateway_bars_certificates();
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  if (failures == 0 && system(command) != 0) ++failures;
  printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
