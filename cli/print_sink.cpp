#include "print_sink.hpp"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "json.hpp"

namespace holdfast::cli {

PrintSink::PrintSink(std::function<void()> on_error)
    : on_error_(std::move(on_error)), stop_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

PrintSink::~PrintSink() {
  if (stop_fd_ >= 0) ::close(stop_fd_);
}

Status PrintSink::open_status() const {
  if (stop_fd_ >= 0) return {};
  return Status::error(Code::io, "too many open files; raise `ulimit -n`");
}

void PrintSink::stop() {
  const std::uint64_t one = 1;
  // Fails only if stopped 2^64 - 2 times before.
  if (::write(stop_fd_, &one, sizeof one) < 0) return;
}

// False when stop() was called.
bool PrintSink::wait_writable() {
  pollfd polls[] = {{stop_fd_, POLLIN, 0}, {STDOUT_FILENO, POLLOUT, 0}};
  while (::poll(polls, 2, -1) < 0) {
    if (errno != EINTR) return true;  // write(2) will tell
  }
  return polls[0].revents == 0;
}

Status PrintSink::deliver(const std::vector<EventRecord>& events, std::vector<Outcome>&) {
  buffer_.clear();
  for (const EventRecord& event : events) buffer_ += event_line(event) + "\n";
  std::string_view left = buffer_;
  while (!left.empty()) {
    if (!wait_writable()) return Status::error(Code::unavailable, "stopping");
    // A pipe that polls writable takes PIPE_BUF bytes without blocking, and not always more.
    const ssize_t n =
        ::write(STDOUT_FILENO, left.data(), std::min<std::size_t>(left.size(), PIPE_BUF));
    if (n >= 0) {
      left.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR && errno != EAGAIN) {
      const int error = errno;
      error_.store(error);
      on_error_();
      return Status::native_error(Code::unavailable, error, "standard output: %s",
                                  ::strerror(error));
    }
  }
  return {};
}

}  // namespace holdfast::cli
