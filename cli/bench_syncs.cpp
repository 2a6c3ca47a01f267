// Counts SQLite's syncs in `holdfast bench`: its own file system layer, with one call replaced.
#include <sqlite3.h>

#include <atomic>

#include "bench.hpp"

namespace holdfast::cli::bench {
namespace {

std::atomic<std::int64_t> syncs{0};

// The methods of a kind of file of SQLite's VFS, but for xSync. Databases and their WALs are of two
// kinds, for only the former are locked.
struct Methods {
  sqlite3_io_methods counting{};  // first: a file points here
  const sqlite3_io_methods* plain = nullptr;
};
constexpr int kKinds = 4;
Methods kinds[kKinds];
sqlite3_vfs* plain_vfs = nullptr;
sqlite3_vfs counting_vfs{};

int count_sync(sqlite3_file* file, int flags) {
  ++syncs;
  return reinterpret_cast<const Methods*>(file->pMethods)->plain->xSync(file, flags);
}

// SQLite opens the files of one connection after the other; the bench opens its own in one thread.
int open_counting(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
  const int rc = plain_vfs->xOpen(plain_vfs, name, file, flags, out);
  if (file->pMethods == nullptr) return rc;
  for (Methods& kind : kinds) {
    if (kind.plain == nullptr) {
      kind.counting = *file->pMethods;
      kind.counting.xSync = count_sync;
      kind.plain = file->pMethods;
    }
    if (kind.plain != file->pMethods) continue;
    file->pMethods = &kind.counting;
    break;
  }
  return rc;
}

}  // namespace

SyncCounter::SyncCounter() {
  sqlite3_initialize();
  plain_vfs = sqlite3_vfs_find(nullptr);
  counting_vfs = *plain_vfs;
  counting_vfs.zName = "holdfast-bench";
  counting_vfs.pNext = nullptr;
  counting_vfs.xOpen = open_counting;
  sqlite3_vfs_register(&counting_vfs, 1);
}

// Files that are open stay counted; no more is opened.
SyncCounter::~SyncCounter() {
  sqlite3_vfs_unregister(&counting_vfs);
  sqlite3_vfs_register(plain_vfs, 1);
}

std::int64_t SyncCounter::count() { return syncs; }

}  // namespace holdfast::cli::bench
