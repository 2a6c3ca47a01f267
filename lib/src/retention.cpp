#include "retention.hpp"

#include <algorithm>
#include <vector>

#include "delivery.hpp"
#include "powered_time.hpp"
#include "schema.hpp"

namespace holdfast {

namespace {

constexpr int kFullDiskStepRows = 250;
constexpr int kFullDiskStepPages = 32;

constexpr const char* kWalkKey = "inbox_purge_position";

Status one_int(sqlite3* db, const char* sql, std::int64_t bound, bool bind, std::int64_t& value) {
  Statement statement;
  Status status = statement.prepare(db, sql);
  if (!status.ok()) return status;
  if (bind) statement.bind(1, bound);
  value = statement.step(status, "purge") ? statement.column_int(0) : 0;
  return status;
}

// Not beyond `upto`: the normal lane has no index, so a long run of urgent events is walked.
Status first_normal(sqlite3* db, std::int64_t after, std::int64_t upto, std::int64_t& seq) {
  Statement statement;
  Status status = statement.prepare(db, sql::kFirstNormalBetween);
  if (!status.ok()) return status;
  statement.bind(1, after).bind(2, upto);
  seq = statement.step(status, "purge") ? statement.column_int(0) : 0;
  return status;
}

Status purge_outbox(Db& db, const Clock& clock, const PurgeOptions& options, PurgeResult& result) {
  // A sample taken now dates everything before it, so that even a fresh database can be purged.
  Transaction transaction(db.handle());
  Status status = transaction.begin();
  if (status.ok()) status = sample_time(db.handle(), clock, options.outbox_older_than_ms == 0);
  std::int64_t cutoff = 0, floor = 0, oldest = 0, newest = 0;
  if (status.ok()) status = cutoff_seq(db.handle(), clock, options.outbox_older_than_ms, cutoff);
  if (status.ok()) status = one_int(db.handle(), sql::kOldestSeq, 0, false, oldest);
  if (status.ok()) status = one_int(db.handle(), sql::kNewestSeq, 0, false, newest);
  if (status.ok()) status = purge_floor(db.handle(), oldest + options.step_rows - 1, floor);
  if (!status.ok()) return status;
  const std::int64_t last = std::min({cutoff, floor, newest - 1});
  const std::int64_t step_end = std::min(last, oldest + options.step_rows - 1);
  if (oldest > 0 && step_end >= oldest) {
    Statement erase;
    status = erase.prepare(db.handle(), sql::kEventsUpTo);
    if (status.ok()) status = erase.bind(1, step_end).run("purge");
    if (!status.ok()) return status;
    result.outbox_rows += db.changes();
    if (step_end < last) result.more = true;
    Statement trim;
    status = trim.prepare(db.handle(), sql::kTimeTrim);
    if (status.ok()) status = trim.bind(1, kWallClockKnownFromMs).run("purge");
    if (status.ok()) status = db.exec(sql::kGapTrim, "purge");
    if (!status.ok()) return status;
  }
  return transaction.commit();
}

struct InboxKey {
  EventId id;
  std::string consumer;
};

Status read_position(sqlite3* db, EventId& position) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaGet);
  if (!status.ok()) return status;
  statement.bind_text(1, kWalkKey);
  if (!statement.step(status, "purge") || !statement.column_id(0, position)) position = EventId();
  return status;
}

Status write_position(sqlite3* db, const EventId& position) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaSet);
  if (!status.ok()) return status;
  return statement.bind_text(1, kWalkKey).bind_id(2, position).run("purge");
}

// The inbox has no index on time, which would cost every insert a page. Steps walk its key in
// order instead, each from where the last one ended, round and round.
Status purge_inbox(Db& db, const Clock& clock, const PurgeOptions& options, PurgeResult& result) {
  Transaction transaction(db.handle());
  Status status = transaction.begin();
  std::int64_t now = 0;
  EventId position;
  if (status.ok()) status = sample_time(db.handle(), clock, false);
  if (status.ok()) status = powered_now(db.handle(), clock, now);
  if (status.ok()) status = read_position(db.handle(), position);
  if (!status.ok()) return status;
  const bool from_start = position.nil();
  Statement walk;
  status = walk.prepare(db.handle(), sql::kInboxPurgeWalk);
  if (!status.ok()) return status;
  walk.bind_id(1, position).bind_text(2, "").bind(3, static_cast<std::int64_t>(options.step_rows));
  std::vector<InboxKey> old;
  int rows = 0;
  while (walk.step(status, "purge")) {
    ++rows;
    EventId id;
    if (!walk.column_id(0, id)) continue;
    position = id;
    if (walk.column_int(2) <= now - options.inbox_older_than_ms)
      old.push_back({id, std::string(walk.column_text(1))});
  }
  Statement erase;
  if (status.ok()) status = erase.prepare(db.handle(), sql::kInboxDelete);
  for (const InboxKey& key : old) {
    if (!status.ok()) return status;
    status = erase.bind_id(1, key.id).bind_text(2, key.consumer).run("purge");
  }
  if (!status.ok()) return status;
  const bool at_end = rows < options.step_rows;
  if (at_end) position = EventId();
  result.inbox_rows += static_cast<std::int64_t>(old.size());
  if (!at_end) result.more = true;
  if (old.empty() && at_end && from_start) return Status();  // nothing to write
  status = write_position(db.handle(), position);
  return status.ok() ? transaction.commit() : status;
}

}  // namespace

Status purge_floor(sqlite3* db, std::int64_t upto, std::int64_t& seq) {
  std::vector<DestinationRow> rows;
  Status status = list_destinations(db, rows);
  if (!status.ok()) return status;
  seq = INT64_MAX;
  for (const DestinationRow& row : rows) {
    std::int64_t first = 0;
    status = first_normal(db, row.lanes[kLaneNormal].acked_seq, upto, first);
    if (status.ok() && first > 0) seq = std::min(seq, first - 1);
    if (status.ok())
      status = one_int(db, sql::kFirstUrgentAfter, row.lanes[kLaneUrgent].acked_seq, true, first);
    if (status.ok() && first > 0) seq = std::min(seq, first - 1);
    if (status.ok()) status = one_int(db, sql::kExceptionLowest, row.id, true, first);
    if (!status.ok()) return status;
    if (first > 0) seq = std::min(seq, first - 1);
  }
  return status;
}

Status purge_step(Db& db, const Clock& clock, const PurgeOptions& options, PurgeResult& result) {
  result.more = false;
  Status status = configure_purge_connection(db.handle());
  if (status.ok() && options.outbox_older_than_ms >= 0)
    status = purge_outbox(db, clock, options, result);
  if (status.ok() && options.inbox_older_than_ms >= 0)
    status = purge_inbox(db, clock, options, result);
  return status;
}

Status purge_step_on_full_disk(Db& db, const Clock& clock, PurgeOptions options, Reserve& reserve,
                               const std::function<Status()>& checkpoint, PurgeResult& result) {
  options.step_rows = std::min(options.step_rows, kFullDiskStepRows);
  Status status = reserve.while_full(checkpoint);
  const PurgeResult before = result;
  if (status.ok() || status.code() == Code::no_space)
    status = reserve.while_full([&] {
      result = before;
      return purge_step(db, clock, options, result);
    });
  bool more_pages = false;
  if (status.ok())
    status = reserve.while_full(
        [&] { return shrink_database(db.handle(), kFullDiskStepPages, more_pages); });
  if (more_pages) result.more = true;
  return status.ok() ? reserve.while_full(checkpoint) : status;
}

}  // namespace holdfast
