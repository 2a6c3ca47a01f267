// The second half of RelayCore: what goes into a batch, and what its answers change.

#include <algorithm>

#include "relay_core.hpp"

namespace holdfast {

namespace {

constexpr std::int64_t kScanRowsMax = 2 * kMaxBatchEvents;  // rows looked at for one batch
constexpr std::size_t kStepBytesMax = kMaxBatchBytes;  // composed in one step; then those first
constexpr std::int64_t kLaterMinMs = 100;
constexpr std::int64_t kNever = INT64_MAX;

std::string named(const EventRecord& event) {
  std::string text = "event " + event.id.text() + " (seq " + std::to_string(event.seq) + ", " +
                     event.aggregate_type + "/" + event.aggregate_id;
  if (!event.trace.empty()) text += ", trace " + event.trace;
  return text + ")";
}

}  // namespace

// --- exceptions
// ------------------------------------------------------------------------------------

RelayCore::Exception& RelayCore::put_exception(int lane, std::int64_t seq,
                                               const std::string& aggregate,
                                               ExceptionStatus status) {
  Exception& exception = lanes_[lane].exceptions[seq];
  exception.seq = seq;
  exception.lane = lane;
  exception.aggregate = aggregate;
  set_status(lane, exception, status);
  return exception;
}

void RelayCore::set_status(int lane, Exception& exception, ExceptionStatus status) {
  exception.status = status;
  auto& holding = lanes_[lane].holding;
  if (status != ExceptionStatus::dead) {
    holding[exception.aggregate].insert(exception.seq);
  } else {
    const auto group = holding.find(exception.aggregate);
    if (group != holding.end()) {
      group->second.erase(exception.seq);
      if (group->second.empty()) holding.erase(group);
    }
  }
  touch(lane, exception.seq);
}

void RelayCore::erase_exception(int lane, std::int64_t seq) {
  const auto exception = lanes_[lane].exceptions.find(seq);
  if (exception == lanes_[lane].exceptions.end()) return;
  set_status(lane, exception->second, ExceptionStatus::dead);  // holds nothing any more
  lanes_[lane].exceptions.erase(exception);
}

void RelayCore::touch(int lane, std::int64_t seq) {
  touched_[lane].insert(seq);
  lanes_[lane].due_stale = true;
  dirty_ = true;
}

bool RelayCore::gone(int lane, std::int64_t seq) const {
  const auto& gaps = lanes_[lane].gaps;
  auto after = std::upper_bound(gaps.begin(), gaps.end(), seq,
                                [](std::int64_t s, const OutboxGap& g) { return s < g.first_seq; });
  while (after != gaps.begin()) {
    --after;
    if (after->last_seq >= seq) return true;
    if (after->first_seq < seq - kMaxExceptionsPerDestination) break;
  }
  return false;
}

std::int64_t RelayCore::exceptions_total() const {
  std::int64_t total = 0;
  for (const Lane& lane : lanes_) total += static_cast<std::int64_t>(lane.exceptions.size());
  return total;
}

// How many more events may be sent or set aside before the table of exceptions could overflow. On a
// good day, with nothing in it, a wide window may carry somewhat more than it holds.
std::int64_t RelayCore::room_for_exceptions() const {
  std::int64_t in_flight = 0;
  for (const InFlight& frame : in_flight_)
    in_flight += static_cast<std::int64_t>(frame.events.size());
  const std::int64_t total = exceptions_total();
  return (total == 0 ? kWindowEventsMax : kMaxExceptionsPerDestination) - total - in_flight;
}

bool RelayCore::holds_back(const Lane& lane, const std::string& aggregate, std::int64_t seq,
                           const std::set<std::int64_t>& included) const {
  const auto group = lane.holding.find(aggregate);
  if (group == lane.holding.end()) return false;
  for (const std::int64_t earlier : group->second) {
    if (earlier >= seq) return false;
    if (included.count(earlier) == 0) return true;
  }
  return false;
}

std::vector<std::int64_t> RelayCore::due_exceptions(int lane, std::int64_t now) const {
  std::vector<std::int64_t> due;
  std::set<std::string> blocked;
  for (const auto& [seq, exception] : lanes_[lane].exceptions) {
    if (exception.status == ExceptionStatus::dead || blocked.count(exception.aggregate) != 0)
      continue;
    if (exception.in_flight || exception.next_attempt_ms > now)
      blocked.insert(exception.aggregate);
    else
      due.push_back(seq);
  }
  return due;
}

std::int64_t RelayCore::next_due(int lane) {
  Lane& mine = lanes_[lane];
  if (!mine.due_stale) return mine.next_due;
  mine.due_stale = false;
  mine.next_due = kNever;
  for (const auto& [aggregate, group] : mine.holding) {
    const auto head = mine.exceptions.find(*group.begin());
    if (head == mine.exceptions.end() || head->second.in_flight) continue;
    mine.next_due = std::min(mine.next_due, head->second.next_attempt_ms);
  }
  return mine.next_due;
}

// --- what there is to do
// -----------------------------------------------------------------------------

bool RelayCore::reports_waiting(int lane) const {
  if (config_.local) return false;
  for (const auto& [seq, exception] : lanes_[lane].exceptions)
    if (exception.status == ExceptionStatus::dead && !exception.reported) return true;
  for (const OutboxGap& gap : lanes_[lane].gaps)
    if (!gap.reported) return true;
  return false;
}

Status RelayCore::work_pending(std::int64_t now, bool& pending) {
  pending = !in_flight_.empty();
  for (int lane = 0; lane < kLaneCount && !pending; ++lane) {
    Lane& mine = lanes_[lane];
    if (next_due(lane) <= now || reports_waiting(lane)) {
      pending = true;
      break;
    }
    if (mine.exhausted) continue;
    std::int64_t seq = 0;
    const Status status = delivery_.first_after(lane, mine.scanned, seq);
    if (!status.ok()) return status;
    if (seq == 0)
      mine.exhausted = true;
    else
      pending = true;
  }
  return Status();
}

bool RelayCore::under_way(int lane) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(), [lane](const InFlight& frame) {
    return !frame.is_hello && frame.lane == lane;
  });
}

