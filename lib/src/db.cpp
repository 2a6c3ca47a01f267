#include "db.hpp"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform.hpp"

namespace holdfast {

namespace {

Code code_of(int rc) {
  switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return Code::ok;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return Code::busy;
    case SQLITE_IOERR:
      return Code::io;
    case SQLITE_READONLY:
      return Code::read_only;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return Code::corrupt;
    case SQLITE_FULL:
      return Code::no_space;
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Code::permission;
    case SQLITE_CANTOPEN:
      return Code::not_found;
    case SQLITE_CONSTRAINT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
      return Code::invalid;
    case SQLITE_MISUSE:
      return Code::misuse;
    default:
      return Code::internal;
  }
}

const char* advice(Code code) {
  switch (code) {
    case Code::busy:
      return "; another process holds the database, try again";
    case Code::corrupt:
      return "; run `holdfast doctor` on it";
    case Code::no_space:
      return "; free space on the disk and try again";
    case Code::read_only:
      return "; the file or file system is read-only";
    default:
      return "";
  }
}

}  // namespace

Status sqlite_status(sqlite3* db, int rc, const char* what) {
  const Code code = code_of(rc);
  if (code == Code::ok) return Status();
  const int native = db != nullptr ? sqlite3_extended_errcode(db) : rc;
  const bool same = db != nullptr && (sqlite3_errcode(db) & 0xff) == (rc & 0xff);
  const char* text = same ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
  return Status::native_error(code, same ? native : rc, "%s: %.120s%s", what, text,
                              advice(code));  // room for the advice
}

// --- Statement ---------------------------------------------------------------------------------

Statement::~Statement() { finalize(); }

Statement::Statement(Statement&& other) noexcept : stmt_(other.stmt_), db_(other.db_) {
  other.stmt_ = nullptr;
  other.db_ = nullptr;
}

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(stmt_, other.stmt_);
  std::swap(db_, other.db_);
  return *this;
}

void Statement::finalize() {
  sqlite3_finalize(stmt_);
  stmt_ = nullptr;
}

Status Statement::prepare(sqlite3* db, const char* sql) {
  if (stmt_ != nullptr && db_ == db) {
    reset();
    return Status();
  }
  finalize();
  db_ = db;
  const int rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt_, nullptr);
  // Our own statements name our own tables: one that is missing went with a damaged page.
  if (rc == SQLITE_ERROR && std::strncmp(sqlite3_errmsg(db), "no such", 7) == 0)
    return Status::native_error(Code::corrupt, rc, "prepare: %.120s%s", sqlite3_errmsg(db),
                                advice(Code::corrupt));
  return sqlite_status(db, rc, "prepare");
}

Statement& Statement::bind(int index, std::int64_t value) {
  sqlite3_bind_int64(stmt_, index, value);
  return *this;
}

Statement& Statement::bind(int index, double value) {
  sqlite3_bind_double(stmt_, index, value);
  return *this;
}

Statement& Statement::bind_text(int index, std::string_view value) {
  sqlite3_bind_text64(stmt_, index, value.data() != nullptr ? value.data() : "", value.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::bind_blob(int index, std::string_view value) {
  sqlite3_bind_blob64(stmt_, index, value.data() != nullptr ? value.data() : "", value.size(),
                      SQLITE_STATIC);
  return *this;
}

Statement& Statement::bind_id(int index, const EventId& id) {
  sqlite3_bind_blob(stmt_, index, id.bytes.data(), static_cast<int>(id.bytes.size()),
                    SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::bind_null(int index) {
  sqlite3_bind_null(stmt_, index);
  return *this;
}

Statement& Statement::bind_text_or_null(int index, std::string_view value) {
  return value.empty() ? bind_null(index) : bind_text(index, value);
}

bool Statement::step(Status& status, const char* what) {
  const int rc = sqlite3_step(stmt_);
  if (rc == SQLITE_ROW) return true;
  status = rc == SQLITE_DONE ? Status() : sqlite_status(db_, rc, what);
  sqlite3_reset(stmt_);
  return false;
}

Status Statement::run(const char* what) {
  Status status;
  while (step(status, what)) {
  }
  return status;
}

void Statement::reset() {
  if (stmt_ == nullptr) return;
  sqlite3_reset(stmt_);
  sqlite3_clear_bindings(stmt_);
}

std::int64_t Statement::column_int(int index) const { return sqlite3_column_int64(stmt_, index); }

double Statement::column_double(int index) const { return sqlite3_column_double(stmt_, index); }

std::string_view Statement::column_text(int index) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(stmt_, index));
  if (text == nullptr) return {};
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(stmt_, index))};
}

