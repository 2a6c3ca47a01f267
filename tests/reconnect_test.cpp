// Fifty relays whose gateway goes away at the same moment, and is not back for a while: when each
// of them tries to connect. Every relay has a port of its own here, so that its attempts can be
// told.
#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "holdfast/relay.hpp"
#include "support/connection.hpp"
#include "support/process.hpp"
#include "support/raw_peer.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kDevices = 50;
constexpr std::int64_t kGoneMs = 10'000;
constexpr std::int64_t kBinMs = 100;

// Takes every connection, and says when. As long as it is `there` it completes the handshake and
// keeps the connection; then it closes them all, and each new one at once.
class Gateway {
 public:
  Gateway() : listeners_(kDevices), attempts(kDevices) {
    thread_ = std::thread([this] { serve(); });
  }
  ~Gateway() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const std::string& url(int device) const {
    return listeners_[static_cast<std::size_t>(device)].url;
  }
  int connected() const { return connected_; }
  void go_away() {
    gone_at_ = Steady::now();
    there_ = false;
  }

 private:
  void serve() {
    std::vector<RawPeer> peers;
    while (!stop_) {
      if (!there_) peers.clear();
      for (std::size_t device = 0; device < kDevices; ++device) {
        if (!listeners_[device].waiting(0)) continue;
        RawPeer peer = listeners_[device].accept();
        if (there_) {
          if (peer.send(kRepHello) && peer.receive(8) == kReqHello)
            peers.push_back(std::move(peer));
          connected_ = static_cast<int>(peers.size());
        } else {
          attempts[device].push_back(ms_since(gone_at_));
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::deque<RawListener> listeners_;
  std::atomic<bool> there_{true}, stop_{false};
  std::atomic<int> connected_{0};
  Steady::time_point gone_at_;
  std::thread thread_;

 public:
  std::vector<std::vector<std::int64_t>> attempts;  // by device; read after stop()
};

// The most attempts of all devices within kBinMs, from `from` ms on.
int crowd(const std::vector<std::vector<std::int64_t>>& attempts, std::int64_t from) {
  std::vector<int> bins(static_cast<std::size_t>(kGoneMs / kBinMs) + 20);
  for (const auto& device : attempts)
    for (const std::int64_t ms : device)
      if (ms >= from) ++bins.at(static_cast<std::size_t>(ms / kBinMs));
  return *std::max_element(bins.begin(), bins.end());
}

// Times at which one device may have tried at most so often: the waits' upper bounds double, and a
// wait is random between 0 and its bound, so twice as many as of the mean waits are allowed.
std::size_t attempts_allowed() {
  std::size_t count = 0;
  std::int64_t ceiling = kLinkDelayMinMs;
  for (std::int64_t ms = 0; ms < kGoneMs; ms += ceiling / 2) {
    ++count;
    ceiling = std::min(2 * ceiling, kLinkDelayMaxMs);
  }
  return 2 * count;
}

}  // namespace

TEST_CASE(
    "fifty devices that lose their gateway at once come back spread, none of them in a storm") {
  TemporaryDirectory directory;
  Gateway gateway;
  std::vector<Relay> relays(kDevices);
  for (int i = 0; i < kDevices; ++i) {
    RelayOptions options;
    options.database = directory.file("device-" + std::to_string(i) + ".db");
    make_database(options.database);
    options.url = gateway.url(i);
    must(Relay::start(options, relays[static_cast<std::size_t>(i)]));
  }
  const auto start = Steady::now();
  while (gateway.connected() < kDevices && ms_since(start) < kPeerWaitMs)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(gateway.connected() == kDevices);
  gateway.go_away();
  std::this_thread::sleep_for(std::chrono::milliseconds(kGoneMs));
  for (Relay& relay : relays) must(relay.stop());
  gateway.stop();
  const std::vector<std::vector<std::int64_t>>& attempts = gateway.attempts;

  std::size_t most = 0, fewest = SIZE_MAX, all = 0;
  for (const auto& device : attempts) {
    most = std::max(most, device.size());
    fewest = std::min(fewest, device.size());
    all += device.size();
  }
  const std::int64_t settled = 2'000;  // by then the waits are up to kLinkDelayMaxMs
  MESSAGE(kDevices, " devices, ", kGoneMs / 1000, " s: ", all, " attempts, ", fewest, " to ", most,
          " a device; within ", kBinMs, " ms at most ", crowd(attempts, 0), ", and ",
          crowd(attempts, settled), " after the first 2 s");
  CHECK(most <= attempts_allowed());
  CHECK(fewest >= 3);
  CHECK(crowd(attempts, settled) <= kDevices / 2);

  // Control: without the random part they would all come in one of these.
  std::vector<std::vector<std::int64_t>> in_step(kDevices, {100, 300, 700, 1500, 3100, 5100, 7100});
  CHECK(crowd(in_step, settled) == kDevices);
}