// Beside batches of the same lane only full ones: what is emitted meanwhile travels together, and
// a steady trickle makes no more frames than before there was a window.
Status RelayCore::may_send(int lane, bool& may) {
  const bool first = !under_way(lane);
  const int window = config_.window + (lane == kLaneUrgent && first ? 1 : 0);
  may = static_cast<int>(in_flight_.size()) < window;
  if (!may || first || !config_.paced) return Status();
  const Lane& mine = lanes_[lane];
  may = window_.has_room() && mine.full_events > 0 && !mine.exhausted;
  if (!may) return Status();
  std::int64_t newest = 0;
  const Status status = delivery_.newest_seq(newest);
  may = newest - mine.scanned >= mine.full_events;
  return status;
}

Status RelayCore::fill_window(std::int64_t now, std::vector<RelayAction>& actions, bool& again) {
  std::size_t bytes = 0;
  for (bool any = true; any && !again;) {
    any = false;
    for (int lane = kLaneCount - 1; lane >= 0 && !any; --lane) {  // urgent first
      bool may = false;
      Status status = may_send(lane, may);
      if (!status.ok()) return status;
      if (!may) continue;
      Draft draft;
      status = compose_retry(lane, now, draft, any);
      if (status.ok() && !any) status = compose_fresh(lane, now, draft, any, again);
      bool claimed = true;
      if (status.ok() && any && drops_oldest_) status = claim(now, draft, claimed);
      if (!status.ok()) return status;
      if (!claimed) return Status();
      bytes += draft.bytes;
      if (any) dispatch(now, std::move(draft), actions);
    }
    again = again || (any && bytes >= kStepBytesMax);
  }
  return Status();
}

