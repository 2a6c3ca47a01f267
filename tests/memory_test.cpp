// What a relay and a gateway have in memory at most (G8): `holdfast` itself, over TCP. The peak is
// the kernel's own (VmHWM), so nothing between two looks is missed. `make soak` runs the same with
// backlogs of 2 GB (memory_soak.sh).
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/programs.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using namespace holdfast::test;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
TEST_CASE("left out: a sanitizer keeps what was freed, so memory cannot be judged") {
  MESSAGE("run this test on the release build");
}
#else

namespace {

constexpr std::int64_t kRelayPeakKb = 8 * 1024;
constexpr std::int64_t kRelayLargePeakKb = 11 * 1024;  // several of the largest frames under way
// What a gateway may have, and what each device may add that sends the largest frames: one that is
// being received, and one that waits for its commit.
constexpr std::int64_t kGatewayPeakKb = 10 * 1024;
constexpr std::int64_t kGatewayPerDeviceKb = 2 * 1024 + 64;
constexpr std::int64_t kSilentDeviceKb = 64;
constexpr int kLargestPayload = 921'600;
constexpr int kWaitMs = 600'000;

struct Memory {
  std::int64_t peak_kb = 0, own_kb = 0;
};

Memory memory_of(pid_t pid) {
  Memory memory;
  for (const std::string& line : lines_of(read_file("/proc/" + std::to_string(pid) + "/status"))) {
    if (line.rfind("VmHWM:", 0) == 0) memory.peak_kb = std::atoll(line.c_str() + 6);
    if (line.rfind("RssAnon:", 0) == 0) memory.own_kb = std::atoll(line.c_str() + 8);
  }
  return memory;
}

// So many events with payloads of so many random bytes.
void add_payloads(Connection& app, std::int64_t count, int bytes) {
  app.run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<" +
          std::to_string(count) +
          ") INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
          " SELECT 'memory','device',i%100,randomblob(" +
          std::to_string(bytes) + ") FROM n");
}

std::int64_t add_backlog(const std::string& path, const std::vector<int>& sizes,
                         std::int64_t bytes) {
  Connection app(path);
  app.run("PRAGMA synchronous=OFF");
  const std::int64_t each = bytes / static_cast<std::int64_t>(sizes.size());
  constexpr int kPieces = 8;  // so that sizes alternate, and the WAL stays small
  for (int piece = 0; piece < kPieces; ++piece)
    for (const int size : sizes)
      add_payloads(app, std::max<std::int64_t>(1, each / size / kPieces), size);
  app.run("PRAGMA wal_checkpoint(TRUNCATE)");
  return app.number("SELECT max(seq) FROM outbox_event");
}

std::string url_in(const std::string& line) {
  const std::size_t at = line.find("tcp://");
  REQUIRE(at != std::string::npos);
  return line.substr(at, line.find_first_of(" ,", at) - at);
}

struct RunningGatewayProcess {
  Process process;
  std::string url;
  explicit RunningGatewayProcess(const Database& db) {
    process = start_command({"gateway", db.path(), "--listen", "tcp://127.0.0.1:0"});
    url = url_in(process.wait_for_stderr("tcp://127.0.0.1:", kWaitMs));
  }
};

bool wait_until_sent(Process& relay, const std::string& path, std::int64_t seq) {
  Connection look(path);
  while (look.number("SELECT acked_seq FROM outbox_destination") < seq) {
    if (!relay.running()) return false;
    relay.wait(10);
  }
  return true;
}

// The control's relay: one with another bound of a batch, which delivers to a sink.
class Nowhere : public Sink {
 public:
  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) override {
    outcomes.assign(events.size(), Outcome());
    return Status();
  }
};
const Program kBatchRelay("relay_of_batches", [](const Arguments& arguments) {
  Nowhere sink;
  RelayOptions options;
  options.database = arguments.text("db");
  options.sink = &sink;
  options.batch_bytes_max = static_cast<std::size_t>(arguments.number("batch_bytes"));
  Relay relay;
  must(Relay::start(options, relay));
  relay.wait(kWaitMs, [](const RelayState& state) { return state.drained; });
  must(relay.stop());
  std::printf("%lld\n", static_cast<long long>(memory_of(getpid()).peak_kb));
  return 0;
});

std::int64_t peak_with_batches_of(const std::string& path, std::int64_t bytes) {
  Process relay =
      start_program("relay_of_batches", {{"db", path}, {"batch_bytes", std::to_string(bytes)}});
  CHECK(relay.wait(kWaitMs).code == 0);
  return std::atoll(relay.stdout_text().c_str());
}

}  // namespace

