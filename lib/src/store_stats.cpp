// The part of Store that counts and examines. No number here is had by walking the log.

#include <algorithm>
#include <map>

#include "event_time.hpp"
#include "identity.hpp"
#include "inbox.hpp"
#include "owners.hpp"
#include "powered_time.hpp"
#include "schema.hpp"
#include "store_impl.hpp"

namespace holdfast {

namespace {

Status read_counters(sqlite3* db, std::map<std::string, std::int64_t>& counters) {
  Statement statement;
  Status status = statement.prepare(db, sql::kCounterAll);
  if (!status.ok()) return status;
  while (statement.step(status, "counters"))
    counters[std::string(statement.column_text(0))] = statement.column_int(1);
  return status;
}

Status read_meta(sqlite3* db, const char* key, std::int64_t& value) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaGet);
  if (!status.ok()) return status;
  statement.bind_text(1, key);
  value = statement.step(status, key) ? statement.column_int(0) : 0;
  return status;
}

// The first event that a relay could take now: not an exception, not gone.
Status first_claimable(sqlite3* db, const DestinationRow& row, int lane, std::int64_t& seq) {
  std::int64_t after = row.lanes[lane].acked_seq;
  for (;;) {
    Status status = query_bound(
        db, lane == kLaneUrgent ? sql::kFirstUrgentAfter : sql::kFirstNormalAfter, after, seq);
    if (!status.ok() || seq == 0) return status;
    Statement exception, gap;
    status = exception.prepare(db, sql::kExceptionGet);
    if (status.ok()) status = gap.prepare(db, sql::kGapAt);
    if (!status.ok()) return status;
    exception.bind(1, row.id).bind(2, seq);
    gap.bind(1, row.id).bind(2, static_cast<std::int64_t>(lane)).bind(3, seq);
    const bool excepted = exception.step(status, "exception");
    if (!status.ok()) return status;
    const bool gone = gap.step(status, "gap");
    if (!status.ok() || (!excepted && !gone)) return status;
    after = seq;
  }
}

Status oldest_pending_age(sqlite3* db, const Clock& clock, const DestinationRow& row,
                          const bool (&empty)[kLaneCount], std::int64_t& age_ms) {
  age_ms = -1;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    if (empty[lane]) continue;  // no walk past all of the other lane's
    std::int64_t seq = 0;
    Status status = first_claimable(db, row, lane, seq);
    if (!status.ok()) return status;
    if (seq == 0) continue;
    Statement event;
    status = event.prepare(db, sql::kEventRead);
    if (!status.ok()) return status;
    event.bind(1, seq);
    std::int64_t created = 0, age = 0;
    bool ours = false;
    if (event.step(status, "event")) {
      created = event.column_int(6);
      ours = event.column_is_null(12);
    }
    event.finalize();
    if (status.ok() && ours) status = EventTimes(db, clock).correct(seq, created);
    if (status.ok()) status = event_age(db, clock, seq, created, age);
    if (!status.ok()) return status;
    age_ms = std::max(age_ms, age);
  }
  return Status();
}

Status destination_stats(sqlite3* db, const Clock& clock, const DestinationRow& row,
                         DestinationStats& out) {
  out.name = row.name;
  bool empty[kLaneCount] = {};
  for (int lane = 0; lane < kLaneCount; ++lane) {
    LaneCounts counts;
    const Status status = count_lane(db, row, lane, counts);
    if (!status.ok()) return status;
    out.lanes[lane] = {row.lanes[lane].acked_seq, row.lanes[lane].claimed_seq, counts.pending};
    empty[lane] = counts.beyond_cursor_max <= 0;
    out.pending += counts.pending;
    out.retry += counts.retry;
    out.held += counts.held;
    out.dead += counts.dead;
  }
  out.sent = row.sent;
  out.duplicates = row.duplicates;
  out.rejected = row.rejected;
  out.retries = row.retries;
  out.rewinds = row.rewinds;
  out.capped = row.capped;
  out.leased = lease_live(row, clock);
  out.lease_owner = row.lease_owner;
  out.link_failures = row.link_failures;
  out.last_error = row.last_error;
  out.last_error_at_ms = row.last_error_at_ms;
  Status status = query_bound(db, sql::kGapTotal, row.id, out.gone);
  if (status.ok()) status = read_relay_url(db, row.id, out.url);
  if (status.ok()) status = oldest_pending_age(db, clock, row, empty, out.oldest_pending_age_ms);
  return status;
}

