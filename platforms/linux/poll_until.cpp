#include "poll_until.hpp"

#include <time.h>

#include <algorithm>
#include <cerrno>

namespace holdfast::platform {
namespace {

// poll(2) takes an int; longer waits are made of several.
constexpr std::int64_t kPollMsMax = 24LL * 3600 * 1000;

std::int64_t monotonic_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

std::int64_t deadline_after(std::int64_t timeout_ms) {
  if (timeout_ms < 0) return kNoDeadline;
  const std::int64_t now = monotonic_ms();
  return timeout_ms > INT64_MAX - now ? kNoDeadline : now + timeout_ms;
}

int poll_until(pollfd* waited, nfds_t count, std::int64_t deadline_ms) {
  for (;;) {
    std::int64_t left = -1;
    if (deadline_ms != kNoDeadline) {
      left = std::clamp<std::int64_t>(deadline_ms - monotonic_ms(), 0, kPollMsMax);
    }
    const int n = ::poll(waited, count, static_cast<int>(left));
    if (n > 0) return n;
    if (n < 0 && errno != EINTR) return 0;
    if (deadline_ms != kNoDeadline && monotonic_ms() >= deadline_ms) return 0;
  }
}

}  // namespace holdfast::platform
