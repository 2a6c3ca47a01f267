#include "support/tls_site.hpp"

#include <mutex>

#include "holdfast/relay.hpp"
#include "support/command_line.hpp"

namespace holdfast::test {

namespace {

constexpr int kWaitMs = 30'000;

}  // namespace

struct TlsSite::Logs {
  mutable std::mutex mutex;
  std::string relay, gateway;

  LogFunction into(std::string& log) {
    return [this, &log](LogLevel level, std::string_view text) {
      if (level < LogLevel::warning) return;
      const std::lock_guard<std::mutex> lock(mutex);
      log.append(text).append("\n");
    };
  }
  std::string copy(const std::string& log) const {
    const std::lock_guard<std::mutex> lock(mutex);
    return log;
  }
};

TlsSite::TlsSite() : logs_(std::make_shared<Logs>()) { make_database(device_db); }

void TlsSite::listen(const TlsOptions& tls, const std::string& url) {
  gateway.reset();
  GatewayOptions options;
  options.database = gateway_db;
  options.listen = {url};
  options.tls = tls;
  options.clock = &gateway_clock;
  options.log = [log = logs_->into(logs_->gateway), logs = logs_](
                    LogLevel level, std::string_view text) { log(level, text); };
  gateway = std::make_unique<RunningGateway>(options);
}

std::string TlsSite::deliver(const TlsOptions& tls, const std::string& to) {
  Connection(device_db).run(
      "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
      " VALUES('t','sensor','1','x')");
  RelayOptions options;
  options.database = device_db;
  options.url = to;
  options.tls = tls;
  options.clock = &device_clock;
  options.log = logs_->into(logs_->relay);
  options.link_delay_min_ms = 5;
  options.link_delay_max_ms = 50;
  Relay relay;
  const Status started = Relay::start(options, relay);
  if (!started.ok()) return started.text();
  const bool ended = relay.wait(
      kWaitMs, [](const RelayState& state) { return state.drained || !state.last_error.ok(); });
  const RelayState state = relay.state();
  const Status stopped = relay.stop();
  if (!stopped.ok()) return stopped.text();
  if (!ended) return "nothing happened";
  return state.drained ? "delivered" : state.last_error.text();
}

std::string TlsSite::log() const { return logs_->copy(logs_->relay); }
std::string TlsSite::gateway_log() const { return logs_->copy(logs_->gateway); }

}  // namespace holdfast::test