std::string_view Statement::column_blob(int index) const {
  const auto* blob = static_cast<const char*>(sqlite3_column_blob(stmt_, index));
  if (blob == nullptr) return {};
  return {blob, static_cast<std::size_t>(sqlite3_column_bytes(stmt_, index))};
}

bool Statement::column_id(int index, EventId& id) const {
  const std::string_view blob = column_blob(index);
  if (blob.size() != id.bytes.size()) return false;
  std::memcpy(id.bytes.data(), blob.data(), blob.size());
  return true;
}

bool Statement::column_is_null(int index) const {
  return sqlite3_column_type(stmt_, index) == SQLITE_NULL;
}

bool Statement::column_is_text(int index) const {
  return sqlite3_column_type(stmt_, index) == SQLITE_TEXT;
}

// --- Db ----------------------------------------------------------------------------------------

namespace {

// Between two looks at a lock. A writer that commits in a tight loop leaves it free for a few dozen
// microseconds each time: with 2 ms between looks a process beside it got a third fewer turns.
constexpr std::int64_t kLookMinUs = 50;
constexpr std::int64_t kLookMaxUs = 500;

// SQLite's own busy handler sleeps up to 100 ms between looks and so starves against a writer that
// commits in a tight loop. Short random steps are fair and need no more than a look per step.
int look_again(void* context, int count) {
  auto* wait = static_cast<BusyWait*>(context);
  const std::int64_t now = system_clock().boot_ms();
  if (count == 0) wait->started_ms = now;
  if (now - wait->started_ms >= wait->timeout_ms) return 0;
  const std::int64_t ceiling_us = std::min<std::int64_t>(100LL << std::min(count, 5), kLookMaxUs);
  platform::sleep_us(kLookMinUs + static_cast<std::int64_t>(platform::random_u64() % ceiling_us));
  return 1;
}

// SQLite tells nobody which busy handler a connection has. So one that waits with look_again() has
// an SQL function of this name, which does nothing; on a connection that is not ours it owns the
// BusyWait, for SQLite destroys it with the connection.
constexpr const char* kWaitMark = "holdfast_waits";

void no_value(sqlite3_context* context, int, sqlite3_value**) { sqlite3_result_null(context); }

int mark_waiting(sqlite3* db, BusyWait* owned) {
  return sqlite3_create_function_v2(db, kWaitMark, 0, SQLITE_UTF8 | SQLITE_DIRECTONLY, owned,
                                    no_value, nullptr, nullptr,
                                    [](void* wait) { delete static_cast<BusyWait*>(wait); });
}

bool marked_waiting(sqlite3* db) {
  Statement statement;
  Status status = statement.prepare(db, "PRAGMA function_list");
  while (status.ok() && statement.step(status, "function_list"))
    if (statement.column_text(0) == kWaitMark) return true;
  return false;
}

}  // namespace

Db::~Db() { close(); }

Db::Db(Db&& other) noexcept
    : db_(other.db_), path_(std::move(other.path_)), busy_(std::move(other.busy_)) {
  other.db_ = nullptr;
}

Db& Db::operator=(Db&& other) noexcept {
  std::swap(db_, other.db_);
  std::swap(path_, other.path_);
  std::swap(busy_, other.busy_);
  return *this;
}

void Db::close() {
  if (db_ != nullptr) sqlite3_close_v2(db_);
  db_ = nullptr;
}

namespace {

bool is_link(const std::string& path) {
  struct stat facts{};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode);
}

// A link may lead to a database. One that leads nowhere would have us make a file where somebody
// else said. (What is exchanged after this look is the kernel's to stop: fs.protected_symlinks,
// proc_sys_fs(5).)
Status refuse_dangling_link(const std::string& path) {
  struct stat facts{};
  if (!is_link(path) || ::stat(path.c_str(), &facts) == 0) return Status();
  return Status::error(
      Code::invalid,
      "%s: is a symbolic link to a file that does not exist; remove it, or name the "
      "file itself",
      path.c_str());
}

