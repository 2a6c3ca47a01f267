// `holdfast relay` and `holdfast gateway` over a link that is bad in one way after the other, while
// an application emits: how soon the relay notices, how soon after the link's return events flow
// again, and how often it tried to connect. Everything arrives once and in order, whatever it was.
//
// The faults run beside each other, each on a link of its own; a table is printed.
#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/memory_directory.hpp"
#include "support/scale.hpp"
#include "support/slow_link.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kStartMs = 30'000;
constexpr int kNoticeMaxMs = 15'000;
constexpr int kHealMaxMs = 2'000;
constexpr int kSettleMs = 60'000;
constexpr int kEmitEveryMs = 25;
constexpr int kLookMs = 5;
constexpr int kMeanwhileMin = 3;  // events that pass a bad link; with 64 KiB batches it was one
constexpr const char* kNamed = "tcp://gateway.example:7447";
constexpr const char* kHosts = "127.0.0.1 localhost\n10.99.0.2 gateway.example\n";
constexpr const char* kOtherHosts = "127.0.0.1 localhost\n10.99.0.4 gateway.example\n";

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void sleep_ms(std::int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A device that emits all the time, its relay, a gateway, and the link between them.
class Site {
 public:
  SlowLink link{0, 0};

  Site(const std::string& hosts, const std::vector<std::string>& relay_arguments) {
    make_database(device_);
    link.set_hosts(hosts);
    start_gateway();
    std::vector<std::string> relay = {holdfast_program(), "relay", device_, "--log-json"};
    relay.insert(relay.end(), relay_arguments.begin(), relay_arguments.end());
    relay_ = Process::spawn(link.on_device(relay));
    emitter_ = std::thread([this] { emit(); });
  }
  ~Site() { stop_emitting(); }

  void start_gateway() {
    gateway_ = Process::spawn(link.on_gateway({holdfast_program(), "gateway", log_, "--listen",
                                               "tcp://0.0.0.0:7447", "--insecure", "--log-json"}));
    if (gateway_.wait_for_stderr("listening on ", kStartMs).empty())
      throw std::runtime_error("no gateway: " + gateway_.stderr_text());
  }
  void kill_gateway() {
    gateway_.kill(SIGKILL);
    gateway_.wait(kStartMs);
  }

  // Events at the gateway.
  std::int64_t arrived() {
    if (!gateway_db_) gateway_db_ = std::make_unique<Connection>(log_);
    return gateway_db_->number("SELECT coalesce(max(seq),0) FROM outbox_event");
  }
  // ms until one more than `before` is there; -1: not within the time.
  std::int64_t wait_beyond(std::int64_t before, std::int64_t timeout_ms) {
    const std::int64_t start = now_ms();
    while (now_ms() - start < timeout_ms) {
      if (arrived() > before) return now_ms() - start;
      sleep_ms(kLookMs);
    }
    return -1;
  }
  // ms until a line of the relay's log, from that place of it on; -1: not within the time.
  std::int64_t wait_for_log(const std::string& text, std::size_t from, int timeout_ms) {
    const std::int64_t start = now_ms();
    return relay_.wait_for_stderr(text, timeout_ms, from).empty() ? -1 : now_ms() - start;
  }
  std::size_t log_bytes() const { return relay_.stderr_text().size(); }
  std::string log() const { return relay_.stderr_text(); }

  // Empty if all that was emitted is at the gateway, once and in order; else what is wrong.
  std::string settle() {
    stop_emitting();
    const std::int64_t start = now_ms();
    while (arrived() < emitted_ && now_ms() - start < kSettleMs) sleep_ms(kLookMs);
    relay_.kill(SIGTERM);
    gateway_.kill(SIGTERM);
    if (relay_.wait(kStartMs).code != 0) return "the relay failed: " + relay_.stderr_text();
    if (gateway_.wait(kStartMs).code != 0) return "the gateway failed: " + gateway_.stderr_text();
    Connection db(log_);
    if (db.number("SELECT count(*) FROM outbox_event") != emitted_)
      return "events are missing or twice there";
    if (db.number("SELECT count(DISTINCT event_id) FROM outbox_event") != emitted_)
      return "an event is there twice";
    if (db.number("SELECT count(*) FROM outbox_event WHERE seq<>source_seq") != 0)
      return "the order was lost";
    return "";
  }
  std::int64_t emitted() const { return emitted_; }

 private:
  void emit() {
    Connection db(device_);
    db.run("PRAGMA synchronous=OFF");
    while (!stop_) {
      insert_events(db, 1);
      ++emitted_;
      sleep_ms(kEmitEveryMs);
    }
  }
  void stop_emitting() {
    stop_ = true;
    if (emitter_.joinable()) emitter_.join();
  }

  MemoryDirectory directory_;
  std::string device_ = directory_.file("device.db"), log_ = directory_.file("gateway.db");
  Process gateway_, relay_;
  std::unique_ptr<Connection> gateway_db_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> emitted_{0};
  std::thread emitter_;
};

struct Fault {
  std::string name;
  int hold_ms = 0;
  int heal_wait_ms = 30'000;
  bool noticed = false;        // it must be, within kNoticeMaxMs
  bool heals_itself = false;   // counted from the moment it is noticed
  std::string hosts = kHosts;  // of the device
  bool from_start = false;     // nothing arrives before
  bool passes_some = false;    // events must arrive while it lasts
  std::function<void(Site&)> begin, end;
  std::function<std::string(Site&)> check;  // afterwards; "" if all is well
  std::vector<std::string> relay_arguments;
};

struct Result {
  std::string problem;  // "" if all is well but for the times
  std::int64_t noticed_ms = -1, healed_ms = -1, meanwhile = 0, events = 0;
  int attempts = 0, attempts_max = 0;
};

// `make soak` holds them longer.
int hold_ms(const Fault& fault) { return std::max(fault.hold_ms, scaled(fault.hold_ms)); }

// At first the waits are short, and they grow to between 0 and 2 s; two URLs are two attempts.
int attempts_allowed(const Fault& fault) {
  int urls = 0;
  for (const std::string& word : fault.relay_arguments) urls += word == "--to" ? 1 : 0;
  return (8 + hold_ms(fault) / 800) * urls;
}

Result run_fault(const Fault& fault) {
  Result result;
  Site site(fault.hosts, fault.relay_arguments);
  if (!fault.from_start && site.wait_beyond(10, kStartMs) < 0) {
    result.problem = "nothing arrived before the fault: " + site.log();
    return result;
  }
  const int attempts = site.link.attempts();
  const std::size_t from = site.log_bytes();
  const std::int64_t begun = now_ms(), before = site.arrived();
  fault.begin(site);
  if (fault.noticed) result.noticed_ms = site.wait_for_log("relay", from, kNoticeMaxMs + 5'000);
  if (fault.heals_itself) {
    result.healed_ms = site.wait_beyond(site.arrived(), 30'000);
  } else {
    sleep_ms(std::max<std::int64_t>(begun + hold_ms(fault) - now_ms(), 0));
    result.meanwhile = site.arrived() - before;
    fault.end(site);
    result.healed_ms = site.wait_beyond(site.arrived(), fault.heal_wait_ms);
  }
  result.attempts = site.link.attempts() - attempts;
  result.attempts_max = attempts_allowed(fault);
  if (fault.passes_some && result.meanwhile < kMeanwhileMin)
    result.problem = "nothing arrived meanwhile";
  std::string wrong = fault.check ? fault.check(site) : "";
  if (wrong.empty()) wrong = site.settle();
  if (!wrong.empty()) result.problem = wrong;
  result.events = site.emitted();
  if (std::getenv("HOLDFAST_TEST_LOG") != nullptr)
    std::fprintf(stderr, "--- %s\n%s", fault.name.c_str(), site.log().c_str());
  return result;
}

void set(Site& site, const LinkFault& fault) { site.link.set(fault); }
void clear(Site& site) { site.link.set(LinkFault()); }

Fault link_fault(const std::string& name, int hold_ms, const LinkFault& what, bool passes_some) {
  Fault fault;
  fault.name = name;
  fault.hold_ms = hold_ms;
  fault.passes_some = passes_some;
  fault.noticed = what.cut && hold_ms >= kNoticeMaxMs;
  fault.begin = [what](Site& site) { set(site, what); };
  fault.end = clear;
  fault.relay_arguments = {"--to", "tcp://10.99.0.2:7447"};
  return fault;
}

void ip(const std::vector<std::string>& command) {
  const RunResult result = run(command);
  if (result.code() != 0) throw std::runtime_error("ip: " + result.err);
}

Fault interface_down() {
  Fault fault = link_fault("the device's interface is down", 16'000, LinkFault(), false);
  fault.noticed = true;
  fault.begin = [](Site& site) { ip(site.link.on_device({"ip", "link", "set", "hf0", "down"})); };
  fault.end = [](Site& site) { ip(site.link.on_device({"ip", "link", "set", "hf0", "up"})); };
  return fault;
}

Fault flapping() {
  Fault fault = link_fault("up and down every second", 16'000, LinkFault(), true);
  fault.begin = [](Site& site) {
    LinkFault cut;
    for (int second = 0; second < 16; ++second) {
      cut.cut = second % 2 == 0;
      set(site, cut);
      sleep_ms(1'000);
    }
    cut.cut = true;
    set(site, cut);
  };
  return fault;
}

Fault gateway_gone() {
  Fault fault = link_fault("the gateway is killed, 8 s", 8'000, LinkFault(), false);
  fault.noticed = true;
  fault.begin = [](Site& site) { site.kill_gateway(); };
  fault.end = [](Site& site) { site.start_gateway(); };
  return fault;
}

Fault no_such_name() {
  Fault fault = link_fault("no such host, then there is", 8'000, LinkFault(), false);
  fault.hosts = "127.0.0.1 localhost\n";
  fault.from_start = fault.noticed = true;
  fault.begin = [](Site&) {};
  fault.end = [](Site& site) { site.link.set_hosts(kHosts); };
  fault.relay_arguments = {"--to", kNamed};
  return fault;
}

Fault other_address() {
  Fault fault = link_fault("another address of the gateway", 0, LinkFault(), false);
  fault.noticed = fault.heals_itself = true;
  fault.begin = [](Site& site) {
    ip(site.link.on_gateway({"ip", "addr", "flush", "dev", "hf0"}));
    ip(site.link.on_gateway({"ip", "addr", "add", "10.99.0.4/24", "dev", "hf0"}));
    site.link.set_hosts(kOtherHosts);
  };
  fault.relay_arguments = {"--to", kNamed};
  return fault;
}

// The second URL carries on while the first is cut, and the first is used again afterwards.
Fault first_url_cut() {
  LinkFault cut;
  cut.cut_first = true;
  Fault fault = link_fault("the first of two URLs is cut", 14'000, cut, true);
  fault.noticed = true;
  fault.relay_arguments = {
      "--to", "tcp://10.99.0.2:7447", "--to", "tcp://10.99.0.3:7447", "--return-delay", "3s"};
  fault.check = [](Site& site) -> std::string {
    const std::size_t second = site.log().find("connected to tcp://10.99.0.3");
    if (second == std::string::npos) return "the second URL was never used";
    return site.wait_for_log("connected to tcp://10.99.0.2", second, 15'000) < 0
               ? "the relay did not return to the first URL"
               : "";
  };
  return fault;
}

// With a dead first URL, the second one goes and comes.
Fault both_urls_cut() {
  Fault fault = first_url_cut();
  fault.name = "the first for good, the second 10 s";
  fault.begin = [](Site& site) {
    LinkFault cut;
    cut.cut_first = true;
    set(site, cut);
    sleep_ms(6'000);
    cut.cut_second = true;
    set(site, cut);
  };
  fault.end = [](Site& site) {
    LinkFault cut;
    cut.cut_first = true;
    set(site, cut);
  };
  fault.hold_ms = 16'000;
  fault.noticed = false;
  fault.check = nullptr;
  return fault;
}

std::vector<Fault> faults() {
  std::vector<Fault> all;
  LinkFault cut;
  cut.cut = true;
  all.push_back(link_fault("nothing passes, 4 s", 4'000, cut, false));
  all.push_back(link_fault("nothing passes, 8 s", 8'000, cut, false));
  all.push_back(link_fault("nothing passes, 20 s", 20'000, cut, false));
  LinkFault lossy;
  lossy.loss_percent = 30;
  all.push_back(link_fault("30 % lost", 15'000, lossy, true));
  LinkFault far;
  far.delay_ms = 1'000;
  all.push_back(link_fault("a round trip of 2 s", 15'000, far, true));
  LinkFault narrow;
  narrow.bytes_per_s = 200;
  all.push_back(link_fault("200 bytes/s", 30'000, narrow, true));
  LinkFault mixed;
  mixed.twice_percent = 30;
  mixed.late_percent = 30;
  all.push_back(link_fault("30 % twice, 30 % overtaken", 8'000, mixed, true));
  all.push_back(interface_down());
  all.push_back(flapping());
  all.push_back(gateway_gone());
  all.push_back(no_such_name());
  all.push_back(other_address());
  all.push_back(first_url_cut());
  all.push_back(both_urls_cut());
  return all;
}

void check(const std::vector<Fault>& all) {
  std::vector<Result> results(all.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        results[i] = run_fault(all[i]);
      } catch (const std::exception& error) {
        results[i].problem = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::printf("%-32s %10s %10s %10s %8s %8s\n", "fault", "noticed ms", "healed ms", "meanwhile",
              "events", "attempts");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Result& result = results[i];
    std::printf("%-32s %10lld %10lld %10lld %8lld %8d %s\n", all[i].name.c_str(),
                static_cast<long long>(result.noticed_ms), static_cast<long long>(result.healed_ms),
                static_cast<long long>(result.meanwhile), static_cast<long long>(result.events),
                result.attempts, result.problem.c_str());
    INFO(all[i].name);
    CHECK(result.problem == "");
    CHECK((!all[i].noticed || (result.noticed_ms >= 0 && result.noticed_ms <= kNoticeMaxMs)));
    CHECK(result.healed_ms >= 0);
    // Emulated and instrumented programs are slower.
    CHECK(result.healed_ms <= (scaled(100) >= 100 ? kHealMaxMs : 5 * kHealMaxMs));
    CHECK(result.attempts <= result.attempts_max);
  }
}

}  // namespace

TEST_CASE("whatever is wrong with the link is noticed, heals within 2 s, and loses nothing (G3)") {
  if (!SlowLink::possible()) return;
  check(faults());
}

TEST_CASE("control: a relay that waits for minutes before it connects again is found out") {
  if (!SlowLink::possible()) return;
  Fault slow = gateway_gone();
  slow.hold_ms = 500;
  slow.heal_wait_ms = 2 * kHealMaxMs;
  for (const char* word : {"--link-delay-min", "1h", "--link-delay-max", "1h"})
    slow.relay_arguments.push_back(word);
  // Nothing settles within kSettleMs either, so only the times are looked at.
  slow.check = [](Site&) { return std::string("not settled"); };
  CHECK(run_fault(slow).healed_ms < 0);
}
