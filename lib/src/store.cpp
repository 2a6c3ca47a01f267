#include "holdfast/store.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "identity.hpp"
#include "platform.hpp"
#include "powered_time.hpp"
#include "reserve.hpp"
#include "retention.hpp"
#include "schema.hpp"
#include "store_impl.hpp"

namespace holdfast {

Status not_open(const char* call) {
  return Status::error(Code::misuse, "%s: the store is not open", call);
}

Status query_bound(sqlite3* db, const char* sql, std::int64_t bound, std::int64_t& value) {
  Statement statement;
  Status status = statement.prepare(db, sql);
  if (!status.ok()) return status;
  statement.bind(1, bound);
  value = statement.step(status, "store") ? statement.column_int(0) : 0;
  return status;
}

Store::Store() = default;
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

// --- init and open -----------------------------------------------------------------------------

namespace {

std::string host_name() {
  char name[kMaxDeviceNameBytes + 1] = {0};
  if (::gethostname(name, sizeof(name) - 1) != 0 || name[0] == 0) return "device";
  return name;
}

Status set_wal(Db& db) {
  std::string mode;
  Status status = db.query_text(sql::kSetWal, mode, db.path().c_str());
  if (!status.ok()) return status;
  if (mode == "wal") return Status();
  return Status::error(Code::not_durable,
                       "%s: this file system does not take SQLite's WAL mode (journal_mode stays "
                       "%s); put the database on a local disk",
                       db.path().c_str(), mode.c_str());
}

Status insert_destination(sqlite3* db, const std::string& name) {
  Statement add;
  Status status = add.prepare(db, sql::kDestinationAdd);
  if (!status.ok()) return status;
  status = add.bind_text(1, name).run("destination");
  if (status.code() == Code::invalid)
    return Status::error(Code::invalid,
                         "destination \"%s\": give 1 to %d letters, digits, '.', '_' or '-'",
                         name.c_str(), static_cast<int>(kMaxDestinationNameBytes));
  return status;
}

constexpr const char* kDropOldest = "drop_oldest";
constexpr const char* kRefuse = "refuse";

Status check_limits(const Limits& limits) {
  if (limits.max_events < 0)
    return Status::error(Code::invalid, "max_events: give 1 or more, or 0 for no cap");
  if (limits.max_bytes != 0 && limits.max_bytes < kMinBytesCap)
    return Status::error(Code::invalid, "max_bytes: give %lld or more, or 0 for no cap",
                         static_cast<long long>(kMinBytesCap));
  return Status();
}

Status read_limits(sqlite3* db, Limits& limits) {
  Statement get;
  Status status = get.prepare(db, sql::kMetaGet);
  const auto step = [&](const char* key) {
    get.reset();
    get.bind_text(1, key);
    return status.ok() && get.step(status, key);
  };
  if (status.ok() && step("max_events")) limits.max_events = get.column_int(0);
  if (status.ok() && step("max_bytes")) limits.max_bytes = get.column_int(0);
  if (status.ok() && step("when_full"))
    limits.when_full = get.column_text(0) == kDropOldest ? WhenFull::drop_oldest : WhenFull::refuse;
  return status;
}

// Writes nothing if they are as they should be already.
Status write_limits(Db& db, const Limits& limits) {
  Limits now;
  Transaction transaction(db.handle());
  Status status = transaction.begin();
  if (status.ok()) status = read_limits(db.handle(), now);
  if (!status.ok()) return status;
  if (now.max_events == limits.max_events && now.max_bytes == limits.max_bytes &&
      now.when_full == limits.when_full)
    return Status();
  Statement set;
  status = set.prepare(db.handle(), sql::kMetaSet);
  if (status.ok()) status = set.bind_text(1, "max_events").bind(2, limits.max_events).run("limits");
  set.reset();
  if (status.ok()) status = set.bind_text(1, "max_bytes").bind(2, limits.max_bytes).run("limits");
  set.reset();
  const bool drop = limits.when_full == WhenFull::drop_oldest;
  if (status.ok())
    status = set.bind_text(1, "when_full").bind_text(2, drop ? kDropOldest : kRefuse).run("limits");
  // While there is no cap, nobody counts.
  if (status.ok() && limits.max_events > 0) status = db.exec(sql::kEventCountReset, "limits");
  for (std::int64_t before = INT64_MAX, events = INT64_MAX - 1;
       status.ok() && limits.max_events > 0 && events < before;) {
    before = events;
    status = db.query_int(sql::kEventCount, events, "limits");
    if (!status.ok() || events <= limits.max_events) break;
    status = db.exec(sql::kMakeRoom, "limits");
  }
  return status.ok() ? transaction.commit() : status;
}

Status check_init_options(const InitOptions& options) {
  const int size = options.page_size;
  if (size != 0 && (size < 512 || size > 65536 || (size & (size - 1)) != 0))
    return Status::error(Code::invalid, "page_size: give a power of two from 512 to 65536");
  if (options.limits != nullptr) {
    const Status status = check_limits(*options.limits);
    if (!status.ok()) return status;
  }
  if (options.device.size() > kMaxDeviceNameBytes || !is_utf8(options.device))
    return Status::error(Code::invalid, "device: give at most %d bytes of UTF-8",
                         static_cast<int>(kMaxDeviceNameBytes));
  return Status();
}

}  // namespace

Status Store::init(const std::string& path, const InitOptions& options, InitResult* result) {
  Status status = check_init_options(options);
  if (!status.ok()) return status;
  Db db;
  const bool fresh = !database_exists(path);
  status = Db::open(path, options.create ? OpenMode::create : OpenMode::read_write,
                    options.busy_timeout_ms, db);
  if (!status.ok()) return status;
  const Clock& clock = options.clock != nullptr ? *options.clock : system_clock();
  SchemaFacts facts;
  status = read_schema(db.handle(), facts);
  if (!status.ok()) return status;
  const bool newer = facts.version > kSchemaVersion;
  if (!newer && facts.version < kSchemaVersion) {
    if (fresh && options.page_size != 0) status = db.set_page_size(options.page_size);
    if (status.ok() && fresh && small_file_system(path)) status = db.allow_shrinking();
    if (status.ok()) status = set_wal(db);
  }
  // In the transaction that makes the tables: nobody would add them later, as the tables are there.
  const auto first_rows = [&] {
    Status added;
    if (!options.destination.empty()) added = insert_destination(db.handle(), options.destination);
    return added.ok() ? sample_time(db.handle(), clock, false) : added;
  };
  // Refuses a newer schema, before anything was written.
  if (status.ok())
    status = migrate_schema(db, options.device.empty() ? host_name() : options.device, facts,
                            first_rows);
  if (!status.ok()) return status;
  const bool created = facts.version == 0;
  if (options.limits != nullptr) status = write_limits(db, *options.limits);
  // The file's name must survive a power cut as surely as its content. Not only if we made the
  // file: an init before us may have been killed here.
  if (status.ok() && created) status = db.sync_folder();
  Identity identity;
  if (status.ok()) status = read_identity(db.handle(), identity);
  if (status.ok() && result != nullptr)
    *result = {created, facts.version, kSchemaVersion, identity.stream};
  return status;
}

Status Store::open(const std::string& path, Access access, const StoreOptions& options,
                   Store& out) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->access = access;
  Status status =
      Db::open(path, access == Access::read_only ? OpenMode::read_only : OpenMode::read_write,
               options.busy_timeout_ms, impl->db);
  if (status.ok()) status = check_schema(impl->db.handle(), path);
  if (!status.ok()) return status;
  impl->transaction = std::make_unique<Transaction>(impl->db.handle());
  out.impl_ = std::move(impl);
  return Status();
}

