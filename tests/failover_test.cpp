// A relay with several URLs of one gateway: which it uses, when it goes back, and that moving
// between them loses and repeats nothing. The same over IP, with black holes: bad_link_test.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "holdfast/relay.hpp"
#include "holdfast/store.hpp"
#include "support/connection.hpp"
#include "support/process.hpp"
#include "support/running_gateway.hpp"
#include "support/tcp_proxy.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 30'000;
constexpr std::int64_t kReturnMs = 300;

bool is_drained(const RelayState& state) { return state.drained && state.pending_events == 0; }

// Two ways to one gateway, each with a wire that can be cut.
struct Site {
  TemporaryDirectory directory;
  std::string device = directory.file("device.db");
  std::string log = directory.file("gateway.db");
  std::unique_ptr<RunningGateway> gateway;
  TcpProxy first, second;

  Site() {
    make_database(device);
    GatewayOptions options;
    options.database = log;
    gateway = std::make_unique<RunningGateway>(options);
    first.set_backend(gateway->url());
    second.set_backend(gateway->url());
  }
  RelayOptions relay_options() const {
    RelayOptions options;
    options.database = device;
    options.url = first.url();
    options.more_urls = {second.url()};
    options.link_delay_min_ms = 5;
    options.link_delay_max_ms = 50;
    options.return_delay_ms = kReturnMs;
    return options;
  }
  static void cut(TcpProxy& wire, bool is_cut) {
    wire.set_judge(
        [is_cut](bool, int) { return is_cut ? TcpProxy::Verdict::cut : TcpProxy::Verdict::pass; });
  }
  bool once_in_order(std::int64_t events) const {
    Connection db(log);
    return db.number("SELECT count(*) FROM outbox_event") == events &&
           db.number("SELECT count(DISTINCT event_id) FROM outbox_event") == events &&
           db.number("SELECT count(*) FROM outbox_event WHERE seq<>source_seq") == 0;
  }
};

// Takes connections, as the kernel does by itself, and says nothing.
struct SilentPort {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string url;

  SilentPort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(fd, 16) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~SilentPort() { ::close(fd); }
};

}  // namespace

TEST_CASE("the first URL is used; where it answers no request the next is, until it does again") {
  Site site;
  Connection app(site.device);
  insert_events(app, 10);
  Relay relay;
  Site::cut(site.first, true);
  RelayOptions alone = site.relay_options();
  alone.more_urls.clear();
  must(Relay::start(alone, relay));
  CHECK_FALSE(relay.wait(500, is_drained));  // control
  Site::cut(site.first, false);
  must(relay.stop());
  must(Relay::start(site.relay_options(), relay));
  const auto uses = [&](const TcpProxy& wire) {
    return relay.wait(kWaitMs, [&](const RelayState& s) { return s.url == wire.url(); });
  };
  CHECK(relay.wait(kWaitMs, is_drained));
  CHECK(relay.state().url == site.first.url());
  std::int64_t events = 10;
  for (int round = 0; round < 3; ++round) {
    Site::cut(site.first, true);
    insert_events(app, 10);
    events += 10;
    CHECK(uses(site.second));
    CHECK(relay.wait(kWaitMs, is_drained));
    Site::cut(site.first, false);
    CHECK(uses(site.first));
  }
  must(relay.stop());
  CHECK(site.once_in_order(events));

  Store store;
  must(Store::open(site.device, Access::read_only, {}, store));
  StoreStats stats;
  must(store.stats(stats));
  CHECK(stats.destinations.at(0).url == site.first.url());
}

TEST_CASE("moving back and forth beside a producer: each event once, in order (G3, G4, G5)") {
  Site site;
  Connection app(site.device);
  app.run("PRAGMA synchronous=OFF");
  RelayOptions options = site.relay_options();
  options.return_delay_ms = 100;
  options.batch_events_max = 8;  // so that some are under way when it moves
  std::atomic<int> connected{0};
  options.log = [&](LogLevel, std::string_view text) {
    if (text.find("connected to ") == 0) ++connected;
  };
  Relay relay;
  must(Relay::start(options, relay));
  std::int64_t events = 0;
  for (int round = 0; round < 40; ++round) {
    Site::cut(site.first, round % 2 == 0);
    for (int i = 0; i < 10; ++i, events += 50) {
      insert_events(app, 50);
      relay.wait(5, [](const RelayState&) { return false; });
    }
  }
  Site::cut(site.first, false);
  CHECK(relay.wait(kWaitMs, is_drained));
  must(relay.stop());
  MESSAGE(connected.load(), " connections, ", relay.state().duplicate_events, " of ", events,
          " events offered again");
  CHECK(connected > 10);
  CHECK(site.once_in_order(events));
}

TEST_CASE("a first URL that takes connections and says nothing costs a second, not ten") {
  Site site;
  Connection app(site.device);
  insert_events(app, 10);
  const SilentPort silent;
  RelayOptions options = site.relay_options();
  options.url = silent.url;
  Relay relay;
  must(Relay::start(options, relay));
  CHECK(relay.wait(3 * kNextUrlAfterMs, is_drained));
  CHECK(relay.state().url == site.second.url());
  CHECK(relay.state().link_failures == 0);
  must(relay.stop());
  CHECK(site.once_in_order(10));
}

TEST_CASE("with no URL that answers, the error names each of them") {
  TemporaryDirectory directory;
  RelayOptions options;
  options.database = directory.file("device.db");
  make_database(options.database);
  options.url = "ipc://" + directory.file("one");
  options.more_urls = {"ipc://" + directory.file("two"), "ipc://" + directory.file("three")};
  Relay relay;
  must(Relay::start(options, relay));
  CHECK(relay.wait(kWaitMs, [](const RelayState& s) { return s.link_failures > 3; }));
  const std::string why = relay.state().last_error.text();
  for (const char* name : {"/one: ", "/two: ", "/three: "})
    CHECK(why.find(name) != std::string::npos);
  CHECK(relay.state().url.empty());
  must(relay.stop());
}

TEST_CASE("URLs are checked at the start, and there are at most eight") {
  TemporaryDirectory directory;
  RelayOptions options;
  options.database = directory.file("device.db");
  make_database(options.database);
  options.url = "tcp://127.0.0.1:7447";
  options.more_urls = {"tcp://127.0.0.1"};
  Relay relay;
  CHECK(Relay::start(options, relay).code() == Code::invalid);
  options.more_urls.assign(kRelayUrlsMax, options.url);
  CHECK(Relay::start(options, relay).code() == Code::invalid);
  options.more_urls.pop_back();
  CHECK(Relay::start(options, relay).ok());
}
