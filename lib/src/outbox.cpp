#include "holdfast/outbox.hpp"

#include <cstring>

#include "db.hpp"
#include "delivery.hpp"
#include "event_row.hpp"
#include "identity.hpp"
#include "powered_time.hpp"
#include "reserve.hpp"
#include "schema.hpp"

namespace holdfast {

// Lives at a fixed address, for the WAL hook points here.
struct Outbox::Impl {
  sqlite3* db = nullptr;
  OutboxOptions options;
  std::string path;
  Statement insert;
  Statement id_at;
  Statement find;
  Statement meta, used, make_room;
  WalHookSlot hook;
  Db guard;  // second connection, opened at the first checkpoint
  bool emitted_since_commit = false;
  int sampled_clock = -1;  // whether the clock was set at the last committed sample; -1: not known
  int wal_frames = -1;     // after this connection's last commit; -1: not known

  const Clock& clock() const { return options.clock != nullptr ? *options.clock : system_clock(); }
  void after_commit(int frames);
  Status insert_event(const Event& event, const std::string& id_text, std::int64_t created_at_ms);
  Status note_clock(std::int64_t wall_ms);
  Status max_bytes(std::int64_t& bytes);
  Status bytes_used(std::int64_t& bytes);
  Status make_some_room();
  Status fit_bytes();
  void checkpoint();
  static void on_wal(void* self, int frames) { static_cast<Impl*>(self)->after_commit(frames); }
};

void Outbox::Impl::after_commit(int frames) {
  wal_frames = frames;
  if (options.checkpoint_frames > 0 && frames >= options.checkpoint_frames) checkpoint();
  if (!emitted_since_commit) return;
  emitted_since_commit = false;
  if (options.on_commit) options.on_commit();
}

void Outbox::Impl::checkpoint() {
  if (!guard.is_open()) {
    // No busy wait: a commit must not be held up by a checkpoint that can be done later.
    Status status = Db::open(path, OpenMode::read_write, 0, guard);
    if (!status.ok()) return;
  }
  // Best effort by design: a checkpoint that fails now is tried again after the next commit, and
  // its failure says nothing about the commit, which is durable already. `holdfast stats` shows the
  // WAL's size and `holdfast doctor` why it does not shrink.
  CheckpointResult result;
  const Status status = guarded_checkpoint(db, guard, result);
  if (!status.ok()) guard.close();
}

Outbox::Outbox() = default;
Outbox::~Outbox() { detach(); }
Outbox::Outbox(Outbox&&) noexcept = default;
Outbox& Outbox::operator=(Outbox&& other) noexcept {
  if (this != &other) {
    detach();
    impl_ = std::move(other.impl_);
  }
  return *this;
}

void Outbox::detach() {
  if (!impl_) return;
  remove_wal_hook(impl_->db);
  impl_.reset();
}

Status Outbox::attach(sqlite3* db, const OutboxOptions& options, Outbox& out) {
  if (db == nullptr) return Status::error(Code::misuse, "attach: the connection is null");
  auto impl = std::make_unique<Impl>();
  impl->db = db;
  impl->options = options;
  impl->path = main_file(db);
  impl->options.checkpoint_frames = checkpoint_frames_on(impl->path, options.checkpoint_frames);
  if (options.busy_timeout_ms > 0) ensure_busy_wait(db, options.busy_timeout_ms);
  Status status = check_schema(db, impl->path);
  if (status.ok())
    status = check_durability(db, impl->path, options.durability == Durability::relaxed);
  if (status.ok() && options.checkpoint_frames > 0)
    status = ensure_wal_limit(
        db, small_file_system(impl->path) ? wal_bytes_on(impl->path) : kWalFileBytes);
  if (!status.ok()) return status;
  if (!in_transaction(db)) {
    status = honour_new_stream_mark(db, impl->clock().wall_ms());
    if (status.ok()) status = impl->note_clock(impl->clock().wall_ms());
    if (!status.ok()) return status;
  }
  impl->hook = {&Impl::on_wal, impl.get()};
  status = impl->insert.prepare(db, sql::kEventInsert);
  if (!status.ok()) return status;
  out.detach();
  install_wal_hook(db, &impl->hook);
  out.impl_ = std::move(impl);
  return Status();
}

namespace {

constexpr int kRoomSteps = 16;  // of 64 events each, for one emit
constexpr const char* kFullMark = "outbox_event: full";

}  // namespace

Status Outbox::Impl::insert_event(const Event& event, const std::string& id_text,
                                  std::int64_t created_at_ms) {
  std::int64_t emitted_ms = 0;
  Status status;
  if (event.ttl_ms > 0) {  // dated now, so that its time runs without anybody looking
    status = sample_time(db, clock(), false);
    if (status.ok()) status = powered_now(db, clock(), emitted_ms);
  }
  if (status.ok()) status = insert.prepare(db, sql::kEventInsert);
  if (!status.ok()) return status;
  bind_event(insert, event, id_text, created_at_ms, emitted_ms);
  status = insert.run("emit");
  insert.reset();
  if (status.code() == Code::invalid && std::strstr(status.text(), kFullMark) != nullptr)
    return Status::native_error(Code::full, status.native(), "%s", status.text());
  return status;
}

// A clock that was set, or unset, since the last emit divides the events before from those after.
Status Outbox::Impl::note_clock(std::int64_t wall_ms) {
  const int set = wall_known(wall_ms) ? 1 : 0;
  if (set == sampled_clock) return Status();
  bool due = false;
  Status status = time_sample_due(db, clock(), due);
  if (!status.ok()) return status;
  if (due) status = sample_time(db, clock(), false);
  // Not while it may be one of our own that a rollback takes back.
  if (status.ok() && (due ? !in_transaction(db) : !emitted_since_commit)) sampled_clock = set;
  return status;
}

Status Outbox::Impl::make_some_room() {
  const Status status = make_room.prepare(db, sql::kMakeRoom);
  return status.ok() ? make_room.run("make room") : status;
}

Status Outbox::Impl::max_bytes(std::int64_t& bytes) {
  Status status = meta.prepare(db, sql::kMetaGet);
  if (!status.ok()) return status;
  meta.bind_text(1, "max_bytes");
  bytes = meta.step(status, "max_bytes") ? meta.column_int(0) : 0;
  meta.reset();
  return status;
}

Status Outbox::Impl::bytes_used(std::int64_t& bytes) {
  constexpr std::int64_t kFrameHeaderBytes = 24;
  Status status = used.prepare(db, sql::kBytesUsed);
  if (!status.ok()) return status;
  if (used.step(status, "bytes used")) {
    const std::int64_t frame = used.column_int(1) + kFrameHeaderBytes;
    bytes = used.column_int(0) + (wal_frames < 0 ? wal_file_bytes(path) : wal_frames * frame);
  }
  used.reset();
  return status;
}

// Before an event is added: makes room under the byte cap, or says that there is none.
Status Outbox::Impl::fit_bytes() {
  std::int64_t cap = 0, bytes = 0;
  Status status = max_bytes(cap);
  if (!status.ok() || cap <= 0) return status;
  status = bytes_used(bytes);
  for (int step = 0; status.ok() && bytes >= cap && step < kRoomSteps; ++step) {
    status = make_some_room();
    if (status.ok()) status = bytes_used(bytes);
  }
  if (!status.ok() || bytes < cap) return status;
  return Status::error(
      Code::full,
      "emit: full: %lld bytes are in use, and max_bytes is %lld; wait until events "
      "are sent, or raise it with `holdfast init --max-bytes`",
      static_cast<long long>(bytes), static_cast<long long>(cap));
}

Status Outbox::emit(const Event& event, Emitted* emitted) {
  if (!impl_) return Status::error(Code::misuse, "emit: the outbox is not attached");
  if (!in_transaction(impl_->db))
    return Status::error(Code::no_transaction,
                         "emit: no transaction is open; BEGIN IMMEDIATE first, so that the event "
                         "and your own change are one commit");
  Status status = validate(event);
  if (!status.ok()) return status;
  const std::int64_t wall_ms = impl_->clock().wall_ms();
  const EventId id = event.id.nil() ? EventId::make_v7(wall_ms) : event.id;
  std::int64_t created_at_ms = event.created_at_ms == kNow ? wall_ms : event.created_at_ms;
  if (created_at_ms < 0) created_at_ms = 0;
  // The application may have run PRAGMA wal_autocheckpoint, which replaces the hook.
  install_wal_hook(impl_->db, &impl_->hook);
  const std::int64_t rowid = last_insert_rowid(impl_->db);
  const std::string id_text = id.text();
  status = impl_->note_clock(wall_ms);
  if (status.ok()) status = impl_->fit_bytes();
  if (status.ok()) status = impl_->insert_event(event, id_text, created_at_ms);
  if (status.code() == Code::full) {
    // A relay that died may still have claimed what could make room.
    Status freed = void_dead_leases(impl_->db, impl_->clock());
    for (int step = 0; freed.ok() && step < kRoomSteps; ++step) freed = impl_->make_some_room();
    if (freed.ok()) freed = impl_->fit_bytes();
    if (freed.ok()) status = impl_->insert_event(event, id_text, created_at_ms);
  }
  const std::int64_t seq = last_insert_rowid(impl_->db);
  set_last_insert_rowid(impl_->db, rowid);
  if (!status.ok()) return status;
  impl_->emitted_since_commit = true;
  if (emitted != nullptr) *emitted = {seq, id};
  return Status();
}

Status Outbox::resolve(const Emitted& emitted, Fate& fate) {
  if (!impl_) return Status::error(Code::misuse, "resolve: the outbox is not attached");
  Status status = impl_->id_at.prepare(impl_->db, sql::kEventIdAt);
  if (!status.ok()) return status;
  impl_->id_at.bind(1, emitted.seq);
  EventId id;
  const bool there = impl_->id_at.step(status, "resolve") &&
                     EventId::parse(impl_->id_at.column_text(0), id) && id == emitted.id;
  impl_->id_at.reset();
  if (status.ok()) fate = there ? Fate::committed : Fate::absent;
  return status;
}

Status Outbox::resolve(const EventId& id, std::int64_t rows_max, Fate& fate) {
  if (!impl_) return Status::error(Code::misuse, "resolve: the outbox is not attached");
  Status status = impl_->find.prepare(impl_->db, sql::kFindId);
  if (!status.ok()) return status;
  const std::string text = id.text();
  impl_->find.bind_text(1, text).bind(2, rows_max);
  const bool there = impl_->find.step(status, "resolve");
  impl_->find.reset();
  if (status.ok()) fate = there ? Fate::committed : Fate::absent;
  return status;
}

}  // namespace holdfast
