// Room for the writes that empty a full disk (G8): a file beside the database that takes up blocks
// in good times and gives them back, slice by slice, when SQLite finds the disk full. With them the
// lease, what was acknowledged, a purge and a checkpoint can be written.
//
// Giving back in slices, because every process shares what becomes free: a producer that keeps
// trying to emit would use up the whole reserve for more of what is already too much.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "holdfast/status.hpp"

namespace holdfast {

constexpr int kReserveSlices = 8;
// Of a small file system no more than this part, or the reserve itself would be what fills it.
constexpr int kReservePart = 4;
constexpr std::int64_t kReserveMinBytes = 64 * 1024;  // less would hold no flush and no checkpoint

std::string reserve_path(const std::string& database);

// How many frames the WAL may have before it is moved into the database: as asked, but on a small
// file system no more than the reserve can take, for the move may need room for each of them.
int checkpoint_frames_on(const std::string& database, int frames_max);
// The same in bytes, of the WAL's file.
std::int64_t wal_bytes_on(const std::string& database);
// So small that the WAL has to be smaller than elsewhere. A database that is made there can shrink,
// which costs a page more in some commits: a full disk is otherwise never given anything back.
bool small_file_system(const std::string& database);

class Reserve {
 public:
  Reserve() = default;  // holds nothing and gives nothing
  // `bytes_max` 0: gives back what is there, makes nothing.
  Reserve(const std::string& database, std::int64_t bytes_max);

  // Takes what is missing of the reserve if at least as much again stays free. Cheap when nothing
  // is missing. Errors are those of the file system; a full one is none.
  Status fill();
  // Runs `write`; while it says that the disk is full, gives back a slice and runs it again.
  Status while_full(const std::function<Status()>& write);
  // Something was given back, and not yet taken again.
  bool used() const { return used_; }
  // Gives back a slice; false if nothing was left.
  bool release();

 private:
  bool full_disk(const Status& status) const;

  std::string path_;
  std::int64_t bytes_ = 0;  // when filled
  bool used_ = false;
};

}  // namespace holdfast
