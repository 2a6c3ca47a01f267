// The real `holdfast gateway` with peers that mean no good, while ten honest devices emit: memory,
// file descriptors, and the honest ones' time until an answer, before and meanwhile. And a relay
// before a gateway that lies.
//
// The control of the fair share is a device whose frames come on the connection of the flood, where
// the order forbids to serve them first.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "holdfast/gateway.hpp"
#include "holdfast/relay.hpp"
#include "link_nng.hpp"
#include "platform.hpp"
#include "support/connection.hpp"
#include "support/memory_directory.hpp"
#include "support/process.hpp"
#include "support/raw_peer.hpp"
#include "support/running_gateway.hpp"
#include "support/scale.hpp"
#include "wire.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kHonest = 10;
constexpr int kEveryMs = 50;      // of each honest device
constexpr int kCalmMs = 2'000;    // looked at before
constexpr int kAttackMs = 3'000;  // and meanwhile
constexpr int kSilent = 500;
constexpr std::int64_t kSilentKb = 4'096;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;  // a sanitizer keeps what was freed
#else
constexpr bool kMemoryIsOurs = true;
#endif
constexpr int kFloodEvents = 512;  // of a frame
constexpr int kFloodUnderWay = 24;
constexpr double kSlowestP99Ms = 2'000;
constexpr std::int64_t kDescriptorsLeft = 8;  // afterwards, more than before
constexpr int kFewestAnswers = kHonest * kAttackMs / 500;

void sleep_ms(std::int64_t ms) { platform::sleep_us(ms * 1000); }

// A device that speaks the protocol over a raw socket, one request at a time or more.
class RawDevice {
 public:
  explicit RawDevice(const std::string& url) : peer_(url) {
    stream_ = EventId::make_v7(1'767'225'600'000);
    session_ = platform::random_u64();
    REQUIRE(peer_.handshake());
  }

  bool hello() {
    wire::Hello hello;
    hello.stream = stream_;
    hello.session = session_;
    hello.device = "device";
    hello.software = "test";
    hello.lanes.push_back({0, 0, {}});
    wire::Message answer;
    return send(hello) && receive(answer) && std::holds_alternative<wire::Welcome>(answer);
  }
  bool send_events(int count, std::size_t payload_bytes) {
    wire::Batch batch;
    batch.stream = stream_;
    batch.session = session_;
    batch.frame_no = ++frame_no_;
    batch.start = frame_no_ == 1;
    batch.prev = last_;
    for (int i = 0; i < count; ++i) {
      EventRecord event = sensor_record("a", last_.seq + 1);
      event.payload = std::string(payload_bytes, 'x');
      last_ = {event.seq, event.id};
      batch.events.push_back(std::move(event));
    }
    return send(batch);
  }
  // Whether the next answer says that all was stored.
  bool stored() {
    wire::Message answer;
    if (!receive(answer)) return false;
    const auto* ack = std::get_if<wire::Ack>(&answer);
    if (ack == nullptr) return false;
    return std::all_of(ack->outcomes.begin(), ack->outcomes.end(),
                       [](const Outcome& o) { return o.kind == Outcome::Kind::stored; });
  }
  bool send(const wire::Message& message) {
    std::string frame;
    must(wire::encode(message, frame));
    return peer_.send_request(++request_, frame);
  }
  bool receive(wire::Message& message) {
    std::uint64_t bytes = 0;
    const std::string length = peer_.receive(8);
    if (length.size() != 8) return false;
    for (const char c : length) bytes = bytes << 8 | static_cast<unsigned char>(c);
    const std::string body = peer_.receive(bytes);
    wire::RefusedCode code;
    return body.size() == bytes && bytes > 4 &&
           wire::decode(std::string_view(body).substr(4), message, code).ok();
  }
  RawPeer& peer() { return peer_; }