Status Store::begin() { return impl_ ? impl_->transaction->begin() : not_open("begin"); }
Status Store::commit() { return impl_ ? impl_->transaction->commit() : not_open("commit"); }

Status Store::rollback() {
  if (!impl_) return not_open("rollback");
  impl_->transaction->rollback();
  return Status();
}

sqlite3* Store::connection() { return impl_ ? impl_->db.handle() : nullptr; }

// --- acting on exceptions ------------------------------------------------------------------------

namespace {

// Runs fn for one destination, or for all if name is empty, inside a transaction.
Status for_destinations(sqlite3* db, const std::string& name,
                        const std::function<Status(const DestinationRow&)>& fn) {
  std::vector<DestinationRow> rows;
  Status status = list_destinations(db, rows);
  if (!status.ok()) return status;
  bool any = false;
  for (const DestinationRow& row : rows) {
    if (!name.empty() && row.name != name) continue;
    any = true;
    status = fn(row);
    if (!status.ok()) return status;
  }
  if (!any && !name.empty())
    return Status::error(Code::not_found, "no destination named %s; see `holdfast destination ls`",
                         name.c_str());
  return Status();
}

// A running relay sees the new number and reads its exceptions again.
Status bump_control(sqlite3* db, std::int64_t destination) {
  Statement bump;
  const Status status = bump.prepare(db, sql::kControlBump);
  return status.ok() ? bump.bind(1, destination).run("destination") : status;
}

Status discard_at(sqlite3* db, const DestinationRow& row, std::int64_t seq,
                  const std::string& reason, std::int64_t wall_ms, bool& done) {
  done = false;
  Statement get;
  Status status = get.prepare(db, sql::kExceptionGet);
  if (!status.ok()) return status;
  get.bind(1, row.id).bind(2, seq);
  if (!get.step(status, "exception")) return status;
  const std::int64_t lane = get.column_int(4);
  get.reset();
  Statement erase, gap;
  status = erase.prepare(db, sql::kExceptionDelete);
  if (status.ok()) status = erase.bind(1, row.id).bind(2, seq).run("exception");
  if (status.ok()) status = gap.prepare(db, sql::kGapAdd);
  if (!status.ok()) return status;
  done = true;
  return gap.bind(1, row.id)
      .bind(2, lane)
      .bind(3, seq)
      .bind(4, seq)
      .bind(5, std::int64_t{1})
      .bind_text(6, "discarded")
      .bind_text(7, reason)
      .bind(8, std::max<std::int64_t>(0, wall_ms))
      .run("gap");
}

}  // namespace

