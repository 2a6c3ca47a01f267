// Holdfast for C, and for every language that can call C: all that the C++ headers beside this one
// offer. Those say more about what happens inside; this one is complete for its use.
//
//   holdfast_outbox* outbox;                 // db: your own sqlite3*, opened and set up by you
//   if (holdfast_outbox_attach(db, NULL, &outbox, &status) != HOLDFAST_OK) …  // status.text says
//   sqlite3_exec(db, "BEGIN IMMEDIATE", 0, 0, 0);
//   … your own writes …
//   holdfast_event event = {.struct_size = sizeof(event)};
//   event.event_type = "sensor.reading.v1"; …
//   if (holdfast_outbox_emit(outbox, &event, &emitted, &status) == HOLDFAST_OK)
//     sqlite3_exec(db, "COMMIT", 0, 0, 0);   // both are durable, or neither is there
//
// Conventions
//
//  1. Errors. A call that can fail returns a holdfast_code and takes a holdfast_status* as its last
//     argument, which it fills (also when all is well) and which may be NULL. Nothing is thrown and
//     nothing is printed. Unless said otherwise, a call that failed changed nothing.
//
//  2. Numbers. Every number in an enum is frozen, and so is the layout of holdfast_status,
//     holdfast_id and holdfast_emitted. New codes may come: treat one you do not know as an error.
//
//  3. Structs. All others begin with `size_t struct_size` and may grow at their end. Set all bytes
//     to zero and struct_size to sizeof before you hand one in, for input and for output alike:
//         holdfast_relay_options options = {.struct_size = sizeof(options)};
//     A program built with an older header works with a newer library; one built with a newer
//     header works with an older library as long as it leaves the newer fields zero. In structs
//     that callbacks get, struct_size is the library's own.
//
//  4. Zero is the default. A field left at zero (NULL, 0) means what its comment calls the default.
//     Where "none" or "never" is possible, it is a negative number.
//
//  5. Strings are UTF-8 that ends with a zero byte; NULL means "". Payloads are bytes with a size
//     and may hold anything. Sizes are bytes, times are milliseconds.
//
//  6. Ownership. What you pass in is copied or used up before the call returns, except callbacks,
//     their contexts and sqlite3 connections, which must live as long as the handle. What a
//     callback is given lives until it returns. Nothing returned is ever for you to free, except
//     the handles: each has one call that ends it, and that call takes NULL as well.
//
//  7. Threads. A handle is used by one thread at a time, if its functions do not say otherwise.
//     Different handles are independent. Callbacks say which thread they run on.
//
//  8. Callbacks get `context` first, unchanged. They must not throw through this library (C++) or
//     jump out of it (longjmp), and must not use the handle that calls them unless it says so.
//     Visitors (holdfast_..._fn of the store) return nonzero to go on and 0 to stop.
//
//  9. fork. No handle survives a fork. Daemonise first.
//
// 10. Memory. If an allocation of a few bytes fails, the process ends; what was committed is safe.
//
// libholdfast.so holds everything down to "Relay"; relay and gateway are in libholdfast.a alone.
// The program must contain SQLite only once.
#ifndef HOLDFAST_HOLDFAST_H
#define HOLDFAST_HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sqlite3;

#define HOLDFAST_VERSION "0.1.0"     // of this header
const char* holdfast_version(void);  // of the library that was linked

// ---------------------------------------------------------------------------------- Status and ids

typedef enum holdfast_code {
  HOLDFAST_OK = 0,
  HOLDFAST_NO_TRANSACTION = 1,  // emit outside a transaction
  HOLDFAST_NOT_DURABLE = 2,     // the connection cannot promise durability; text: which pragma
  HOLDFAST_INVALID = 3,         // an argument or field is bad; text: which
  HOLDFAST_FULL = 4,            // a configured cap was reached
  HOLDFAST_BUSY = 5,            // another writer held the database past the timeout
  HOLDFAST_UNKNOWN = 6,  // a COMMIT met an I/O error: there or not, see holdfast_outbox_resolve
  HOLDFAST_NOT_FOUND = 7,
  HOLDFAST_NEWER_SCHEMA = 8,  // made by newer software
  HOLDFAST_NO_SCHEMA = 9,     // no Holdfast tables: holdfast_store_init
  HOLDFAST_IO = 10,
  HOLDFAST_READ_ONLY = 11,
  HOLDFAST_CORRUPT = 12,  // not a database, or a damaged one
  HOLDFAST_NO_SPACE = 13,
  HOLDFAST_MISUSE = 14,       // not allowed in this state; text: why
  HOLDFAST_UNAVAILABLE = 15,  // the other side cannot be reached now
  HOLDFAST_LEASE_LOST = 16,
  HOLDFAST_PERMISSION = 17,
  HOLDFAST_EXISTS = 18,
  HOLDFAST_REFUSED = 19,  // by the gateway; text: why
  HOLDFAST_INTERNAL = 20  // a defect in Holdfast
} holdfast_code;

const char* holdfast_code_name(int code);  // "not_durable", …: stable; "?" for an unknown number

#define HOLDFAST_STATUS_TEXT_BYTES 320

