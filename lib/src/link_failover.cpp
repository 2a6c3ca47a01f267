#include "link_failover.hpp"

#include <algorithm>

#include "holdfast/relay.hpp"

namespace holdfast {

Status FailoverLink::open(const std::vector<std::string>& urls, std::int64_t return_delay_ms,
                          std::uint64_t seed, const std::function<void()>& wake,
                          const std::shared_ptr<tls::Tls>& tls) {
  return_delay_ms_ = return_delay_ms;
  random_ = seed | 1;
  for (const std::string& url : urls) {
    auto way = std::make_unique<Way>();
    way->url = url;
    const Status status = way->client.open(url, wake, tls);
    if (!status.ok()) return status;
    ways_.push_back(std::move(way));
  }
  return Status();
}

const std::string& FailoverLink::url() const {
  static const std::string none;
  return used_ == kNone ? none : ways_[used_]->url;
}

std::int64_t FailoverLink::wake_at() const { return next_at_; }

bool FailoverLink::any_dialling() const {
  return std::any_of(ways_.begin(), ways_.end(), [](const auto& way) { return way->dialling; });
}

// -- an attempt -----------------------------------------------------------------------------------

void FailoverLink::connect(std::int64_t now) {
  if (attempt_ || used_ != kNone) return;
  attempt_ = true;
  reasons_.clear();
  to_try_.clear();
  for (const bool last : {false, true})
    for (std::size_t i = 0; i < ways_.size(); ++i)
      if ((ways_[i]->last_until > now) == last) to_try_.push_back(i);
  dial_next(now);
}

void FailoverLink::dial_next(std::int64_t now) {
  const std::size_t index = to_try_.front();
  to_try_.erase(to_try_.begin());
  next_at_ = to_try_.empty() ? INT64_MAX : now + kNextUrlAfterMs;
  dial(index);
}

void FailoverLink::dial(std::size_t index) {
  ways_[index]->dialling = true;
  ways_[index]->client.connect();
}

void FailoverLink::let_go(std::size_t index) {
  ways_[index]->dialling = false;
  ways_[index]->client.disconnect();
}

void FailoverLink::disconnect() {
  for (std::size_t i = 0; i < ways_.size(); ++i)
    if (i == used_ || ways_[i]->dialling) let_go(i);
  used_ = looking_ = kNone;
  attempt_ = false;
  next_at_ = INT64_MAX;
}

void FailoverLink::request(std::uint64_t token, std::string_view frame, std::int64_t timeout_ms) {
  ways_[used_ == kNone ? 0 : used_]->client.request(token, frame, timeout_ms);
}

// -- what happened --------------------------------------------------------------------------------

bool FailoverLink::next(std::int64_t now, LinkEvent& event) {
  if (now >= next_at_) {
    if (attempt_)
      dial_next(now);
    else
      look_back(now, 0);
  }
  for (std::size_t i = 0; i < ways_.size(); ++i)
    while (ways_[i]->client.next(event))
      if (take(i, now, event)) return true;
  return false;
}

// Whether the event is one for the owner.
bool FailoverLink::take(std::size_t index, std::int64_t now, LinkEvent& event) {
  switch (event.kind) {
    case LinkEvent::Kind::up:
      use(index, now);
      return true;
    case LinkEvent::Kind::down:
      return lost(index, now, event);
    case LinkEvent::Kind::failed:
      if (index == used_ && (is_timeout(event.status) || !ways_[index]->answered))
        ways_[index]->last_until = now + return_delay_ms_;
      return used_ == kNone || index == used_;
    case LinkEvent::Kind::reply:
      ways_[index]->answered = true;
      return index == used_;
  }
  return false;
}

void FailoverLink::use(std::size_t index, std::int64_t now) {
  for (std::size_t i = 0; i < ways_.size(); ++i)
    if (i != index && (i == used_ || ways_[i]->dialling)) let_go(i);
  ways_[index]->dialling = ways_[index]->answered = false;
  used_ = index;
  looking_ = kNone;
  attempt_ = false;
  look_back(now, index);
}

bool FailoverLink::lost(std::size_t index, std::int64_t now, LinkEvent& event) {
  ways_[index]->dialling = false;
  if (index == used_) {
    disconnect();
    return true;
  }
  if (index == looking_) {
    look_back(now, index + 1);
    return false;
  }
  if (!attempt_) return false;
  reasons_ += (reasons_.empty() ? "" : "; ") + std::string(event.status.text());
  if (!to_try_.empty()) {
    dial_next(now);
    return false;
  }
  if (any_dialling()) return false;
  attempt_ = false;
  if (ways_.size() > 1) event.status = Status::error(Code::unavailable, "%s", reasons_.c_str());
  return true;
}

// Dials the first of the URLs from `from` on that comes before the one in use; with none left, all
// of them are looked at again later.
void FailoverLink::look_back(std::int64_t now, std::size_t from) {
  looking_ = kNone;
  next_at_ = INT64_MAX;
  if (used_ == kNone || used_ == 0) return;
  for (; from < used_ && looking_ == kNone; ++from)
    if (ways_[from]->last_until <= now) looking_ = from;
  if (looking_ != kNone) return dial(looking_);
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const std::int64_t half = return_delay_ms_ / 2;
  next_at_ = now + half + static_cast<std::int64_t>(random_ % static_cast<std::uint64_t>(half + 1));
}

}  // namespace holdfast
