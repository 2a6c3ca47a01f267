#include "reserve.hpp"

#include <algorithm>

#include "holdfast/outbox.hpp"
#include "platform.hpp"

namespace holdfast {

namespace {

// With less than this a connection cannot even make its shared memory file, which SQLite calls an
// I/O error.
constexpr std::int64_t kNoRoomBytes = 64 * 1024;
constexpr std::int64_t kBlockBytes = 4096;
constexpr int kCheckpointPart = 8;  // of the reserve
constexpr int kFewFrames = 8;

}  // namespace

std::string reserve_path(const std::string& database) { return database + "-reserve"; }

int checkpoint_frames_on(const std::string& database, int frames_max) {
  platform::DiskSpace space;
  if (frames_max <= 0 || !platform::disk_space(database, space).ok()) return frames_max;
  const std::int64_t frames = space.total_bytes / kReservePart / kCheckpointPart / kBlockBytes;
  return static_cast<int>(
      std::clamp<std::int64_t>(frames, std::min(kFewFrames, frames_max), frames_max));
}

std::int64_t wal_bytes_on(const std::string& database) {
  return std::int64_t{checkpoint_frames_on(database, kCheckpointFrames)} * (kBlockBytes + 24);
}

bool small_file_system(const std::string& database) {
  return checkpoint_frames_on(database, kCheckpointFrames) < kCheckpointFrames;
}

Reserve::Reserve(const std::string& database, std::int64_t bytes_max)
    : path_(reserve_path(database)) {
  platform::DiskSpace space;
  if (bytes_max <= 0 || !platform::disk_space(path_, space).ok()) return;
  const std::int64_t wanted = std::min(bytes_max, space.total_bytes / kReservePart);
  if (wanted >= kReserveMinBytes) bytes_ = wanted / kBlockBytes * kBlockBytes;
}

Status Reserve::fill() {
  if (bytes_ == 0 || path_.empty()) return Status();
  const std::int64_t held = platform::ballast_bytes(path_);
  if (held >= bytes_) {
    used_ = false;
    return Status();
  }
  platform::DiskSpace space;
  Status status = platform::disk_space(path_, space);
  if (!status.ok() || space.free_bytes < bytes_ - held + bytes_) return status;
  status = platform::resize_ballast(path_, bytes_);
  if (status.code() == Code::no_space) return Status();  // somebody was faster
  if (status.ok()) used_ = false;
  return status;
}

bool Reserve::release() {
  const std::int64_t held = path_.empty() ? 0 : platform::ballast_bytes(path_);
  if (held == 0) return false;
  const std::int64_t slice = std::max(bytes_ / kReserveSlices, kNoRoomBytes);
  used_ = true;
  return platform::resize_ballast(path_, std::max<std::int64_t>(0, held - slice)).ok();
}

bool Reserve::full_disk(const Status& status) const {
  if (status.code() == Code::no_space) return true;
  platform::DiskSpace space;
  return status.code() == Code::io && platform::disk_space(path_, space).ok() &&
         space.free_bytes < kNoRoomBytes;
}

Status Reserve::while_full(const std::function<Status()>& write) {
  Status status = write();
  while (!status.ok() && full_disk(status) && release()) status = write();
  return status;
}

}  // namespace holdfast
