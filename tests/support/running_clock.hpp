// A clock that runs, and that the test steps and suspends: for threads that wait in real time.
#pragma once

#include <atomic>
#include <string>

#include "holdfast/clock.hpp"

namespace holdfast::test {

class RunningClock : public Clock {
 public:
  explicit RunningClock(std::int64_t wall_ms) { set_wall(wall_ms); }

  std::int64_t boot_ms() const override { return system_clock().boot_ms() + slept_ms_; }
  std::int64_t wall_ms() const override { return boot_ms() + wall_ahead_ms_; }
  std::string boot_id() const override { return "boot-running"; }

  void set_wall(std::int64_t ms) { wall_ahead_ms_ = ms - boot_ms(); }
  void step_wall(std::int64_t by_ms) { wall_ahead_ms_ += by_ms; }
  // What CLOCK_BOOTTIME and the wall clock show after a sleep of the whole machine.
  void suspend(std::int64_t ms) { slept_ms_ += ms; }

 private:
  std::atomic<std::int64_t> slept_ms_{0}, wall_ahead_ms_{0};
};

// The control of every test of clocks: software that takes the wall clock for the time since boot.
class WallForBootClock : public Clock {
 public:
  explicit WallForBootClock(const Clock& clock) : clock_(clock) {}
  std::int64_t boot_ms() const override { return clock_.wall_ms(); }
  std::int64_t wall_ms() const override { return clock_.wall_ms(); }
  std::string boot_id() const override { return clock_.boot_id(); }

 private:
  const Clock& clock_;
};

}  // namespace holdfast::test
