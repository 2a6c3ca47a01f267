// A link with a delay and losses, between two network namespaces of their own: IP packets go from
// one TUN device to the other through a thread that holds or drops them. The kernel's own netem
// does the same, but many kernels are built without it.
//
//   SlowLink link(200, 1);  // ms of a round trip, per cent lost
//   Process::spawn(link.on_gateway({HOLDFAST_BIN, "gateway", db, "--listen", link.url() …}));
//   Process::spawn(link.on_device({HOLDFAST_BIN, "relay", db, "--to", link.url()}));
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "support/process.hpp"

namespace holdfast::test {

class SlowLink {
 public:
  // False, and a message, where namespaces or TUN devices are not permitted.
  static bool possible();

  SlowLink(int round_trip_ms, int loss_percent);
  ~SlowLink();
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;

  std::string url() const { return "tcp://10.99.0.2:7447"; }
  // The command, to be run at that end.
  std::vector<std::string> on_device(const std::vector<std::string>& command) const;
  std::vector<std::string> on_gateway(const std::vector<std::string>& command) const;

 private:
  struct Packet {
    std::int64_t due_us;
    int to;
    std::string bytes;
  };
  struct End {
    std::string space;
    int tun = -1;
  };

  void open(End& end, const std::string& address);
  void carry();
  void take(int from, int to, std::int64_t now_us);

  const int delay_us_, loss_percent_;
  End device_, gateway_;
  std::deque<Packet> packets_;  // of the thread
  unsigned random_ = 1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace holdfast::test