 private:
  RawPeer peer_;
  EventId stream_{};
  std::uint64_t session_ = 0, frame_no_ = 0;
  std::uint32_t request_ = 0;
  wire::Mark last_{};
};

struct Latency {
  std::size_t count = 0;
  double p50 = 0, p99 = 0;
};

Latency latency_of(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  if (ms.empty()) return {};
  return {ms.size(), ms[ms.size() / 2], ms[ms.size() * 99 / 100]};
}

// Sends an event every kEveryMs and notes how long each answer took.
class HonestDevice {
 public:
  explicit HonestDevice(const std::string& url) : device_(url) { REQUIRE(device_.hello()); }
  ~HonestDevice() { stop(); }
  void start() {
    thread_ = std::thread([this] {
      while (!stop_ && good_) {
        const auto start = Steady::now();
        good_ = device_.send_events(1, 100) && device_.stored();
        const std::chrono::duration<double, std::milli> took = Steady::now() - start;
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          took_.push_back(took.count());
        }
        sleep_ms(kEveryMs);
      }
    });
  }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::vector<double> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(took_, {});
  }
  bool good() const { return good_; }

 private:
  RawDevice device_;
  std::atomic<bool> stop_{false}, good_{true};
  std::mutex mutex_;
  std::vector<double> took_;
  std::thread thread_;
};

class Site {
 public:
  std::string url;

  Site() {
    gateway_ = Process::spawn({holdfast_program(), "gateway", directory_.file("gateway.db"),
                               "--listen", "tcp://127.0.0.1:0"});
    const std::string line = gateway_.wait_for_stderr("listening on ", kPeerWaitMs);
    REQUIRE_FALSE(line.empty());
    url = line.substr(line.find("tcp://"));
    for (int i = 0; i < kHonest; ++i) devices_.push_back(std::make_unique<HonestDevice>(url));
    for (const auto& device : devices_) device->start();
  }
  ~Site() {
    for (const auto& device : devices_) device->stop();
    gateway_.kill(SIGTERM);
    CHECK(gateway_.wait(kPeerWaitMs).code == 0);
  }
  Latency latency() {
    std::vector<double> all;
    for (const auto& device : devices_) {
      const std::vector<double> some = device->take();
      all.insert(all.end(), some.begin(), some.end());
    }
    return latency_of(std::move(all));
  }
  bool all_good() const {
    return std::all_of(devices_.begin(), devices_.end(), [](const auto& d) { return d->good(); });
  }
  std::int64_t rss_kb() const {
    std::ifstream status("/proc/" + std::to_string(gateway_.pid()) + "/status");
    std::string word;
    while (status >> word)
      if (word == "VmRSS:" && status >> word) return std::stoll(word);
    return -1;
  }
  std::int64_t descriptors() const {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/" + std::to_string(gateway_.pid()) + "/fd"),
                         fs::directory_iterator());
  }

 private:
  MemoryDirectory directory_;
  Process gateway_;
  std::vector<std::unique_ptr<HonestDevice>> devices_;
};

struct Bounds {
  double p99_ms = kSlowestP99Ms;
  std::int64_t rss_kb = 4'096;  // more than before
  // More than before, meanwhile: connections that are closed give them up in the background.
  std::int64_t descriptors = 2'000;
};

void print_head() {
  std::printf("%-34s %8s %8s %8s %8s %9s %9s %6s %6s\n", "peers", "p50", "p99", "p50 then",
              "p99 then", "RSS kB", "then", "fds", "then");
}

