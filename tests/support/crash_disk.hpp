// A disk in memory that loses power. SQLite works on it through a VFS of its own: every path below
// a CrashDisk's folder is on that disk, every other path is where it always was, so that the
// library opens its databases as in the field and no code knows the difference.
//
// Each write, truncation, sync, creation and deletion is an operation. A cut leaves what was
// synced, and of the rest whatever a drive may leave: nothing, all, or for each 512-byte sector any
// version since the last sync; garbage where a file had grown; names of files that were not made
// durable by a sync of their folder, or deletions undone.
//
// Locks and shared memory live in memory too: many connections may be open, used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::test {

std::uint64_t hash_bytes(std::uint64_t start, const void* data, std::size_t size);

struct DiskOperation {
  enum class Kind { create, remove, write, truncate, sync, sync_folder, mark };
  Kind kind = Kind::mark;
  int file = -1;            // which file; a name that is made anew is another file
  std::int64_t offset = 0;  // truncate: the new size; mark: the test's number
  std::string name;         // create, remove: without the folder; mark: the test's text
  std::string data;         // write
};
const char* kind_name(DiskOperation::Kind kind);
// In the order in which they happened, of all connections.
using DiskLog = std::vector<std::shared_ptr<const DiskOperation>>;

// All that is left after a cut: names and contents.
struct DiskImage {
  std::map<std::string, std::string> files;
  std::uint64_t hash() const;
};

// What is synced and what is not, after any number of operations.
class DiskState {
 public:
  DiskState() = default;
  explicit DiskState(const DiskImage& image);

  void apply(const std::shared_ptr<const DiskOperation>& operation);

  // What a cut leaves here. 0: nothing that was not synced; 1: all of it; any other number: one of
  // the countless ways between, the same for the same number.
  static constexpr std::uint64_t kNothing = 0, kEverything = 1;
  DiskImage image(std::uint64_t variant) const;
  // False: image() is the same for every variant.
  bool anything_unsynced() const;

 private:
  using Pending = std::vector<std::shared_ptr<const DiskOperation>>;
  struct File {
    std::string synced;
    Pending pending;
    std::string name;
  };
  class Chance;
  static std::string contents(const File& file, const std::string& stale, Chance& chance);
  static std::string sectors(const File& file, const std::string& stale, Chance& chance);

  std::vector<File> files_;
  std::map<std::string, int> names_;
  Pending names_pending_;
  std::map<std::string, std::string> stale_;  // what an earlier file of that name held
};

enum class DiskFault {
  io_error,     // EIO: nothing of the operation was done
  no_space,     // ENOSPC: writes and creations fail, the rest goes on
  short_write,  // EIO after the first half of a write; other operations are left alone
  read_only,    // EROFS: whatever changes the disk fails
  power_off,    // every operation fails from here on, until reboot()
};

class CrashDisk {
 public:
  explicit CrashDisk(const DiskImage& image = {});
  ~CrashDisk();  // connections may still be open: their disk is without power
  CrashDisk(const CrashDisk&) = delete;
  CrashDisk& operator=(const CrashDisk&) = delete;

  // For the library and SQLite. The same after a reboot.
  std::string path(const std::string& name) const;

  // Operations so far: opens, reads, writes, truncations, syncs, deletions. What fault_at() counts.
  std::int64_t operations() const;
  // That operation, by number from 0, meets the fault; with `for_good`, and power_off, all after
  // it too. Replaces an earlier one.
  void fault_at(std::int64_t operation, DiskFault fault, bool for_good = false);
  void no_fault();
  bool fault_met() const;  // an operation failed since fault_at()

  void power_off();  // now
  // Off at once; on with what variant `variant` of a cut here leaves. Connections that are still
  // open stay with the old disk, on which everything fails, and may be closed at any time.
  void reboot(std::uint64_t variant);
  DiskImage image(std::uint64_t variant) const;

  // Operations from here on go to this log as well; nullptr: no more.
  void record(DiskLog* log);
  void mark(const std::string& text, std::int64_t number);

  // Whether the drive promises not to touch a byte outside of a write (SQLite's powersafe
  // overwrite, which it assumes on Linux). Before the first connection.
  void set_powersafe_overwrite(bool promised);

  // SQLite's own random numbers (WAL salts, random()) start again, the same for the same seed.
  // For all disks.
  static void seed_sqlite(std::uint64_t seed);
  // What SQLite's julianday('now') says, for all disks.
  static void set_sqlite_wall_ms(std::int64_t wall_ms);

  struct Device;  // the powered hardware; another one after each reboot

 private:
  std::string folder_;
  std::shared_ptr<Device> device_;
};

}  // namespace holdfast::test
