// A gateway that is polled by a thread of its own.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>

#include "holdfast/gateway.hpp"
#include "support/connection.hpp"

namespace holdfast::test {

class RunningGateway {
 public:
  explicit RunningGateway(GatewayOptions options) {
    if (options.listen.empty()) options.listen = {"tcp://127.0.0.1:0"};
    must(Gateway::start(options, gateway_));
    thread_ = std::thread([this] {
      while (!stopping_ && status_.ok()) status_ = gateway_.poll(1000);
    });
  }
  ~RunningGateway() { stop(); }
  void stop() {
    stopping_ = true;
    gateway_.wake();
    if (thread_.joinable()) thread_.join();
    gateway_.stop();
    CHECK(status_.ok());
  }
  std::string url() const { return gateway_.urls().front(); }
  Gateway& gateway() { return gateway_; }

 private:
  Gateway gateway_;
  Status status_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace holdfast::test