// SQLite writes beside the file as well (-wal, -shm), and says only "unable to open": the folder
// tells why.
Status folder_failure(int rc, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int cause = ::access(folder.c_str(), W_OK) == 0 ? 0 : errno;
  for (const char* beside : {"-wal", "-shm", "-journal"})
    if (is_link(path + beside))
      return Status::native_error(Code::permission, rc,
                                  "%s%s: is a symbolic link, which SQLite does not follow there; "
                                  "find out who made it, and remove it",
                                  path.c_str(), beside);
  if (cause == EROFS)
    return Status::native_error(Code::read_only, rc,
                                "%s: the file system is read-only; remount it, or check the medium",
                                path.c_str());
  if (cause == ENOENT || cause == ENOTDIR)
    return Status::native_error(Code::not_found, rc, "%s: its folder does not exist; make it first",
                                path.c_str());
  return Status::native_error(Code::permission, rc,
                              "%s: cannot open; check the permissions of the file and its folder",
                              path.c_str());
}

Status open_failure(sqlite3* db, int rc, const std::string& path, OpenMode mode) {
  struct stat facts{};
  const bool there = ::stat(path.c_str(), &facts) == 0;
  if (!there && errno == ENOENT && mode != OpenMode::create)
    return Status::native_error(Code::not_found, rc,
                                "%s: no such file; make it with `holdfast init %s`", path.c_str(),
                                path.c_str());
  if (there && S_ISDIR(facts.st_mode))
    return Status::native_error(Code::invalid, rc, "%s: is a directory, not a database",
                                path.c_str());
  if (!there || (rc & 0xff) == SQLITE_CANTOPEN) return folder_failure(rc, path);
  return sqlite_status(db, rc, path.c_str());
}

}  // namespace

Status Db::open(const std::string& path, OpenMode mode, int busy_timeout_ms, Db& out) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  if (mode == OpenMode::read_only) flags |= SQLITE_OPEN_READONLY;
  if (mode != OpenMode::read_only) flags |= SQLITE_OPEN_READWRITE;
  if (mode == OpenMode::create) flags |= SQLITE_OPEN_CREATE;
  Db db;
  db.path_ = path;
  if (mode == OpenMode::create)
    if (Status status = refuse_dangling_link(path); !status.ok()) return status;
  const int rc = sqlite3_open_v2(path.c_str(), &db.db_, flags, nullptr);
  if (rc != SQLITE_OK) return open_failure(db.db_, rc, path, mode);
  db.busy_ = std::make_unique<BusyWait>();
  db.set_busy_timeout(busy_timeout_ms);
  if (mark_waiting(db.db_, nullptr) != SQLITE_OK)
    return sqlite_status(db.db_, sqlite3_errcode(db.db_), path.c_str());
  // The first read finds out whether this is a database at all.
  std::int64_t version = 0;
  Status status = db.query_int("PRAGMA schema_version", version, path.c_str());
  if (!status.ok()) {
    if (status.code() == Code::not_found || status.code() == Code::io)
      return open_failure(db.db_, status.native(), path, mode);
    return status;
  }
  for (const char* sql :
       {"PRAGMA wal_autocheckpoint=0", "PRAGMA synchronous=FULL", "PRAGMA cache_size=-1024"}) {
    status = db.exec(sql, path.c_str());
    if (!status.ok()) return status;
  }
  status = limit_wal_file(db.db_, kWalFileBytes);
  if (!status.ok()) return status;
  out = std::move(db);
  return Status();
}

bool database_exists(const std::string& path) {
  sqlite3_vfs* const vfs = sqlite3_vfs_find(nullptr);
  int exists = 0;
  return vfs->xAccess(vfs, path.c_str(), SQLITE_ACCESS_EXISTS, &exists) == SQLITE_OK && exists != 0;
}

// --- RawFile -----------------------------------------------------------------------------------

struct RawFile::File {
  std::string name;             // must outlive the file
  const char* given = nullptr;  // the name in the form that a VFS wants
  std::unique_ptr<char[]> memory;
  sqlite3_file* file = nullptr;
  bool writable = false;