// Where the oldest events are dropped at the cap, those of a batch are claimed in the database
// before they leave, and are there still: an event is never both delivered and reported as dropped.
Status RelayCore::claim(std::int64_t now, const Draft& draft, bool& claimed) {
  const wire::Batch& batch = draft.batch;
  if (batch.retry || batch.events.empty()) return Status();  // exceptions are not dropped
  Lane& lane = lanes_[batch.lane];
  lane.claim = batch.events.back().seq;
  dirty_ = true;
  Status status = flush(now, true);
  std::int64_t control = 0, capped = 0;
  if (status.ok()) status = delivery_.control(control, capped);
  claimed = status.ok() && leased_ && !dirty_ && capped == capped_;
  if (claimed || !status.ok()) return status;
  look_again_ = true;
  lane.scanned = lane.sent.seq;
  lane.exhausted = false;
  lane.due_stale = true;
  for (const EventRecord& event : batch.events) {
    const auto known = lane.exceptions.find(event.seq);
    if (known != lane.exceptions.end()) known->second.in_flight = false;
  }
  return Status();
}

wire::Batch RelayCore::new_batch(int lane) const {
  wire::Batch batch;
  batch.stream = identity_.stream;
  batch.session = session_id_;
  batch.lane = static_cast<std::uint8_t>(lane);
  batch.prev = lanes_[lane].sent;
  batch.start = lanes_[lane].start && !under_way(lane);  // else the one under way begins it
  return batch;
}

std::size_t RelayCore::batch_bytes() const {
  return std::min(window_.batch_bytes(config_.batch_bytes_max, config_.window), batch_limit_);
}

bool RelayCore::fits(const Draft& draft, std::size_t bytes) const {
  return draft.batch.events.empty() ||
         (draft.bytes + bytes <= batch_bytes() &&
          static_cast<int>(draft.batch.events.size()) < config_.batch_events_max);
}

Status RelayCore::compose_retry(int lane, std::int64_t now, Draft& draft, bool& any) {
  any = false;
  if (next_due(lane) > now || lanes_[lane].start) return Status();
  for (const InFlight& other : in_flight_)
    if (other.lane == lane && other.retry) return Status();  // one at a time keeps the order
  wire::Batch& batch = draft.batch;
  batch = new_batch(lane);
  batch.retry = true;
  for (const std::int64_t seq : due_exceptions(lane, now)) {
    if (seq > lanes_[lane].cursor.acked_seq) break;  // above the gateway's mark: goes as fresh
    bool found = false;
    EventRecord event;
    Status bad;
    const Status status = delivery_.read_one(seq, found, event, bad);
    if (!status.ok()) return status;
    Exception& exception = lanes_[lane].exceptions[seq];
    if (!found || !bad.ok()) {
      exception.last_error = found ? bad.text() : "the event's row is missing";
      exception.reported = false;
      set_status(lane, exception, ExceptionStatus::dead);
      continue;
    }
    const std::size_t size = wire::event_bytes(event);
    if (!fits(draft, size)) break;
    draft.bytes += size;
    exception.in_flight = true;
    batch.events.push_back(std::move(event));
  }
  lanes_[lane].due_stale = true;
  if (batch.events.empty()) return Status();
  any = true;
  add_reports(lane, draft);
  return Status();
}

