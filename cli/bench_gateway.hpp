// A durable gateway on a thread of its own, in the bench's directory.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "holdfast/gateway.hpp"

namespace holdfast::cli::bench {

class BenchGateway {
 public:
  ~BenchGateway() { (void)stop(); }
  Status start(const std::string& database, const std::string& url,
               std::function<void()> on_commit = {}, const TlsOptions& tls = {}) {
    GatewayOptions options;
    options.database = database;
    options.listen = {url};
    options.tls = tls;
    Status status = Gateway::start(options, gateway_);
    if (!status.ok()) return status;
    if (on_commit) gateway_.on_commit(std::move(on_commit));
    thread_ = std::thread([this] {
      while (!stop_ && status_.ok()) status_ = gateway_.poll(kPollMs);
    });
    return status;
  }
  std::string url() const { return gateway_.urls().front(); }
  Status stop() {
    if (!thread_.joinable()) return status_;
    stop_ = true;
    gateway_.wake();
    thread_.join();
    gateway_.stop();
    return status_;
  }

 private:
  static constexpr int kPollMs = 1000;
  Gateway gateway_;
  Status status_;  // of the thread; read after it ended
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace holdfast::cli::bench