  ~File() {
    if (file != nullptr && file->pMethods != nullptr) {
      file->pMethods->xUnlock(file, SQLITE_LOCK_NONE);
      file->pMethods->xClose(file);
    }
    sqlite3_free_filename(const_cast<char*>(given));
  }
};

RawFile::RawFile() = default;
RawFile::~RawFile() = default;

Status RawFile::open(const std::string& path, Part part, RawFile& out) {
  sqlite3_vfs* const vfs = sqlite3_vfs_find(nullptr);
  out.file_ = std::make_unique<File>();
  File& file = *out.file_;
  char full[4096];
  int rc = static_cast<int>(sizeof full) < vfs->mxPathname
               ? SQLITE_CANTOPEN
               : vfs->xFullPathname(vfs, path.c_str(), static_cast<int>(sizeof full), full);
  if (rc != SQLITE_OK && rc != SQLITE_OK_SYMLINK)
    return Status::native_error(Code::not_found, rc, "%s: no such file", path.c_str());
  file.name = part == Part::wal ? std::string(full) + "-wal" : full;
  if (!database_exists(file.name))
    return Status::native_error(Code::not_found, SQLITE_CANTOPEN, "%s: no such file",
                                file.name.c_str());
  file.given = sqlite3_create_filename(file.name.c_str(), "", "", 0, nullptr);
  file.memory = std::make_unique<char[]>(static_cast<std::size_t>(vfs->szOsFile));
  file.file = reinterpret_cast<sqlite3_file*>(file.memory.get());
  std::memset(file.file, 0, static_cast<std::size_t>(vfs->szOsFile));
  const int type = part == Part::wal ? SQLITE_OPEN_WAL : SQLITE_OPEN_MAIN_DB;
  int flags = 0;
  // SQLite's VFS falls back to reading alone by itself.
  rc = vfs->xOpen(vfs, file.given, file.file, SQLITE_OPEN_READWRITE | type, &flags);
  if (rc != SQLITE_OK)
    return Status::native_error(Code::permission, rc, "%s: cannot be opened", file.name.c_str());
  file.writable = (flags & SQLITE_OPEN_READWRITE) != 0;
  sqlite3_int64 size = 0;
  rc = file.file->pMethods->xFileSize(file.file, &size);
  out.size_ = size;
  return sqlite_status(nullptr, rc, file.name.c_str());
}

Status RawFile::read(std::int64_t offset, std::size_t bytes, std::string& out) {
  out.resize(static_cast<std::size_t>(std::max<std::int64_t>(
      0, std::min<std::int64_t>(static_cast<std::int64_t>(bytes), size_ - offset))));
  if (out.empty()) return Status();
  const int rc =
      file_->file->pMethods->xRead(file_->file, out.data(), static_cast<int>(out.size()), offset);
  return sqlite_status(nullptr, rc, file_->name.c_str());
}

Status RawFile::lock_out_others() {
  if (!file_->writable) return Status();
  const sqlite3_io_methods* const methods = file_->file->pMethods;
  int rc = methods->xLock(file_->file, SQLITE_LOCK_SHARED);
  if (rc == SQLITE_OK) rc = methods->xLock(file_->file, SQLITE_LOCK_EXCLUSIVE);
  if ((rc & 0xff) == SQLITE_BUSY)
    return Status::native_error(Code::busy, rc, "%s: is in use; stop the programs that use it",
                                file_->name.c_str());
  return sqlite_status(nullptr, rc, file_->name.c_str());
}

Status Db::sync_folder() {
  const int rc = sqlite3_file_control(db_, "main", kSyncFolderControl, nullptr);
  if (rc == SQLITE_NOTFOUND) return platform::sync_parent_directory(path_);
  return sqlite_status(nullptr, rc, path_.c_str());
}

void Db::set_busy_timeout(int ms) {
  busy_->timeout_ms = ms;
  sqlite3_busy_handler(db_, look_again, busy_.get());
}

Status Db::relax_synchronous() { return exec("PRAGMA synchronous=NORMAL", path_.c_str()); }

Status Db::exec(const char* sql, const char* what) {
  return sqlite_status(db_, sqlite3_exec(db_, sql, nullptr, nullptr, nullptr), what);
}

