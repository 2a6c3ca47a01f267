// How fast a backlog reaches a durable gateway, and what that costs on the wire.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "bench.hpp"
#include "bench_gateway.hpp"
#include "certificate_authority.hpp"
#include "holdfast/relay.hpp"

namespace holdfast::cli::bench {
namespace {

constexpr double kEventsPerSecond = 50'000;  // of backlog, for each second of the figure
constexpr std::int64_t kEventsMin = 2'000;
constexpr std::int64_t kEventsMax = 1'000'000;
constexpr std::int64_t kTimeoutMs = 60'000;
constexpr int kDescriptorsMax = 256;  // those that are looked at for the relay's socket

// Bytes this process's TCP connections to `port` have had acknowledged: NNG's and TLS's framing
// with them, the headers of TCP and IP without.
std::int64_t bytes_sent_to(int port) {
  std::int64_t bytes = 0;
  for (int fd = 0; fd < kDescriptorsMax; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family != AF_INET || ntohs(peer.sin_port) != port) continue;
    tcp_info info{};
    size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    bytes += static_cast<std::int64_t>(info.tcpi_bytes_acked);
  }
  return bytes;
}

// Waits in slices, so that a signal is noticed.
bool wait_for(Bench& bench, const Relay& relay, std::int64_t events) {
  constexpr std::int64_t kSliceMs = 100;
  const auto done = [&](const RelayState& state) {
    return state.sent_events >= events || state.phase == RelayState::Phase::failed;
  };
  for (std::int64_t ms = 0; ms < kTimeoutMs && !bench.signals.stop_asked(); ms += kSliceMs) {
    if (relay.wait(kSliceMs, done)) return relay.state().sent_events >= events;
  }
  return false;
}

// Certificates of both sides; empty without TLS.
struct Certificates {
  TlsOptions device, gateway;
};

Status make_certificates(const Bench& bench, Certificates& out) {
  CertificatePlace place;
  place.dir = bench.scratch.file(".");
  Status status = make_authority(place);
  if (status.ok()) status = make_device_certificate(place, "device");
  if (status.ok()) status = make_gateway_certificate(place, "gateway", "IP:127.0.0.1");
  const auto use = [&place](const std::string& name, TlsOptions& options) {
    const CertificateFiles files = certificate_files(place.dir, name);
    options.ca_file = certificate_files(place.dir, "ca").certificate;
    options.cert_file = files.certificate;
    options.key_file = files.key;
  };
  use("device", out.device);
  use("gateway", out.gateway);
  return status;
}

Status measure_one(Bench& bench, const std::string& name, const std::string& listen,
                   const Certificates& certificates = {}) {
  const std::string database = bench.scratch.file("device.db");
  const auto wanted = static_cast<std::int64_t>(bench.seconds * kEventsPerSecond);
  const std::int64_t events = std::clamp(wanted, kEventsMin, kEventsMax);
  Status status = create_database(database);
  if (status.ok()) status = fill(bench, database, events);
  BenchGateway gateway;
  if (status.ok())
    status = gateway.start(bench.scratch.file("gateway.db"), listen, {}, certificates.gateway);
  if (!status.ok()) return status;
  RelayOptions options;
  options.database = database;
  options.url = gateway.url();
  options.tls = certificates.device;
  Relay relay;
  const double start = now_seconds();
  status = Relay::start(options, relay);
  if (!status.ok()) return status;
  const bool all = wait_for(bench, relay, events);
  const double elapsed = now_seconds() - start;
  const std::size_t colon = options.url.rfind(':');
  const std::int64_t wire =
      name == "tcp" ? bytes_sent_to(std::stoi(options.url.substr(colon + 1))) : 0;
  status = relay.stop();
  if (status.ok()) status = gateway.stop();
  if (!status.ok() || bench.signals.stop_asked()) return status;
  if (!all) return Status::error(Code::unavailable, "drain over %s did not end", name.c_str());
  bench.add("drain_" + name, static_cast<double>(events) / elapsed, "events/s");
  if (wire > 0) {
    const double each = static_cast<double>(wire) / static_cast<double>(events);
    bench.add("wire_bytes_per_event", each, "bytes");
    bench.add("wire_overhead_per_event", each - static_cast<double>(kPayloadBytes), "bytes");
  }
  return status;
}

// The openssl program makes the certificates; without it this figure alone is missing.
Status measure_tls(Bench& bench) {
  Certificates certificates;
  const Status made = make_certificates(bench, certificates);
  if (made.code() == Code::not_found || made.code() == Code::misuse) {
    bench.left_out.push_back(std::string("drain_tls: ") + made.text());
    return Status();
  }
  return made.ok() ? measure_one(bench, "tls", "tls+tcp://127.0.0.1:0", certificates) : made;
}

}  // namespace

Status measure_drain(Bench& bench) {
  bench.progress("drain over tcp");
  Status status = measure_one(bench, "tcp", "tcp://127.0.0.1:0");
  bench.scratch.empty();
  if (!status.ok() || bench.signals.stop_asked()) return status;
  bench.progress("drain over mutual TLS");
  status = measure_tls(bench);
  bench.scratch.empty();
  if (!status.ok() || bench.signals.stop_asked()) return status;
  bench.progress("drain over ipc");
  status = measure_one(bench, "ipc", "ipc://" + bench.scratch.file("socket"));
  bench.scratch.empty();
  return status;
}

}  // namespace holdfast::cli::bench