TEST_CASE(
    "a relay has at most 8 MiB in memory whatever waits, and 11 MiB with the largest payloads "
    "(G8)") {
  const struct {
    std::string what;
    std::vector<int> sizes;
  } backlogs[] = {
      {"of 256 bytes", {256}},
      {"of 64 KiB", {64 * 1024}},
      {"of 900 KiB, the largest", {kLargestPayload}},
      {"of all sizes", {256, 4096, 64 * 1024, 300'000, kLargestPayload}},
  };
  const std::int64_t bytes = std::int64_t{scaled(20)} * 1'000'000;
  for (const auto& backlog : backlogs) {
    const Database device, site;
    const std::int64_t events = add_backlog(device.path(), backlog.sizes, bytes);
    RunningGatewayProcess gateway(site);
    Process relay = start_command({"relay", device.path(), "--to", gateway.url});
    REQUIRE(wait_until_sent(relay, device.path(), events));
    const Memory memory = memory_of(relay.pid());
    MESSAGE("relay, " << events << " payloads " << backlog.what << ": peak " << memory.peak_kb
                      << " kB, own at the end " << memory.own_kb << " kB; gateway: peak "
                      << memory_of(gateway.process.pid()).peak_kb << " kB");
    const bool large = backlog.sizes.back() == kLargestPayload;
    CHECK(memory.peak_kb <= (large ? kRelayLargePeakKb : kRelayPeakKb));
  }
}

TEST_CASE("control: a relay with a larger batch has more in memory than the bound allows") {
  const Database device, other;
  add_backlog(device.path(), {64 * 1024}, 40'000'000);
  add_backlog(other.path(), {64 * 1024}, 40'000'000);
  const std::int64_t usual = peak_with_batches_of(device.path(), kMaxBatchBytes);
  const std::int64_t large = peak_with_batches_of(other.path(), 16 * 1024 * 1024);
  MESSAGE("peak with batches of 64 KiB: " << usual << " kB, of 16 MiB: " << large << " kB");
  CHECK(usual > 0);
  CHECK(large - usual > kRelayPeakKb);
}

TEST_CASE("a gateway's memory is bounded for each device that sends the largest frames (G8)") {
  std::vector<int> counts = {1, 10};
  if (scaled(100) > 100) counts.push_back(50);
  for (const int devices : counts) {
    const Database site;
    RunningGatewayProcess gateway(site);
    std::vector<std::unique_ptr<Database>> databases;
    std::vector<Process> relays;
    for (int i = 0; i < devices; ++i) {
      databases.push_back(std::make_unique<Database>());
      add_backlog(databases.back()->path(), {kLargestPayload}, 8LL * kLargestPayload);
    }
    for (const auto& database : databases)
      relays.push_back(start_command({"relay", database->path(), "--to", gateway.url}));
    for (int i = 0; i < devices; ++i) REQUIRE(wait_until_sent(relays[i], databases[i]->path(), 8));
    const Memory memory = memory_of(gateway.process.pid());
    MESSAGE("gateway, " << devices << " devices with the largest frames: peak " << memory.peak_kb
                        << " kB, own at the end " << memory.own_kb << " kB");
    CHECK(memory.peak_kb <= kGatewayPeakKb + devices * kGatewayPerDeviceKb);
    CHECK(memory.own_kb <= kRelayPeakKb);  // it is given back
  }
}

TEST_CASE(
    "devices that announce the largest frame and then say nothing cost a gateway nearly nothing "
    "(G8, G10)") {
  constexpr int kDevices = 50;
  const Database site;
  RunningGatewayProcess gateway(site);
  const std::int64_t before = memory_of(gateway.process.pid()).peak_kb;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(
      static_cast<std::uint16_t>(std::atoi(gateway.url.c_str() + gateway.url.rfind(':') + 1)));
  // The header of NNG's REQ and the length of a frame of 1 MiB.
  const std::string said("\0SP\0\0\x30\0\0\0\0\0\0\0\x10\0\0", 16);
  std::vector<int> sockets;
  for (int i = 0; i < kDevices; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(sockets.back(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::send(sockets.back(), said.data(), said.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(said.size()));
  }
  gateway.process.wait(500);
  const Memory memory = memory_of(gateway.process.pid());
  MESSAGE("gateway, " << kDevices << " silent devices: peak " << memory.peak_kb << " kB, before "
                      << before << " kB");
  CHECK(memory.peak_kb - before <= kDevices * kSilentDeviceKb);
  CHECK(gateway.process.running());
  for (const int fd : sockets) ::close(fd);
}

#endif
