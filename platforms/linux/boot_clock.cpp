// The machine's clocks: CLOCK_BOOTTIME never steps and counts suspended time, CLOCK_REALTIME is
// whatever somebody set, and the boot id says which boot this is (random(4)).
#include <time.h>

#include <cerrno>

#include "holdfast/clock.hpp"
#include "platform.hpp"
#include "small_file.hpp"

namespace holdfast {
namespace {

std::int64_t now_ms(clockid_t clock) {
  timespec now{};
  if (clock_gettime(clock, &now) != 0) return 0;
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

// Without the kernel's boot id no lease could be trusted across a reboot, so a random one is taken:
// every start then looks like a new boot, which is safe (leases are void) and merely slower.
std::string find_boot_id() {
  const std::string id = platform::read_first_line("/proc/sys/kernel/random/boot_id");
  if (!id.empty()) return id;
  return "unknown-" + std::to_string(platform::random_u64());
}

class SystemClock final : public Clock {
 public:
  std::int64_t boot_ms() const override { return now_ms(CLOCK_BOOTTIME); }
  std::int64_t wall_ms() const override { return now_ms(CLOCK_REALTIME); }
  std::string boot_id() const override { return boot_id_; }

 private:
  const std::string boot_id_ = find_boot_id();
};

}  // namespace

const Clock& system_clock() {
  // Never destroyed: threads may still ask for the time while the program ends.
  static const SystemClock* const clock = new SystemClock;
  return *clock;
}

namespace platform {

void sleep_us(std::int64_t us) {
  if (us <= 0) return;
  timespec left{};
  left.tv_sec = static_cast<time_t>(us / 1'000'000);
  left.tv_nsec = static_cast<long>(us % 1'000'000) * 1000;
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

}  // namespace platform
}  // namespace holdfast
