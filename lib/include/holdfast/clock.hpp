// Time as Holdfast uses it (G7). Boards have no battery-backed clock, so nothing that matters is
// decided by wall time: leases, back-off and expiry use the boot clock, which never steps and runs
// on while suspended (CLOCK_BOOTTIME, clock_gettime(2)), together with the kernel's boot id, which
// says whether two boot times may be compared at all.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t boot_ms() const = 0;  // since boot, suspend included; never goes back
  virtual std::int64_t wall_ms() const = 0;  // Unix time; may be 1970, may jump
  virtual std::string boot_id() const = 0;   // differs after each boot
};

// The machine's clocks. Thread-safe; lives for the whole program.
const Clock& system_clock();

// Wall times before this (2024-01-01) mean "the clock was not set".
constexpr std::int64_t kWallClockKnownFromMs = 1'704'067'200'000;
inline bool wall_known(std::int64_t wall_ms) { return wall_ms >= kWallClockKnownFromMs; }

}  // namespace holdfast