// Decides about one row of the log: false ends the batch, before it or with it.
bool RelayCore::take_row(int lane, std::int64_t now, EventRecord&& event, const Status& bad,
                         Draft& draft, std::set<std::int64_t>& included) {
  Lane& mine = lanes_[lane];
  wire::Batch& batch = draft.batch;
  const std::int64_t seq = event.seq;
  const auto known = mine.exceptions.find(seq);
  const bool due = known != mine.exceptions.end() &&
                   known->second.status != ExceptionStatus::dead && !known->second.in_flight &&
                   known->second.next_attempt_ms <= now;
  if (seq > draft.events_end) {
    draft.full = true;
    return false;
  }
  if (gone(lane, seq) || (known != mine.exceptions.end() && !due)) {
    mine.scanned = seq;
    return true;
  }
  // What was offered before is not given up: nobody knows whether it arrived.
  bool over = false;
  if (known == mine.exceptions.end() && seq > mine.sent_max && event.ttl_ms > 0) {
    const Status looked = delivery_.expired(event, over);
    if (!looked.ok()) note_trouble(looked);
  }
  if (over) {
    expire(lane, event);
    return true;
  }
  const bool room = room_for_exceptions() > static_cast<std::int64_t>(batch.events.size());
  if (!room && !due) {
    if (!in_flight_.empty()) return false;  // what is under way may make room
    note_trouble(Status::error(Code::full,
                               "%d events wait for a retry or a person; the cursor "
                               "stops: see `holdfast ls --status retry,held,dead`",
                               kMaxExceptionsPerDestination));
    return false;
  }
  if (!bad.ok()) {
    Exception& dead = put_exception(lane, seq, aggregate_key(event), ExceptionStatus::dead);
    dead.last_error = bad.text();
    say(LogLevel::error, named(event) + " is damaged and goes dead: " + bad.text());
    mine.scanned = seq;
    return true;
  }
  const std::string aggregate = aggregate_key(event);
  if (holds_back(mine, aggregate, seq, included)) {
    if (known == mine.exceptions.end()) put_exception(lane, seq, aggregate, ExceptionStatus::held);
    mine.scanned = seq;
    return true;
  }
  const std::size_t size = wire::event_bytes(event);
  // A large event does not go beyond the window: it waits for what is under way.
  if (batch.events.empty() && size > kMaxBatchBytes && !window_.holds(size)) return false;
  if (!fits(draft, size)) {
    draft.full = true;
    return false;
  }
  draft.bytes += size;
  if (known != mine.exceptions.end()) {
    known->second.in_flight = true;
    mine.due_stale = true;
    included.insert(seq);
  }
  mine.scanned = seq;
  batch.events.push_back(std::move(event));
  draft.full = draft.bytes >= batch_bytes();
  return !draft.full;  // the next row, which may be large, is not read in vain
}

Status RelayCore::compose_fresh(int lane, std::int64_t now, Draft& draft, bool& any, bool& again) {
  Lane& mine = lanes_[lane];
  any = false;
  // An exception above the gateway's mark that is due now was passed by: go back to it.
  if (next_due(lane) <= now) {
    for (const std::int64_t seq : due_exceptions(lane, now)) {
      if (seq <= mine.sent.seq || seq > mine.scanned) continue;
      mine.scanned = mine.sent.seq;
      mine.exhausted = false;
      break;
    }
  }
  draft.batch = new_batch(lane);
  draft.events_end = reports_end(lane);
  const wire::Batch& batch = draft.batch;
  if (!mine.exhausted) {
    std::int64_t rows = 0;
    bool stopped = false;
    std::set<std::int64_t> included;
    const Status status = delivery_.read(
        lane, mine.scanned, kScanRowsMax, [&](EventRecord&& event, const Status& bad) {
          ++rows;
          stopped = !take_row(lane, now, std::move(event), bad, draft, included);
          return !stopped;
        });
    if (!status.ok()) return status;
    if (!stopped && rows < kScanRowsMax) mine.exhausted = true;
    if (!stopped && rows == kScanRowsMax && batch.events.empty()) again = true;
  }
  const auto events = static_cast<std::int64_t>(batch.events.size());
  if (draft.full)
    mine.full_events = events;
  else if (mine.full_events > 0)
    mine.full_events = std::max(mine.full_events, events + 1);
  add_skipped(lane, draft.batch);
  add_reports(lane, draft);
  // A new stream begins even if all there is waits for a retry: retries need a mark to be below.
  any = !batch.events.empty() || !batch.reports.empty() || (batch.start && !batch.skipped.empty());
  return Status();
}

