// A gateway with TLS and a device that tries to deliver to it, each with its own clock and files.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "support/certificates.hpp"
#include "support/running_clock.hpp"
#include "support/running_gateway.hpp"

namespace holdfast::test {

struct TlsSite {
  static constexpr std::int64_t kDayMs = 24LL * 3600 * 1000;

  Authority authority;
  TemporaryDirectory directory;
  std::string device_db = directory.file("device.db");
  std::string gateway_db = directory.file("gateway.db");
  RunningClock device_clock{system_clock().wall_ms()};
  RunningClock gateway_clock{system_clock().wall_ms()};
  TlsOptions device = authority.device();
  std::unique_ptr<RunningGateway> gateway;

  TlsSite();
  void listen(const TlsOptions& tls, const std::string& url = "tls+tcp://127.0.0.1:0");
  void listen() { listen(authority.gateway()); }
  std::string url() const { return gateway->url(); }

  // Emits an event and starts a relay for it. "delivered", or why the first attempt to connect
  // failed.
  std::string deliver() { return deliver(device, url()); }
  std::string deliver(const TlsOptions& tls) { return deliver(tls, url()); }
  std::string deliver(const TlsOptions& tls, const std::string& to);

  std::string log() const;          // what the relays said
  std::string gateway_log() const;  // what the gateway said

 private:
  struct Logs;
  std::shared_ptr<Logs> logs_;
};

}  // namespace holdfast::test