typedef struct holdfast_status {
  int code;                               // a holdfast_code
  int native;                             // SQLite's extended or NNG's code that caused it, or 0
  char text[HOLDFAST_STATUS_TEXT_BYTES];  // one line for a person; "" when ok
} holdfast_status;

typedef struct holdfast_id {
  uint8_t bytes[16];  // a UUID; all zero: none
} holdfast_id;

#define HOLDFAST_ID_TEXT_BYTES 37  // with the zero byte

// A new version 7 id (ordered by time).
void holdfast_id_make(holdfast_id* id);
void holdfast_id_text(const holdfast_id* id, char text[HOLDFAST_ID_TEXT_BYTES]);
// Nonzero if text is a UUID.
int holdfast_id_parse(const char* text, holdfast_id* id);

// ------------------------------------------------------------------------------------------ Events

typedef enum holdfast_lane {
  HOLDFAST_LANE_NORMAL = 0,
  HOLDFAST_LANE_URGENT = 1  // overtakes any backlog; order holds within a lane
} holdfast_lane;

// What a producer gives. A field beyond its limit is HOLDFAST_INVALID.
typedef struct holdfast_event {
  size_t struct_size;
  const char* event_type;      // required, at most 128 bytes, e.g. "sensor.reading.v1"
  const char* aggregate_type;  // required, at most 128 bytes, e.g. "sensor"
  const char* aggregate_id;    // required, at most 256 bytes, e.g. "boiler-1"
  const void* payload;         // at most 921,600 bytes
  size_t payload_size;
  int payload_is_text;       // nonzero: stored as TEXT (must be UTF-8), so that SQL can read it
  int lane;                  // a holdfast_lane
  const char* content_type;  // at most 128 bytes, e.g. "application/json"
  const char* trace;         // W3C traceparent
  const char* headers;       // a JSON object, at most 8 KiB
  int has_aggregate_version;
  int64_t aggregate_version;  // for consumers that skip stale versions
  int64_t created_at_ms;      // Unix time, information only; 0: now
  holdfast_id id;             // all zero: a new one is made
  int64_t ttl_ms;  // given up, with a gap the gateway sees, if not sent by then; 0: never
} holdfast_event;

// What a log holds.
typedef struct holdfast_record {
  size_t struct_size;
  int64_t seq;  // order of commit in its database
  holdfast_id id;
  const char* event_type;
  const char* aggregate_type;
  const char* aggregate_id;
  const void* payload;
  size_t payload_size;
  int payload_is_text;
  int lane;
  const char* content_type;
  const char* trace;
  const char* headers;
  int has_aggregate_version;
  int64_t aggregate_version;
  int64_t created_at_ms;      // Unix time; before 2024 (1704067200000): unknown, no clock was set
  const char* source;         // the device, as it calls itself; "": this database's own event
  holdfast_id source_stream;  // the stream it was emitted on; all zero: this database's own
  int64_t source_seq;         // its seq there; 0: this database's own
  int64_t ttl_ms;             // 0: none; of the log it was emitted to alone
} holdfast_record;

// ------------------------------------------------------------------------------------------ Outbox
// Writes an event in the same transaction as your own data.

typedef struct holdfast_outbox holdfast_outbox;

typedef struct holdfast_outbox_options {
  size_t struct_size;
  int relaxed;            // nonzero: take a connection that is not durable; a power cut may then
                          // lose the newest events
  int busy_timeout_ms;    // set if the connection has none; default 5000; < 0: leave it alone
  int checkpoint_frames;  // checkpoint from so many WAL frames on; default 500; < 0: you do it
  // After each commit that emitted, on the committing thread. It must not touch the connection.
  // To wake a relay in the same process, call holdfast_relay_wake here.
  void (*on_commit)(void* context);
  void* context;
} holdfast_outbox_options;

typedef struct holdfast_emitted {
  int64_t seq;
  holdfast_id id;
} holdfast_emitted;

typedef enum holdfast_fate { HOLDFAST_ABSENT = 0, HOLDFAST_COMMITTED = 1 } holdfast_fate;

// Binds to your own connection, whose main database has Holdfast's tables (holdfast_store_init).
// The connection must outlive the outbox. Refused: HOLDFAST_NOT_DURABLE if it is not in WAL mode
// with synchronous FULL or EXTRA, is in exclusive locking mode or has other files attached;
// HOLDFAST_NO_SCHEMA, HOLDFAST_NEWER_SCHEMA. Effects on the connection: if it had no busy timeout,
// a busy handler that looks again after short random steps (one of your own is not seen and is
// replaced, unless busy_timeout_ms is < 0); wal_autocheckpoint 0 and the WAL hook;
// journal_size_limit 16 MiB (less on a small file system) if it had none. options may be NULL.
holdfast_code holdfast_outbox_attach(struct sqlite3* db, const holdfast_outbox_options* options,
                                     holdfast_outbox** outbox, holdfast_status* status);

// Adds the event to the open transaction: it is durable once your COMMIT returned SQLITE_OK, and
// gone if you roll back or the power fails before. On any error the transaction is as it was before
// the call, and still open. Does not change sqlite3_last_insert_rowid. emitted may be NULL.
holdfast_code holdfast_outbox_emit(holdfast_outbox* outbox, const holdfast_event* event,
                                   holdfast_emitted* emitted, holdfast_status* status);

