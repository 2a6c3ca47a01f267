#include "identity.hpp"

#include "schema.hpp"

namespace holdfast {

namespace {

constexpr const char* kNewStreamMark = "new_stream_on_open";

Status read_meta_id(sqlite3* db, const char* key, EventId& id) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaGet);
  if (!status.ok()) return status;
  statement.bind_text(1, key);
  const bool row = statement.step(status, key);
  if (!status.ok()) return status;
  if (!row || !statement.column_id(0, id))
    return Status::error(Code::corrupt,
                         "holdfast_meta: %s is missing or damaged; run "
                         "`holdfast doctor`",
                         key);
  return Status();
}

}  // namespace

Status read_identity(sqlite3* db, Identity& identity) {
  Status status = read_meta_id(db, "stream_id", identity.stream);
  if (status.ok()) status = read_meta_id(db, "store_id", identity.store);
  if (!status.ok()) return status;
  Statement statement;
  status = statement.prepare(db, sql::kMetaGet);
  if (!status.ok()) return status;
  statement.bind_text(1, "device");
  if (statement.step(status, "device")) identity.device = std::string(statement.column_text(0));
  if (identity.device.size() > kMaxDeviceNameBytes) identity.device.resize(kMaxDeviceNameBytes);
  return status;
}

Status take_new_stream(sqlite3* db, std::int64_t wall_ms, const char* why) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaSet);
  if (!status.ok()) return status;
  const EventId stream = EventId::make_random();
  status = statement.bind_text(1, "stream_id").bind_id(2, stream).run("stream_id");
  if (status.ok()) status = add_counter(db, "forks", 1);
  if (status.ok()) status = add_audit(db, wall_ms, "new_stream", stream.text() + ": " + why);
  return status;
}

Status mark_new_stream_on_open(sqlite3* db) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaSet);
  if (!status.ok()) return status;
  return statement.bind_text(1, kNewStreamMark).bind(2, std::int64_t{1}).run(kNewStreamMark);
}

Status honour_new_stream_mark(sqlite3* db, std::int64_t wall_ms) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaGet);
  if (!status.ok()) return status;
  statement.bind_text(1, kNewStreamMark);
  const bool marked = statement.step(status, kNewStreamMark);
  statement.reset();
  if (!status.ok() || !marked) return status;
  Transaction transaction(db);
  status = transaction.begin();
  if (!status.ok()) return status;
  statement.bind_text(1, kNewStreamMark);
  const bool still = statement.step(status, kNewStreamMark);  // another process may have been first
  statement.reset();
  if (!status.ok() || !still) return status;
  Statement erase;
  status = erase.prepare(db, sql::kMetaDelete);
  if (status.ok()) status = erase.bind_text(1, kNewStreamMark).run(kNewStreamMark);
  if (status.ok()) status = take_new_stream(db, wall_ms, "first opening of a backup");
  return status.ok() ? transaction.commit() : status;
}

Status set_device(sqlite3* db, const std::string& device) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaSet);
  if (!status.ok()) return status;
  return statement.bind_text(1, "device").bind_text(2, device).run("device");
}

Status add_counter(sqlite3* db, const char* name, std::int64_t delta) {
  Statement statement;
  Status status = statement.prepare(db, sql::kCounterAdd);
  if (!status.ok()) return status;
  return statement.bind_text(1, name).bind(2, delta).run("holdfast_counter");
}

Status add_audit(sqlite3* db, std::int64_t wall_ms, const char* action, const std::string& detail) {
  Statement add;
  Status status = add.prepare(db, sql::kAuditAdd);
  if (!status.ok()) return status;
  status = add.bind(1, wall_ms).bind_text(2, action).bind_text(3, detail).run("holdfast_audit");
  if (!status.ok()) return status;
  Statement trim;
  status = trim.prepare(db, sql::kAuditTrim);
  if (!status.ok()) return status;
  return trim.bind(1, kAuditRowsMax).run("holdfast_audit");
}

}  // namespace holdfast