void RelayCore::expire(int lane, const EventRecord& event) {
  Lane& mine = lanes_[lane];
  const auto grows = [&](const OutboxGap& gap) {
    return gap.reason == wire::reason_name(wire::GapReason::expired) && !gap.reported &&
           gap.last_seq == mine.scanned;
  };
  auto at = std::find_if(mine.gaps.begin(), mine.gaps.end(), grows);
  if (at == mine.gaps.end()) {
    OutboxGap gap;
    gap.lane = lane;
    gap.first_seq = event.seq;
    gap.reason = wire::reason_name(wire::GapReason::expired);
    const auto after =
        std::find_if(mine.gaps.begin(), mine.gaps.end(),
                     [&](const OutboxGap& other) { return other.first_seq > event.seq; });
    at = mine.gaps.insert(after, std::move(gap));
  }
  at->last_seq = event.seq;
  ++at->count;
  at->unwritten = true;
  mine.scanned = event.seq;
  ++changes_.expired;
  dirty_ = true;
}

// Everything between the last event and this batch's last one that was passed by: the gateway
// remembers them as gaps, so that its mark does not swallow them when they come later.
void RelayCore::add_skipped(int lane, wire::Batch& batch) const {
  const auto& exceptions = lanes_[lane].exceptions;
  const std::int64_t last = batch.events.empty() ? batch.prev.seq : batch.events.back().seq;
  // The frame that begins a stream tells of everything open below it, too.
  auto it = batch.start ? exceptions.begin() : exceptions.upper_bound(batch.prev.seq);
  std::size_t next_event = 0;
  for (; it != exceptions.end() && it->first <= last; ++it) {
    while (next_event < batch.events.size() && batch.events[next_event].seq < it->first)
      ++next_event;
    if (next_event < batch.events.size() && batch.events[next_event].seq == it->first) continue;
    if (batch.skipped.size() < wire::kMaxSkippedPerBatch) batch.skipped.push_back(it->first);
  }
}

bool RelayCore::told(int lane, std::int64_t dead_seq) const {
  for (const InFlight& frame : in_flight_) {
    const auto& seqs = frame.dead_reports;
    if (frame.lane == lane && std::find(seqs.begin(), seqs.end(), dead_seq) != seqs.end())
      return true;
  }
  return false;
}

bool RelayCore::told(int lane, const OutboxGap& gap) const {
  const auto same = [&gap](const OutboxGap& other) {
    return other.first_seq == gap.first_seq && other.last_seq == gap.last_seq &&
           other.count == gap.count;
  };
  return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const InFlight& frame) {
    return frame.lane == lane && std::any_of(frame.reports.begin(), frame.reports.end(), same);
  });
}

// What a batch under way tells already is told again beside events, for the gateway may refuse that
// one and take this one, and with it pass the place that the report is about. A batch of its own is
// for what none tells.
void RelayCore::add_reports(int lane, Draft& draft) {
  if (config_.local) return;
  wire::Batch& batch = draft.batch;
  const bool again = !batch.events.empty();
  for (const OutboxGap& gap : lanes_[lane].gaps) {
    if (batch.reports.size() >= wire::kMaxReportsPerBatch) return;
    if (gap.reported || (!again && told(lane, gap))) continue;
    wire::GapReason reason = wire::GapReason::lost;
    for (int r = 0; r <= static_cast<int>(wire::GapReason::lost); ++r)
      if (gap.reason == wire::reason_name(static_cast<wire::GapReason>(r)))
        reason = static_cast<wire::GapReason>(r);
    batch.reports.push_back({gap.first_seq, gap.last_seq, gap.count, reason, gap.detail});
    draft.reports.push_back(gap);
  }
  for (const auto& [seq, exception] : lanes_[lane].exceptions) {
    if (batch.reports.size() >= wire::kMaxReportsPerBatch) return;
    if (exception.status != ExceptionStatus::dead || exception.reported) continue;
    if (!again && told(lane, seq)) continue;
    batch.reports.push_back({seq, seq, 1, wire::GapReason::dead, exception.last_error});
    draft.dead_reports.push_back(seq);
  }
}

