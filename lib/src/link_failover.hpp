// One link over the first of several URLs that answers. All of them lead to the same gateway, by
// different ways: Ethernet and LTE, say.
//
// An attempt tries them from the first to the last: the next one begins when the one before has
// failed, or after kNextUrlAfterMs without an answer, and goes on beside it. Whichever is up first
// is used and the others are let go, so each URL is dialled at most once an attempt.
//
// While a later one is used, the earlier ones are looked at every return_delay_ms (half of it to
// all of it, at random), beside the link in use; the first that answers takes its place. A URL that
// connects, but lets a request time out or loses the connection before the first answer, is no way:
// for return_delay_ms it is tried after all others, and not returned to.
//
// When an answer takes four times as long as the slowest of late, and kStallMs at least, the link
// may be dead, or TCP waits for seconds before it sends again what was lost. So an attempt begins
// beside it. What comes first decides: an answer ends the attempt, a new connection takes the
// link's place. Then nothing of the kind is done again before an answer has come, for the link may
// just have become slow.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "link_nng.hpp"

namespace holdfast {

class FailoverLink {
 public:
  Status open(const std::vector<std::string>& urls, std::int64_t return_delay_ms,
              std::uint64_t seed, std::function<void()> wake, std::shared_ptr<tls::Tls> tls);
  // As of LinkClient. `up` while the link is up: it has moved to another connection; what was under
  // way on the old one ends without an event. `down` names each URL that was tried.
  void connect(std::int64_t now);
  void disconnect();
  void request(std::int64_t now, std::uint64_t token, std::string_view frame,
               std::int64_t timeout_ms);
  bool next(std::int64_t now, LinkEvent& event);
  // When next() has to be called at the latest, whatever happens.
  std::int64_t wake_at() const;
  // The one in use; "" when there is none.
  const std::string& url() const;

 private:
  // Two for each URL, so that one can be dialled while the other is in use.
  struct Leg {
    LinkClient client;  // opened when first used, for it is a thread
    bool open = false;
    bool dialling = false;
    bool answered = false;        // a request, since it is in use
    std::int64_t last_until = 0;  // of the first one of a URL: it is tried after the others
  };

  void begin_attempt(std::int64_t now);
  void end_attempt(std::int64_t now);
  void dial_next(std::int64_t now);
  void dial(std::size_t leg);
  void note(const Status& reason);
  void let_go(std::size_t leg);
  void use(std::size_t leg, std::int64_t now);
  void look_back(std::int64_t now, std::size_t from);
  bool take(std::size_t leg, std::int64_t now, LinkEvent& event);
  bool lost(std::size_t leg, std::int64_t now, const LinkEvent& event);
  void heard(std::uint64_t token, std::int64_t now);
  bool any_dialling() const;
  std::int64_t stall_at() const;
  std::size_t url_of(std::size_t leg) const { return leg % urls_.size(); }

  std::vector<std::string> urls_;
  std::size_t legs_count_ = 0;
  std::unique_ptr<Leg[]> legs_;
  std::function<void()> wake_;
  std::shared_ptr<tls::Tls> tls_;
  std::int64_t return_delay_ms_ = 0;
  std::uint64_t random_ = 1;
  static constexpr std::size_t kNone = SIZE_MAX;
  std::size_t used_ = kNone;         // leg
  std::size_t looking_ = kNone;      // leg of an earlier URL that is dialled beside it
  std::vector<std::size_t> to_try_;  // URLs of the attempt under way that are not dialled yet
  bool attempt_ = false;
  bool moved_ = false;                // an attempt beside the link in use made it that
  std::int64_t next_at_ = INT64_MAX;  // the next URL of the attempt, or the next look back
  std::int64_t not_stalled_until_ = 0;
  std::int64_t slowest_ms_ = -1;                // of late; -1: no answer yet
  std::map<std::uint64_t, std::int64_t> sent_;  // when, by token
  Status reason_;                               // why the last URL of the attempt failed
  std::string reasons_;
};

}  // namespace holdfast
