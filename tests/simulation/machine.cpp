#include "machine.hpp"

#include <exception>

namespace holdfast::simulation {

namespace {

constexpr std::int64_t kYearMs = 31'557'600'000;
constexpr int kCutsInBootPercent = 20;

}  // namespace

Machine::Machine(Run& run, std::string name)
    : run_(run), name_(std::move(name)), clock_(run.control == Control::wall_clock) {
  disk_.set_powersafe_overwrite(run.seed % 3 != 0);
}

void Machine::pass(std::int64_t ms) {
  passed_ms_ += ms;
  if (on_)
    clock_.real.advance(ms);
  else
    off_ms_ += ms;
}

void Machine::arm_cut(int operations) {
  disk_.fault_at(disk_.operations() + run_.below(operations), test::DiskFault::power_off);
}

void Machine::cut_now() {
  if (!on_) return;
  disk_.power_off();
  went_off();
}

void Machine::calm() {
  calm_ = true;
  disk_.no_fault();
}

void Machine::jump_wall() {
  if (!on_) return;
  ++run_.figures.wall_jumps;
  const std::int64_t right = test::ManualClock::kStartWallMs + passed_ms_;
  const int kind = run_.below(10);
  if (kind < 4)
    clock_.real.set_wall(right);
  else if (kind < 7)
    clock_.real.set_wall(right + (run_.below(8) - 3) * kYearMs + run_.below(1'000));
  else
    clock_.real.set_wall(run_.below(100'000));
  say("its wall clock jumps to " + std::to_string(clock_.wall_ms()));
}

bool Machine::doing(const char* what, const std::function<Status()>& call) {
  if (!on_) return false;
  test::CrashDisk::set_sqlite_wall_ms(clock_.wall_ms());
  Status status;
  try {
    status = call();
  } catch (const std::exception& error) {
    status = Status::error(Code::internal, "%s", error.what());
  }
  if (disk_.fault_met()) {
    say(std::string("loses power while it ") + what);
    went_off();
    return false;
  }
  if (!status.ok()) run_.breach(name_ + " " + what + ": " + status.text());
  return status.ok();
}

// What a cut leaves is settled here; what ran is gone.
void Machine::went_off() {
  on_ = false;
  off_ms_ = 0;
  ++run_.figures.cuts;
  if (name_ == "gateway") ++run_.figures.cuts_of_gateway;
  if (booting_) ++run_.figures.cuts_in_boot;
  drop_processes();
  const std::uint64_t variant = run_.percent(25) ? run_.random() % 2 : run_.random();
  disk_.reboot(variant);
  say("power cut: it leaves variant " + std::to_string(variant) + " of its disk");
}

void Machine::power_on() {
  if (on_) return;
  const std::int64_t longer = run_.percent(30) ? run_.below(100'000'000) : 0;
  off_ms_ += longer;
  passed_ms_ += longer;
  clock_.real.reboot(off_ms_, run_.percent(60));
  on_ = true;
  if (!calm_ && run_.percent(kCutsInBootPercent)) arm_cut(120);
  say("boots, wall clock " + std::to_string(clock_.wall_ms()));
  booting_ = true;
  doing("boots", [this] { return boot(); });
  booting_ = false;
}

}  // namespace holdfast::simulation
