#include "delivery.hpp"

#include <algorithm>

#include "event_row.hpp"
#include "event_time.hpp"
#include "platform.hpp"
#include "powered_time.hpp"
#include "schema.hpp"
#include "writer_impl.hpp"

namespace holdfast {

namespace {

void read_lane(const Statement& row, int column, LaneCursor& lane) {
  lane.acked_seq = row.column_int(column);
  if (!row.column_id(column + 1, lane.acked_id)) lane.acked_id = EventId();
  lane.claimed_seq = row.column_int(column + 2);
  lane.base_seq = row.column_int(column + 3);
}

void read_row(const Statement& row, DestinationRow& out) {
  out.id = row.column_int(0);
  out.name = std::string(row.column_text(1));
  read_lane(row, 2, out.lanes[kLaneNormal]);
  read_lane(row, 6, out.lanes[kLaneUrgent]);
  if (!row.column_id(10, out.peer_store)) out.peer_store = EventId();
  if (!row.column_id(11, out.peer_stream)) out.peer_stream = EventId();
  out.lease_owner = std::string(row.column_text(12));
  out.lease_boot_id = std::string(row.column_text(13));
  out.lease_until_ms = row.column_int(14);
  out.lease_epoch = row.column_int(15);
  out.times_boot_id = std::string(row.column_text(16));
  out.control = row.column_int(17);
  out.link_failures = row.column_int(18);
  out.last_error = std::string(row.column_text(19));
  out.last_error_at_ms = row.column_int(20);
  out.sent = row.column_int(21);
  out.duplicates = row.column_int(22);
  out.rejected = row.column_int(23);
  out.retries = row.column_int(24);
  out.rewinds = row.column_int(25);
  out.capped = row.column_int(26);
}

Status read_by_name(sqlite3* db, Statement& statement, const std::string& name, bool& found,
                    DestinationRow& row) {
  Status status = statement.prepare(db, sql::kDestinationByName);
  if (!status.ok()) return status;
  statement.bind_text(1, name);
  found = statement.step(status, "outbox_destination");
  if (found) read_row(statement, row);
  statement.reset();
  return status;
}

Status read_control(sqlite3* db, Statement& statement, std::int64_t destination,
                    std::int64_t& value, std::int64_t& capped) {
  Status status = statement.prepare(db, sql::kControlGet);
  if (!status.ok()) return status;
  statement.bind(1, destination);
  if (statement.step(status, "control")) {
    value = statement.column_int(0);
    capped = statement.column_int(1);
  }
  statement.reset();
  return status;
}

void bind_id_or_null(Statement& statement, int index, const EventId& id) {
  if (id.nil())
    statement.bind_null(index);
  else
    statement.bind_id(index, id);
}

}  // namespace

Status find_destination(sqlite3* db, const std::string& name, bool& found, DestinationRow& row) {
  Statement statement;
  return read_by_name(db, statement, name, found, row);
}

Status list_destinations(sqlite3* db, std::vector<DestinationRow>& rows) {
  Statement statement;
  Status status = statement.prepare(db, sql::kDestinationAll);
  if (!status.ok()) return status;
  rows.clear();
  while (statement.step(status, "outbox_destination")) {
    rows.emplace_back();
    read_row(statement, rows.back());
  }
  return status;
}

bool lease_live(const DestinationRow& row, const Clock& clock) {
  if (row.lease_owner.empty() || row.lease_boot_id != clock.boot_id()) return false;
  if (clock.boot_ms() >= row.lease_until_ms) return false;
  const std::string process = row.lease_owner.substr(0, row.lease_owner.find('/'));
  return platform::process_life(process) != platform::ProcessLife::gone;
}

Status void_dead_leases(sqlite3* db, const Clock& clock) {
  std::vector<DestinationRow> rows;
  Status status = list_destinations(db, rows);
  for (const DestinationRow& row : rows) {
    if (!status.ok() || row.lease_owner.empty() || lease_live(row, clock)) continue;
    Statement drop;
    status = drop.prepare(db, sql::kClaimsDrop);
    if (status.ok()) status = drop.bind(1, row.id).run("lease");
  }
  return status;
}

const char* exception_name(ExceptionStatus status) {
  switch (status) {
    case ExceptionStatus::retry:
      return "RETRY";
    case ExceptionStatus::held:
      return "HELD";
    case ExceptionStatus::dead:
      return "DEAD";
  }
  return "";
}

namespace {

std::string aggregate_key(std::string_view origin, std::string_view type, std::string_view id) {
  std::string key;
  key.reserve(origin.size() + type.size() + id.size() + 2);
  key.append(origin).append(1, '\0').append(type).append(1, '\0').append(id);
  return key;
}

}  // namespace

std::string aggregate_key(const EventRecord& event) {
  const auto* bytes = reinterpret_cast<const char*>(event.source_stream.bytes.data());
  return aggregate_key(event.source_stream.nil()
                           ? std::string_view()
                           : std::string_view(bytes, event.source_stream.bytes.size()),
                       event.aggregate_type, event.aggregate_id);
}

Status Delivery::open(const std::string& path, const std::string& destination, bool create,
                      const Clock& clock) {
  Db db;
  Status status = Db::open(path, OpenMode::read_write, kBusyTimeoutMs, db);
  if (status.ok()) status = check_schema(db.handle(), path);
  if (status.ok()) status = db.relax_synchronous();
  if (status.ok() && small_file_system(path))
    status = limit_wal_file(db.handle(), wal_bytes_on(path));
  if (!status.ok()) return status;
  return open(std::move(db), destination, create, clock);
}

Status Delivery::open(Db db, const std::string& destination, bool create, const Clock& clock) {
  db_ = std::move(db);
  clock_ = &clock;
  name_ = destination;
  wal_ = std::make_unique<WalState>();
  wal_->slot = {[](void* state, int frames) { static_cast<WalState*>(state)->frames = frames; },
                wal_.get()};
  install_wal_hook(db_.handle(), &wal_->slot);
  Status status = honour_new_stream_mark(db_.handle(), clock.wall_ms());
  if (status.ok()) status = sample_time(db_.handle(), clock, false);
  // On a full disk there is enough to do without it: ages only count from a later sample.
  if (!status.ok() && status.code() != Code::no_space) return status;
  DestinationRow row;
  bool found = false;
  status = read_by_name(db_.handle(), by_name_, name_, found, row);
  if (!status.ok()) return status;
  if (!found && create) {
    Statement add;
    status = add.prepare(db_.handle(), sql::kDestinationAdd);
    if (status.ok()) status = add.bind_text(1, name_).run("destination");
    if (status.ok()) status = read_by_name(db_.handle(), by_name_, name_, found, row);
    if (!status.ok()) return status;
  }
  if (!found)
    return Status::error(Code::not_found,
                         "%s: no destination named %s; see `holdfast destination ls`",
                         db_.path().c_str(), name_.c_str());
  id_ = row.id;
  return Status();
}

Status Delivery::turn(const std::function<Status()>& writing) {
  if (!writer_) return writing();
  Writer::Impl::Member me;
  me.alone = &writing;
  return writer_->take_part(me, kTurnWaitMs);
}

Status Delivery::write(const std::function<Status()>& writing) {
  if (reserve_ == nullptr) return turn(writing);
  return turn([&] { return reserve_->while_full(writing); });
}

void Delivery::close() { *this = Delivery(); }

Status Delivery::load(DestinationRow& row) {
  bool found = false;
  Status status = read_by_name(db_.handle(), by_name_, name_, found, row);
  if (!status.ok()) return status;
  if (!found || row.id != id_)
    return Status::error(Code::not_found, "destination %s was removed", name_.c_str());
  return Status();
}

Status Delivery::acquire(const std::string& owner, std::int64_t lease_ms, bool& acquired,
                         DestinationRow& row) {
  acquired = false;
  Transaction transaction(db_.handle());
  Status status = transaction.begin();
  if (status.ok()) status = load(row);
  if (!status.ok()) return status;
  const bool ours = row.lease_owner == owner;
  if (!ours && lease_live(row, *clock_)) return Status();
  // A lapsed lease that nobody took is still ours: the epoch says that nothing happened.
  const std::int64_t epoch = ours ? row.lease_epoch : row.lease_epoch + 1;
  const std::string boot_id = clock_->boot_id();
  if (row.times_boot_id != boot_id) {
    Statement reset;  // times of another boot say nothing now: everything is due
    status = reset.prepare(db_.handle(), sql::kExceptionTimesReset);
    if (status.ok()) status = reset.bind(1, id_).run("exceptions");
    if (!status.ok()) return status;
  }
  Statement take;
  status = take.prepare(db_.handle(), sql::kLeaseTake);
  if (!status.ok()) return status;
  const std::int64_t until = clock_->boot_ms() + lease_ms;
  status = take.bind(1, id_)
               .bind_text(2, owner)
               .bind_text(3, boot_id)
               .bind(4, until)
               .bind(5, epoch)
               .run("lease");
  if (status.ok()) status = sample_time(db_.handle(), *clock_, false);
  if (status.ok()) status = transaction.commit();
  if (!status.ok()) return status;
  row.lease_owner = owner;
  row.lease_epoch = epoch;
  row.lease_until_ms = until;
  acquired = true;
  return Status();
}

Status Delivery::fenced(sqlite3* db, const std::string& owner, std::int64_t epoch,
                        const char* what) {
  if (changed_rows(db) == 1) return Status();
  return Status::error(Code::lease_lost,
                       "%s: another relay has taken destination %s (%s, epoch %lld)", what,
                       name_.c_str(), owner.c_str(), static_cast<long long>(epoch));
}

Status Delivery::put_exception(sqlite3* db, Statement& put, const ExceptionRow& row,
                               bool only_new) {
  Status status = put.prepare(db, only_new ? sql::kExceptionAdd : sql::kExceptionPut);
  if (!status.ok()) return status;
  put.bind(1, id_)
      .bind(2, row.seq)
      .bind(3, static_cast<std::int64_t>(row.lane))
      .bind_text(4, exception_name(row.status))
      .bind(5, static_cast<std::int64_t>(row.attempts))
      .bind(6, row.next_attempt_ms)
      .bind(7, static_cast<std::int64_t>(row.reported))
      .bind_text_or_null(8, row.last_error);
  return put.run("exception");
}

// Statements live as long as the call: the connection may be the producers', who use it as soon as
// this has returned.
Status Delivery::write_cursor(sqlite3* db, const std::string& owner, std::int64_t epoch,
                              const CursorFlush& flush) {
  Statement cursor;
  Status status = cursor.prepare(db, sql::kCursorFlush);
  if (!status.ok()) return status;
  const LaneCursor& normal = flush.lanes[kLaneNormal];
  const LaneCursor& urgent = flush.lanes[kLaneUrgent];
  cursor.bind(1, id_).bind_text(2, owner).bind(3, epoch).bind(4, normal.acked_seq);
  bind_id_or_null(cursor, 5, normal.acked_id);
  cursor.bind(6, normal.claimed_seq).bind(7, urgent.acked_seq);
  bind_id_or_null(cursor, 8, urgent.acked_id);
  cursor.bind(9, urgent.claimed_seq)
      .bind(10, flush.lease_until_ms)
      .bind(11, flush.sent)
      .bind(12, flush.duplicates)
      .bind(13, flush.rejected)
      .bind(14, flush.retries);
  status = cursor.run("cursor");
  return status.ok() ? fenced(db, owner, epoch, "cursor") : status;
}

Status Delivery::write_flush(sqlite3* db, const std::string& owner, std::int64_t epoch,
                             const CursorFlush& flush) {
  Status status = write_cursor(db, owner, epoch, flush);
  // What a person asked for since the relay last read the exceptions stands.
  std::int64_t control_now = flush.control, capped = 0;
  Statement control;
  if (status.ok() && flush.control >= 0)
    status = read_control(db, control, id_, control_now, capped);
  Statement put, erase, reported;
  for (const ExceptionRow& row : flush.put)
    if (status.ok()) status = put_exception(db, put, row, control_now != flush.control);
  for (const std::int64_t seq : flush.erase) {
    if (status.ok()) status = erase.prepare(db, sql::kExceptionDelete);
    if (status.ok()) status = erase.bind(1, id_).bind(2, seq).run("exception");
  }
  for (const OutboxGap& gap : flush.gaps)
    if (status.ok()) status = add_gap(db, gap);
  if (status.ok() && flush.expired > 0) status = add_counter(db, "expired", flush.expired);
  for (const OutboxGap& gap : flush.reported) {
    if (status.ok()) status = reported.prepare(db, sql::kGapReported);
    if (status.ok())
      status = reported.bind(1, id_)
                   .bind(2, static_cast<std::int64_t>(gap.lane))
                   .bind(3, gap.first_seq)
                   .bind(4, gap.last_seq)
                   .run("gap");
  }
  return status.ok() ? sample_time(db, *clock_, false) : status;
}

Status Delivery::flush(const std::string& owner, std::int64_t epoch, const CursorFlush& flush) {
  const auto by_itself = [&] {
    Transaction transaction(db_.handle());
    Status status = transaction.begin();
    if (status.ok()) status = write_flush(db_.handle(), owner, epoch, flush);
    return status.ok() ? transaction.commit() : status;
  };
  if (!writer_) return write(by_itself);
  const std::function<Status()> alone = [&] {
    return reserve_ != nullptr ? reserve_->while_full(by_itself) : by_itself();
  };
  const Writer::Work along = [&](sqlite3* db, Outbox&) {
    return write_flush(db, owner, epoch, flush);
  };
  Writer::Impl::Member me;
  me.work = &along;
  me.alone = &alone;
  me.deadline_ms = clock_->boot_ms() + kTurnWaitMs;
  const Status status = writer_->take_part(me, kTurnWaitMs);
  // The producers have no reserve: alone there may be room.
  return status.code() == Code::no_space ? write(by_itself) : status;
}

Status Delivery::release(const std::string& owner, std::int64_t epoch) {
  Statement statement;
  Status status = statement.prepare(db_.handle(), sql::kLeaseRelease);
  if (!status.ok()) return status;
  return statement.bind(1, id_).bind_text(2, owner).bind(3, epoch).run("lease");
}

Status Delivery::record_link(std::int64_t failures, const std::string& error,
                             std::int64_t wall_ms) {
  Statement statement;
  Status status = statement.prepare(db_.handle(), sql::kLinkSet);
  if (!status.ok()) return status;
  statement.bind(1, id_).bind(2, failures).bind_text_or_null(3, error);
  if (error.empty())
    statement.bind_null(4);
  else
    statement.bind(4, wall_ms);
  return statement.run("link");
}

Status Delivery::note_url(const std::string& url) {
  Statement statement;
  Status status =
      statement.prepare(db_.handle(), url.empty() ? sql::kRelayUrlDelete : sql::kRelayUrlSet);
  if (!status.ok()) return status;
  statement.bind(1, id_);
  if (!url.empty()) statement.bind_text(2, url);
  return statement.run("relay_url");
}

Status Delivery::noted_url(std::string& url) { return read_relay_url(db_.handle(), id_, url); }

Status read_relay_url(sqlite3* db, std::int64_t destination, std::string& url) {
  Statement statement;
  Status status = statement.prepare(db, sql::kRelayUrlGet);
  if (!status.ok()) return status;
  statement.bind(1, destination);
  url = statement.step(status, "relay_url") ? std::string(statement.column_text(0)) : "";
  return status;
}

Status Delivery::load_exceptions(std::vector<ExceptionRow>& rows) {
  rows.clear();
  Statement statement;
  Status status = statement.prepare(db_.handle(), sql::kExceptionAll);
  if (!status.ok()) return status;
  statement.bind(1, id_);
  while (statement.step(status, "outbox_exception")) {
    ExceptionRow row;
    row.seq = statement.column_int(0);
    row.lane = statement.column_int(1) == kLaneUrgent ? kLaneUrgent : kLaneNormal;
    const std::string_view name = statement.column_text(2);
    row.status = name == "HELD"   ? ExceptionStatus::held
                 : name == "DEAD" ? ExceptionStatus::dead
                                  : ExceptionStatus::retry;
    row.attempts = static_cast<int>(statement.column_int(3));
    row.next_attempt_ms = statement.column_int(4);
    row.reported = statement.column_int(5) != 0;
    row.last_error = std::string(statement.column_text(6));
    row.aggregate =
        aggregate_key(statement.column_blob(9), statement.column_text(7), statement.column_text(8));
    rows.push_back(std::move(row));
  }
  return status;
}

Status Delivery::load_gaps(std::vector<OutboxGap>& gaps) {
  gaps.clear();
  Statement statement;
  Status status = statement.prepare(db_.handle(), sql::kGapAll);
  if (!status.ok()) return status;
  statement.bind(1, id_);
  while (statement.step(status, "outbox_gap")) {
    OutboxGap gap;
    gap.lane = statement.column_int(0) == kLaneUrgent ? kLaneUrgent : kLaneNormal;
    gap.first_seq = statement.column_int(1);
    gap.last_seq = statement.column_int(2);
    gap.count = statement.column_int(3);
    gap.reason = std::string(statement.column_text(4));
    gap.detail = std::string(statement.column_text(5));
    gap.reported = statement.column_int(6) != 0;
    gaps.push_back(std::move(gap));
  }
  return status;
}

Status Delivery::control(std::int64_t& value, std::int64_t& capped) {
  return read_control(db_.handle(), control_, id_, value, capped);
}

Status Delivery::drops_oldest(bool& drops) {
  Statement statement;
  Status status = statement.prepare(db_.handle(), sql::kMetaGet);
  if (!status.ok()) return status;
  statement.bind_text(1, "when_full");
  drops = statement.step(status, "when_full") && statement.column_text(0) == "drop_oldest";
  return status;
}

Status Delivery::read(int lane, std::int64_t after, std::int64_t rows_max,
                      const std::function<bool(EventRecord&&, const Status&)>& fn) {
  Statement& statement = read_[lane];
  Status status =
      statement.prepare(db_.handle(), lane == kLaneUrgent ? sql::kReadUrgent : sql::kReadNormal);
  if (!status.ok()) return status;
  statement.bind(1, after).bind(2, rows_max);
  EventTimes times(db_.handle(), *clock_);
  while (statement.step(status, "outbox_event")) {
    EventRecord event;
    const Status bad = read_event(statement, event);
    if (bad.ok()) status = times.correct(event);
    if (!status.ok()) break;
    event.lane = lane;
    if (!fn(std::move(event), bad)) break;
  }
  statement.reset();  // ends the read transaction: a slow peer must not hold back checkpoints
  return status;
}

Status Delivery::expired(const EventRecord& event, bool& over) {
  over = false;
  if (event.ttl_ms <= 0) return Status();
  std::int64_t now = 0, emitted = event.emitted_ms;
  Status status = powered_now(db_.handle(), *clock_, now);
  if (status.ok() && emitted < 0) status = emitted_by(db_.handle(), event.seq, emitted);
  over = status.ok() && emitted >= 0 && now - emitted >= event.ttl_ms;
  return status;
}

Status Delivery::read_one(std::int64_t seq, bool& found, EventRecord& event, Status& bad) {
  Status status = read_one_.prepare(db_.handle(), sql::kEventRead);
  if (!status.ok()) return status;
  read_one_.bind(1, seq);
  found = read_one_.step(status, "outbox_event");
  if (found) bad = read_event(read_one_, event);
  read_one_.reset();
  if (found && bad.ok()) status = EventTimes(db_.handle(), *clock_).correct(event);
  return status;
}

Status Delivery::event_at(std::int64_t seq, bool& found, EventId& id, int& lane) {
  Status status = event_at_.prepare(db_.handle(), sql::kEventIdAt);
  if (!status.ok()) return status;
  event_at_.bind(1, seq);
  found = event_at_.step(status, "outbox_event");
  if (found) {
    if (!EventId::parse(event_at_.column_text(0), id)) id = EventId();
    lane = event_at_.column_int(1) == kLaneUrgent ? kLaneUrgent : kLaneNormal;
  }
  event_at_.reset();
  return status;
}

namespace {

Status read_int(sqlite3* db, Statement& statement, const char* sql, std::int64_t& value) {
  Status status = statement.prepare(db, sql);
  if (!status.ok()) return status;
  value = 0;
  if (statement.step(status, "outbox_event")) value = statement.column_int(0);
  statement.reset();
  return status;
}

}  // namespace

Status Delivery::newest_seq(std::int64_t& seq) {
  return read_int(db_.handle(), newest_, sql::kNewestSeq, seq);
}

Status Delivery::oldest_seq(std::int64_t& seq) {
  return read_int(db_.handle(), oldest_, sql::kOldestSeq, seq);
}

Status Delivery::first_after(int lane, std::int64_t after, std::int64_t& seq) {
  Statement& statement = first_[lane];
  Status status = statement.prepare(
      db_.handle(), lane == kLaneUrgent ? sql::kFirstUrgentAfter : sql::kFirstNormalAfter);
  if (!status.ok()) return status;
  statement.bind(1, after);
  seq = statement.step(status, "outbox_event") ? statement.column_int(0) : 0;
  statement.reset();
  return status;
}

Status Delivery::data_version(std::int64_t& version) {
  return holdfast::data_version(db_.handle(), version_, version);
}

Status Delivery::add_gap(sqlite3* db, const OutboxGap& gap) {
  Statement statement;
  Status status = statement.prepare(db, sql::kGapAdd);
  if (!status.ok()) return status;
  return statement.bind(1, id_)
      .bind(2, static_cast<std::int64_t>(gap.lane))
      .bind(3, gap.first_seq)
      .bind(4, gap.last_seq)
      .bind(5, gap.count)
      .bind_text(6, gap.reason)
      .bind_text_or_null(7, gap.detail)
      .bind(8, std::max<std::int64_t>(0, clock_->wall_ms()))
      .run("gap");
}

Status Delivery::record_peer(const std::string& owner, std::int64_t epoch,
                             const PeerUpdate& update) {
  Transaction transaction(db_.handle());
  Status status = transaction.begin();
  Statement peer;
  if (status.ok()) status = peer.prepare(db_.handle(), sql::kPeerSet);
  if (!status.ok()) return status;
  status = peer.bind(1, id_)
               .bind_text(2, owner)
               .bind(3, epoch)
               .bind_id(4, update.store)
               .bind_id(5, update.stream)
               .bind(6, update.lanes[kLaneNormal].base_seq)
               .bind(7, update.lanes[kLaneUrgent].base_seq)
               .bind(8, static_cast<std::int64_t>(update.rewound))
               .run("session");
  if (status.ok()) status = fenced(db_.handle(), owner, epoch, "session");
  for (int lane = 0; lane < kLaneCount; ++lane) {
    if (!status.ok() || update.unreport_above[lane] < 0) continue;
    Statement unreport;
    status = unreport.prepare(db_.handle(), sql::kGapUnreport);
    if (status.ok())
      status = unreport.bind(1, id_)
                   .bind(2, static_cast<std::int64_t>(lane))
                   .bind(3, update.unreport_above[lane])
                   .run("gap");
  }
  for (const OutboxGap& gap : update.new_gaps)
    if (status.ok()) status = add_gap(db_.handle(), gap);
  Statement put;
  for (const ExceptionRow& row : update.put)
    if (status.ok()) status = put_exception(db_.handle(), put, row);
  if (status.ok() && update.rewound)
    status = add_audit(db_.handle(), clock_->wall_ms(), "rewind",
                       name_ + ": the gateway knows less than it did; offering again what is kept");
  return status.ok() ? transaction.commit() : status;
}

Status Delivery::fork(const std::string& owner, std::int64_t epoch, const std::string& why) {
  Transaction transaction(db_.handle());
  Status status = transaction.begin();
  DestinationRow row;
  if (status.ok()) status = load(row);
  if (!status.ok()) return status;
  if (row.lease_owner != owner || row.lease_epoch != epoch)
    return Status::error(Code::lease_lost, "fork: another relay has taken destination %s",
                         name_.c_str());
  status = take_new_stream(db_.handle(), clock_->wall_ms(), why.c_str());
  return status.ok() ? transaction.commit() : status;
}

namespace {

Status bound_count(sqlite3* db, const char* sql, std::int64_t first, std::int64_t second, int bound,
                   std::int64_t& value) {
  Statement statement;
  Status status = statement.prepare(db, sql);
  if (!status.ok()) return status;
  statement.bind(1, first);
  if (bound > 1) statement.bind(2, second);
  value = statement.step(status, "count") ? statement.column_int(0) : 0;
  return status;
}

}  // namespace

Status count_lane(sqlite3* db, const DestinationRow& row, int lane, LaneCounts& counts) {
  counts = LaneCounts();
  const std::int64_t acked = row.lanes[lane].acked_seq;
  std::int64_t newest = 0, oldest = 0, urgent = 0, excepted = 0, gone = 0;
  Statement statement;
  Status status = read_int(db, statement, sql::kNewestSeq, newest);
  statement.finalize();
  if (status.ok()) status = read_int(db, statement, sql::kOldestSeq, oldest);
  statement.finalize();
  if (status.ok()) status = bound_count(db, sql::kUrgentAfter, acked, 0, 1, urgent);
  if (status.ok()) status = statement.prepare(db, sql::kExceptionCounts);
  if (!status.ok()) return status;
  statement.bind(1, row.id).bind(2, acked).bind(3, static_cast<std::int64_t>(lane));
  while (statement.step(status, "exceptions")) {
    const std::string_view name = statement.column_text(0);
    std::int64_t& count = name == "RETRY"  ? counts.retry
                          : name == "HELD" ? counts.held
                                           : counts.dead;
    count += statement.column_int(2);
    excepted += statement.column_int(3);
  }
  statement.finalize();
  if (status.ok()) status = statement.prepare(db, sql::kGapCountAfter);
  if (!status.ok()) return status;
  statement.bind(1, row.id).bind(2, static_cast<std::int64_t>(lane)).bind(3, acked);
  if (statement.step(status, "gaps")) gone = statement.column_int(0);
  if (!status.ok()) return status;
  const std::int64_t above = newest == 0 ? 0 : newest - std::max(acked, oldest - 1);
  const std::int64_t of_lane = lane == kLaneUrgent ? urgent : above - urgent;
  counts.beyond_cursor_max = of_lane;
  counts.pending = std::max<std::int64_t>(0, of_lane - excepted - gone);
  return status;
}

Status Delivery::count_pending(const LaneCursor (&lanes)[kLaneCount], std::int64_t& count) {
  DestinationRow row;
  row.id = id_;
  count = 0;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    row.lanes[lane] = lanes[lane];
    LaneCounts counts;
    const Status status = count_lane(db_.handle(), row, lane, counts);
    if (!status.ok()) return status;
    count += counts.pending;
  }
  return Status();
}

Status Delivery::checkpoint() {
  if (!guard_.is_open()) {
    Status status = Db::open(db_.path(), OpenMode::read_write, 0, guard_);
    if (!status.ok()) return status;
  }
  CheckpointResult result;
  const Status status = guarded_checkpoint(db_.handle(), guard_, result);
  wal_moved_ = status.ok() && result.complete();
  if (status.ok()) wal_->frames = 0;  // or nearly: the next commit tells
  return status;
}

}  // namespace holdfast