// After a COMMIT that returned an I/O error: close and open the database, attach, and ask whether
// the event is there. One look-up, whatever the size.
holdfast_code holdfast_outbox_resolve(holdfast_outbox* outbox, const holdfast_emitted* emitted,
                                      holdfast_fate* fate, holdfast_status* status);
// The same by id alone: looks at the newest rows_max events.
holdfast_code holdfast_outbox_resolve_id(holdfast_outbox* outbox, const holdfast_id* id,
                                         int64_t rows_max, holdfast_fate* fate,
                                         holdfast_status* status);

// Ends the outbox; the connection stays open and yours. Call it before sqlite3_close.
void holdfast_outbox_detach(holdfast_outbox* outbox);

// ------------------------------------------------------------------------------------------ Writer
// One write connection for all threads of a process: what they write at the same time becomes
// durable with one COMMIT. Each function is a transaction of its own in all but that.

typedef struct holdfast_writer holdfast_writer;

typedef struct holdfast_writer_options {
  size_t struct_size;
  int busy_timeout_ms;  // for the write lock, while another process has it; default 5000; < 0: none
  int64_t wait_us;      // a leader waits so long for others, at most 1000000; default: not at all
  int members_max;      // functions in one COMMIT, 1 to 256; default 256
  int checkpoint_frames;  // checkpoint from so many WAL frames on; default 500; < 0: you do it
  // After each commit that emitted, on the thread that led. It must not use the writer.
  void (*on_commit)(void* context);
  // Once, with the new connection: PRAGMA foreign_keys, SQL functions of your own. Another value
  // than HOLDFAST_OK is the error of holdfast_writer_open.
  holdfast_code (*setup)(void* context, struct sqlite3* db);
  void* context;
} holdfast_writer_options;

// Writes through db and outbox only (do not detach it), and returns soon. Whatever it returns but
// HOLDFAST_OK undoes it, and is what holdfast_writer_run returns, with the status that it filled.
typedef holdfast_code (*holdfast_work)(void* context, struct sqlite3* db, holdfast_outbox* outbox,
                                       holdfast_status* status);

// Opens a connection of its own, durable. options may be NULL.
holdfast_code holdfast_writer_open(const char* path, const holdfast_writer_options* options,
                                   holdfast_writer** writer, holdfast_status* status);

// Runs work in a transaction, and returns once that is committed (HOLDFAST_OK) or undone. Any
// thread, any number at a time. work may run on another thread that is in this call: hold no lock
// that any work takes. It may run more than once, each time with what it wrote undone. BEGIN,
// COMMIT, ROLLBACK, ATTACH and DETACH are refused in it and make it fail with HOLDFAST_MISUSE, as
// does a deferred foreign key that it leaves broken with HOLDFAST_INVALID; other threads' work is
// not touched by that. HOLDFAST_BUSY: the lock was not got, work was not run. HOLDFAST_UNKNOWN: the
// COMMIT met an I/O error; holdfast_outbox_resolve tells.
holdfast_code holdfast_writer_run(holdfast_writer* writer, holdfast_work work, void* context,
                                  holdfast_status* status);

// No thread may be in holdfast_writer_run any more.
void holdfast_writer_close(holdfast_writer* writer);

// ------------------------------------------------------------------------------------------- Inbox
// Applies an event's effect exactly once, in your own database.

typedef struct holdfast_inbox holdfast_inbox;

typedef enum holdfast_guard {
  HOLDFAST_APPLY_ALL = 0,
  HOLDFAST_SKIP_STALE = 1  // an aggregate_version not above the last one applied is not applied
} holdfast_guard;

typedef struct holdfast_inbox_options {
  size_t struct_size;
  int guard;            // a holdfast_guard
  int busy_timeout_ms;  // set if the connection has none; default 5000; < 0: leave it alone
} holdfast_inbox_options;

typedef enum holdfast_verdict {
  HOLDFAST_DONE = 0,
  HOLDFAST_RETRY_LATER = 1,
  HOLDFAST_REJECT = 2  // any other number is a reject as well
} holdfast_verdict;

#define HOLDFAST_REASON_BYTES 201  // with the zero byte

typedef struct holdfast_answer {
  size_t struct_size;
  int64_t delay_ms;                    // RETRY_LATER: not before this
  char reason[HOLDFAST_REASON_BYTES];  // REJECT, RETRY_LATER: recorded, and told to the device
} holdfast_answer;

// Your effect, inside the transaction that holds the inbox row. Write through db only (its main
// database), do not commit or roll back, and return soon: the write lock is held. Returns a
// holdfast_verdict; with all but DONE, what it wrote is rolled back. answer comes empty.
typedef int (*holdfast_handler)(void* context, const holdfast_record* event, struct sqlite3* db,
                                holdfast_answer* answer);

typedef enum holdfast_applied {
  HOLDFAST_APPLIED_DONE = 0,
  HOLDFAST_APPLIED_DUPLICATE = 1,  // the handler was not called
  HOLDFAST_APPLIED_STALE = 2,      // the handler was not called
  HOLDFAST_APPLIED_RETRY_LATER = 3,
  HOLDFAST_APPLIED_REJECTED = 4
} holdfast_applied;