// `attack` is called again and again, on a thread of its own, until the time is over.
Latency endure(const char* name, const Bounds& bounds, Site& site,
               const std::function<void()>& attack) {
  site.latency();
  sleep_ms(kCalmMs);
  const Latency before = site.latency();
  const std::int64_t rss = site.rss_kb(), descriptors = site.descriptors();
  std::atomic<bool> over{false};
  std::thread attacker([&] {
    while (!over) attack();
  });
  std::int64_t rss_most = 0, descriptors_most = 0;
  for (int ms = 0; ms < kAttackMs; ms += 100) {
    sleep_ms(100);
    rss_most = std::max(rss_most, site.rss_kb());
    descriptors_most = std::max(descriptors_most, site.descriptors());
  }
  const Latency then = site.latency();
  over = true;
  attacker.join();
  std::printf("%-34s %8.1f %8.1f %8.1f %8.1f %9lld %9lld %6lld %6lld\n", name, before.p50,
              before.p99, then.p50, then.p99, static_cast<long long>(rss),
              static_cast<long long>(rss_most), static_cast<long long>(descriptors),
              static_cast<long long>(descriptors_most));
  INFO(std::string(name));
  CHECK(site.all_good());
  CHECK(then.count > kFewestAnswers);
  CHECK(then.p99 < bounds.p99_ms);
  if (kMemoryIsOurs) CHECK(rss_most - rss < bounds.rss_kb);
  CHECK(descriptors_most - descriptors <= bounds.descriptors);
  const auto given_up = [&] { return site.descriptors() <= descriptors + kDescriptorsLeft; };
  for (int ms = 0; ms < kPeerWaitMs && !given_up(); ms += 100) sleep_ms(100);
  CHECK(given_up());
  return then;
}

// Keeps kFloodUnderWay large frames under way.
class Flood {
 public:
  explicit Flood(const std::string& url) : device_(url) { REQUIRE(device_.hello()); }
  void go_on() {
    while (sent_.size() < kFloodUnderWay && device_.send_events(kFloodEvents, 30))
      sent_.push_back(Steady::now());
    REQUIRE(device_.stored());
    const std::chrono::duration<double, std::milli> took = Steady::now() - sent_.front();
    sent_.pop_front();
    took_.push_back(took.count());
  }
  Latency latency() const { return latency_of(took_); }  // once nobody is in go_on()

 private:
  RawDevice device_;
  std::deque<Steady::time_point> sent_;
  std::vector<double> took_;
};

}  // namespace

TEST_CASE(
    "silent, slow, greedy and senseless peers: honest devices are served, memory is bounded") {
  Site site;
  print_head();
  {
    std::vector<RawPeer> peers;
    const std::int64_t rss_kb = site.rss_kb();
    for (int i = 0; i < kSilent; ++i) {
      peers.emplace_back(site.url);
      if (i % 2 == 0) REQUIRE(peers.back().handshake());
    }
    // They are there already when `before` is looked at.
    CHECK(site.descriptors() >= kSilent);
    CHECK(site.descriptors() < kSilent + 100);
    endure("500 silent connections", {}, site, [] { sleep_ms(50); });
    MESSAGE("500 silent connections: ", site.rss_kb() - rss_kb, " kB");
    if (kMemoryIsOurs) CHECK(site.rss_kb() - rss_kb < kSilentKb);
  }
  {
    std::vector<RawPeer> peers;
    for (int i = 0; i < 60; ++i) {
      peers.emplace_back(site.url);
      if (i % 3 > 0) REQUIRE(peers.back().handshake());
      if (i % 3 == 2) peers.back().send_message("", 1024 * 1024);
    }
    std::size_t sent = 0;
    endure("60 with a byte a second", {}, site, [&] {
      for (std::size_t i = 0; i < peers.size(); ++i)
        peers[i].send_some(i % 3 == 0 ? kReqHello.substr(sent % 8, 1) : std::string(1, '\0'));
      ++sent;
      sleep_ms(1000);
    });
  }
  endure("frames of 2 MiB to 2^63 bytes", {}, site, [&] {
    for (const std::uint64_t bytes :
         {std::uint64_t{2} << 20, std::uint64_t{4} << 30, std::uint64_t{1} << 63, UINT64_MAX}) {
      RawPeer peer(site.url);
      REQUIRE(peer.handshake());
      peer.send_message("x", bytes);
      CHECK(peer.closed_by_peer());
    }
  });
  endure("wrong magic, wrong version", {}, site, [&] {
    RawDevice device(site.url);
    for (int i = 0; i < 100; ++i) {
      std::string frame;
      must(wire::encode(wire::Bye{}, frame));
      frame[i % 2 == 0 ? 0 : 4] = static_cast<char>(0x7f);
      wire::Message answer;
      REQUIRE(device.peer().send_request(static_cast<std::uint32_t>(i), frame));
      REQUIRE(device.receive(answer));
      REQUIRE(std::holds_alternative<wire::Refused>(answer));
    }
  });
  endure("one that never reads", {}, site, [&] {
    RawDevice device(site.url);
    REQUIRE(device.hello());
    for (int i = 0; i < 1000 && device.peer().send_request(7, "x"); ++i) {
    }
    sleep_ms(100);
  });
}