Status Store::retry(std::int64_t seq, const std::string& destination, std::int64_t& changed) {
  changed = 0;
  if (!impl_) return not_open("retry");
  sqlite3* db = impl_->db.handle();
  Transaction transaction(db);
  Status status = transaction.begin();
  if (!status.ok()) return status;
  status = for_destinations(db, destination, [&](const DestinationRow& row) {
    Statement statement;
    Status each = statement.prepare(db, sql::kExceptionRetry);
    if (each.ok()) each = statement.bind(1, row.id).bind(2, seq).run("retry");
    if (!each.ok() || changed_rows(db) == 0) return each;
    ++changed;
    each = bump_control(db, row.id);
    if (each.ok())
      each = add_audit(db, impl_->clock().wall_ms(), "retry",
                       "seq " + std::to_string(seq) + " at " + row.name);
    return each;
  });
  return status.ok() ? transaction.commit() : status;
}

Status Store::retry_all_dead(const std::string& destination, std::int64_t& changed) {
  changed = 0;
  if (!impl_) return not_open("retry");
  sqlite3* db = impl_->db.handle();
  Transaction transaction(db);
  Status status = transaction.begin();
  if (!status.ok()) return status;
  status = for_destinations(db, destination, [&](const DestinationRow& row) {
    Statement statement;
    Status each = statement.prepare(db, sql::kExceptionRetryAllDead);
    if (each.ok()) each = statement.bind(1, row.id).run("retry");
    const std::int64_t rows = each.ok() ? changed_rows(db) : 0;
    if (!each.ok() || rows == 0) return each;
    changed += rows;
    each = bump_control(db, row.id);
    if (each.ok())
      each = add_audit(db, impl_->clock().wall_ms(), "retry",
                       "all " + std::to_string(rows) + " dead at " + row.name);
    return each;
  });
  return status.ok() ? transaction.commit() : status;
}

Status Store::discard(std::int64_t seq, const std::string& destination, const std::string& reason,
                      std::int64_t& changed) {
  changed = 0;
  if (!impl_) return not_open("discard");
  if (reason.empty() || reason.size() > kMaxReasonBytes || !is_utf8(reason))
    return Status::error(Code::invalid, "reason: give 1 to %d bytes of UTF-8",
                         static_cast<int>(kMaxReasonBytes));
  sqlite3* db = impl_->db.handle();
  Transaction transaction(db);
  Status status = transaction.begin();
  if (!status.ok()) return status;
  status = for_destinations(db, destination, [&](const DestinationRow& row) {
    bool done = false;
    Status each = discard_at(db, row, seq, reason, impl_->clock().wall_ms(), done);
    if (!each.ok() || !done) return each;
    ++changed;
    each = bump_control(db, row.id);
    if (each.ok())
      each = add_audit(db, impl_->clock().wall_ms(), "discard",
                       "seq " + std::to_string(seq) + " at " + row.name + ": " + reason);
    return each;
  });
  return status.ok() ? transaction.commit() : status;
}

