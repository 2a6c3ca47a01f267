// A Holdfast database as an operator sees it: create and migrate it, look into it, act on events
// that need a person, remove what retention allows. What the command line does, firmware can do.
//
// A Store owns its connection; it is used by one thread at a time. Reads never hold a read
// transaction between two calls, so a slow caller cannot make the WAL grow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/clock.hpp"
#include "holdfast/event.hpp"
#include "holdfast/inbox.hpp"
#include "holdfast/relay.hpp"
#include "holdfast/status.hpp"

struct sqlite3;

namespace holdfast {

constexpr int kSchemaVersion = 4;
constexpr int kMaxDestinations = 16;
constexpr std::size_t kMaxDestinationNameBytes = 64;  // letters, digits, '-', '_', '.'
constexpr int kBusyTimeoutMs = 5000;

enum class Access { read_only, read_write };

struct StoreOptions {
  int busy_timeout_ms = kBusyTimeoutMs;
  const Clock* clock = nullptr;
};

// What a database may hold. Kept in the database, so that every writer obeys.
enum class WhenFull {
  refuse,       // emit returns `full`; the application decides
  drop_oldest,  // the oldest unsent events go, with a gap record that reaches the gateway (G9)
};
struct Limits {
  // Rows of the log, at any writer, also plain SQL. Events that every destination has are removed
  // first, before their retention is over. 0: no cap. A cap costs a page more in each commit.
  std::int64_t max_events = 0;
  // Bytes of pages in use and of the WAL; looked at by Outbox::emit only. 0: no cap. One that is
  // smaller than kMinBytesCap is refused.
  std::int64_t max_bytes = 0;
  WhenFull when_full = WhenFull::refuse;
};
constexpr std::int64_t kMinBytesCap = 256 * 1024;

struct InitOptions {
  bool create = true;                             // make the file if it is missing
  std::string destination = kDefaultDestination;  // "" = none (a gateway's log)
  std::string device;                             // label; "" = host name
  int busy_timeout_ms = kBusyTimeoutMs;
  int page_size = 0;               // of a new file; 0 = SQLite's default
  const Limits* limits = nullptr;  // nullptr: as they are
  const Clock* clock = nullptr;
};

struct InitResult {
  bool created = false;  // the tables are new
  int from_version = 0;  // 0 = none before
  int to_version = 0;
  EventId stream{};
};

// Where an event stands at a destination.
enum class EventState { pending, processing, sent, retry, held, dead, gone };
const char* state_name(EventState state);                    // "PENDING", …
bool parse_state(std::string_view name, EventState& state);  // either case

struct EventView {
  EventRecord event;
  std::string destination;  // "" when the log has no destination
  EventState state = EventState::pending;
  int attempts = 0;
  std::int64_t next_attempt_in_ms = -1;  // RETRY: from now; -1 = not set
  std::string last_error;
  std::string gone_reason;  // GONE: discarded, expired, …
};

struct ListFilter {
  std::vector<EventState> states;  // empty = pending, processing, retry, held, dead
  bool all_states = false;
  std::string event_type;  // exact; "" = any
  std::string aggregate_type, aggregate_id;
  std::string destination;   // "" = every
  std::int64_t limit = 100;  // rows; < 0 = no limit
  std::int64_t after_seq = 0;
  bool with_payload = true;
};

struct LaneStats {
  std::int64_t acked_seq = 0;
  std::int64_t claimed_seq = 0;
  std::int64_t pending = 0;
};

struct DestinationStats {
  std::string name;
  LaneStats lanes[kLaneCount];
  std::int64_t pending = 0;                 // not yet accepted, exceptions excluded
  std::int64_t oldest_pending_age_ms = -1;  // -1: nothing pending
  std::int64_t retry = 0, held = 0, dead = 0;
  std::int64_t sent = 0, duplicates = 0, rejected = 0, retries = 0, gone = 0;  // since creation
  std::int64_t rewinds = 0;
  std::int64_t capped = 0;  // dropped at a cap before this destination had them, since creation
  bool leased = false;      // a live relay holds it
  std::string lease_owner;
  std::string url;  // of a relay with several: the one used last
  std::int64_t link_failures = 0;
  std::string last_error;             // of the link
  std::int64_t last_error_at_ms = 0;  // wall
};

struct HistogramBucket {
  double le_seconds = 0;   // upper bound; the last one is infinite
  std::int64_t count = 0;  // cumulative
};

struct InboxStats {
  std::int64_t applied = 0, duplicates = 0, stale = 0, rejected = 0, later = 0, held = 0;
  std::int64_t handler_failures = 0;
  std::int64_t streams = 0, open_gaps = 0, gone = 0;
  // Streams beyond the first of a device's name: its database was copied, restored or made anew.
  std::int64_t replaced_streams = 0;
  // Frames refused because their certificate was denied, or the stream is another's.
  std::int64_t not_your_stream = 0;
  std::vector<HistogramBucket> handler_seconds;
  double handler_seconds_sum = 0;
};

struct StoreStats {
  std::string device;
  EventId stream{}, store{};
  int schema_version = 0;
  std::int64_t newest_seq = 0, oldest_seq = 0;  // 0 = the log is empty
  std::int64_t db_bytes = 0, wal_bytes = 0;
  std::int64_t forks = 0;
  std::int64_t expired = 0;  // events given up at their time to live, at any destination
  Limits limits;
  std::int64_t gaps_unreported = 0;
  // When the certificate that a relay, or a gateway, of this database uses ends, wall; 0: no TLS.
  std::int64_t relay_certificate_ends_at_ms = 0, gateway_certificate_ends_at_ms = 0;
  std::vector<DestinationStats> destinations;
  InboxStats inbox;
};

struct PurgeOptions {
  std::int64_t outbox_older_than_ms = kOutboxRetentionMs;  // < 0: leave alone
  std::int64_t inbox_older_than_ms = kInboxRetentionMs;    // < 0: leave alone
  int step_rows = kPurgeStepRows;
};

struct PurgeResult {
  std::int64_t outbox_rows = 0;
  std::int64_t inbox_rows = 0;
  bool more = false;  // a step ended at step_rows: call again
};

struct CaptureSpec {
  std::string table;
  bool on_insert = false, on_update = false, on_delete = false;
  std::string event_type;         // literal; "{op}" becomes insert, update or delete
  std::string aggregate_type;     // literal
  std::string aggregate_id;       // SQL expression over NEW (OLD on delete)
  std::string payload;            // SQL expression
  std::string aggregate_version;  // SQL expression or ""
  int lane = kLaneNormal;
};

struct InboxRow {
  EventId id{};
  std::string consumer;
  std::string status;  // DONE, STALE, FAILED
  int attempts = 0;
  std::int64_t received_at_ms = 0;  // wall
  std::string last_error;
};

struct InboxStreamRow {
  EventId stream{};
  int lane = 0;
  std::string consumer, device;
  std::int64_t mark_seq = 0;
  EventId mark_id{};
  std::int64_t open_gaps = 0;
  std::int64_t last_seen_at_ms = 0;  // wall
};

// A stream that a gateway takes only under one certificate name; or a denied name without one.
struct CertificateStream {
  std::string name;     // the certificate's common name
  bool denied = false;  // nothing of it is taken
  EventId stream{};     // nil: none
  std::string device;
  std::int64_t first_seen_at_ms = 0, last_seen_at_ms = 0;  // wall; first: bound then
  std::int64_t events = 0;                                 // stored, since the binding was known
};

struct InboxGapRow {
  EventId stream{};
  int lane = 0;
  std::string consumer;
  std::int64_t first_seq = 0, last_seq = 0, count = 0;
  std::string state;  // SKIPPED, LATER, REJECTED, HELD, DEAD, GONE
  std::string reason;
};

struct AuditRow {
  std::int64_t at_ms = 0;  // wall
  std::string action;      // retry, discard, …
  std::string detail;
};

// What a salvage found in a damaged database.
struct SeqRange {
  std::int64_t first = 0, last = 0;
};
struct SalvagedTable {
  std::string name;
  std::int64_t rows = 0;        // copied
  std::int64_t unreadable = 0;  // rows seen that are damaged
};
struct SalvageReport {
  std::int64_t pages = 0;
  std::int64_t damaged_pages = 0;  // of Holdfast's tables
  bool header_damaged = false;     // the first page: schema and settings of the file
  bool wal_damaged = false;        // newer versions of pages are lost
  bool identity_lost = false;      // device label or store id were not readable
  std::vector<SalvagedTable> tables;
  // Events that had a seq and are in no readable page, sent or not. Those older than all that is
  // left cannot be told from purged ones.
  std::vector<SeqRange> lost_events;
  // The page with the newest events is destroyed. How many it held left no trace: at least the last
  // of lost_events.
  bool newest_lost = false;
  std::int64_t lost_count = 0;
  // Not yet sent, added up over the destinations: gap records `lost`. Where it is not known whether
  // an event was urgent, it counts as not sent.
  std::int64_t lost_pending = 0;
  EventId stream{};  // of the new database
  bool complete() const {
    if (damaged_pages > 0 || header_damaged || wal_damaged || identity_lost || lost_count > 0)
      return false;
    for (const SalvagedTable& table : tables)
      if (table.unreadable > 0) return false;
    return true;
  }
};

class Store {
 public:
  Store();
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Creates or migrates the tables, sets WAL, and (for a new file) syncs its directory, so that
  // the database itself survives a power cut once this returned. Idempotent. A database of a newer
  // schema is refused with newer_schema and not written to; a locked one is waited for.
  static Status init(const std::string& path, const InitOptions& options, InitResult* result);