// Where the gap records begin that have no room in the next batch: its events end before, for the
// gateway takes what is missing below its mark, and was not named before, for delivered. (Dead
// events are named, as skipped.)
std::int64_t RelayCore::reports_end(int lane) const {
  std::size_t reports = 0;
  if (config_.local) return INT64_MAX;
  for (const OutboxGap& gap : lanes_[lane].gaps)
    if (!gap.reported && ++reports > wire::kMaxReportsPerBatch) return gap.first_seq;
  return INT64_MAX;
}

void RelayCore::dispatch(std::int64_t now, Draft&& draft, std::vector<RelayAction>& actions) {
  wire::Batch& batch = draft.batch;
  batch.frame_no = next_frame_++;
  Lane& lane = lanes_[batch.lane];
  InFlight frame;
  frame.lane = batch.lane;
  frame.retry = batch.retry;
  frame.start = batch.start;
  frame.frame_no = batch.frame_no;
  frame.events.reserve(batch.events.size());
  for (const EventRecord& event : batch.events) frame.events.push_back({event.seq, event.id});
  if (!batch.retry && !batch.events.empty()) {
    lane.sent = frame.events.back();
    lane.sent_max = std::max(lane.sent_max, lane.sent.seq);
  }
  frame.reports = std::move(draft.reports);
  frame.dead_reports = std::move(draft.dead_reports);
  frame.sent = window_.send(now, draft.bytes, draft.full);
  send(std::move(batch), std::move(frame), actions);
}

void RelayCore::send(wire::Message&& message, InFlight&& frame, std::vector<RelayAction>& actions) {
  frame.token = next_token_++;
  outgoing_.push_back(std::move(message));
  actions.push_back({RelayAction::Kind::send, frame.token, &outgoing_.back()});
  in_flight_.push_back(std::move(frame));
}

// --- answers
// -------------------------------------------------------------------------------------------

Status RelayCore::on_ack(std::int64_t now, const wire::Ack& ack, InFlight& frame) {
  if (ack.session != session_id_ || ack.frame_no != frame.frame_no || ack.lane != frame.lane ||
      ack.outcomes.size() != frame.events.size()) {
    note_trouble(Status::error(Code::refused,
                               "the gateway acknowledged something else than was "
                               "sent; nothing was marked"));
    reset_session();
    back_off(now, 0);
    return Status();
  }
  frame.answered = true;
  frame.outcomes = ack.outcomes;
  window_.answer(now, frame.sent);
  grow_batches(now - frame.sent.at);
  const Status applied = apply_answered(now);
  if (!applied.ok()) return applied;
  failures_ = 0;
  refusals_ = 0;
  state_.last_error = Status();
  if (!link_noted_) return Status();
  link_noted_ = false;
  const Status written = delivery_.turn([&] { return delivery_.record_link(0, "", 0); });
  if (!written.ok()) say(LogLevel::debug, written.text());
  return Status();
}

// Answers may overtake each other; the cursor moves in the order of sending.
Status RelayCore::apply_answered(std::int64_t now) {
  bool waits[kLaneCount] = {false, false};
  for (auto frame = in_flight_.begin(); frame != in_flight_.end();) {
    if (frame->answered && (frame->retry || !waits[frame->lane])) {
      const Status status = apply(now, *frame);
      if (!status.ok()) return status;
      frame = in_flight_.erase(frame);
      continue;
    }
    if (!frame->retry) waits[frame->lane] = true;
    ++frame;
  }
  return Status();
}

