// A clock that stands until the test moves it: boot and wall time apart, and reboots.
#pragma once

#include <mutex>
#include <string>

#include "holdfast/clock.hpp"

namespace holdfast::test {

class ManualClock : public Clock {
 public:
  static constexpr std::int64_t kStartWallMs = 1'767'225'600'000;  // 2026-01-01

  std::int64_t boot_ms() const override { return locked(boot_ms_); }
  std::int64_t wall_ms() const override { return locked(wall_ms_); }
  std::string boot_id() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return "boot-" + std::to_string(boots_);
  }

  void advance(std::int64_t ms) {
    const std::lock_guard<std::mutex> lock(mutex_);
    boot_ms_ += ms;
    wall_ms_ += ms;
  }
  void set_wall(std::int64_t ms) {
    const std::lock_guard<std::mutex> lock(mutex_);
    wall_ms_ = ms;
  }
  // Off for `off_ms`; boards without a battery-backed clock come up in 1970.
  void reboot(std::int64_t off_ms, bool keeps_wall = true) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++boots_;
    boot_ms_ = 0;
    wall_ms_ = keeps_wall ? wall_ms_ + off_ms : 0;
  }

 private:
  std::int64_t locked(const std::int64_t& value) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  std::int64_t boot_ms_ = 1'000;
  std::int64_t wall_ms_ = kStartWallMs;
  int boots_ = 1;
};

}  // namespace holdfast::test
