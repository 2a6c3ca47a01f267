// poll(2) with a deadline, so that signals do not prolong a wait.
#pragma once

#include <poll.h>

#include <cstdint>

namespace holdfast::platform {

constexpr std::int64_t kNoDeadline = -1;

// In ms of CLOCK_MONOTONIC; kNoDeadline for a negative timeout.
std::int64_t deadline_after(std::int64_t timeout_ms);
// The number of descriptors that are ready; 0 at the deadline or on an error.
int poll_until(pollfd* waited, nfds_t count, std::int64_t deadline_ms);

}  // namespace holdfast::platform
