// One link over the first of several URLs that answers. All of them lead to the same gateway, by
// different ways: Ethernet and LTE, say.
//
// An attempt tries them from the first to the last: the next one begins when the one before has
// failed, or after kNextUrlAfterMs without an answer, and goes on beside it. Whichever is up first
// is used and the others are let go, so each URL is dialled at most once an attempt. While a later
// one is used, the earlier ones are looked at every return_delay_ms (half of it to all of it, at
// random), beside the link in use; the first that answers takes its place. A URL that connects,
// but lets a request time out or loses the connection before the first answer, is no way: for
// return_delay_ms it is tried after all others, and not returned to.
//
// With one URL it is a LinkClient and no more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "link_nng.hpp"

namespace holdfast {

class FailoverLink {
 public:
  Status open(const std::vector<std::string>& urls, std::int64_t return_delay_ms,
              std::uint64_t seed, const std::function<void()>& wake,
              const std::shared_ptr<tls::Tls>& tls);
  // As of LinkClient. `up` while the link is up: it has moved to another URL; what was under way on
  // the old one ends without an event. `down` names each URL that was tried.
  void connect(std::int64_t now);
  void disconnect();
  void request(std::uint64_t token, std::string_view frame, std::int64_t timeout_ms);
  bool next(std::int64_t now, LinkEvent& event);
  // When next() has to be called at the latest, whatever happens.
  std::int64_t wake_at() const;
  // The one in use; "" when there is none.
  const std::string& url() const;

 private:
  struct Way {
    std::string url;
    LinkClient client;
    bool dialling = false;
    bool answered = false;        // a request, since it is in use
    std::int64_t last_until = 0;  // tried after the others
  };

  void dial_next(std::int64_t now);
  void dial(std::size_t index);
  void let_go(std::size_t index);
  void use(std::size_t index, std::int64_t now);
  void look_back(std::int64_t now, std::size_t from);
  bool take(std::size_t index, std::int64_t now, LinkEvent& event);
  bool lost(std::size_t index, std::int64_t now, LinkEvent& event);
  bool any_dialling() const;

  std::vector<std::unique_ptr<Way>> ways_;
  std::int64_t return_delay_ms_ = 0;
  std::uint64_t random_ = 1;
  static constexpr std::size_t kNone = SIZE_MAX;
  std::size_t used_ = kNone;
  std::size_t looking_ = kNone;      // an earlier one that is dialled beside it
  std::vector<std::size_t> to_try_;  // of the attempt under way, those not dialled yet
  bool attempt_ = false;
  std::int64_t next_at_ = INT64_MAX;  // the next URL of the attempt, or the next look back
  std::string reasons_;
};

}  // namespace holdfast