Status Db::set_page_size(int bytes) {
  return exec(("PRAGMA page_size=" + std::to_string(bytes)).c_str(), path_.c_str());
}

Status Db::set_triggers(bool on) {
  const int rc = sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_TRIGGER, on ? 1 : 0, nullptr);
  return sqlite_status(db_, rc, path_.c_str());
}

Status Db::allow_shrinking() { return exec("PRAGMA auto_vacuum=INCREMENTAL", path_.c_str()); }

Status Db::exec_one(const std::string& sql, const char* what) {
  sqlite3_stmt* statement = nullptr;
  const char* tail = nullptr;
  int rc = sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, &tail);
  if (rc != SQLITE_OK)
    return Status::native_error(Code::invalid, sqlite3_extended_errcode(db_), "%s: %s", what,
                                sqlite3_errmsg(db_));
  Status status;
  if (tail != nullptr && *tail != 0)
    status = Status::error(Code::invalid, "%s: the expressions make more than one statement", what);
  else if (sqlite3_step(statement) != SQLITE_DONE)
    status = sqlite_status(db_, sqlite3_errcode(db_), what);
  sqlite3_finalize(statement);
  return status;
}

Status Db::query_int(const char* sql, std::int64_t& value, const char* what) {
  Statement statement;
  Status status = statement.prepare(db_, sql);
  if (!status.ok()) return sqlite_status(db_, status.native(), what);
  if (statement.step(status, what)) value = statement.column_int(0);
  return status;
}

Status Db::query_text(const char* sql, std::string& value, const char* what) {
  Statement statement;
  Status status = statement.prepare(db_, sql);
  if (!status.ok()) return sqlite_status(db_, status.native(), what);
  if (statement.step(status, what)) value = std::string(statement.column_text(0));
  return status;
}

std::int64_t Db::changes() const { return changed_rows(db_); }

// --- Transaction -------------------------------------------------------------------------------

Transaction::~Transaction() { rollback(); }