// As holdfast_outbox_attach.
holdfast_code holdfast_inbox_attach(struct sqlite3* db, const holdfast_inbox_options* options,
                                    holdfast_inbox** inbox, holdfast_status* status);

// Calls the handler at most once in effect for each (event id, consumer). With no transaction open
// it opens and commits its own; inside yours it uses a savepoint, and you commit. event needs seq,
// id, event_type, aggregate_type and aggregate_id at least. consumer: 1 to 64 bytes.
holdfast_code holdfast_inbox_once(holdfast_inbox* inbox, const holdfast_record* event,
                                  const char* consumer, holdfast_handler handler, void* context,
                                  holdfast_applied* applied, holdfast_status* status);

void holdfast_inbox_detach(holdfast_inbox* inbox);

// ------------------------------------------------------------------------------------------- Store
// A Holdfast database as an operator sees it. Owns its connection. No read transaction is held
// between two calls, nor while a visitor runs.

typedef struct holdfast_store holdfast_store;

typedef struct holdfast_init_options {
  size_t struct_size;
  int must_exist;           // nonzero: do not create the file
  const char* destination;  // default (NULL) "upstream"; "": none, as a gateway's log begins
  const char* device;       // label, at most 64 bytes; default: the host name
  int busy_timeout_ms;      // default 5000; < 0: none
  int page_size;            // of a new file; default: SQLite's
} holdfast_init_options;

typedef struct holdfast_init_result {
  size_t struct_size;
  int created;  // nonzero: the tables are new
  int from_version;
  int to_version;
  holdfast_id stream;
} holdfast_init_result;

// Creates or migrates the tables beside your own, sets WAL, and for a new file syncs its directory:
// call it at each start. Idempotent. A newer schema is refused and not written to. options and
// result may be NULL.
holdfast_code holdfast_store_init(const char* path, const holdfast_init_options* options,
                                  holdfast_init_result* result, holdfast_status* status);

typedef enum holdfast_access {
  HOLDFAST_ACCESS_READ_WRITE = 0,
  HOLDFAST_ACCESS_READ_ONLY = 1
} holdfast_access;

typedef struct holdfast_store_options {
  size_t struct_size;
  int busy_timeout_ms;  // default 5000; < 0: none
} holdfast_store_options;

holdfast_code holdfast_store_open(const char* path, holdfast_access access,
                                  const holdfast_store_options* options, holdfast_store** store,
                                  holdfast_status* status);
void holdfast_store_close(holdfast_store* store);

// A durable connection for programs that have none of their own: attach an outbox to it.
holdfast_code holdfast_store_begin(holdfast_store* store, holdfast_status* status);
holdfast_code holdfast_store_commit(holdfast_store* store, holdfast_status* status);
holdfast_code holdfast_store_rollback(holdfast_store* store, holdfast_status* status);
struct sqlite3* holdfast_store_connection(holdfast_store* store);  // the store's own

// --- look

typedef enum holdfast_state {
  HOLDFAST_STATE_PENDING = 0,
  HOLDFAST_STATE_PROCESSING = 1,  // under way, under a live lease
  HOLDFAST_STATE_SENT = 2,
  HOLDFAST_STATE_RETRY = 3,  // was rejected; offered again later
  HOLDFAST_STATE_HELD = 4,   // waits for an earlier event of its aggregate
  HOLDFAST_STATE_DEAD = 5,   // given up; waits for a person
  HOLDFAST_STATE_GONE = 6    // discarded, expired or capped
} holdfast_state;

const char* holdfast_state_name(int state);  // "PENDING", …

#define HOLDFAST_STATE_BIT(state) (1u << (state))

typedef struct holdfast_filter {
  size_t struct_size;
  unsigned states;             // HOLDFAST_STATE_BIT()s; default: all but SENT and GONE
  const char* event_type;      // exact; default: any
  const char* aggregate_type;  // exact; default: any
  const char* aggregate_id;    // exact; default: any
  const char* destination;     // default: every one
  int64_t limit;               // rows; default 100; < 0: no limit
  int64_t after_seq;
  int without_payload;
} holdfast_filter;

typedef struct holdfast_view {
  size_t struct_size;
  const holdfast_record* event;
  const char* destination;  // "" when the log has none
  int state;                // a holdfast_state
  int attempts;
  int64_t next_attempt_in_ms;  // RETRY: from now; -1: not set
  const char* last_error;
  const char* gone_reason;
} holdfast_view;

typedef int (*holdfast_view_fn)(void* context, const holdfast_view* view);

// In order of seq. filter may be NULL.
holdfast_code holdfast_store_list(holdfast_store* store, const holdfast_filter* filter,
                                  holdfast_view_fn visit, void* context, holdfast_status* status);
// One event at every destination; HOLDFAST_NOT_FOUND if there is no such event.
holdfast_code holdfast_store_find(holdfast_store* store, int64_t seq, holdfast_view_fn visit,
                                  void* context, holdfast_status* status);
// The same by id: searches newest first, which may be slow.
holdfast_code holdfast_store_find_id(holdfast_store* store, const holdfast_id* id,
                                     holdfast_view_fn visit, void* context,
                                     holdfast_status* status);

