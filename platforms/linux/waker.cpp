#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "errno_status.hpp"
#include "platform.hpp"
#include "poll_until.hpp"

namespace holdfast::platform {

Waker::Waker() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) errno_ = errno;
}

Waker::~Waker() {
  if (fd_ >= 0) ::close(fd_);
}

Status Waker::open_status() const {
  if (fd_ >= 0) return {};
  return Status::error(Code::io, "cannot make an eventfd: %s", errno_text(errno_).c_str());
}

void Waker::wake() {
  if (fd_ < 0) return;
  const int saved = errno;  // may run in a signal handler
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full, so the waiter is woken already.
  const ssize_t ignored = ::write(fd_, &one, sizeof one);
  (void)ignored;
  errno = saved;
}

bool Waker::wait(std::int64_t timeout_ms) {
  pollfd waited{fd_, POLLIN, 0};
  // Without a descriptor nothing could ever wake us: never sleep without end then.
  if (fd_ < 0 && timeout_ms < 0) timeout_ms = 1000;
  poll_until(&waited, 1, deadline_after(timeout_ms));
  if (fd_ < 0) return false;
  std::uint64_t count = 0;
  return ::read(fd_, &count, sizeof count) == static_cast<ssize_t>(sizeof count);
}

int Waker::descriptor() const { return fd_; }

}  // namespace holdfast::platform