Status Transaction::begin() {
  // IMMEDIATE: a transaction that reads first and writes later would get SQLITE_BUSY at once,
  // without waiting, when another writer committed in between.
  const int rc = sqlite3_exec(db_, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
  active_ = rc == SQLITE_OK;
  return sqlite_status(db_, rc, "begin");
}

Status Transaction::begin_read() {
  int rc = sqlite3_exec(db_, "BEGIN", nullptr, nullptr, nullptr);
  active_ = rc == SQLITE_OK;
  // BEGIN alone takes no snapshot; the first read does.
  if (active_) rc = sqlite3_exec(db_, "SELECT 1 FROM sqlite_schema", nullptr, nullptr, nullptr);
  return sqlite_status(db_, rc, "begin");
}

namespace {

// Without powersafe overwrite SQLite pads the WAL after the frame that ends the transaction, so a
// disk that is full then has the whole commit. On Linux it is on, unless a URI said psow=0.
bool pads_commits(sqlite3* db) {
  int powersafe = -1;  // ask, don't set
  const int rc = sqlite3_file_control(db, "main", SQLITE_FCNTL_POWERSAFE_OVERWRITE, &powersafe);
  return rc != SQLITE_OK || powersafe != 1;
}

}  // namespace

Status Transaction::commit() {
  const int rc = sqlite3_exec(db_, "COMMIT", nullptr, nullptr, nullptr);
  if (rc == SQLITE_OK) {
    active_ = false;
    return Status();
  }
  const Status cause = sqlite_status(db_, rc, "commit");
  const bool open = sqlite3_get_autocommit(db_) == 0;
  rollback();
  // A commit that could not get a lock or was refused by a constraint, or by a commit hook, is
  // certainly not there.
  if (open && (cause.code() == Code::busy || cause.code() == Code::invalid)) return cause;
  if (cause.native() == SQLITE_CONSTRAINT_COMMITHOOK) return cause;
  // Nor is one that met a full disk: a write of it failed (a sync that fails is SQLITE_IOERR), and
  // the frame that makes the others count is written last.
  if (cause.code() == Code::no_space && !pads_commits(db_)) return cause;
  return Status::native_error(Code::unknown, cause.native(),
                              "commit: %s; it may or may not have been stored", sqlite3_errstr(rc));
}

void Transaction::rollback() {
  if (!active_) return;
  active_ = false;
  // After some errors SQLite has rolled back by itself; then this is a harmless error.
  if (sqlite3_get_autocommit(db_) == 0) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
}

namespace {

int authorize(void* context, int action, const char*, const char* name, const char*, const char*) {
  auto* guard = static_cast<TransactionGuard*>(context);
  if (!guard->closed) return SQLITE_OK;
  const bool ours =
      action == SQLITE_SAVEPOINT && name != nullptr && sqlite3_stricmp(name, kMemberSavepoint) == 0;
  if (!ours && action != SQLITE_TRANSACTION && action != SQLITE_ATTACH && action != SQLITE_DETACH)
    return SQLITE_OK;
  guard->tried = true;
  return SQLITE_DENY;
}

int refuse_commit(void* context) {
  auto* guard = static_cast<TransactionGuard*>(context);
  if (guard->closed) guard->tried = true;
  return guard->closed ? 1 : 0;
}

}  // namespace

void guard_transactions(sqlite3* db, TransactionGuard* guard) {
  sqlite3_set_authorizer(db, authorize, guard);
  sqlite3_commit_hook(db, refuse_commit, guard);
}

bool foreign_keys_broken(sqlite3* db) {
  int broken = 0, highest = 0;
  return sqlite3_db_status(db, SQLITE_DBSTATUS_DEFERRED_FKS, &broken, &highest, 0) == SQLITE_OK &&
         broken != 0;
}

void reset_statements(sqlite3* db) {
  for (sqlite3_stmt* each = sqlite3_next_stmt(db, nullptr); each != nullptr;
       each = sqlite3_next_stmt(db, each))
    if (sqlite3_stmt_busy(each) != 0) sqlite3_reset(each);
}

bool writes_unfinished(sqlite3* db) {
  for (sqlite3_stmt* each = sqlite3_next_stmt(db, nullptr); each != nullptr;
       each = sqlite3_next_stmt(db, each))
    if (sqlite3_stmt_busy(each) != 0 && sqlite3_stmt_readonly(each) == 0) return true;
  return false;
}

// --- on the application's connection -------------------------------------------------------------

bool in_transaction(sqlite3* db) { return sqlite3_get_autocommit(db) == 0; }

std::int64_t last_insert_rowid(sqlite3* db) { return sqlite3_last_insert_rowid(db); }

void set_last_insert_rowid(sqlite3* db, std::int64_t rowid) {
  sqlite3_set_last_insert_rowid(db, rowid);
}

std::int64_t changed_rows(sqlite3* db) { return sqlite3_changes64(db); }

std::string main_file(sqlite3* db) {
  const char* name = sqlite3_db_filename(db, "main");
  return name != nullptr ? name : "";
}

void ensure_busy_wait(sqlite3* db, int ms) {
  Statement statement;
  Status status = statement.prepare(db, "PRAGMA busy_timeout");
  if (!status.ok()) return;
  const bool none = statement.step(status, "busy_timeout") && statement.column_int(0) == 0;
  statement.finalize();
  if (!none || ms <= 0 || marked_waiting(db)) return;
  auto* wait = new BusyWait;
  wait->timeout_ms = ms;
  // SQLite has destroyed it if that fails.
  if (mark_waiting(db, wait) == SQLITE_OK)
    sqlite3_busy_handler(db, look_again, wait);
  else
    sqlite3_busy_timeout(db, ms);
}

namespace {

int call_wal_hook(void* context, sqlite3*, const char* schema, int frames) {
  auto* slot = static_cast<WalHookSlot*>(context);
  if (slot->hook != nullptr && std::strcmp(schema, "main") == 0) slot->hook(slot->context, frames);
  return SQLITE_OK;
}

}  // namespace

void install_wal_hook(sqlite3* db, WalHookSlot* slot) { sqlite3_wal_hook(db, call_wal_hook, slot); }

void remove_wal_hook(sqlite3* db) { sqlite3_wal_hook(db, nullptr, nullptr); }

namespace {

// From here on a checkpoint that writers keep from finishing waits for them, this long.
constexpr int kFinishFrames = 1000;
constexpr int kFinishWaitMs = 50;

Status checkpoint_under(const char* begin, sqlite3* writer, Db& guard, CheckpointResult& result) {
  Status status = guard.exec(begin, "checkpoint guard");
  if (!status.ok()) return status;
  std::int64_t ignored = 0;
  // BEGIN alone takes no snapshot; the first read does.
  status = guard.query_int("SELECT count(*) FROM sqlite_schema", ignored, "checkpoint guard");
  int rc = SQLITE_OK;
  if (status.ok())
    rc = sqlite3_wal_checkpoint_v2(writer, "main", SQLITE_CHECKPOINT_PASSIVE, &result.wal_frames,
                                   &result.moved_frames);
  const Status ended = guard.exec("ROLLBACK", "checkpoint guard");
  if (!status.ok()) return status;
  if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED) return ended;  // somebody else checkpoints
  status = sqlite_status(writer, rc, "checkpoint");
  return status.ok() ? ended : status;
}

}  // namespace

