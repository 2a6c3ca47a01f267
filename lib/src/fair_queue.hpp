// Requests that wait to be served, so that each device gets its share: a device is its
// certificate's name, or its connection without TLS.
//
// Start-time fair queueing, by bytes: a request begins where its device's last one ended, or now if
// that is later, and the one that begins first is next. So a device that sends little is served
// next, whatever others have waiting, and one that sends much waits behind itself. The order within
// a connection stays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "link_nng.hpp"

namespace holdfast {

constexpr std::uint64_t kFairRequestBytes = 1024;  // what a request costs beside its own bytes
// Devices whose share is remembered. With as many, those that have nothing waiting are forgotten:
// connections that come and go must not fill the memory.
constexpr std::size_t kFairDevicesMax = 1024;

class FairQueue {
 public:
  bool empty() const { return waiting_.empty(); }
  std::size_t devices() const { return ends_.size(); }  // remembered

  void push(LinkRequest&& request) {
    if (ends_.size() >= kFairDevicesMax) forget();
    std::uint64_t& end = ends_[device_of(request)];
    const std::uint64_t begin = std::max(now_, end);
    end = begin + cost_of(request);
    waiting_.push_back({begin, std::move(request)});
  }

  // At most kGatewayContexts wait, so the first is looked for.
  LinkRequest pop() {
    const auto first =
        std::min_element(waiting_.begin(), waiting_.end(),
                         [](const Waiting& a, const Waiting& b) { return a.begin < b.begin; });
    now_ = first->begin;
    LinkRequest request = std::move(first->request);
    waiting_.erase(first);
    return request;
  }

 private:
  struct Waiting {
    std::uint64_t begin = 0;
    LinkRequest request;
  };

  static std::string device_of(const LinkRequest& request) {
    if (!request.certificate.empty()) return request.certificate;
    // A name of no certificate: it begins with a NUL.
    std::string pipe(1 + sizeof request.pipe, '\0');
    std::memcpy(&pipe[1], &request.pipe, sizeof request.pipe);
    return pipe;
  }
  static std::uint64_t cost_of(const LinkRequest& request) {
    return kFairRequestBytes + request.frame.size();
  }

  void forget() {
    ends_.clear();
    // A device's last one to have arrived is the one that ends last.
    for (const Waiting& each : waiting_)
      ends_[device_of(each.request)] = each.begin + cost_of(each.request);
  }

  std::uint64_t now_ = 0;         // in bytes served, of a device that always has something waiting
  std::vector<Waiting> waiting_;  // in the order of arrival
  std::map<std::string, std::uint64_t> ends_;
};

}  // namespace holdfast
