#include "line_reader.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

namespace holdfast::cli {
namespace {

constexpr std::size_t kChunkBytes = 64 * 1024;

Status open_file(const std::string& path, int& fd) {
  if (path == "-") {
    fd = STDIN_FILENO;
    return {};
  }
  fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return {};
  const Code code = errno == ENOENT   ? Code::not_found
                    : errno == EACCES ? Code::permission
                                      : Code::io;
  return Status::native_error(code, errno, "%s: %s", path.c_str(), ::strerror(errno));
}

void close_file(int& fd) {
  if (fd > STDIN_FILENO) ::close(fd);
  fd = -1;
}

// Appends at most kChunkBytes. n == 0 at the end.
Status read_chunk(int fd, const std::string& path, std::string& out, std::size_t& n) {
  const std::size_t before = out.size();
  out.resize(before + kChunkBytes);
  ssize_t got = 0;
  do {
    got = ::read(fd, &out[before], kChunkBytes);
  } while (got < 0 && errno == EINTR);
  out.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
  if (got < 0) {
    return Status::native_error(Code::io, errno, "%s: %s", path.c_str(), ::strerror(errno));
  }
  n = static_cast<std::size_t>(got);
  return {};
}

}  // namespace

Status read_whole(const std::string& path, std::size_t bytes_max, std::string& out) {
  int fd = -1;
  Status status = open_file(path, fd);
  std::size_t n = 1;
  out.clear();
  while (status.ok() && n > 0 && out.size() <= bytes_max) {
    status = read_chunk(fd, path, out, n);
  }
  close_file(fd);
  if (status.ok() && out.size() > bytes_max) {
    return Status::error(Code::invalid, "%s: larger than %zu bytes", path.c_str(), bytes_max);
  }
  return status;
}

LineReader::~LineReader() { close_file(fd_); }

Status LineReader::open(const std::string& path) {
  path_ = path;
  return open_file(path, fd_);
}

Status LineReader::fill() {
  buffer_.erase(0, start_);
  scanned_ -= start_;
  start_ = 0;
  std::size_t n = 0;
  Status status = read_chunk(fd_, path_, buffer_, n);
  at_end_ = n == 0;
  return status;
}

bool LineReader::next(std::string_view& line, Status& status) {
  status = Status();
  scanned_ = std::max(scanned_, start_);
  while (true) {
    const std::size_t newline = buffer_.find('\n', scanned_);
    if (newline == std::string::npos) scanned_ = buffer_.size();
    const std::size_t end = newline == std::string::npos ? buffer_.size() : newline;
    if (end - start_ > line_bytes_max_) {
      ++line_number_;
      status = Status::error(Code::invalid, "longer than %zu bytes", line_bytes_max_);
      return false;
    }
    if (newline != std::string::npos || (at_end_ && end > start_)) {
      ++line_number_;
      line = std::string_view(buffer_).substr(start_, end - start_);
      start_ = newline == std::string::npos ? end : end + 1;
      return true;
    }
    if (at_end_) return false;
    status = fill();
    if (!status.ok()) return false;
  }
}

}  // namespace holdfast::cli