Status guarded_checkpoint(sqlite3* writer, Db& guard, CheckpointResult& result) {
  Status status = checkpoint_under("BEGIN", writer, guard, result);
  if (!status.ok() || result.wal_frames < kFinishFrames) return status;
  // Somebody commits all the time, so the end of the WAL runs away from us, nobody finds it wholly
  // moved, and it would grow for ever (G8). What little is left is moved while nobody can write.
  guard.set_busy_timeout(kFinishWaitMs);
  status = checkpoint_under("BEGIN IMMEDIATE", writer, guard, result);
  guard.set_busy_timeout(0);
  return status.code() == Code::busy ? Status() : status;  // the next one tries again
}

Status data_version(sqlite3* db, Statement& statement, std::int64_t& version) {
  Status status = statement.prepare(db, "PRAGMA data_version");
  if (!status.ok()) return status;
  if (statement.step(status, "data_version")) version = statement.column_int(0);
  statement.reset();
  return status;
}

Status read_durability(sqlite3* db, DurabilityFacts& facts) {
  Statement statement;
  Status status = statement.prepare(db, "PRAGMA main.journal_mode");
  if (status.ok() && statement.step(status, "journal_mode"))
    facts.journal_mode = std::string(statement.column_text(0));
  statement.finalize();
  if (status.ok()) status = statement.prepare(db, "PRAGMA main.synchronous");
  if (status.ok() && statement.step(status, "synchronous"))
    facts.synchronous = statement.column_int(0);
  statement.finalize();
  if (status.ok()) status = statement.prepare(db, "PRAGMA main.locking_mode");
  if (status.ok() && statement.step(status, "locking_mode"))
    facts.locking_mode = std::string(statement.column_text(0));
  statement.finalize();
  if (status.ok()) status = statement.prepare(db, "PRAGMA database_list");
  if (!status.ok()) return status;
  while (statement.step(status, "database_list")) {
    const std::string_view name = statement.column_text(1);
    if (name != "main" && name != "temp" && !statement.column_text(2).empty())
      ++facts.attached_files;
  }
  return status;
}

Status check_durability(sqlite3* db, const std::string& path, bool relaxed) {
  DurabilityFacts facts;
  Status status = read_durability(db, facts);
  if (!status.ok()) return status;
  if (facts.attached_files > 0)
    return Status::error(Code::misuse,
                         "%s: the connection has %d attached database file(s), and one COMMIT over "
                         "several files is not atomic in WAL mode; use a connection of its own",
                         path.c_str(), facts.attached_files);
  if (facts.locking_mode != "normal")
    return Status::error(Code::misuse,
                         "%s: locking_mode is %s, so no relay could read; run PRAGMA "
                         "locking_mode=NORMAL",
                         path.c_str(), facts.locking_mode.c_str());
  if (relaxed) return Status();
  if (facts.journal_mode != "wal")
    return Status::error(Code::not_durable,
                         "%s: journal_mode is %s, which can lose the last commit; run PRAGMA "
                         "journal_mode=WAL",
                         path.c_str(), facts.journal_mode.c_str());
  constexpr std::int64_t kSynchronousFull = 2;
  if (facts.synchronous < kSynchronousFull)
    return Status::error(Code::not_durable,
                         "%s: synchronous is %s on this connection, which loses commits at a power "
                         "cut; run PRAGMA synchronous=FULL",
                         path.c_str(), facts.synchronous == 1 ? "NORMAL" : "OFF");
  return Status();
}

