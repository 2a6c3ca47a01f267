// SQLite, wrapped: the only file that includes <sqlite3.h>. Statements, transactions that wait
// their turn fairly, error mapping, and checkpoints that are safe against the WAL-reset race (G12).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "holdfast/event.hpp"
#include "holdfast/status.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace holdfast {

// Maps the connection's last error; `what` says what was tried ("emit", "/data/app.db: open").
Status sqlite_status(sqlite3* db, int rc, const char* what);

class Statement {
 public:
  Statement() = default;
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Prepares once and keeps the statement; later calls only reset it.
  Status prepare(sqlite3* db, const char* sql);
  bool prepared() const { return stmt_ != nullptr; }
  void finalize();

  // Index from 1. Views must stay valid until reset() or the next prepare().
  Statement& bind(int index, std::int64_t value);
  Statement& bind(int index, double value);
  Statement& bind_text(int index, std::string_view value);
  Statement& bind_blob(int index, std::string_view value);
  Statement& bind_id(int index, const EventId& id);  // 16-byte blob
  Statement& bind_null(int index);
  // NULL when empty.
  Statement& bind_text_or_null(int index, std::string_view value);

  // True while there is a row. On an error `status` is set and the result is false.
  bool step(Status& status, const char* what);
  // Runs to the end, ignoring rows, and resets.
  Status run(const char* what);
  void reset();

  std::int64_t column_int(int index) const;
  double column_double(int index) const;
  std::string_view column_text(int index) const;  // valid until the next step
  std::string_view column_blob(int index) const;
  bool column_id(int index, EventId& id) const;  // false unless a 16-byte blob
  bool column_is_null(int index) const;
  bool column_is_text(int index) const;

 private:
  sqlite3_stmt* stmt_ = nullptr;
  sqlite3* db_ = nullptr;
};

// A VFS that does not keep its files in a folder of the system syncs its own when it gets this file
// control; SQLite's answers SQLITE_NOTFOUND (sqlite.org/c3ref/file_control.html: above 100, free).
constexpr int kSyncFolderControl = 0x484f4c44;

// Asks the VFS, like SQLite itself; an empty file counts as missing.
bool database_exists(const std::string& path);

// The bytes of a database's file or of its -wal, read through SQLite's VFS: any other way of
// closing the file would drop SQLite's locks in this process. For files that SQLite itself cannot
// read.
class RawFile {
 public:
  enum class Part { database, wal };
  RawFile();
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  static Status open(const std::string& path, Part part, RawFile& out);
  std::int64_t size() const { return size_; }
  // Shorter at the end of the file; io if the medium cannot read it.
  Status read(std::int64_t offset, std::size_t bytes, std::string& out);
  // Until the end of this object nobody can use the database; busy if somebody does. Only of the
  // database; without effect where the file cannot be written.
  Status lock_out_others();

 private:
  struct File;
  std::unique_ptr<File> file_;
  std::int64_t size_ = 0;
};

enum class OpenMode { read_only, read_write, create };

// How a connection waits for a lock: it looks again after short random steps, for at most so long.
struct BusyWait {
  std::int64_t timeout_ms = 0;
  std::int64_t started_ms = 0;
};

// A connection that Holdfast owns: WAL, synchronous FULL, no automatic checkpoint, jittered busy
// waits. Used by one thread at a time.
class Db {
 public:
  Db() = default;
  ~Db();
  Db(Db&& other) noexcept;
  Db& operator=(Db&& other) noexcept;
  Db(const Db&) = delete;
  Db& operator=(const Db&) = delete;

  static Status open(const std::string& path, OpenMode mode, int busy_timeout_ms, Db& out);
  void close();
  bool is_open() const { return db_ != nullptr; }
  sqlite3* handle() const { return db_; }
  const std::string& path() const { return path_; }
  void set_busy_timeout(int ms);
  // synchronous NORMAL: for bookkeeping whose loss only means work done twice.
  Status relax_synchronous();

  Status set_page_size(int bytes);  // only before the first table
  Status set_triggers(bool on);     // off: rows go in as they are
  Status allow_shrinking();         // only before the first table; see shrink_database()
  Status exec(const char* sql, const char* what);
  // Refuses text that holds more than one statement.
  Status exec_one(const std::string& sql, const char* what);
  Status query_int(const char* sql, std::int64_t& value, const char* what);
  Status query_text(const char* sql, std::string& value, const char* what);
  std::int64_t changes() const;
  // After it returned ok, the names of the database and its -wal survive a power cut.
  Status sync_folder();

 private:
  sqlite3* db_ = nullptr;
  std::string path_;
  std::unique_ptr<BusyWait> busy_;
};

