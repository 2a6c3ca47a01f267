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
#include <filesystem>
#include <stdexcept>

#include "support/command_line.hpp"

namespace holdfast::test {

namespace {

constexpr const char* kDevice = "hf0";
constexpr std::size_t kPacketBytesMax = 2048;
constexpr int kPacketsAtOnce = 64;
constexpr int kLookMs = 20;
constexpr std::int64_t kLateUs = 40'000;
constexpr std::int64_t kQueueUs = 3'000'000;  // of a bounded rate: what is behind it is dropped

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

// ip(8) lays the files that are here over those of /etc, for what it executes in the namespace.
std::string files_of(const std::string& space) { return "/etc/netns/" + space; }

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

SlowLink::SlowLink(int round_trip_ms, int loss_percent) {
  fault_.delay_ms = round_trip_ms / 2;
  fault_.loss_percent = loss_percent;
  static std::atomic<int> number{0};
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
      if (!ip({"-n", gateway_.space, "addr", "add", "10.99.0.3/24", "dev", kDevice}))
        throw std::runtime_error("ip addr add");
      std::filesystem::create_directories(files_of(device_.space));
      write_file(files_of(device_.space) + "/hosts", "127.0.0.1 localhost\n");
      // Nobody answers there, so a name is in the file or cannot be resolved.
      write_file(files_of(device_.space) + "/resolv.conf", "nameserver 127.0.0.1\n");
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
    std::error_code gone;
    std::filesystem::remove_all(files_of(end.space), gone);
  }
}

void SlowLink::set(const LinkFault& fault) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wider_ = wider_ || fault.bytes_per_s == 0;
  fault_ = fault;
}

int SlowLink::attempts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(begun_.size());
}

void SlowLink::set_hosts(const std::string& lines) {
  write_file(files_of(device_.space) + "/hosts", lines);
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

bool SlowLink::chance(int percent) {
  random_ = random_ * 1'103'515'245 + 12'345;
  return static_cast<int>(random_ / 65'536 % 100) < percent;
}

// With the mutex held. Also notes the beginning of a connection.
bool SlowLink::passes(const std::string& packet) {
  const auto byte = [&](std::size_t at) {
    return at < packet.size() ? static_cast<unsigned char>(packet[at]) : 0;
  };
  if (byte(0) >> 4 != 4) return true;
  const std::size_t tcp = (byte(0) & 15U) * 4U;
  constexpr int kTcp = 6, kSyn = 2, kAck = 16;
  if (byte(9) == kTcp && (byte(tcp + 13) & (kSyn | kAck)) == kSyn)
    begun_.emplace(byte(tcp) * 256 + byte(tcp + 1), packet.substr(16, 4));
  const auto is_of = [&](int host) { return byte(15) == host || byte(19) == host; };
  return !fault_.cut && !(fault_.cut_first && is_of(2)) && !(fault_.cut_second && is_of(3)) &&
         !chance(fault_.loss_percent);
}

void SlowLink::take(End& from, const End& to, std::int64_t now) {
  char bytes[kPacketBytesMax];
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    const ssize_t size = ::read(from.tun, bytes, sizeof bytes);
    if (size <= 0) return;
    std::string packet(bytes, static_cast<std::size_t>(size));
    if (!passes(packet)) continue;
    std::int64_t due = now;
    if (fault_.bytes_per_s > 0) {
      if (from.free_us > now + kQueueUs) continue;  // the queue is full
      from.free_us = std::max(from.free_us, now) + size * 1'000'000 / fault_.bytes_per_s;
      due = from.free_us;
    } else {
      from.free_us = now;
    }
    due += fault_.delay_ms * 1'000 + (chance(fault_.late_percent) ? kLateUs : 0);
    if (chance(fault_.twice_percent)) packets_.emplace(due, Packet{to.tun, packet});
    packets_.emplace(due, Packet{to.tun, std::move(packet)});
  }
}

void SlowLink::carry() {
  pollfd ready[2] = {{device_.tun, POLLIN, 0}, {gateway_.tun, POLLIN, 0}};
  while (!stop_) {
    std::int64_t now = now_us();
    if (wider_.exchange(false)) {
      std::multimap<std::int64_t, Packet> waiting;
      waiting.swap(packets_);
      for (auto& [due, packet] : waiting) packets_.emplace(std::min(due, now), std::move(packet));
    }
    while (!packets_.empty() && packets_.begin()->first <= now) {
      const Packet& packet = packets_.begin()->second;
      // A full device drops it, as any other would; one that is down, too.
      if (::write(packet.to, packet.bytes.data(), packet.bytes.size()) < 0 && errno == EBADF)
        return;
      packets_.erase(packets_.begin());
    }
    const std::int64_t wait_us = packets_.empty() ? kLookMs * 1'000 : packets_.begin()->first - now;
    const std::int64_t wait_ms = std::clamp<std::int64_t>(wait_us / 1'000, 0, kLookMs);
    if (::poll(ready, 2, static_cast<int>(wait_ms)) < 0 && errno != EINTR) return;
    now = now_us();
    if ((ready[0].revents & POLLIN) != 0) take(device_, gateway_, now);
    if ((ready[1].revents & POLLIN) != 0) take(gateway_, device_, now);
  }
}

}  // namespace holdfast::test
