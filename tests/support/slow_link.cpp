#include "support/slow_link.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "support/command_line.hpp"

namespace holdfast::test {

namespace {

constexpr const char* kDevice = "hf0";
constexpr std::size_t kPacketBytesMax = 2048;
constexpr int kPacketsAtOnce = 64;
constexpr int kLookMs = 20;

std::int64_t now_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
}

bool ip(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {"ip"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run(argv).code() == 0;
}

std::vector<std::string> inside(const std::string& space, const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"ip", "netns", "exec", space};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

}  // namespace

bool SlowLink::possible() {
  static const bool can = [] {
    const std::string space = "holdfast-try-" + std::to_string(::getpid());
    if (!running_as_root() || ::access("/dev/net/tun", R_OK | W_OK) != 0) return false;
    const bool made = ip({"netns", "add", space});
    const bool tun = made && ip({"-n", space, "tuntap", "add", "dev", kDevice, "mode", "tun"});
    if (made) ip({"netns", "del", space});
    return tun;
  }();
  if (!can) MESSAGE("skipped: a slow link needs root, ip(8), network namespaces and /dev/net/tun");
  return can;
}

SlowLink::SlowLink(int round_trip_ms, int loss_percent)
    : delay_us_(round_trip_ms * 1'000 / 2), loss_percent_(loss_percent) {
  static int number = 0;
  const std::string name =
      "holdfast-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
  device_.space = name + "-device";
  gateway_.space = name + "-gateway";
  std::string problem;
  // A thread of its own: it ends up in the last namespace.
  std::thread([&] {
    try {
      open(device_, "10.99.0.1/24");
      open(gateway_, "10.99.0.2/24");
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }).join();
  if (!problem.empty()) throw std::runtime_error(problem);
  thread_ = std::thread([this] { carry(); });
}

SlowLink::~SlowLink() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  for (const End& end : {device_, gateway_}) {
    if (end.tun >= 0) ::close(end.tun);
    ip({"netns", "del", end.space});
  }
}

std::vector<std::string> SlowLink::on_device(const std::vector<std::string>& command) const {
  return inside(device_.space, command);
}

std::vector<std::string> SlowLink::on_gateway(const std::vector<std::string>& command) const {
  return inside(gateway_.space, command);
}

void SlowLink::open(End& end, const std::string& address) {
  if (!ip({"netns", "add", end.space})) throw std::runtime_error("ip netns add " + end.space);
  const int space = ::open(("/run/netns/" + end.space).c_str(), O_RDONLY | O_CLOEXEC);
  const bool inside = space >= 0 && ::setns(space, CLONE_NEWNET) == 0;
  if (space >= 0) ::close(space);
  end.tun = inside ? ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strcpy(request.ifr_name, kDevice);
  if (end.tun < 0 || ::ioctl(end.tun, TUNSETIFF, &request) != 0)
    throw std::runtime_error(std::string("/dev/net/tun: ") + std::strerror(errno));
  const bool up = ip({"-n", end.space, "addr", "add", address, "dev", kDevice}) &&
                  ip({"-n", end.space, "link", "set", kDevice, "txqueuelen", "10000", "up"}) &&
                  ip({"-n", end.space, "link", "set", "lo", "up"});
  if (!up) throw std::runtime_error("ip link set " + end.space);
}

void SlowLink::take(int from, int to, std::int64_t now) {
  char bytes[kPacketBytesMax];
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    const ssize_t size = ::read(from, bytes, sizeof bytes);
    if (size <= 0) return;
    random_ = random_ * 1'103'515'245 + 12'345;
    const bool lost = static_cast<int>(random_ / 65'536 % 100) < loss_percent_;
    if (!lost) packets_.push_back({now + delay_us_, to, {bytes, static_cast<std::size_t>(size)}});
  }
}

void SlowLink::carry() {
  pollfd ready[2] = {{device_.tun, POLLIN, 0}, {gateway_.tun, POLLIN, 0}};
  while (!stop_) {
    std::int64_t now = now_us();
    while (!packets_.empty() && packets_.front().due_us <= now) {
      const Packet& packet = packets_.front();
      // A full device drops it, as any other would.
      if (::write(packet.to, packet.bytes.data(), packet.bytes.size()) < 0 && errno == EBADF)
        return;
      packets_.pop_front();
    }
    const std::int64_t wait_us = packets_.empty() ? kLookMs * 1'000 : packets_.front().due_us - now;
    const std::int64_t wait_ms = std::clamp<std::int64_t>(wait_us / 1'000, 0, kLookMs);
    if (::poll(ready, 2, static_cast<int>(wait_ms)) < 0 && errno != EINTR) return;
    now = now_us();
    if ((ready[0].revents & POLLIN) != 0) take(device_.tun, gateway_.tun, now);
    if ((ready[1].revents & POLLIN) != 0) take(gateway_.tun, device_.tun, now);
  }
}

}  // namespace holdfast::test