Status inbox_stats(Db& db, std::map<std::string, std::int64_t>& counters, InboxStats& out) {
  out.applied = counters["inbox_applied"];
  out.duplicates = counters["inbox_duplicates"];
  out.stale = counters["inbox_stale"];
  out.rejected = counters["inbox_rejected"];
  out.later = counters["inbox_later"];
  out.held = counters["inbox_held"];
  out.handler_failures = counters["handler_failures"];
  out.gone = counters["gone"];
  out.not_your_stream = counters[kNotYourStreamCounter];
  std::int64_t below = 0;
  for (const std::int64_t le : kHandlerBucketsUs) {
    below += counters[handler_bucket_name(le)];
    const double seconds = le == INT64_MAX ? __builtin_huge_val() : static_cast<double>(le) / 1e6;
    out.handler_seconds.push_back({seconds, below});
  }
  out.handler_seconds_sum = static_cast<double>(counters[kHandlerSumCounter]) / 1e6;
  Status status = db.query_int(sql::kStreamCount, out.streams, "stats");
  if (status.ok()) status = db.query_int(sql::kReplacedStreams, out.replaced_streams, "stats");
  if (status.ok()) status = db.query_int(sql::kInboxGapCounts, out.open_gaps, "stats");
  return status;
}

}  // namespace

Status Store::stats(StoreStats& stats) {
  stats = StoreStats();
  if (!impl_) return not_open("stats");
  Db& db = impl_->db;
  Identity identity;
  SchemaFacts facts;
  Status status = read_identity(db.handle(), identity);
  if (status.ok()) status = read_schema(db.handle(), facts);
  stats.device = identity.device;
  stats.stream = identity.stream;
  stats.store = identity.store;
  stats.schema_version = facts.version;
  if (status.ok()) status = db.query_int(sql::kNewestSeq, stats.newest_seq, "stats");
  if (status.ok()) status = db.query_int(sql::kOldestSeq, stats.oldest_seq, "stats");
  if (status.ok()) status = db.query_int(sql::kPageCount, stats.db_bytes, "stats");
  if (status.ok()) status = db.query_int(sql::kGapUnreported, stats.gaps_unreported, "stats");
  stats.wal_bytes = wal_file_bytes(db.path());
  if (status.ok()) status = limits(stats.limits);
  if (status.ok())
    status = read_meta(db.handle(), kRelayCertificateKey, stats.relay_certificate_ends_at_ms);
  if (status.ok())
    status = read_meta(db.handle(), kGatewayCertificateKey, stats.gateway_certificate_ends_at_ms);
  std::map<std::string, std::int64_t> counters;
  if (status.ok()) status = read_counters(db.handle(), counters);
  stats.forks = counters["forks"];
  stats.expired = counters["expired"];
  std::vector<DestinationRow> rows;
  if (status.ok()) status = list_destinations(db.handle(), rows);
  for (const DestinationRow& row : rows) {
    if (!status.ok()) return status;
    stats.destinations.emplace_back();
    status = destination_stats(db.handle(), impl_->clock(), row, stats.destinations.back());
  }
  return status.ok() ? inbox_stats(db, counters, stats.inbox) : status;
}

Status Store::health(bool quick, Health& health) {
  health = Health();
  if (!impl_) return not_open("health");
  Db& db = impl_->db;
  constexpr int kWalResetFixed = 3'051'003;
  health.sqlite_version = sqlite_version_text();
  health.wal_reset_fixed = sqlite_version_number() >= kWalResetFixed;
  DurabilityFacts facts;
  Status status = read_durability(db.handle(), facts);
  if (!status.ok()) return status;
  health.journal_mode = facts.journal_mode;
  health.synchronous = static_cast<int>(facts.synchronous);
  if (facts.journal_mode != "wal")
    health.findings.push_back("journal_mode is " + facts.journal_mode +
                              ": the last commit can be lost at a power cut; run `holdfast init`");
  std::int64_t page_size = 0, triggers = 0;
  status = db.query_int(sql::kPageSize, page_size, "health");
  if (status.ok()) status = db.query_int(sql::kGuardTriggers, triggers, "health");
  if (!status.ok()) return status;
  health.page_size = static_cast<int>(page_size);
  health.application_triggers_ok = triggers == sql::kGuardTriggerCount;
  if (!health.application_triggers_ok)
    health.findings.push_back(
        "guard triggers of outbox_event are missing: a hand-made seq or "
        "UPDATE could lose events");
  status =
      db.query_text(quick ? sql::kQuickCheck : sql::kIntegrityCheck, health.integrity, "health");
  if (status.code() == Code::corrupt) {
    health.integrity = status.text();
    status = Status();
  }
  if (health.integrity != "ok") health.findings.push_back("integrity check: " + health.integrity);
  return status;
}

}  // namespace holdfast
