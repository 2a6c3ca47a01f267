#include "support/small_disk.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace holdfast::test {

namespace {

int mount_tmpfs(const std::string& path, std::int64_t bytes) {
  ::mkdir(path.c_str(), 0700);
  const std::string size = "size=" + std::to_string(bytes);
  return ::mount("tmpfs", path.c_str(), "tmpfs", 0, size.c_str()) == 0 ? 0 : errno;
}

}  // namespace

bool SmallDisk::possible() {
  static const bool can = [] {
    const TemporaryDirectory directory;
    const std::string path = directory.file("disk");
    if (mount_tmpfs(path, 1 << 20) != 0) return false;
    ::umount2(path.c_str(), MNT_DETACH);
    return true;
  }();
  if (!can) MESSAGE("skipped: a small file system needs mount(2), which is not permitted here");
  return can;
}

SmallDisk::SmallDisk(std::int64_t bytes) {
  const int error = mount_tmpfs(directory_.file("disk"), bytes);
  if (error != 0) throw std::runtime_error(std::string("mount: ") + std::strerror(error));
}

SmallDisk::~SmallDisk() { ::umount2(directory_.file("disk").c_str(), MNT_DETACH); }

std::int64_t SmallDisk::fill() {
  const int fd = ::open(file("foreign").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) throw std::runtime_error(std::string("foreign file: ") + std::strerror(errno));
  const std::vector<char> block(64 * 1024, 'f');
  for (std::size_t bytes = block.size(); bytes > 0;) {
    const ssize_t written = ::write(fd, block.data(), bytes);
    if (written <= 0) bytes /= 16;
  }
  struct stat facts{};
  ::fstat(fd, &facts);
  ::close(fd);
  return facts.st_size;
}

void SmallDisk::resize(std::int64_t bytes) {
  const std::string size = "size=" + std::to_string(bytes);
  if (::mount("tmpfs", file("").c_str(), "tmpfs", MS_REMOUNT, size.c_str()) != 0)
    throw std::runtime_error(std::string("remount: ") + std::strerror(errno));
}

void SmallDisk::remove_foreign() { ::unlink(file("foreign").c_str()); }

}  // namespace holdfast::test
