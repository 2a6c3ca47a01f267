// A link with faults that can be changed while it is in use, between two network namespaces of
// their own: IP packets go from one TUN device to the other through a thread that holds or drops
// them. The kernel's own netem does the same, but many kernels are built without it.
//
//   SlowLink link(200, 1);  // ms of a round trip, per cent lost
//   Process::spawn(link.on_gateway({HOLDFAST_BIN, "gateway", db, "--listen", link.url() …}));
//   Process::spawn(link.on_device({HOLDFAST_BIN, "relay", db, "--to", link.url()}));
//   LinkFault fault;
//   fault.cut = true;
//   link.set(fault);
//
// The gateway has two addresses. Programs at the ends see a hosts file of their own.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/process.hpp"

namespace holdfast::test {

struct LinkFault {
  int delay_ms = 0;  // one way
  int loss_percent = 0;
  int twice_percent = 0;
  int late_percent = 0;     // held back, so that later ones overtake them
  int bytes_per_s = 0;      // each way; 0: as many as there are
  bool cut = false;         // nothing passes
  bool cut_second = false;  // nothing of the gateway's second address passes
  bool cut_first = false;
};

class SlowLink {
 public:
  // False, and a message, where namespaces or TUN devices are not permitted.
  static bool possible();

  SlowLink(int round_trip_ms, int loss_percent);
  ~SlowLink();
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;

  void set(const LinkFault& fault);  // for packets from now on; what queues leaves at once
  // Connections that the device began: SYNs, each counted once.
  int attempts() const;

  std::string url() const { return "tcp://10.99.0.2:7447"; }
  std::string second_url() const { return "tcp://10.99.0.3:7447"; }
  void set_hosts(const std::string& lines);  // of the device's end
  // The command, to be run at that end.
  std::vector<std::string> on_device(const std::vector<std::string>& command) const;
  std::vector<std::string> on_gateway(const std::vector<std::string>& command) const;

 private:
  struct Packet {
    int to;
    std::string bytes;
  };
  struct End {
    std::string space;
    int tun = -1;
    std::int64_t free_us = 0;  // when what it sent before has left, with a bounded rate
  };

  void open(End& end, const std::string& address);
  void carry();
  void take(End& from, const End& to, std::int64_t now_us);
  bool chance(int percent);
  bool passes(const std::string& packet);

  End device_, gateway_;
  std::multimap<std::int64_t, Packet> packets_;  // of the thread, by when they are due
  std::atomic<bool> wider_{false};               // what waits for its turn leaves now
  unsigned random_ = 1;
  mutable std::mutex mutex_;
  LinkFault fault_;                              // guarded by mutex_
  std::set<std::pair<int, std::string>> begun_;  // guarded: port and address of each SYN
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace holdfast::test
