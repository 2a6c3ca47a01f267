#include "signals.hpp"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace holdfast::cli {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};

sigset_t stop_set() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : kStopSignals) {
    struct sigaction action{};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&set, number);
  }
  return set;
}

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = stop_set();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  event_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

StopSignals::~StopSignals() {
  if (signal_fd_ >= 0) ::close(signal_fd_);
  if (event_fd_ >= 0) ::close(event_fd_);
}

Status StopSignals::open_status() const {
  if (signal_fd_ >= 0 && event_fd_ >= 0) return {};
  return Status::error(Code::io, "too many open files; raise `ulimit -n`");
}

bool StopSignals::take_signal() {
  signalfd_siginfo info{};
  if (::read(signal_fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return false;
  asked_ = true;
  return true;
}

StopSignals::Woken StopSignals::wait(std::int64_t timeout_ms, int watched) {
  pollfd polls[] = {{signal_fd_, POLLIN, 0}, {event_fd_, POLLIN, 0}, {watched, 0, 0}};
  constexpr std::int64_t kPollMax = std::numeric_limits<int>::max();
  const int timeout = timeout_ms < 0 ? -1 : static_cast<int>(std::min(timeout_ms, kPollMax));
  if (::poll(polls, 3, timeout) <= 0) return Woken::timeout;
  if (polls[0].revents != 0 && take_signal()) return Woken::signal;
  if (polls[1].revents != 0) {
    std::uint64_t count = 0;
    if (::read(event_fd_, &count, sizeof count) == static_cast<ssize_t>(sizeof count)) {
      return Woken::notified;
    }
  }
  if (polls[2].revents != 0) return Woken::hung_up;
  return Woken::timeout;
}

bool StopSignals::stop_asked() {
  if (!asked_) take_signal();
  return asked_;
}

void StopSignals::notify() {
  const std::uint64_t one = 1;
  // Fails only if notified more than 2^64 - 2 times already.
  if (::write(event_fd_, &one, sizeof one) < 0) return;
}

void ignore_broken_pipes() { ::signal(SIGPIPE, SIG_IGN); }

void end_quietly_on_broken_pipes() {
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace holdfast::cli