Status configure_purge_connection(sqlite3* db) {
  // Debian builds SQLite with secure_delete on, which rewrites every freed page: more flash wear
  // for nothing on rows that are meant to go.
  const int rc = sqlite3_exec(db, "PRAGMA secure_delete=OFF", nullptr, nullptr, nullptr);
  return sqlite_status(db, rc, "secure_delete");
}

Status shrink_database(sqlite3* db, int pages, bool& more) {
  const auto free_pages = [db](std::int64_t& count) {
    Statement statement;
    Status status = statement.prepare(db, "PRAGMA freelist_count");
    if (status.ok() && statement.step(status, "freelist")) count = statement.column_int(0);
    return status;
  };
  std::int64_t before = 0, after = 0;
  Status status = free_pages(before);
  const std::string sql = "PRAGMA incremental_vacuum(" + std::to_string(pages) + ")";
  if (status.ok())
    status = sqlite_status(db, sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), "shrink");
  if (status.ok()) status = free_pages(after);
  more = status.ok() && after > 0 && after < before;
  return status;
}

Status limit_wal_file(sqlite3* db, std::int64_t bytes) {
  const std::string sql = "PRAGMA journal_size_limit=" + std::to_string(bytes);
  const int rc = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  return sqlite_status(db, rc, "journal_size_limit");
}

Status ensure_wal_limit(sqlite3* db, std::int64_t bytes) {
  Statement statement;
  Status status = statement.prepare(db, "PRAGMA journal_size_limit");
  const bool unlimited =
      status.ok() && statement.step(status, "journal_size_limit") && statement.column_int(0) < 0;
  statement.finalize();
  return unlimited ? limit_wal_file(db, bytes) : status;
}

namespace {

constexpr int kBackupStepPages = 256;

Status run_backup(sqlite3* from, sqlite3* to,
                  const std::function<void(std::int64_t, std::int64_t)>& progress) {
  sqlite3_backup* backup = sqlite3_backup_init(to, "main", from, "main");
  if (backup == nullptr) return sqlite_status(to, sqlite3_errcode(to), "backup");
  int rc = SQLITE_OK;
  do {
    rc = sqlite3_backup_step(backup, kBackupStepPages);
    const std::int64_t total = sqlite3_backup_pagecount(backup);
    if (progress) progress(total - sqlite3_backup_remaining(backup), total);
    if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED) platform::sleep_us(1000);
  } while (rc == SQLITE_OK || rc == SQLITE_BUSY || rc == SQLITE_LOCKED);
  const int finish = sqlite3_backup_finish(backup);
  return rc == SQLITE_DONE ? sqlite_status(to, finish, "backup") : sqlite_status(to, rc, "backup");
}

}  // namespace

Status backup_database(sqlite3* from, const std::string& new_path,
                       const std::function<void(std::int64_t, std::int64_t)>& progress) {
  struct stat facts{};
  if (::lstat(new_path.c_str(), &facts) == 0)  // a link that leads nowhere is there, too
    return Status::error(Code::exists, "%s: exists already; give a new file name",
                         new_path.c_str());
  Db to;
  Status status = Db::open(new_path, OpenMode::create, 5000, to);
  // One read transaction over all steps: without it a commit of another connection between two
  // steps starts the copy again (sqlite.org/backup.html), and a busy producer would never let it
  // end.
  Transaction snapshot(from);
  if (status.ok()) status = snapshot.begin_read();
  return status.ok() ? run_backup(from, to.handle(), progress) : status;
}

Status copy_database(sqlite3* from, sqlite3* to) { return run_backup(from, to, nullptr); }

std::string sqlite_version_text() { return sqlite3_libversion(); }

int sqlite_version_number() { return sqlite3_libversion_number(); }

std::int64_t wal_file_bytes(const std::string& path) {
  struct stat facts{};
  // stat(2), not open(2): closing a descriptor of the file would drop SQLite's locks.
  return ::stat((path + "-wal").c_str(), &facts) == 0 ? facts.st_size : 0;
}

}  // namespace holdfast
