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
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "link_nng.hpp"

namespace holdfast {

constexpr std::uint64_t kFairRequestBytes = 1024;  // what a request costs beside its own bytes
constexpr std::size_t kFairDevicesMax =
    1024;  // beyond it those that are owed nothing are forgotten

class FairQueue {
 public:
  bool empty() const { return waiting_.empty(); }

  void push(LinkRequest&& request) {
    std::string device =
        request.certificate.empty() ? "\n" + std::to_string(request.pipe) : request.certificate;
    std::uint64_t& end = ends_[std::move(device)];
    const std::uint64_t begin = std::max(now_, end);
    end = begin + kFairRequestBytes + request.frame.size();
    waiting_.emplace(begin, std::move(request));
    if (ends_.size() > kFairDevicesMax) forget();
  }

  LinkRequest pop() {
    const auto first = waiting_.begin();
    now_ = first->first;
    LinkRequest request = std::move(first->second);
    waiting_.erase(first);
    return request;
  }

 private:
  // Who ended before now begins now, remembered or not.
  void forget() {
    for (auto device = ends_.begin(); device != ends_.end();)
      device = device->second <= now_ ? ends_.erase(device) : std::next(device);
  }

  std::uint64_t now_ = 0;  // in bytes served, of a device that always has something waiting
  std::multimap<std::uint64_t, LinkRequest> waiting_;
  std::unordered_map<std::string, std::uint64_t> ends_;
};

}  // namespace holdfast
