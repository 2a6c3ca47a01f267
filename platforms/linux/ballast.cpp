// Room on a file system: how much there is, and a file that holds some of it.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "errno_status.hpp"
#include "paths.hpp"
#include "platform.hpp"

namespace holdfast::platform {

Status disk_space(const std::string& path, DiskSpace& space) {
  const std::string directory = parent_directory(path);
  struct statvfs facts{};
  if (::statvfs(directory.c_str(), &facts) != 0)
    return errno_status(errno, "look at the file system of", directory);
  const auto block = static_cast<std::int64_t>(facts.f_frsize);
  space.free_bytes = block * static_cast<std::int64_t>(facts.f_bavail);
  space.total_bytes = block * static_cast<std::int64_t>(facts.f_blocks);
  return Status();
}

Status resize_ballast(const std::string& path, std::int64_t bytes) {
  if (bytes <= 0) {
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return Status();
    return errno_status(errno, "remove", path);
  }
  // O_NOFOLLOW: a link put there by somebody must not lead us to another file.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno_status(errno, "open", path);
  struct stat before{};
  int error = ::fstat(fd, &before) == 0 ? 0 : errno;
  if (error == 0 && before.st_size > bytes) error = ::ftruncate(fd, bytes) == 0 ? 0 : errno;
  // It returns its error, and writes the blocks where the file system cannot allocate them.
  if (error == 0) error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (error != 0 && before.st_size < bytes && ::ftruncate(fd, before.st_size) == 0 &&
      before.st_size == 0)
    ::unlink(path.c_str());
  ::close(fd);
  return error == 0 ? Status() : errno_status(error, "reserve room in", path);
}

std::int64_t ballast_bytes(const std::string& path) {
  struct stat facts{};
  if (::lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return 0;
  return static_cast<std::int64_t>(facts.st_size);
}

}  // namespace holdfast::platform
