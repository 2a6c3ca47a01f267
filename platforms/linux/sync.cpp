// Syncing a directory, and measuring what a sync costs here.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "errno_status.hpp"
#include "paths.hpp"
#include "platform.hpp"

namespace holdfast::platform {
namespace {

constexpr std::size_t kProbeBytes = 4096;
constexpr int kProbeRoundsMax = 100'000;

std::int64_t monotonic_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

// 0 or errno.
int write_all(int fd, const char* bytes, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::pwrite(fd, bytes + done, size - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

int timed_rounds(int fd, int rounds, std::vector<std::int64_t>& us) {
  char bytes[kProbeBytes];
  // The first write allocates the blocks and is not counted: a WAL is overwritten in place, too.
  std::memset(bytes, 0, sizeof bytes);
  if (const int error = write_all(fd, bytes, sizeof bytes); error != 0) return error;
  if (::fsync(fd) != 0) return errno;
  for (int round = 0; round < rounds; ++round) {
    std::memset(bytes, 1 + round % 255, sizeof bytes);
    const std::int64_t before = monotonic_us();
    if (const int error = write_all(fd, bytes, sizeof bytes); error != 0) return error;
    if (::fdatasync(fd) != 0) return errno;
    us.push_back(monotonic_us() - before);
  }
  return 0;
}

}  // namespace

Status sync_parent_directory(const std::string& path) {
  const std::string directory = parent_directory(path);
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_status(errno, "open directory", directory);
  int error = 0;
  // EINVAL: the file system has no sync for directories (9p, some FUSE servers), as fsync(2) says;
  // `doctor` warns of such file systems.
  if (::fsync(fd) != 0 && errno != EINVAL) error = errno;
  ::close(fd);
  return error == 0 ? Status() : errno_status(error, "sync directory", directory);
}

Status probe_sync(const std::string& path, int rounds, std::vector<std::int64_t>& us) {
  us.clear();
  if (rounds < 1 || rounds > kProbeRoundsMax) {
    return Status::error(Code::invalid, "rounds: expected 1 to %d, got %d", kProbeRoundsMax,
                         rounds);
  }
  const std::string probe = path + ".holdfast-probe-" + std::to_string(getpid());
  // O_EXCL: a new file, never one that somebody else needs.
  const int fd = ::open(probe.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno_status(errno, "create", probe);
  const int error = timed_rounds(fd, rounds, us);
  ::close(fd);
  ::unlink(probe.c_str());
  std::sort(us.begin(), us.end());
  return error == 0 ? Status() : errno_status(error, "write and sync", probe);
}

}  // namespace holdfast::platform