TEST_CASE(
    "a device that floods the gateway delays the others by little: each gets its share (G8)") {
  Site site;
  print_head();
  Bounds bounds;
  bounds.rss_kb = 12 * 1024;
  {
    Flood flood(site.url);
    const Latency then = endure("a flood, 64 KiB frames", bounds, site, [&] { flood.go_on(); });
    MESSAGE("the flood's own frames: ", flood.latency().p50, " ms");
    CHECK(then.p50 < flood.latency().p50);
  }
  Flood one(site.url), two(site.url), three(site.url);
  bounds.rss_kb = 24 * 1024;
  const Latency then = endure("three floods", bounds, site, [&] {
    one.go_on();
    two.go_on();
    three.go_on();
  });
  MESSAGE("the floods' own frames: ", one.latency().p50, " ms");
  CHECK(2 * then.p50 < one.latency().p50);
}

TEST_CASE("control: behind a flood on its own connection a frame waits for all of it") {
  Site site;
  RawDevice flood(site.url);
  REQUIRE(flood.hello());
  std::vector<double> took;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < kFloodUnderWay; ++i) REQUIRE(flood.send_events(kFloodEvents, 30));
    const auto start = Steady::now();
    REQUIRE(flood.send_events(1, 100));
    for (int i = 0; i < kFloodUnderWay + 1; ++i) REQUIRE(flood.stored());
    const std::chrono::duration<double, std::milli> ms = Steady::now() - start;
    took.push_back(ms.count());
  }
  const Latency behind = latency_of(took), beside = site.latency();
  MESSAGE("behind a flood: ", behind.p50, " ms; beside it: ", beside.p50, " ms");
  CHECK(behind.p50 > beside.p50);
}

namespace {

// Answers each request as it likes; `lie` gives the answer to a batch.
class Liar {
 public:
  using Lie = std::function<std::string(const wire::Batch& batch)>;

  explicit Liar(Lie lie) : lie_(std::move(lie)) {
    must(server_.open(8, 1000, [this] { waker_.wake(); }));
    must(server_.listen("tcp://127.0.0.1:0", url));
    thread_ = std::thread([this] { serve(); });
  }
  ~Liar() {
    stop_ = true;
    thread_.join();
  }
  int batches() const { return batches_; }
  std::string url;

 private:
  void serve() {
    while (!stop_) {
      waker_.wait(20);
      LinkRequest request;
      while (server_.next(request)) server_.reply(request.token, answer(request.frame));
    }
  }
  std::string answer(const std::string& frame) {
    wire::Message message;
    wire::RefusedCode code;
    if (!wire::decode(frame, message, code).ok()) return "?";
    std::string out;
    if (const auto* hello = std::get_if<wire::Hello>(&message)) {
      wire::Welcome welcome;
      welcome.session = hello->session;
      welcome.store = store_;
      for (const wire::HelloLane& lane : hello->lanes)
        welcome.lanes.push_back({lane.lane, false, {}, {}});
      must(wire::encode(welcome, out));
    } else if (const auto* batch = std::get_if<wire::Batch>(&message)) {
      ++batches_;
      return lie_(*batch);
    }
    return out;
  }