Status RelayCore::apply(std::int64_t now, const InFlight& frame) {
  Lane& lane = lanes_[frame.lane];
  for (std::size_t i = 0; i < frame.events.size(); ++i) {
    const Status status = apply_outcome(now, frame.lane, frame.events[i], frame.outcomes[i]);
    if (!status.ok()) return status;
  }
  if (!frame.retry && !frame.events.empty()) {
    lane.cursor.acked_seq = frame.events.back().seq;
    lane.cursor.acked_id = frame.events.back().id;
    lane.due_stale = true;
  }
  if (frame.start) lane.start = false;
  for (const std::int64_t seq : frame.dead_reports) {
    const auto exception = lane.exceptions.find(seq);
    if (exception == lane.exceptions.end() || exception->second.status != ExceptionStatus::dead)
      continue;
    exception->second.reported = true;
    touch(frame.lane, seq);
  }
  for (const OutboxGap& reported : frame.reports) {
    for (OutboxGap& gap : lane.gaps)
      if (gap.first_seq == reported.first_seq && gap.last_seq == reported.last_seq)
        gap.reported = true;
    changes_.reported.push_back(reported);
  }
  dirty_ = true;
  return Status();
}

Status RelayCore::apply_outcome(std::int64_t now, int lane, const wire::Mark& place,
                                const Outcome& outcome) {
  using Kind = Outcome::Kind;
  if (outcome.kind == Kind::stored || outcome.kind == Kind::duplicate) {
    erase_exception(lane, place.seq);
    ++state_.sent_events;
    ++changes_.sent;
    if (outcome.kind == Kind::duplicate) {
      ++state_.duplicate_events;
      ++changes_.duplicates;
    }
    return Status();
  }
  bool found = false;
  EventRecord event;
  Status bad;
  const Status status = delivery_.read_one(place.seq, found, event, bad);
  if (!status.ok()) return status;
  event.seq = place.seq;  // also of a row that somebody has removed meanwhile
  event.id = place.id;
  const auto known = lanes_[lane].exceptions.find(place.seq);
  const bool set_aside = known != lanes_[lane].exceptions.end();
  apply_refusal(now, lane, event, set_aside ? known->second.aggregate : aggregate_key(event),
                outcome);
  return Status();
}

void RelayCore::apply_refusal(std::int64_t now, int lane, const EventRecord& event,
                              const std::string& aggregate, const Outcome& outcome) {
  using Kind = Outcome::Kind;
  Exception& exception = put_exception(lane, event.seq, aggregate, ExceptionStatus::retry);
  exception.in_flight = false;
  exception.reported = false;
  exception.last_error = outcome.reason.substr(0, kMaxReasonBytes);
  bool dead = false;
  switch (outcome.kind) {
    case Kind::later:
      ++changes_.retries;
      exception.next_attempt_ms =
          now + std::min(std::max(outcome.later_ms, kLaterMinMs), config_.retry_delay_max_ms);
      break;
    case Kind::held:
      set_status(lane, exception, ExceptionStatus::held);
      // Nothing here holds it, yet the gateway does: not in a tight loop.
      exception.next_attempt_ms =
          holds_back(lanes_[lane], aggregate, event.seq, {}) ? 0 : now + config_.retry_delay_min_ms;
      break;
    case Kind::rejected: {
      ++changes_.rejected;
      ++exception.attempts;
      const int doublings = std::min(exception.attempts - 1, 20);
      const std::int64_t ceiling =
          std::min(config_.retry_delay_max_ms, config_.retry_delay_min_ms << doublings);
      exception.next_attempt_ms = now + jitter(ceiling);
      dead = exception.attempts >= config_.dead_after;
      break;
    }
    default:  // invalid
      ++changes_.rejected;
      ++exception.attempts;
      dead = true;
  }
  if (dead) {
    set_status(lane, exception, ExceptionStatus::dead);
    say(LogLevel::error, named(event) + " is dead after " + std::to_string(exception.attempts) +
                             " rejection(s): " + exception.last_error);
  } else if (outcome.kind == Kind::rejected) {
    say(LogLevel::warning, named(event) + " was rejected: " + exception.last_error);
  }
  touch(lane, event.seq);
}

}  // namespace holdfast
