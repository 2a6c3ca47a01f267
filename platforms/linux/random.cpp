#include <fcntl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "platform.hpp"

namespace holdfast::platform {
namespace {

bool read_urandom(std::uint64_t& value) {
  const int fd = ::open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = ::read(fd, &value, sizeof value);
  ::close(fd);
  return n == static_cast<ssize_t>(sizeof value);
}

}  // namespace

// getrandom(2) may block once, early in the first boot, until the kernel has gathered entropy. A
// board that starts Holdfast that early must not hang, so it asks without blocking and then reads
// /dev/urandom, which is always willing.
std::uint64_t random_u64() {
  std::uint64_t value = 0;
  for (;;) {
    const ssize_t n = getrandom(&value, sizeof value, GRND_NONBLOCK);
    if (n == static_cast<ssize_t>(sizeof value)) return value;
    if (n < 0 && errno == EINTR) continue;
    break;
  }
  if (read_urandom(value)) return value;
  // No /dev either (a bare chroot on an old kernel): unique is still better than constant.
  static std::uint64_t counter = 0;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::uint64_t count = __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
  std::uint64_t x = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
                    static_cast<std::uint64_t>(now.tv_nsec) +
                    (static_cast<std::uint64_t>(getpid()) << 40) + count * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;  // splitmix64
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace holdfast::platform
