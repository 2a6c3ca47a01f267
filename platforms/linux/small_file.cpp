#include "small_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace holdfast::platform {

bool read_small_file(const std::string& path, std::size_t bytes_max, std::string& out) {
  out.clear();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool good = true;
  char buffer[4096];
  while (out.size() < bytes_max) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) good = false;
    if (n <= 0) break;
    out.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  if (out.size() > bytes_max) out.resize(bytes_max);
  return good;
}

std::string read_first_line(const std::string& path) {
  std::string text;
  if (!read_small_file(path, 4096, text)) return {};
  return text.substr(0, text.find('\n'));
}

}  // namespace holdfast::platform
