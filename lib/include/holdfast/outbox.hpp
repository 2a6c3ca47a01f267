// The producing side: write an event in the same transaction as your own data (G1, G2).
//
//   sqlite3_exec(db, "BEGIN IMMEDIATE", …);
//   … your own writes …
//   holdfast::Emitted emitted;
//   Status s = outbox.emit(event, &emitted);
//   sqlite3_exec(db, s.ok() ? "COMMIT" : "ROLLBACK", …);
//
// What survives a crash: if COMMIT returned SQLITE_OK, your data and the event; if it was never
// called, or returned SQLITE_BUSY or SQLITE_CONSTRAINT, neither; if it returned any other error
// (SQLITE_IOERR, SQLITE_FULL, …), either both or neither - ask resolve() after reopening the
// database. Store::commit() knows more about SQLITE_FULL: no_space means neither, unknown either.
//
// Thread: one thread at a time for each Outbox, the one that uses the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "holdfast/clock.hpp"
#include "holdfast/event.hpp"
#include "holdfast/status.hpp"

struct sqlite3;

namespace holdfast {

enum class Durability {
  full,     // WAL with synchronous FULL or EXTRA, or attach() refuses with not_durable
  relaxed,  // asked for by name: a power cut may lose the newest events
};

// A commit leaves at most this many frames in the WAL before Holdfast checkpoints it. Half of
// SQLite's own default, so that foreign connections' automatic checkpoints normally never start.
constexpr int kCheckpointFrames = 500;

struct OutboxOptions {
  Durability durability = Durability::full;
  int busy_timeout_ms = 5000;  // set on the connection only if it has none; 0: leave it alone
  // 0: the application checkpoints by itself, guarded. Fewer on a file system below 64 MiB.
  int checkpoint_frames = kCheckpointFrames;
  // Called after each commit that emitted, on the committing thread: hand it Relay::waker() to wake
  // an in-process relay. Must not touch the connection.
  std::function<void()> on_commit;
  const Clock* clock = nullptr;  // nullptr: system_clock()
};

struct Emitted {
  std::int64_t seq = 0;
  EventId id{};
};

enum class Fate { committed, absent };

class Outbox {
 public:
  Outbox();
  ~Outbox();  // detaches
  Outbox(Outbox&&) noexcept;
  Outbox& operator=(Outbox&&) noexcept;
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Binds to the application's own connection, which must outlive the Outbox. The outbox tables
  // must be in its main database (`holdfast init`, Store::init); migrations are not done here.
  //
  // Reads back journal_mode and synchronous of this connection, for synchronous is per connection
  // (sqlite.org/pragma.html#pragma_synchronous), and refuses with not_durable and the exact pragma.
  // Also refused: exclusive locking (the relay could never read), other attached database files
  // (one COMMIT syncs them one after the other in WAL mode, so G1 would not hold:
  // sqlite.org/lang_attach.html), no_schema, newer_schema.
  //
  // Effects on the connection: if it had no busy timeout, a busy handler that looks again after
  // short random steps, for SQLite's own waiting starves beside a busy writer (a handler of your
  // own is not seen and is replaced, unless busy_timeout_ms is 0; a Store's connection keeps what
  // it has; PRAGMA busy_timeout ends it); wal_autocheckpoint 0 and the WAL hook
  // (sqlite.org/c3ref/wal_hook.html), because checkpoints run guarded (G12); journal_size_limit
  // 16 MiB (less on a small file system) if it had none, so that a WAL which a long reader let grow
  // becomes small again.
  static Status attach(sqlite3* db, const OutboxOptions& options, Outbox& out);

  // Adds the event to the open transaction. Errors: no_transaction, invalid (names the field),
  // full, busy, read_only, no_space, io, corrupt. On any error the transaction is as it was
  // before the call, and still open. sqlite3_last_insert_rowid() is not changed.
  Status emit(const Event& event, Emitted* emitted = nullptr);

  // After a COMMIT that returned an I/O error: reopen the database, attach, and ask. Looks at the
  // row `seq` only, so it costs one lookup at any size. `committed` means that readers, and the
  // relay, have it. The disk may lack it still: after a failed sync Linux does not try again.
  Status resolve(const Emitted& emitted, Fate& fate);
  // The same by id alone: searches newest first, up to `rows_max` rows.
  Status resolve(const EventId& id, std::int64_t rows_max, Fate& fate);

  void detach();  // finalizes statements, removes the hook; the connection stays open

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast
