// What a port to another operating system supplies. platforms/linux implements it; the contract is
// explained in platforms/README.md. Nothing here knows SQLite, NNG or Holdfast's tables.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/clock.hpp"
#include "holdfast/status.hpp"

namespace holdfast::platform {

// Wakes one waiting thread, from any thread or from a signal handler (eventfd(2)).
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  Status open_status() const;  // error if the descriptor could not be made
  void wake();                 // async-signal-safe, never blocks
  // Waits until woken or timeout_ms is over (-1: no timeout); true if woken. Wakes that came
  // before are not lost and are merged.
  bool wait(std::int64_t timeout_ms);
  int descriptor() const;

 private:
  int fd_ = -1;
  int errno_ = 0;
};

// Notices that another process wrote to a database, without polling and without ever opening its
// files: closing a descriptor of a database file drops SQLite's locks in this process
// (sqlite.org/howtocorrupt.html section 2.2), so this uses inotify(7) on the path of the -wal file.
class WriteWatcher {
 public:
  WriteWatcher();
  ~WriteWatcher();
  WriteWatcher(const WriteWatcher&) = delete;
  WriteWatcher& operator=(const WriteWatcher&) = delete;
  // Watches `<database>-wal`; it may not exist yet, and may be deleted and made again.
  Status open(const std::string& database);
  // Waits for a write to the WAL, for `waker`, or for the timeout (-1: none), whichever is first.
  struct Woken {
    bool by_write = false;
    bool by_waker = false;
  };
  Woken wait(Waker& waker, std::int64_t timeout_ms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// This process, as others can check it: "pid namespace inode:pid:start time in clock ticks".
std::string process_token();
enum class ProcessLife { alive, gone, cannot_tell };
// cannot_tell: another pid namespace, another boot, or not a token.
ProcessLife process_life(const std::string& token);

// fsync of the directory that holds `path`, so that a new file survives a power cut.
Status sync_parent_directory(const std::string& path);

// Room on the file system that holds `path` (which may not exist yet).
struct DiskSpace {
  std::int64_t free_bytes = 0;  // for this user
  std::int64_t total_bytes = 0;
};
Status disk_space(const std::string& path, DiskSpace& space);
// A file that only takes up room: makes or changes `path` to be exactly `bytes` long, every block
// of it really allocated; 0 removes it. no_space: there is not so much room, and the file is as
// long as it was. Never for a file that somebody reads.
Status resize_ballast(const std::string& path, std::int64_t bytes);
std::int64_t ballast_bytes(const std::string& path);  // 0: there is none

// Sleeps; for retry steps of parts of a millisecond.
void sleep_us(std::int64_t us);
// From the kernel's random source; for jitter and session numbers.
std::uint64_t random_u64();

// What is known of the storage under a path, for `doctor`. Fields that could not be found out are
// empty or -1, and `notes` says why.
struct StorageFacts {
  std::string file_system;  // "ext4"
  std::string mount_point;
  std::string mount_options;
  std::string device;       // "/dev/mmcblk0p2"
  std::string model;        // of the block device, if the kernel tells
  std::string write_cache;  // "write back", "write through", ""
  bool read_only = false;
  bool network = false;  // nfs, cifs, 9p, …: SQLite's WAL must not be used there
  bool memory = false;   // tmpfs, ramfs, overlay on them: nothing survives a power cut
  std::int64_t free_bytes = -1;
  std::int64_t total_bytes = -1;
  std::int64_t free_inodes = -1;
  std::vector<std::string> notes;
  struct Danger {
    std::string text, remedy;
  };
  std::vector<Danger> dangers;  // what makes a power cut worse than SQLite expects
};
StorageFacts probe_storage(const std::string& path);

// Times `rounds` rounds of a 4 KiB overwrite + fdatasync in a new file beside `path`, which is
// removed again. Microseconds, sorted ascending.
Status probe_sync(const std::string& path, int rounds, std::vector<std::int64_t>& us);

// Other processes that have this file open; `complete` is false if some could not be looked into
// (they are other users', and this one is not root).
struct FileUser {
  std::int64_t pid = 0;
  std::string name;           // of its program, at most 15 bytes
  bool same_program = false;  // as this process
};
struct FileUsers {
  std::vector<FileUser> list;
  bool complete = true;
};
FileUsers file_users(const std::string& path);

// What of a database that user cannot use by its owner, group and mode: the file, those beside it,
// its folder (which must be writable, for -wal and -shm), folders above. `known` is false if
// /etc/passwd has no such user. Access control lists are not looked at.
Status files_barred_to(const std::string& path, const std::string& user, bool& known,
                       std::vector<std::string>& barred);

}  // namespace holdfast::platform
