// A board with a disk, two clocks and a power switch. Every call into the library goes through
// doing(), for at each of its disk operations the power may go.
#pragma once

#include <functional>
#include <string>

#include "holdfast/status.hpp"
#include "run.hpp"
#include "support/crash_disk.hpp"
#include "support/manual_clock.hpp"

namespace holdfast::simulation {

constexpr const char* kDatabase = "app.db";

// What the control `wall_clock` takes for the time since boot.
class MachineClock : public Clock {
 public:
  explicit MachineClock(bool wall_for_boot) : wall_for_boot_(wall_for_boot) {}
  std::int64_t boot_ms() const override { return wall_for_boot_ ? real.wall_ms() : real.boot_ms(); }
  std::int64_t wall_ms() const override { return real.wall_ms(); }
  std::string boot_id() const override { return real.boot_id(); }
  test::ManualClock real;

 private:
  bool wall_for_boot_;
};

class Machine {
 public:
  Machine(Run& run, std::string name);
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  bool on() const { return on_; }
  void pass(std::int64_t ms);    // time, on or off
  void arm_cut(int operations);  // the power goes within so many operations of the disk
  void cut_now();
  void calm();       // no cut from here on
  void power_on();   // may go off again meanwhile
  void jump_wall();  // set right, or years wrong, or back to 1970
  std::string disk_path() const { return disk_.path(kDatabase); }
  std::int64_t operations() const { return disk_.operations(); }

 protected:
  virtual Status boot() = 0;
  virtual void drop_processes() = 0;

  // False: the power went, and everything that ran is gone; or it failed for another reason, which
  // is a broken promise.
  bool doing(const char* what, const std::function<Status()>& call);
  std::int64_t now() const { return clock_.boot_ms(); }
  void say(const std::string& what) const { run_.say(name_, what); }

  Run& run_;
  const std::string name_;
  test::CrashDisk disk_;
  MachineClock clock_;

 private:
  void went_off();

  bool on_ = false, booting_ = false, calm_ = false;
  std::int64_t off_ms_ = 0, passed_ms_ = 0;
};

}  // namespace holdfast::simulation