// BEGIN IMMEDIATE … COMMIT. Rolls back when it goes out of scope uncommitted.
class Transaction {
 public:
  explicit Transaction(sqlite3* db) : db_(db) {}
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  Status begin();       // waits for the write lock up to the busy timeout; then busy
  Status begin_read();  // a snapshot: BEGIN and a first read; ends with rollback()
  Status commit();      // Code::unknown when the outcome is open
  void rollback();
  bool active() const { return active_; }

 private:
  sqlite3* db_;
  bool active_ = false;
};

// While `closed`, nobody can begin or end a transaction on the connection, attach a file or touch
// the savepoint kMemberSavepoint: such statements are refused when they are prepared, and `tried`
// is set. A COMMIT that gets by becomes a ROLLBACK. Must outlive the connection.
struct TransactionGuard {
  bool closed = false;
  bool tried = false;
};
constexpr const char* kMemberSavepoint = "holdfast_member";
void guard_transactions(sqlite3* db, TransactionGuard* guard);
// Whether a COMMIT now would fail for foreign keys.
bool foreign_keys_broken(sqlite3* db);
// What was stepped and not reset keeps its snapshot beyond COMMIT, or forbids it.
void reset_statements(sqlite3* db);
bool writes_unfinished(sqlite3* db);  // such a one that writes

// For connections that are the application's.
bool in_transaction(sqlite3* db);
std::int64_t last_insert_rowid(sqlite3* db);
void set_last_insert_rowid(sqlite3* db, std::int64_t rowid);
std::int64_t changed_rows(sqlite3* db);
std::string main_file(sqlite3* db);  // "" for in-memory and temporary databases
// Lets a connection that waits for no lock wait as Db's do, at most `ms`. One with a PRAGMA
// busy_timeout stays as it is, and so does one that waits like this already, such as a Db's. A busy
// handler of the application's own reads as no timeout and is replaced; pass 0 to leave the
// connection alone.
void ensure_busy_wait(sqlite3* db, int ms);
// Installs `hook(frames)`, called after each commit in WAL mode; replaces any other WAL hook and so
// ends SQLite's automatic checkpoints on this connection. Cheap to call again.
using WalHook = void (*)(void* context, int frames);
struct WalHookSlot {
  WalHook hook = nullptr;
  void* context = nullptr;
};
void install_wal_hook(sqlite3* db, WalHookSlot* slot);
void remove_wal_hook(sqlite3* db);

// A PASSIVE checkpoint on `writer` while a read transaction on `guard` pins the WAL, so that no
// commit can reset it meanwhile (G12). `guard` is another connection to the same file. Blocks
// writers only to finish at all: when they commit so fast that the WAL has grown to twice
// kCheckpointFrames, for what little is left. Not finishing (a long reader) is not an error.
struct CheckpointResult {
  int wal_frames = 0;
  int moved_frames = 0;
  bool complete() const { return wal_frames == moved_frames; }
};
Status guarded_checkpoint(sqlite3* writer, Db& guard, CheckpointResult& result);

// Value of PRAGMA data_version: changes when another connection committed.
Status data_version(sqlite3* db, Statement& statement, std::int64_t& version);

// What durability this connection really has.
struct DurabilityFacts {
  std::string journal_mode;
  std::int64_t synchronous = 0;
  std::string locking_mode;
  int attached_files = 0;
};
Status read_durability(sqlite3* db, DurabilityFacts& facts);
// not_durable, naming the pragma to set, unless WAL and synchronous FULL (or `relaxed`); misuse if
// the connection has other attached files or exclusive locking.
Status check_durability(sqlite3* db, const std::string& path, bool relaxed = false);
// Settings that only Holdfast's own connections get: reads row by row, never a temp file on flash.
Status configure_purge_connection(sqlite3* db);

// Gives back up to so many free pages, if the file was made to allow that; the next checkpoint cuts
// it. `more`: there are others.
Status shrink_database(sqlite3* db, int pages, bool& more);
// The WAL's file is cut to so many bytes when this connection is the first to write to it anew: it
// grew while a reader kept it from being moved (sqlite.org/pragma.html#pragma_journal_size_limit).
constexpr std::int64_t kWalFileBytes = 16 * 1024 * 1024;
Status limit_wal_file(sqlite3* db, std::int64_t bytes);
Status ensure_wal_limit(sqlite3* db, std::int64_t bytes);  // unless it has one

Status backup_database(sqlite3* from, const std::string& new_path,
                       const std::function<void(std::int64_t, std::int64_t)>& progress);
// Copies a whole database into another open connection (tests: snapshots of in-memory databases).
Status copy_database(sqlite3* from, sqlite3* to);

std::string sqlite_version_text();
int sqlite_version_number();
// Pages in use × page size, and the WAL's size, as SQLite sees them; -1 when not known.
std::int64_t wal_file_bytes(const std::string& path);

}  // namespace holdfast