typedef struct holdfast_stats {
  size_t struct_size;
  char device[65];
  holdfast_id stream;
  holdfast_id store;
  int schema_version;
  int64_t newest_seq;  // 0: the log is empty
  int64_t oldest_seq;
  int64_t db_bytes;
  int64_t wal_bytes;
  int64_t forks;
  int64_t gaps_unreported;
  // of all destinations together
  int64_t pending;
  int64_t oldest_pending_age_ms;  // -1: nothing is pending
  int64_t retry;
  int64_t held;
  int64_t dead;
  // the receiving side
  int64_t inbox_applied;
  int64_t inbox_duplicates;
  int64_t inbox_stale;
  int64_t inbox_rejected;
  int64_t inbox_later;
  int64_t inbox_held;
  int64_t inbox_handler_failures;
  int64_t inbox_streams;
  int64_t inbox_open_gaps;
  int64_t inbox_gone;
  int64_t handler_calls;
  double handler_seconds_sum;
  int64_t capped;   // sending: dropped at a cap before they were sent
  int64_t expired;  // sending: given up at their time to live
  int64_t
      inbox_replaced_streams;  // beyond the first of a device's name: copied, restored, made anew
  int64_t inbox_not_your_stream;  // refused: a denied certificate, or a stream of another one
  // when the certificate in use ends, Unix ms; 0: no TLS
  int64_t relay_certificate_ends_at;
  int64_t gateway_certificate_ends_at;
} holdfast_stats;

holdfast_code holdfast_store_stats(holdfast_store* store, holdfast_stats* stats,
                                   holdfast_status* status);

typedef struct holdfast_destination {
  size_t struct_size;
  const char* name;
  int64_t acked_seq[2];  // by lane
  int64_t claimed_seq[2];
  int64_t pending;  // not yet accepted, exceptions excluded
  int64_t oldest_pending_age_ms;
  int64_t retry;
  int64_t held;
  int64_t dead;
  int64_t sent;  // this and the next five: since the destination was made
  int64_t duplicates;
  int64_t rejected;
  int64_t retries;
  int64_t gone;
  int64_t rewinds;
  int leased;  // nonzero: a live relay holds it
  const char* lease_owner;
  int64_t link_failures;
  const char* last_error;    // of the link
  int64_t last_error_at_ms;  // Unix time
  int64_t capped;            // events dropped at a cap, since the destination was made
  const char* url;           // of a relay with several: the one used last
} holdfast_destination;

typedef int (*holdfast_destination_fn)(void* context, const holdfast_destination* destination);
holdfast_code holdfast_store_destinations(holdfast_store* store, holdfast_destination_fn visit,
                                          void* context, holdfast_status* status);

typedef struct holdfast_bucket {
  size_t struct_size;
  double le_seconds;  // upper bound; the last one is infinite
  int64_t count;      // cumulative
} holdfast_bucket;

// How long handlers took, as a histogram.
typedef int (*holdfast_bucket_fn)(void* context, const holdfast_bucket* bucket);
holdfast_code holdfast_store_handler_seconds(holdfast_store* store, holdfast_bucket_fn visit,
                                             void* context, holdfast_status* status);

typedef struct holdfast_inbox_filter {
  size_t struct_size;
  const char* status;    // "DONE", "STALE" or "FAILED"; default: any
  const char* consumer;  // default: any
  int64_t limit;         // default 100; < 0: no limit
} holdfast_inbox_filter;

typedef struct holdfast_inbox_row {
  size_t struct_size;
  holdfast_id id;
  const char* consumer;
  const char* status;
  int attempts;
  int64_t received_at_ms;  // Unix time
  const char* last_error;
} holdfast_inbox_row;

typedef int (*holdfast_inbox_fn)(void* context, const holdfast_inbox_row* row);
holdfast_code holdfast_store_list_inbox(holdfast_store* store, const holdfast_inbox_filter* filter,
                                        holdfast_inbox_fn visit, void* context,
                                        holdfast_status* status);
holdfast_code holdfast_store_find_inbox(holdfast_store* store, const holdfast_id* id,
                                        holdfast_inbox_fn visit, void* context,
                                        holdfast_status* status);

typedef struct holdfast_stream {
  size_t struct_size;
  holdfast_id stream;
  int lane;
  const char* consumer;
  const char* device;
  int64_t mark_seq;  // the newest event seen
  holdfast_id mark_id;
  int64_t open_gaps;
  int64_t last_seen_at_ms;  // Unix time
} holdfast_stream;

typedef int (*holdfast_stream_fn)(void* context, const holdfast_stream* stream);
holdfast_code holdfast_store_streams(holdfast_store* store, holdfast_stream_fn visit, void* context,
                                     holdfast_status* status);

typedef struct holdfast_gap {
  size_t struct_size;
  holdfast_id stream;
  int lane;
  const char* consumer;
  int64_t first_seq;
  int64_t last_seq;
  int64_t count;
  const char* state;  // SKIPPED, LATER, REJECTED, HELD, DEAD, GONE
  const char* reason;
} holdfast_gap;

typedef int (*holdfast_gap_fn)(void* context, const holdfast_gap* gap);
holdfast_code holdfast_store_gaps(holdfast_store* store, holdfast_gap_fn visit, void* context,
                                  holdfast_status* status);

typedef struct holdfast_audit_row {
  size_t struct_size;
  int64_t at_ms;  // Unix time
  const char* action;
  const char* detail;
} holdfast_audit_row;

typedef int (*holdfast_audit_fn)(void* context, const holdfast_audit_row* row);
// Newest first.
holdfast_code holdfast_store_audit(holdfast_store* store, int64_t limit, holdfast_audit_fn visit,
                                   void* context, holdfast_status* status);

typedef struct holdfast_health {
  size_t struct_size;
  int synchronous;  // as Holdfast opens it; 2: FULL
  int page_size;
  int wal_reset_fixed;          // nonzero: SQLite 3.51.3 or newer
  int application_triggers_ok;  // nonzero: the guard triggers are there
  char sqlite_version[32];
  char journal_mode[16];
  char integrity[256];  // "ok" or the first finding
  int64_t findings;     // texts that visit was called with
} holdfast_health;

typedef int (*holdfast_text_fn)(void* context, const char* text);
// What should worry somebody; visit may be NULL. quick: nonzero leaves the indexes out.
holdfast_code holdfast_store_health(holdfast_store* store, int quick, holdfast_health* health,
                                    holdfast_text_fn visit, void* context, holdfast_status* status);

// --- act; each of these leaves an audit row. destination NULL or "": every one. changed may be
// NULL.

// RETRY, HELD and DEAD events are offered again now.
holdfast_code holdfast_store_retry(holdfast_store* store, int64_t seq, const char* destination,
                                   int64_t* changed, holdfast_status* status);
holdfast_code holdfast_store_retry_all_dead(holdfast_store* store, const char* destination,
                                            int64_t* changed, holdfast_status* status);
// Gives up for good; the gateway is told.
holdfast_code holdfast_store_discard(holdfast_store* store, int64_t seq, const char* destination,
                                     const char* reason, int64_t* changed, holdfast_status* status);

typedef struct holdfast_purge_options {
  size_t struct_size;
  int64_t outbox_older_than_ms;  // default 7 days; 1: whatever is sent; < 0: leave it alone
  int64_t inbox_older_than_ms;   // default 14 days; < 0: leave it alone
  int step_rows;                 // default 5000
} holdfast_purge_options;

typedef struct holdfast_purge_result {
  size_t struct_size;
  int64_t outbox_rows;
  int64_t inbox_rows;
  int more;  // nonzero: call again
} holdfast_purge_result;

// One step: events sent at every destination and old enough, never the newest. A running relay
// or gateway does this by itself. options and result may be NULL.
holdfast_code holdfast_store_purge(holdfast_store* store, const holdfast_purge_options* options,
                                   holdfast_purge_result* result, holdfast_status* status);

holdfast_code holdfast_store_add_destination(holdfast_store* store, const char* name,
                                             holdfast_status* status);
// force: nonzero removes it even with pending events, which are then given up.
holdfast_code holdfast_store_remove_destination(holdfast_store* store, const char* name, int force,
                                                holdfast_status* status);

typedef struct holdfast_capture {
  size_t struct_size;
  const char* table;
  int on_insert;
  int on_update;
  int on_delete;
  const char* event_type;  // "{op}" in it becomes insert, update or delete
  const char* aggregate_type;
  const char* aggregate_id;       // an SQL expression over NEW (OLD on delete)
  const char* payload;            // an SQL expression
  const char* aggregate_version;  // an SQL expression; default: none
  int lane;
} holdfast_capture;

// Makes each change of the table an event, by triggers. Replaces what the table had of these.
holdfast_code holdfast_store_capture(holdfast_store* store, const holdfast_capture* capture,
                                     holdfast_status* status);
holdfast_code holdfast_store_remove_capture(holdfast_store* store, const char* table, int* removed,
                                            holdfast_status* status);

// A live copy that takes a new stream identity when it is first opened for writing. progress (pages
// done, of total) may be NULL.
holdfast_code holdfast_store_backup(holdfast_store* store, const char* new_path,
                                    void (*progress)(void* context, int64_t done, int64_t total),
                                    void* context, holdfast_status* status);

typedef struct holdfast_salvage_report {
  size_t struct_size;
  int complete;           // nonzero: nothing is lost and nothing was damaged
  int64_t damaged_pages;  // of Holdfast's tables
  int header_damaged;     // the first page: schema and settings of the file
  int wal_damaged;        // newer versions of pages are lost
  int identity_lost;      // device label or store id were not readable
  int newest_lost;        // how many of the newest events are lost is not known
  int64_t events;         // copied
  int64_t lost_count;     // events with a seq that are in no readable page, sent or not
  int64_t lost_pending;   // not yet sent, added up over the destinations: gap records `lost`
  holdfast_id stream;     // of the new database
} holdfast_salvage_report;

// Copies what can be read of Holdfast's tables from a damaged database, that nobody has open, into
// a new one with a new stream identity; the damaged one is only read. HOLDFAST_OK also if something
// is lost. Not for tables of the application. Errors: HOLDFAST_NOT_FOUND, HOLDFAST_EXISTS,
// HOLDFAST_BUSY, HOLDFAST_CORRUPT (nothing is readable), HOLDFAST_NEWER_SCHEMA and those of
// writing.
holdfast_code holdfast_store_salvage(const char* path, const char* new_path,
                                     holdfast_salvage_report* report, holdfast_status* status);
