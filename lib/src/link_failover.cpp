#include "link_failover.hpp"

#include <algorithm>

#include "holdfast/relay.hpp"

namespace holdfast {

namespace {

constexpr std::int64_t kStallAnswers = 4;
constexpr std::int64_t kForgetPart = 8;  // a quicker answer counts by one part of so many

}  // namespace

Status FailoverLink::open(const std::vector<std::string>& urls, std::int64_t return_delay_ms,
                          std::uint64_t seed, std::function<void()> wake,
                          std::shared_ptr<tls::Tls> tls) {
  urls_ = urls;
  wake_ = std::move(wake);
  tls_ = std::move(tls);
  return_delay_ms_ = return_delay_ms;
  random_ = seed | 1;
  legs_count_ = 2 * urls.size();
  legs_ = std::make_unique<Leg[]>(legs_count_);
  const Status status = legs_[0].client.open(urls_[0], wake_, tls_);
  legs_[0].open = status.ok();
  return status;
}

const std::string& FailoverLink::url() const {
  static const std::string none;
  return used_ == kNone ? none : urls_[url_of(used_)];
}

std::int64_t FailoverLink::wake_at() const { return std::min(next_at_, stall_at()); }

std::int64_t FailoverLink::stall_at() const {
  if (attempt_ || used_ == kNone || sent_.empty() || slowest_ms_ < 0) return INT64_MAX;
  if (moved_ && !legs_[used_].answered) return INT64_MAX;
  return std::max(sent_.begin()->second + std::max(kStallMs, kStallAnswers * slowest_ms_),
                  not_stalled_until_);
}

bool FailoverLink::any_dialling() const {
  return std::any_of(legs_.get(), legs_.get() + legs_count_,
                     [](const Leg& leg) { return leg.dialling; });
}

// -- an attempt -----------------------------------------------------------------------------------

void FailoverLink::connect(std::int64_t now) {
  if (!attempt_ && used_ == kNone) begin_attempt(now);
}

void FailoverLink::begin_attempt(std::int64_t now) {
  if (looking_ != kNone) let_go(looking_);
  looking_ = kNone;
  attempt_ = true;
  reasons_.clear();
  to_try_.clear();
  for (const bool last : {false, true})
    for (std::size_t i = 0; i < urls_.size(); ++i)
      if ((legs_[i].last_until > now) == last) to_try_.push_back(i);
  dial_next(now);
}

void FailoverLink::dial_next(std::int64_t now) {
  const std::size_t url = to_try_.front();
  to_try_.erase(to_try_.begin());
  next_at_ = to_try_.empty() ? INT64_MAX : now + kNextUrlAfterMs;
  dial(url == used_ ? url + urls_.size() : url);
}

void FailoverLink::dial(std::size_t index) {
  Leg& leg = legs_[index];
  const Status status = leg.open ? Status() : leg.client.open(urls_[url_of(index)], wake_, tls_);
  leg.open = leg.dialling = status.ok();
  if (leg.open)
    leg.client.connect();
  else
    note(status);
}

void FailoverLink::note(const Status& reason) {
  reason_ = reason;
  if (!reasons_.empty()) reasons_ += "; ";
  reasons_ += reason.text();
}

void FailoverLink::let_go(std::size_t leg) {
  legs_[leg].dialling = false;
  legs_[leg].client.disconnect();
}

void FailoverLink::end_attempt(std::int64_t now) {
  for (std::size_t i = 0; i < legs_count_; ++i)
    if (legs_[i].dialling) let_go(i);
  attempt_ = false;
  look_back(now, kNone);
}

void FailoverLink::disconnect() {
  for (std::size_t i = 0; i < legs_count_; ++i)
    if (i == used_ || legs_[i].dialling) let_go(i);
  used_ = looking_ = kNone;
  attempt_ = moved_ = false;
  next_at_ = INT64_MAX;
  sent_.clear();
}

void FailoverLink::request(std::int64_t now, std::uint64_t token, std::string_view frame,
                           std::int64_t timeout_ms) {
  sent_[token] = now;
  legs_[used_ == kNone ? 0 : used_].client.request(token, frame, timeout_ms);
}

// -- what happened --------------------------------------------------------------------------------

bool FailoverLink::next(std::int64_t now, LinkEvent& event) {
  if (now >= stall_at()) begin_attempt(now);
  if (now >= next_at_) {
    if (attempt_)
      dial_next(now);
    else
      look_back(now, 0);
  }
  for (std::size_t i = 0; i < legs_count_; ++i)
    while (legs_[i].open && legs_[i].client.next(event))
      if (take(i, now, event)) return true;
  while (attempt_ && !any_dialling()) {
    if (!to_try_.empty()) {
      dial_next(now);
      continue;
    }
    end_attempt(now);
    not_stalled_until_ = now + kStallMs;
    if (used_ != kNone) break;
    event.kind = LinkEvent::Kind::down;
    event.status =
        urls_.size() == 1 ? reason_ : Status::error(Code::unavailable, "%s", reasons_.c_str());
    return true;
  }
  return false;
}

// Whether the event is one for the owner.
bool FailoverLink::take(std::size_t leg, std::int64_t now, LinkEvent& event) {
  switch (event.kind) {
    case LinkEvent::Kind::up:
      use(leg, now);
      return true;
    case LinkEvent::Kind::down:
      return lost(leg, now, event);
    case LinkEvent::Kind::failed:
      if (leg == used_ && (is_timeout(event.status) || !legs_[leg].answered))
        legs_[url_of(leg)].last_until = now + return_delay_ms_;
      sent_.erase(event.token);
      return used_ == kNone || leg == used_;
    case LinkEvent::Kind::reply:
      if (leg != used_) return false;
      heard(event.token, now);
      return true;
  }
  return false;
}

void FailoverLink::heard(std::uint64_t token, std::int64_t now) {
  legs_[used_].answered = true;
  const auto sent = sent_.find(token);
  if (sent != sent_.end()) {
    slowest_ms_ = std::max(now - sent->second, slowest_ms_ - slowest_ms_ / kForgetPart);
    sent_.erase(sent);
  }
  if (attempt_) end_attempt(now);
}

void FailoverLink::use(std::size_t leg, std::int64_t now) {
  for (std::size_t i = 0; i < legs_count_; ++i)
    if (i != leg && (i == used_ || legs_[i].dialling)) let_go(i);
  moved_ = attempt_ && used_ != kNone;
  legs_[leg].dialling = legs_[leg].answered = false;
  used_ = leg;
  attempt_ = false;
  sent_.clear();
  look_back(now, kNone);
}

bool FailoverLink::lost(std::size_t leg, std::int64_t now, const LinkEvent& event) {
  legs_[leg].dialling = false;
  if (leg == used_) {
    disconnect();
    return true;
  }
  if (leg == looking_) look_back(now, leg + 1);
  if (attempt_) note(event.status);
  return false;
}

// Dials the first of the URLs from `from` on that comes before the one in use; with none left, all
// of them are looked at again later.
void FailoverLink::look_back(std::int64_t now, std::size_t from) {
  looking_ = kNone;
  next_at_ = INT64_MAX;
  if (used_ == kNone || url_of(used_) == 0) return;
  for (; from < url_of(used_) && looking_ == kNone; ++from)
    if (legs_[from].last_until <= now) looking_ = from;
  if (looking_ != kNone) dial(looking_);
  if (looking_ != kNone && legs_[looking_].dialling) return;
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const std::int64_t half = return_delay_ms_ / 2;
  next_at_ = now + half + static_cast<std::int64_t>(random_ % static_cast<std::uint64_t>(half + 1));
}

}  // namespace holdfast