namespace {

// It is a relay's reserve that lets rows be removed.
Status purge_full_disk(Db& db, const Clock& clock, const PurgeOptions& options,
                       PurgeResult& result) {
  Reserve reserve(db.path(), 0);
  Db guard;
  const Status status = Db::open(db.path(), OpenMode::read_write, 0, guard);
  if (!status.ok()) return status;
  const auto checkpoint = [&] {
    CheckpointResult moved;
    return guarded_checkpoint(db.handle(), guard, moved);
  };
  return purge_step_on_full_disk(db, clock, options, reserve, checkpoint, result);
}

}  // namespace

Status Store::purge(const PurgeOptions& options, PurgeResult& result) {
  if (!impl_) return not_open("purge");
  if (options.step_rows < 1 || options.step_rows > kPurgeStepRows)
    return Status::error(Code::invalid, "step_rows: give 1 to %d", kPurgeStepRows);
  const PurgeResult before = result;
  const Status status = purge_step(impl_->db, impl_->clock(), options, result);
  if (status.code() != Code::no_space) return status;
  result = before;
  return purge_full_disk(impl_->db, impl_->clock(), options, result);
}

// --- destinations
// ----------------------------------------------------------------------------------

Status Store::add_destination(const std::string& name) {
  if (!impl_) return not_open("destination");
  sqlite3* db = impl_->db.handle();
  Transaction transaction(db);
  Status status = transaction.begin();
  std::vector<DestinationRow> rows;
  if (status.ok()) status = list_destinations(db, rows);
  if (!status.ok()) return status;
  for (const DestinationRow& row : rows)
    if (row.name == name)
      return Status::error(Code::exists, "destination %s exists already", name.c_str());
  if (static_cast<int>(rows.size()) >= kMaxDestinations)
    return Status::error(Code::full, "there are %d destinations already, the most there can be",
                         kMaxDestinations);
  status = insert_destination(db, name);
  if (status.ok()) status = add_audit(db, impl_->clock().wall_ms(), "destination_add", name);
  return status.ok() ? transaction.commit() : status;
}

Status Store::remove_destination(const std::string& name, bool force) {
  if (!impl_) return not_open("destination");
  sqlite3* db = impl_->db.handle();
  Transaction transaction(db);
  Status status = transaction.begin();
  DestinationRow row;
  bool found = false;
  if (status.ok()) status = find_destination(db, name, found, row);
  if (!status.ok()) return status;
  if (!found)
    return Status::error(Code::not_found, "no destination named %s; see `holdfast destination ls`",
                         name.c_str());
  std::int64_t waiting = 0;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    LaneCounts counts;
    status = count_lane(db, row, lane, counts);
    if (!status.ok()) return status;
    waiting += counts.pending + counts.retry + counts.held + counts.dead;
  }
  if (waiting > 0 && !force)
    return Status::error(Code::misuse,
                         "destination %s has %lld events that it did not get; use --force to give "
                         "them up",
                         name.c_str(), static_cast<long long>(waiting));
  if (lease_live(row, impl_->clock()) && !force)
    return Status::error(Code::busy, "destination %s is served by a running relay; stop it first",
                         name.c_str());
  for (const char* sql : {sql::kExceptionDeleteAll, sql::kGapDeleteAll, sql::kRelayUrlDelete,
                          sql::kDestinationRemove}) {
    Statement statement;
    status = statement.prepare(db, sql);
    if (status.ok()) status = statement.bind(1, row.id).run("destination");
    if (!status.ok()) return status;
  }
  status = add_audit(db, impl_->clock().wall_ms(), "destination_remove",
                     name + ", events given up: " + std::to_string(waiting));
  return status.ok() ? transaction.commit() : status;
}

// --- capture
// -----------------------------------------------------------------------------------------