  // Errors: not_found (no file), corrupt (not a database), no_schema, newer_schema, permission.
  static Status open(const std::string& path, Access access, const StoreOptions& options,
                     Store& out);

  // Copies what can be read of Holdfast's tables from a damaged database into a new one, page by
  // page: whatever SQLite itself could still open. Indexes, inner pages and the schema may be gone.
  // `path` is only read, and must be in use by nobody, this process included (busy). `new_path`
  // must not exist; it appears when it is whole and synced, a power cut before leaves
  // `new_path`-partial. The new database has a new stream (its newest events may be missing, and
  // their numbers must not be given out again under the old one); lost pending events are gap
  // records (G9). Tables of the application are not copied. Not for databases in UTF-16. ok also if
  // something is lost: see report. Errors: not_found, exists, busy, corrupt (nothing readable),
  // newer_schema, and those of writing.
  static Status salvage(const std::string& path, const std::string& new_path, SalvageReport& report,
                        const Clock* clock = nullptr);

  // --- look ---
  // Calls fn for each row, one destination after the other, in order of seq; fn returns false to
  // stop. Rows are read in pages.
  Status list(const ListFilter& filter, const std::function<bool(const EventView&)>& fn);
  // One event at every destination (one row with destination "" if there is none).
  Status find(std::int64_t seq, std::vector<EventView>& views);
  Status find(const EventId& id, std::vector<EventView>& views);  // newest first; may be slow
  Status stats(StoreStats& stats);
  Status audit(std::int64_t limit, std::vector<AuditRow>& rows);  // newest first