// A gateway's database: the certificate name may write again; with a stream (not NULL), this
// stream is bound to it, and to no other. A running gateway goes by it at once. HOLDFAST_NOT_FOUND:
// the stream has written nothing here.
holdfast_code holdfast_store_allow_certificate(holdfast_store* store, const char* name,
                                               const holdfast_id* stream, holdfast_status* status);
// Nothing that comes with a certificate of this name is taken any more.
holdfast_code holdfast_store_deny_certificate(holdfast_store* store, const char* name,
                                              holdfast_status* status);
// A new stream identity for this database now.
holdfast_code holdfast_store_new_stream(holdfast_store* store, holdfast_status* status);

typedef enum holdfast_when_full {
  HOLDFAST_REFUSE = 0,      // emit fails with HOLDFAST_FULL, the transaction is as it was
  HOLDFAST_DROP_OLDEST = 1  // the oldest unsent events go; the gateway is told
} holdfast_when_full;

// Kept in the database: every writer obeys. What every destination has is removed first.
typedef struct holdfast_limits {
  size_t struct_size;
  int64_t max_events;  // rows of the log, also with plain SQL; 0: no cap
  int64_t max_bytes;   // pages in use and the WAL, at holdfast_outbox_emit; 0: no cap, else at
                       // least 262,144
  int when_full;       // a holdfast_when_full
} holdfast_limits;

holdfast_code holdfast_store_limits(holdfast_store* store, holdfast_limits* limits,
                                    holdfast_status* status);
holdfast_code holdfast_store_set_limits(holdfast_store* store, const holdfast_limits* limits,
                                        holdfast_status* status);

// ==================================================== from here on: libholdfast.a, not in the .so

typedef enum holdfast_log_level {
  HOLDFAST_LOG_DEBUG = 0,
  HOLDFAST_LOG_INFO = 1,
  HOLDFAST_LOG_WARNING = 2,
  HOLDFAST_LOG_ERROR = 3
} holdfast_log_level;

// One line, without a newline. Runs on the thread of the relay or gateway that speaks.
typedef void (*holdfast_log)(void* context, int level, const char* text);

// ------------------------------------------------------------------------------------------- Relay
// Forwards a log to one destination, in order, until the other side has it durably.

typedef struct holdfast_relay holdfast_relay;

typedef enum holdfast_outcome_kind {
  HOLDFAST_OUTCOME_STORED = 0,     // durably there
  HOLDFAST_OUTCOME_DUPLICATE = 1,  // was there already
  HOLDFAST_OUTCOME_LATER = 2,      // again after later_ms; counts no attempt
  HOLDFAST_OUTCOME_REJECTED = 3,   // counts an attempt
  HOLDFAST_OUTCOME_INVALID = 4,    // can never be accepted: dead at once
  HOLDFAST_OUTCOME_HELD = 5        // waits for an earlier event of its aggregate
} holdfast_outcome_kind;

// An element of an array, so it never grows.
typedef struct holdfast_outcome {
  int kind;
  int64_t later_ms;
  char reason[HOLDFAST_REASON_BYTES];
} holdfast_outcome;

// A place of your own to deliver to, instead of a gateway; at least once. Runs on the relay's
// thread. Deliver the events in order and fill one outcome for each (they come as STORED). Return
// HOLDFAST_OK, or HOLDFAST_UNAVAILABLE if the place cannot be reached: then no outcome counts, and
// the same events are offered again.
typedef int (*holdfast_sink)(void* context, const holdfast_record* events, size_t count,
                             holdfast_outcome* outcomes);

// Mutual TLS; see tls.hpp for the rules. PEM files, read again for new connections if they change.
typedef struct holdfast_tls {
  const char* ca_file;      // the CA whose certificates are accepted
  const char* cert_file;    // this side's certificate
  const char* key_file;     // its key, not encrypted, not readable by everybody
  const char* server_name;  // relay: the gateway's name; default: the URL's host
} holdfast_tls;

typedef struct holdfast_relay_options {
  size_t struct_size;
  const char* database;         // required: the path; must be initialised
  const char* destination;      // default "upstream"
  const char* url;              // tls+tcp://host:port, tcp://host:port or ipc:///path; this or sink
  holdfast_sink sink;           // this or url
  int no_create_destination;    // nonzero: fail if there is no such destination
  int dead_after;               // rejections until an event is DEAD; default 10
  int64_t retry_delay_min_ms;   // after a rejection; default 1000
  int64_t retry_delay_max_ms;   // default 300,000
  int64_t link_delay_min_ms;    // before reconnecting; default 100
  int64_t link_delay_max_ms;    // default 2000
  int64_t request_timeout_ms;   // default 10,000
  int64_t lease_ms;             // default 10,000
  int64_t flush_interval_ms;    // default 250
  int64_t outbox_retention_ms;  // default 7 days; < 0: never purge
  int64_t inbox_retention_ms;   // default 14 days; < 0: never purge
  int batch_events_max;         // default and most 1024
  size_t batch_bytes_max;       // default 65,536
  holdfast_log log;
  void* context;          // of sink and log
  int64_t reserve_bytes;  // held back on the disk in <database>-reserve, for writing what was
                          // acknowledged when it is full; default 4 MiB; < 0: none
  holdfast_tls tls;       // for tls+tcp://
  const char* tls_revoked_file;  // gateways' certificates not accepted any more; see tls.hpp
  holdfast_writer* writer;  // of the producers in this process, for the same database: what the
                            // relay writes takes turns with them; must outlive the relay
  // Other ways to the same gateway, in the order in which they are tried; at most 7. See relay.hpp.
  const char* const* more_urls;
  size_t more_urls_count;
  int64_t return_delay_ms;  // on a later one the earlier ones are looked at; default 30,000
} holdfast_relay_options;