namespace {

Status drop_captures(Db& db, const std::string& table, int& removed) {
  removed = 0;
  Statement list;
  Status status = list.prepare(db.handle(), sql::kTriggerNames);
  if (!status.ok()) return status;
  list.bind_text(1, table);
  std::vector<std::string> names;
  while (list.step(status, "capture")) names.emplace_back(list.column_text(0));
  list.finalize();
  for (const std::string& name : names) {
    if (status.ok()) status = db.exec(drop_trigger_sql(name).c_str(), "capture");
    if (status.ok()) ++removed;
  }
  return status;
}

Status check_capture(Db& db, const CaptureSpec& spec) {
  Event probe;  // the literal parts must be a valid event's
  probe.event_type = spec.event_type;
  probe.aggregate_type = spec.aggregate_type;
  probe.aggregate_id = "x";
  probe.lane = spec.lane;
  Status status = validate(probe);
  if (!status.ok()) return status;
  if (spec.aggregate_id.empty())
    return Status::error(Code::invalid, "aggregate_id: give an SQL expression, e.g. NEW.id");
  if (spec.payload.empty())
    return Status::error(Code::invalid,
                         "payload: give an SQL expression, e.g. json_object('id', NEW.id)");
  if (!spec.on_insert && !spec.on_update && !spec.on_delete)
    return Status::error(Code::invalid, "on: give insert, update or delete");
  Statement exists;
  status = exists.prepare(db.handle(), sql::kTableExists);
  if (!status.ok()) return status;
  exists.bind_text(1, spec.table);
  const bool there = exists.step(status, "capture") && exists.column_int(0) > 0;
  if (status.ok() && !there)
    return Status::error(Code::not_found, "no table named %s in %s", spec.table.c_str(),
                         db.path().c_str());
  for (const char* own : {"outbox_", "inbox_", "holdfast_", "sqlite_"})
    if (spec.table.compare(0, std::strlen(own), own) == 0)
      return Status::error(Code::invalid, "table %s is not the application's", spec.table.c_str());
  return status;
}

Status first_column(Db& db, const std::string& table, std::string& column) {
  Statement statement;
  Status status = statement.prepare(db.handle(), sql::kFirstColumn);
  if (!status.ok()) return status;
  statement.bind_text(1, table);
  if (statement.step(status, "capture")) column = std::string(statement.column_text(0));
  return status;
}

}  // namespace

Status Store::capture(const CaptureSpec& spec) {
  if (!impl_) return not_open("capture");
  Transaction transaction(impl_->db.handle());
  Status status = transaction.begin();
  if (status.ok()) status = check_capture(impl_->db, spec);
  int removed = 0;
  if (status.ok()) status = drop_captures(impl_->db, spec.table, removed);
  const std::pair<bool, const char*> wanted[] = {
      {spec.on_insert, "insert"}, {spec.on_update, "update"}, {spec.on_delete, "delete"}};
  std::string column;
  if (status.ok()) status = first_column(impl_->db, spec.table, column);
  for (const auto& [on, op] : wanted) {
    if (!status.ok() || !on) continue;
    // One statement only: an expression that closes the trigger and starts another is refused.
    status = impl_->db.exec_one(capture_trigger_sql(spec, op), "capture");
    if (status.ok())
      status = impl_->db.exec_one(capture_probe_sql(spec.table, column, op), "capture");
  }
  if (status.ok())
    status = add_audit(impl_->db.handle(), impl_->clock().wall_ms(), "capture", spec.table);
  return status.ok() ? transaction.commit() : status;
}

Status Store::remove_capture(const std::string& table, int& removed) {
  removed = 0;
  if (!impl_) return not_open("capture");
  Transaction transaction(impl_->db.handle());
  Status status = transaction.begin();
  if (status.ok()) status = drop_captures(impl_->db, table, removed);
  if (status.ok() && removed > 0)
    status = add_audit(impl_->db.handle(), impl_->clock().wall_ms(), "capture_remove", table);
  return status.ok() ? transaction.commit() : status;
}

// --- copies
// ------------------------------------------------------------------------------------------

Status Store::backup(const std::string& new_path,
                     const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (!impl_) return not_open("backup");
  Status status = backup_database(impl_->db.handle(), new_path, progress);
  if (status.code() == Code::exists) return status;
  Db copy;
  if (status.ok()) status = Db::open(new_path, OpenMode::read_write, kBusyTimeoutMs, copy);
  if (status.ok()) status = set_wal(copy);
  if (status.ok()) status = mark_new_stream_on_open(copy.handle());
  copy.close();
  if (status.ok()) return platform::sync_parent_directory(new_path);
  ::unlink(new_path.c_str());  // half a copy would be taken for a whole one
  return status;
}

Status Store::limits(Limits& limits) {
  limits = Limits();
  return impl_ ? read_limits(impl_->db.handle(), limits) : not_open("limits");
}

Status Store::set_limits(const Limits& limits) {
  if (!impl_) return not_open("set_limits");
  const Status status = check_limits(limits);
  return status.ok() ? write_limits(impl_->db, limits) : status;
}

Status Store::new_stream() {
  if (!impl_) return not_open("new_stream");
  Transaction transaction(impl_->db.handle());
  Status status = transaction.begin();
  if (status.ok())
    status = take_new_stream(impl_->db.handle(), impl_->clock().wall_ms(), "asked for by hand");
  return status.ok() ? transaction.commit() : status;
}

}  // namespace holdfast