  platform::Waker waker_;
  const Lie lie_;
  const EventId store_ = EventId::make_v7(1'767'225'600'000);
  std::atomic<int> batches_{0};
  std::atomic<bool> stop_{false};
  LinkServer server_;
  std::thread thread_;
};

wire::Ack honest_ack(const wire::Batch& batch) {
  wire::Ack ack;
  ack.session = batch.session;
  ack.frame_no = batch.frame_no;
  ack.lane = batch.lane;
  ack.outcomes.resize(batch.events.size());
  if (!batch.events.empty()) ack.mark = {batch.events.back().seq, batch.events.back().id};
  return ack;
}

// A device with twenty events.
struct Emitted {
  TemporaryDirectory directory;
  RelayOptions options;
  std::unique_ptr<Connection> app;

  Emitted() {
    options.database = directory.file("device.db");
    options.link_delay_min_ms = 50;
    options.link_delay_max_ms = 100;
    make_database(options.database);
    app = std::make_unique<Connection>(options.database);
    insert_events(*app, 20);
  }
};

std::string encoded(const wire::Message& message) {
  std::string out;
  must(wire::encode(message, out));
  return out;
}

}  // namespace

TEST_CASE(
    "acknowledgements that are invented, replayed or senseless mark nothing as sent (G3, G10)") {
  const std::vector<std::pair<const char*, std::function<void(wire::Ack&)>>> lies = {
      {"of another session", [](wire::Ack& ack) { ++ack.session; }},
      {"of an earlier frame", [](wire::Ack& ack) { --ack.frame_no; }},
      {"of a later frame", [](wire::Ack& ack) { ++ack.frame_no; }},
      {"of another lane", [](wire::Ack& ack) { ack.lane = 1; }},
      {"for more events", [](wire::Ack& ack) { ack.outcomes.emplace_back(); }},
      {"for fewer events", [](wire::Ack& ack) { ack.outcomes.pop_back(); }},
  };
  for (const auto& [name, lie] : lies) {
    INFO(name);
    Emitted device;
    RelayOptions& options = device.options;
    {
      Liar liar([&lie = lie](const wire::Batch& batch) {
        wire::Ack ack = honest_ack(batch);
        lie(ack);
        return encoded(ack);
      });
      options.url = liar.url;
      Relay relay;
      must(Relay::start(options, relay));
      const auto tried = [&](const RelayState& s) { return s.link_failures >= 3; };
      CHECK(relay.wait(kPeerWaitMs, tried));
      CHECK(relay.state().sent_events == 0);
      must(relay.stop());
      CHECK(liar.batches() >= 3);
      CHECK(liar.batches() < 100);
      CHECK(device.app->number("SELECT acked_seq FROM outbox_destination") == 0);
    }
    GatewayOptions gateway_options;
    gateway_options.database = device.directory.file("gateway.db");
    const RunningGateway gateway(gateway_options);
    options.url = gateway.url();
    Relay relay;
    must(Relay::start(options, relay));
    CHECK(relay.wait(kPeerWaitMs, [](const RelayState& s) { return s.drained; }));
    must(relay.stop());
    Connection log(gateway_options.database);
    CHECK(log.number("SELECT count(*) FROM outbox_event WHERE seq=source_seq") == 20);
  }
}

TEST_CASE("control: the same acknowledgement, honest, marks them") {
  Emitted device;
  RelayOptions& options = device.options;
  Liar honest([](const wire::Batch& batch) { return encoded(honest_ack(batch)); });
  options.url = honest.url;
  Relay relay;
  must(Relay::start(options, relay));
  CHECK(relay.wait(kPeerWaitMs, [](const RelayState& s) { return s.sent_events == 20; }));
  must(relay.stop());
}