typedef enum holdfast_phase {
  HOLDFAST_PHASE_STARTING = 0,
  HOLDFAST_PHASE_STANDBY = 1,  // another relay holds the destination
  HOLDFAST_PHASE_OFFLINE = 2,
  HOLDFAST_PHASE_IDLE = 3,
  HOLDFAST_PHASE_SENDING = 4,
  HOLDFAST_PHASE_STOPPED = 5,
  HOLDFAST_PHASE_FAILED = 6
} holdfast_phase;

const char* holdfast_phase_name(int phase);

#define HOLDFAST_URL_BYTES 320  // of a URL, with its NUL

typedef struct holdfast_relay_state {
  size_t struct_size;
  int phase;
  int drained;               // nonzero: nothing more can be sent now
  int64_t sent_events;       // accepted (or known already) at the other side, since start
  int64_t duplicate_events;  // of those: known already
  int64_t pending_events;
  int64_t exceptions;  // RETRY, HELD and DEAD; in the database within flush_interval_ms
  int64_t dead;
  int64_t link_failures;         // in a row; 0 when connected
  holdfast_status last_error;    // ok when all is well
  char url[HOLDFAST_URL_BYTES];  // in use; "" while offline
} holdfast_relay_state;

// Opens the database and starts the thread. An unreachable gateway is no error: the relay tries on.
holdfast_code holdfast_relay_start(const holdfast_relay_options* options, holdfast_relay** relay,
                                   holdfast_status* status);
// Something was committed. Any thread; cheap. Commits of other processes are noticed without it.
void holdfast_relay_wake(holdfast_relay* relay);
// Any thread.
holdfast_code holdfast_relay_get_state(holdfast_relay* relay, holdfast_relay_state* state,
                                       holdfast_status* status);
// Blocks until done returns nonzero or the time is over; nonzero if it did. done runs on the
// calling thread, with a lock held: it only looks. Any thread.
int holdfast_relay_wait(holdfast_relay* relay, int64_t timeout_ms,
                        int (*done)(void* context, const holdfast_relay_state* state),
                        void* context);
// Finishes the request under way (at most 1 s), writes the cursor, gives up the lease, joins the
// thread. Returns the error that ended the relay early, if one did.
holdfast_code holdfast_relay_stop(holdfast_relay* relay, holdfast_status* status);
// Stops it if that was not done. No other thread may be using it.
void holdfast_relay_close(holdfast_relay* relay);

// ----------------------------------------------------------------------------------------- Gateway
// Accepts events of many devices, applies each once, answers after its own durable commit.

typedef struct holdfast_gateway holdfast_gateway;

typedef struct holdfast_gateway_options {
  size_t struct_size;
  const char* database;       // required: the path; made if missing
  const char* const* listen;  // required: tls+tcp://0.0.0.0:7447, ipc:///run/holdfast.sock, …
  size_t listen_count;
  const char* consumer;         // default "log"
  holdfast_handler handler;     // default: append to this database's own log
  int guard;                    // a holdfast_guard
  int64_t outbox_retention_ms;  // default 7 days; < 0: never purge
  int64_t inbox_retention_ms;   // default 14 days; < 0: never purge
  // After each commit that added to the log, on the polling thread (to wake relays).
  void (*on_commit)(void* context);
  holdfast_log log;
  void* context;          // of handler, on_commit and log
  int64_t reserve_bytes;  // as holdfast_relay_options; for purging on a full disk
  holdfast_tls tls;       // for tls+tcp://
  int insecure;           // nonzero: tcp:// on an address that others can reach is allowed; anybody
                          // there may then read, forge and hold back events
  const char* tls_revoked_file;  // serial numbers of certificates not accepted any more, one a line
} holdfast_gateway_options;

holdfast_code holdfast_gateway_start(const holdfast_gateway_options* options,
                                     holdfast_gateway** gateway, holdfast_status* status);
// Handles what has arrived, waiting up to timeout_ms for something. Callbacks run in here. An error
// means that the gateway cannot go on; nothing that was not committed has been acknowledged.
holdfast_code holdfast_gateway_poll(holdfast_gateway* gateway, int timeout_ms,
                                    holdfast_status* status);
// Makes a poll in another thread, or under a signal handler, return soon.
void holdfast_gateway_wake(holdfast_gateway* gateway);
// The URLs really bound (port 0 becomes the port that was chosen); NULL beyond the last.
const char* holdfast_gateway_url(const holdfast_gateway* gateway, size_t index);
// Stops listening. Requests without an answer are offered again by the devices.
void holdfast_gateway_close(holdfast_gateway* gateway);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // HOLDFAST_HOLDFAST_H