  // --- act; each writes an audit row ---
  // RETRY, HELD and DEAD events are offered again now (attempts start at 0).
  Status retry(std::int64_t seq, const std::string& destination, std::int64_t& changed);
  Status retry_all_dead(const std::string& destination, std::int64_t& changed);
  // Gives up for good, with a gap record that reaches the gateway (G9).
  Status discard(std::int64_t seq, const std::string& destination, const std::string& reason,
                 std::int64_t& changed);
  // One step of at most step_rows deletions of each kind: sent at every destination, old enough,
  // never the newest row, never one with an exception.
  Status purge(const PurgeOptions& options, PurgeResult& result);
  Status add_destination(const std::string& name);
  Status remove_destination(const std::string& name,
                            bool force);    // force: even with pending events
  Status capture(const CaptureSpec& spec);  // replaces the table's triggers
  Status remove_capture(const std::string& table, int& removed);
  // A live copy. It takes a new stream identity when it is first opened for writing (G11).
  Status backup(const std::string& new_path,
                const std::function<void(std::int64_t done, std::int64_t total)>& progress);
  // Gives this database a new stream identity now.
  Status new_stream();
  Status limits(Limits& limits);
  // Events that are there already are counted, which takes a moment with millions. A cap in events
  // below them makes room at once, as far as the policy allows; then emits are refused.
  Status set_limits(const Limits& limits);

  // --- inbox side ---
  struct InboxFilter {
    std::string status;    // "" = any
    std::string consumer;  // "" = any
    std::int64_t limit = 100;
  };
  Status list_inbox(const InboxFilter& filter, const std::function<bool(const InboxRow&)>& fn);
  Status find_inbox(const EventId& id, std::vector<InboxRow>& rows);
  Status list_streams(const std::function<bool(const InboxStreamRow&)>& fn);
  Status list_gaps(const std::function<bool(const InboxGapRow&)>& fn);
  // By name, then in order of first use.
  Status list_certificates(const std::function<bool(const CertificateStream&)>& fn);
  // Whose streams are whose: a running gateway goes by it from the next frame on. deny: nothing
  // that comes with a certificate of this name is taken any more. allow: that again; with a stream
  // (not nil), it is bound to this name from now on, and to no other. not_found: no such stream
  // has written here. Each leaves an audit row; none undoes what is stored.
  Status allow_certificate(const std::string& name, const EventId& stream, bool& changed);
  Status deny_certificate(const std::string& name, bool& changed);

  // --- write: a connection of its own for programs that have none ---
  Status begin();   // BEGIN IMMEDIATE
  Status commit();  // unknown after an I/O error
  Status rollback();
  sqlite3* connection();  // for Outbox::attach and Inbox::attach

  // --- health ---
  struct Health {
    std::string sqlite_version;
    std::string journal_mode;
    int synchronous = -1;  // as Holdfast opens it
    int page_size = 0;
    std::string integrity;                 // "ok" or the first finding
    bool wal_reset_fixed = false;          // SQLite >= 3.51.3
    bool application_triggers_ok = false;  // guard triggers present
    std::vector<std::string> findings;     // what should worry somebody
  };
  Status health(bool quick, Health& health);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast
