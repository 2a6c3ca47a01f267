#include "relay_core.hpp"

#include <algorithm>

namespace holdfast {

namespace {

constexpr std::int64_t kStandbyLookMs = 1'000;   // a standby looks at the lease this often
constexpr std::int64_t kBusyLookMs = 50;         // the database was locked: soon again
constexpr std::int64_t kFullDiskLookMs = 1'000;  // the disk was full: the cursor waits in memory
constexpr std::int64_t kRefusedPauseMs = 5'000;  // refused for a reason that does not pass soon
constexpr std::int64_t kIdleLookMs = 3'600'000;  // nothing to do: the driver wakes us on a commit
constexpr std::size_t kSmallBatchBytes = 512;    // of the first one after a failure
constexpr std::int64_t kNeverAtOnceMs = 10;
constexpr std::int64_t kQuickAnswerMs = 1'000;
constexpr std::int64_t kGapsCheckedMax = 2 * kMaxExceptionsPerDestination;

// These pass by themselves: the work waits in memory and is tried again.
bool passes(const Status& status) {
  return status.code() == Code::busy || status.code() == Code::no_space;
}

}  // namespace

RelayCore::RelayCore(Delivery& delivery, const RelayCoreConfig& config)
    : delivery_(delivery), config_(config), random_(config.seed | 1) {
  if (config_.local) {
    link_up_ = true;
    config_.window = 1;
  }
}

std::int64_t RelayCore::jitter(std::int64_t ceiling_ms) {
  random_ ^= random_ << 13;  // xorshift64: good enough to spread, and replays from a seed
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return ceiling_ms <= 0
             ? 0
             : static_cast<std::int64_t>(random_ % static_cast<std::uint64_t>(ceiling_ms + 1));
}

void RelayCore::say(LogLevel level, const std::string& text) const {
  if (config_.log) config_.log(level, text);
}

// --- what happened -----------------------------------------------------------------------------

void RelayCore::committed() { look_again_ = true; }

void RelayCore::link_up(std::int64_t) {
  connecting_ = false;
  if (link_up_) {
    shrink_batches();
    reset_session();
  }
  link_up_ = true;
}

void RelayCore::link_down(std::int64_t now, const Status& why) {
  // The wait is one between attempts: what the last one took is a part of it.
  const std::int64_t since = connecting_ ? connect_at_ : now;
  connecting_ = false;
  link_up_ = config_.local;
  shrink_batches();
  reset_session();
  note_trouble(why);
  back_off(since, 0);
  try_at_ = std::max(try_at_, now + kNeverAtOnceMs);
}

void RelayCore::request_failed(std::int64_t now, std::uint64_t token, const Status& why) {
  const auto is_it = [token](const InFlight& frame) { return frame.token == token; };
  if (std::none_of(in_flight_.begin(), in_flight_.end(), is_it)) return;
  // No answer within the timeout: the path may be a black hole, so the pipe goes too.
  want_disconnect_ = !config_.local;
  link_down(now, why);
}

Status RelayCore::reply(std::int64_t now, std::uint64_t token, const wire::Message& message) {
  const auto is_it = [token](const InFlight& frame) { return frame.token == token; };
  const auto frame = std::find_if(in_flight_.begin(), in_flight_.end(), is_it);
  if (frame == in_flight_.end()) return Status();  // late: of an earlier session
  if (const auto* refused = std::get_if<wire::Refused>(&message)) {
    on_refused(now, *refused);
    return Status();
  }
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) {
    if (frame->is_hello && welcome->session == session_id_) {
      window_.answer(now, frame->sent);
      in_flight_.clear();
      return on_welcome(now, *welcome);
    }
  }
  if (const auto* ack = std::get_if<wire::Ack>(&message)) {
    if (!frame->is_hello && !frame->answered) return on_ack(now, *ack, *frame);
  }
  note_trouble(Status::error(Code::refused, "the gateway answered something else than was asked"));
  reset_session();
  back_off(now, 0);
  return Status();
}

void RelayCore::on_refused(std::int64_t now, const wire::Refused& refused) {
  ++refusals_;
  const Status why =
      Status::error(Code::refused, "gateway refused: %s%s%s", wire::refused_name(refused.code),
                    refused.text.empty() ? "" : ": ", refused.text.c_str());
  reset_session();
  switch (refused.code) {
    case wire::RefusedCode::stale_session:
    case wire::RefusedCode::stale_frame:
    case wire::RefusedCode::ahead_of_mark:
    case wire::RefusedCode::forked:
      // A new HELLO tells where we stand. Twice in a row without an ACK: not so fast.
      if (refusals_ > 1) {
        note_trouble(why);
        back_off(now, 0);
      }
      return;
    case wire::RefusedCode::busy:
    case wire::RefusedCode::unavailable:
      note_trouble(why);
      back_off(now, std::min<std::int64_t>(std::max<std::int64_t>(refused.later_ms, 0),
                                           config_.retry_delay_max_ms));
      return;
    default:
      note_trouble(why);
      back_off(now, kRefusedPauseMs);
  }
}

void RelayCore::back_off(std::int64_t now, std::int64_t at_least_ms) {
  ++failures_;
  const int doublings = static_cast<int>(std::min<std::int64_t>(failures_ - 1, 20));
  const std::int64_t ceiling =
      std::min(config_.link_delay_max_ms, config_.link_delay_min_ms << doublings);
  // Full jitter, so that a fleet does not come back in step; never at once.
  try_at_ = now + std::max(at_least_ms, std::max(jitter(ceiling), kNeverAtOnceMs));
}

// What was under way without an answer may have been too much for the link.
void RelayCore::shrink_batches() {
  for (const InFlight& frame : in_flight_)
    if (!frame.answered && !frame.is_hello) batch_limit_ = kSmallBatchBytes;
}

// Batches grow again while answers come about as soon as small ones do.
void RelayCore::grow_batches(std::int64_t answer_ms) {
  if (answer_ms <= std::max(kQuickAnswerMs, 2 * window_.round_trip_ms()))
    batch_limit_ = std::min(2 * batch_limit_, kNoBatchLimit);
}

void RelayCore::note_trouble(const Status& why) {
  const bool new_text = std::string(why.text()) != state_.last_error.text();
  state_.last_error = why;
  if (new_text) say(LogLevel::warning, why.text());
  if (link_noted_) return;
  // Once per episode, for `holdfast stats`: being offline writes nothing more (G6).
  const Status written = delivery_.turn([&] {
    return delivery_.record_link(failures_ + 1, why.text(), delivery_.clock().wall_ms());
  });
  if (!written.ok()) say(LogLevel::debug, written.text());
  link_noted_ = true;
}

void RelayCore::reset_session() {
  session_ = Session::none;
  in_flight_.clear();
  window_.reset();
  for (Lane& lane : lanes_) {
    // What was claimed may be dropped again.
    if (drops_oldest_ && leased_ && lane.claim > lane.cursor.acked_seq) dirty_ = true;
    lane.claim = 0;
    lane.sent = {lane.cursor.acked_seq, lane.cursor.acked_id};
    lane.scanned = lane.cursor.acked_seq;
    lane.exhausted = false;
    lane.start = false;
    lane.due_stale = true;
    for (auto& [seq, exception] : lane.exceptions) exception.in_flight = false;
  }
}

// --- lease and durable state ---------------------------------------------------------------------

void RelayCore::lose_lease() {
  say(LogLevel::info, "another relay has the lease; standing by");
  leased_ = false;
  epoch_ = 0;
  dirty_ = false;
  reset_session();
  look_again_ = true;
}

Status RelayCore::ensure_lease(std::int64_t now, bool& have) {
  have = leased_ && now < lease_until_;
  if (have || now < standby_until_) return Status();
  DestinationRow row;
  bool acquired = false;
  const Status status = delivery_.write(
      [&] { return delivery_.acquire(config_.owner, config_.lease_ms, acquired, row); });
  if (passes(status)) {
    state_.last_error = status;
    standby_until_ = now + (status.code() == Code::busy ? kBusyLookMs : kFullDiskLookMs);
    return Status();
  }
  if (!status.ok()) return status;
  if (!acquired) {
    if (leased_) lose_lease();
    if (state_.phase != RelayState::Phase::standby)
      say(LogLevel::info, "standing by: " + row.lease_owner + " has the lease");
    standby_until_ =
        std::min(std::max(row.lease_until_ms, now + kBusyLookMs), now + kStandbyLookMs);
    return Status();
  }
  lease_until_ = row.lease_until_ms;
  have = true;
  if (leased_ && row.lease_epoch == epoch_) return Status();
  leased_ = true;
  epoch_ = row.lease_epoch;
  flushed_at_ = now;
  return reload(now, row);
}

Status RelayCore::reload(std::int64_t, const DestinationRow& row) {
  std::vector<ExceptionRow> exceptions;
  std::vector<OutboxGap> gaps;
  Status status = delivery_.load_exceptions(exceptions);
  if (status.ok()) status = delivery_.load_gaps(gaps);
  if (status.ok()) status = delivery_.identity(identity_);
  if (status.ok()) status = delivery_.drops_oldest(drops_oldest_);
  if (!status.ok()) return status;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    lanes_[lane] = Lane();
    lanes_[lane].cursor = row.lanes[lane];
    lanes_[lane].sent_max = row.lanes[lane].claimed_seq;
    touched_[lane].clear();
  }
  for (const ExceptionRow& exception : exceptions) {
    Exception& mine =
        put_exception(exception.lane, exception.seq, exception.aggregate, exception.status);
    static_cast<ExceptionRow&>(mine) = exception;
    // A time of another boot says nothing now (G7); who takes the lease writes that down.
    if (row.times_boot_id != delivery_.clock().boot_id()) mine.next_attempt_ms = 0;
  }
  for (OutboxGap& gap : gaps) lanes_[gap.lane].gaps.push_back(std::move(gap));
  for (auto& touched : touched_) touched.clear();
  peer_store_ = row.peer_store;
  peer_stream_ = row.peer_stream;
  control_ = row.control;
  capped_ = row.capped;
  seen_epoch_ = row.lease_epoch;
  loaded_ = true;
  changes_ = CursorFlush();
  dirty_ = false;
  reset_session();
  return Status();
}

Status RelayCore::check_control(std::int64_t now) {
  if (!leased_) {  // what another relay does to the row meanwhile
    DestinationRow row;
    Status status = delivery_.load(row);
    if (!status.ok()) return status;
    look_again_ = false;
    for (Lane& lane : lanes_) lane.exhausted = false;
    if (loaded_ && row.lease_epoch == seen_epoch_ && row.control == control_ &&
        row.capped == capped_ &&
        row.lanes[kLaneNormal].acked_seq == lanes_[kLaneNormal].cursor.acked_seq &&
        row.lanes[kLaneUrgent].acked_seq == lanes_[kLaneUrgent].cursor.acked_seq)
      return Status();  // offline beside a busy producer: one row read per look
    return reload(now, row);
  }
  std::int64_t control = 0, capped = 0;
  Status status = delivery_.control(control, capped);
  if (status.ok()) status = delivery_.drops_oldest(drops_oldest_);
  if (!status.ok()) return status;
  look_again_ = false;
  for (Lane& lane : lanes_) lane.exhausted = false;
  if (control == control_) {
    if (capped == capped_) return Status();
    capped_ = capped;
    return reload_gaps();
  }
  // A person changed exceptions. What we know goes to the database first, then theirs is read.
  status = flush(now, true);
  if (!status.ok() || !leased_) return status;
  if (dirty_) {  // could not be written just now
    look_again_ = true;
    return Status();
  }
  DestinationRow row;
  status = delivery_.load(row);
  if (!status.ok()) return status;
  say(LogLevel::info, "events were retried or discarded by hand; reading them again");
  return reload(now, row);  // begins a new session too: simpler than matching what is in flight
}

// Events were dropped at the cap: new gaps to report. What is under way goes on.
Status RelayCore::reload_gaps() {
  std::vector<OutboxGap> gaps;
  const Status status = delivery_.load_gaps(gaps);
  if (!status.ok()) return status;
  for (const Lane& lane : lanes_)
    for (const OutboxGap& gap : lane.gaps) {
      if (!gap.unwritten) continue;
      const auto same = std::find_if(gaps.begin(), gaps.end(), [&](const OutboxGap& other) {
        return other.lane == gap.lane && other.first_seq == gap.first_seq;
      });
      if (same != gaps.end())
        *same = gap;
      else
        gaps.push_back(gap);
    }
  std::sort(gaps.begin(), gaps.end(),
            [](const OutboxGap& a, const OutboxGap& b) { return a.first_seq < b.first_seq; });
  for (Lane& lane : lanes_) lane.gaps.clear();
  for (OutboxGap& gap : gaps) {
    for (const OutboxGap& told : changes_.reported)
      if (told.lane == gap.lane && told.first_seq == gap.first_seq && told.last_seq == gap.last_seq)
        gap.reported = true;
    lanes_[gap.lane].gaps.push_back(std::move(gap));
  }
  return Status();
}

Status RelayCore::flush(std::int64_t now, bool force) {
  if (!dirty_ || !leased_) return Status();
  if (!force && (now < flushed_at_ + config_.flush_interval_ms || now < flush_not_before_))
    return Status();
  CursorFlush flush = changes_;
  flush.lease_until_ms = now + config_.lease_ms;
  flush.control = control_;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    flush.lanes[lane] = lanes_[lane].cursor;
    flush.lanes[lane].claimed_seq =
        std::max({lanes_[lane].sent.seq, lanes_[lane].cursor.acked_seq, lanes_[lane].claim});
    for (const OutboxGap& gap : lanes_[lane].gaps)
      if (gap.unwritten) flush.gaps.push_back(gap);
    for (const std::int64_t seq : touched_[lane]) {
      const auto exception = lanes_[lane].exceptions.find(seq);
      if (exception == lanes_[lane].exceptions.end())
        flush.erase.push_back(seq);
      else
        flush.put.push_back(exception->second);
    }
  }
  const Status status = delivery_.flush(config_.owner, epoch_, flush);
  if (status.code() == Code::lease_lost) {
    lose_lease();
    return Status();
  }
  if (passes(status)) {
    if (status.code() == Code::no_space) note_trouble(status);
    flush_not_before_ =
        now + (status.code() == Code::busy ? 10 + jitter(kBusyLookMs) : kFullDiskLookMs);
    return Status();
  }
  if (!status.ok()) return status;
  dirty_ = false;
  recorded_events_ = state_.sent_events;
  for (Lane& lane : lanes_)
    for (OutboxGap& gap : lane.gaps) gap.unwritten = false;
  changes_ = CursorFlush();
  for (auto& touched : touched_) touched.clear();
  flushed_at_ = now;
  lease_until_ = flush.lease_until_ms;
  return Status();
}

Status RelayCore::stop(std::int64_t now) {
  Status status = flush(now, true);
  if (!status.ok() || !leased_) return status;
  if (dirty_) return Status::error(Code::busy, "stop: the database is locked");
  status = delivery_.write([&] { return delivery_.release(config_.owner, epoch_); });
  leased_ = status.code() == Code::busy;  // the next call tries again
  return status;
}

Status RelayCore::count_pending(std::int64_t& count) {
  const LaneCursor cursors[kLaneCount] = {lanes_[kLaneNormal].cursor, lanes_[kLaneUrgent].cursor};
  return delivery_.count_pending(cursors, count);
}

bool RelayCore::goodbye(wire::Message& message) const {
  if (session_ != Session::open || config_.local) return false;
  message = wire::Bye{identity_.stream, session_id_};
  return true;
}

// --- session -------------------------------------------------------------------------------------

Status RelayCore::send_hello(std::int64_t now, std::vector<RelayAction>& actions) {
  Status status = delivery_.identity(identity_);
  if (!status.ok()) return status;
  std::int64_t newest = 0;
  status = delivery_.newest_seq(newest);
  if (!status.ok()) return status;
  wire::Hello hello;
  hello.stream = identity_.stream;
  hello.session = session_id_ = (static_cast<std::uint64_t>(jitter(INT32_MAX)) << 32) ^
                                static_cast<std::uint64_t>(jitter(INT32_MAX)) ^ random_;
  hello.device = identity_.device;
  hello.software = "holdfast";
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const LaneCursor& cursor = lanes_[lane].cursor;
    hello.lanes.push_back(
        {static_cast<std::uint8_t>(lane), newest, {cursor.acked_seq, cursor.acked_id}});
  }
  session_ = Session::hello;
  next_frame_ = 1;
  InFlight frame;
  frame.is_hello = true;
  frame.sent = window_.send(now, 0, false);
  send(std::move(hello), std::move(frame), actions);
  return Status();
}

Status RelayCore::on_welcome(std::int64_t now, const wire::Welcome& welcome) {
  for (const wire::WelcomeLane& told : welcome.lanes) {
    if (told.lane >= kLaneCount) continue;
    bool forked = false;
    Status status = check_lane(told.lane, told, forked);
    if (!status.ok()) return status;
    if (!forked) continue;
    const std::string why = "the gateway has event " + told.mark.id.text() + " at seq " +
                            std::to_string(told.mark.seq) +
                            ", which this database does not: it is a copy or a restored backup";
    say(LogLevel::warning, why + "; taking a new stream identity");
    status = delivery_.write([&] { return delivery_.fork(config_.owner, epoch_, why); });
    if (status.code() == Code::lease_lost) {
      lose_lease();
      return Status();
    }
    if (!status.ok() && !passes(status)) return status;
    reset_session();
    if (!status.ok()) back_off(now, 0);
    return Status();
  }
  Delivery::PeerUpdate update;
  Status status = meet_gateway(now, welcome, update);
  if (!status.ok()) return status;
  const bool unreported =
      std::any_of(std::begin(update.unreport_above), std::end(update.unreport_above),
                  [](std::int64_t above) { return above >= 0; });
  const bool news = unreported || !update.new_gaps.empty() || !update.put.empty() ||
                    peer_store_ != welcome.store || peer_stream_ != identity_.stream;
  if (news)
    status = delivery_.write([&] { return delivery_.record_peer(config_.owner, epoch_, update); });
  if (!status.ok()) {
    // What was changed in memory must not stay: read everything again.
    if (status.code() == Code::lease_lost)
      lose_lease();
    else if (!passes(status))
      return status;
    leased_ = false;
    epoch_ = 0;
    reset_session();
    back_off(now, 0);
    return Status();
  }
  if (news) {
    status = reload_gaps();
    if (!status.ok()) return status;
  }
  peer_store_ = welcome.store;
  peer_stream_ = identity_.stream;
  session_ = Session::open;
  return Status();
}

// A fork is certain when the gateway's mark is an event that this database cannot have emitted.
// A row that is missing at or below acked_seq proves nothing: it was purged.
Status RelayCore::check_lane(int lane, const wire::WelcomeLane& told, bool& forked) {
  forked = false;
  if (!told.known || told.mark.seq == 0 || told.mark.id.nil()) return Status();
  std::int64_t newest = 0;
  Status status = delivery_.newest_seq(newest);
  if (!status.ok()) return status;
  if (told.mark.seq > newest || told.mark.seq < 0) {
    forked = true;
    return Status();
  }
  bool found = false;
  EventId id;
  int row_lane = kLaneNormal;
  status = delivery_.event_at(told.mark.seq, found, id, row_lane);
  if (!status.ok()) return status;
  const LaneCursor& cursor = lanes_[lane].cursor;
  if (found)
    forked = id != told.mark.id || row_lane != lane;
  else if (told.mark.seq == cursor.acked_seq)
    forked = !cursor.acked_id.nil() && cursor.acked_id != told.mark.id;
  else
    forked = told.mark.seq > cursor.acked_seq;
  return Status();
}

Status RelayCore::meet_gateway(std::int64_t now, const wire::Welcome& welcome,
                               Delivery::PeerUpdate& update) {
  update.store = welcome.store;
  update.stream = identity_.stream;
  std::int64_t oldest = 0;
  Status status = delivery_.oldest_seq(oldest);
  if (!status.ok()) return status;
  const bool same_store = peer_store_.nil() || peer_store_ == welcome.store;
  const bool same_stream = peer_stream_ == identity_.stream;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    Lane& mine = lanes_[lane];
    const auto is_lane = [lane](const wire::WelcomeLane& l) { return l.lane == lane; };
    const auto told = std::find_if(welcome.lanes.begin(), welcome.lanes.end(), is_lane);
    const bool known = told != welcome.lanes.end() && told->known;
    if (known) {
      if (told->mark.seq < mine.cursor.acked_seq)
        rewind_lane(lane, told->mark, update, oldest);
      else
        report_what_is_missing(lane, *told, update);
    } else {
      // Another store: it has nothing of ours. The same store but a new stream: what the old
      // stream delivered is there, and this stream begins where that one ended.
      // Known once and now unknown: a backup from before this stream, and perhaps from before
      // what an older one delivered. Everything kept goes again; ids remove what is there.
      if (same_store && !same_stream)
        mine.cursor.base_seq = mine.cursor.acked_seq;
      else if (!same_store || mine.cursor.base_seq < mine.cursor.acked_seq)
        mine.cursor.base_seq = 0;
      if (mine.cursor.base_seq < mine.cursor.acked_seq)
        rewind_lane(lane, {mine.cursor.base_seq, EventId()}, update, oldest);
      mine.start = true;
      report_dead_again(lane, 0);
    }
    mine.sent = {mine.cursor.acked_seq, mine.cursor.acked_id};
    mine.scanned = mine.cursor.acked_seq;
    mine.exhausted = false;
    mine.due_stale = true;
    if (!known) continue;
    std::int64_t checked = 0;
    for (const wire::Gap& gap : told->gaps) {
      for (std::int64_t seq = gap.first; seq <= std::min(gap.last, mine.cursor.acked_seq); ++seq) {
        if (++checked > kGapsCheckedMax) break;
        status = reconcile_gap(lane, seq, gap.state, update);
        if (!status.ok()) return status;
      }
    }
  }
  for (int lane = 0; lane < kLaneCount; ++lane) update.lanes[lane] = lanes_[lane].cursor;
  if (update.rewound) dirty_ = true;
  (void)now;
  return Status();
}

void RelayCore::rewind_lane(int lane, const wire::Mark& to, Delivery::PeerUpdate& update,
                            std::int64_t oldest_seq) {
  LaneCursor& cursor = lanes_[lane].cursor;
  say(LogLevel::warning, "the gateway was restored or replaced: lane " + std::to_string(lane) +
                             " goes back from seq " + std::to_string(cursor.acked_seq) + " to " +
                             std::to_string(to.seq));
  if (oldest_seq > to.seq + 1) {
    OutboxGap purged;
    purged.lane = lane;
    purged.first_seq = to.seq + 1;
    purged.last_seq = std::min(oldest_seq - 1, cursor.acked_seq);
    purged.count = purged.last_seq - purged.first_seq + 1;  // at most: lanes share the numbers
    purged.reason = wire::reason_name(wire::GapReason::purged);
    purged.detail = "sent before and no longer kept when the gateway asked for it";
    update.new_gaps.push_back(std::move(purged));
  }
  unreport_gaps(lane, to.seq, update);
  update.rewound = true;
  cursor.acked_seq = to.seq;
  cursor.acked_id = to.id;
  report_dead_again(lane, to.seq);
}

void RelayCore::unreport_gaps(int lane, std::int64_t above, Delivery::PeerUpdate& update) {
  update.unreport_above[lane] = above;
  auto& reported = changes_.reported;  // acknowledged, and not yet in the database
  reported.erase(std::remove_if(reported.begin(), reported.end(),
                                [&](const OutboxGap& gap) {
                                  return gap.lane == lane && gap.last_seq > above;
                                }),
                 reported.end());
}

// A restored gateway may have the mark that we expect, and yet not what it was told about events
// beyond the mark. What is dead it names in its WELCOME, what is gone it does not.
void RelayCore::report_what_is_missing(int lane, const wire::WelcomeLane& told,
                                       Delivery::PeerUpdate& update) {
  Lane& mine = lanes_[lane];
  const auto knows = [&told](std::int64_t seq) {
    return std::any_of(told.gaps.begin(), told.gaps.end(), [seq](const wire::Gap& gap) {
      return gap.first <= seq && seq <= gap.last && gap.state == wire::GapState::dead;
    });
  };
  for (auto it = mine.exceptions.upper_bound(told.mark.seq); it != mine.exceptions.end(); ++it) {
    if (!it->second.reported || knows(it->first)) continue;
    it->second.reported = false;
    touch(lane, it->first);
  }
  for (const OutboxGap& gap : mine.gaps)
    if (gap.reported && gap.last_seq > told.mark.seq) unreport_gaps(lane, told.mark.seq, update);
}

// What the gateway was told about events above `seq`, it does not know any more.
void RelayCore::report_dead_again(int lane, std::int64_t seq) {
  auto& exceptions = lanes_[lane].exceptions;
  for (auto it = exceptions.upper_bound(seq); it != exceptions.end(); ++it) {
    if (!it->second.reported) continue;
    it->second.reported = false;
    touch(lane, it->first);
  }
}

// The gateway misses an event at or below the cursor. Either we know why (an exception, a gap
// record), or it must be offered again.
Status RelayCore::reconcile_gap(int lane, std::int64_t seq, wire::GapState state,
                                Delivery::PeerUpdate& update) {
  Lane& mine = lanes_[lane];
  const auto known = mine.exceptions.find(seq);
  if (known != mine.exceptions.end()) {
    if (known->second.status == ExceptionStatus::dead && state != wire::GapState::dead)
      known->second.reported = false;
    return Status();
  }
  for (OutboxGap& gap : mine.gaps) {
    if (gap.first_seq > seq || gap.last_seq < seq) continue;
    update.new_gaps.push_back(gap);  // writing it again makes it unreported
    return Status();
  }
  bool found = false;
  EventRecord event;
  Status bad;
  const Status status = delivery_.read_one(seq, found, event, bad);
  if (!status.ok()) return status;
  if (found && bad.ok() && event.lane == lane) {
    Exception& again = put_exception(lane, seq, aggregate_key(event), ExceptionStatus::retry);
    again.last_error = "the gateway lost it; offered again";
    update.put.push_back(again);
    return Status();
  }
  OutboxGap lost;
  lost.lane = lane;
  lost.first_seq = lost.last_seq = seq;
  lost.count = 1;
  lost.reason = wire::reason_name(found ? wire::GapReason::lost : wire::GapReason::purged);
  update.new_gaps.push_back(std::move(lost));
  return Status();
}

// --- going on ------------------------------------------------------------------------------------

Status RelayCore::step(std::int64_t now, std::vector<RelayAction>& actions, std::int64_t& wake_at) {
  wake_at = now + kIdleLookMs;
  outgoing_.clear();
  Status status;
  if (look_again_) status = check_control(now);
  if (status.ok()) status = flush(now, false);
  if (!status.ok()) return status;
  if (want_disconnect_) {
    want_disconnect_ = false;
    link_up_ = false;
    actions.push_back({RelayAction::Kind::disconnect, 0, nullptr});
  }
  if (!link_up_ && !connecting_ && now >= try_at_) {
    connecting_ = true;
    connect_at_ = now;
    actions.push_back({RelayAction::Kind::connect, 0, nullptr});
  }
  bool pending = false;
  status = work_pending(now, pending);
  if (!status.ok()) return status;
  bool again = false;
  if (pending && link_up_ && now >= try_at_) {
    bool have = false;
    status = ensure_lease(now, have);
    if (!status.ok()) return status;
    if (have && session_ == Session::none) {
      if (config_.local)
        session_ = Session::open;
      else
        status = send_hello(now, actions);
    }
    if (status.ok() && have && session_ == Session::open) status = fill_window(now, actions, again);
    if (!status.ok()) return status;
    if (!have) wake_at = std::min(wake_at, std::max(standby_until_, now + 1));
  }
  if (again || look_again_) wake_at = now;
  if (now < try_at_ && (pending || !link_up_)) wake_at = std::min(wake_at, try_at_);
  if (dirty_)
    wake_at =
        std::min(wake_at, std::max(flushed_at_ + config_.flush_interval_ms, flush_not_before_));
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const std::int64_t due = next_due(lane);
    if (due > now) wake_at = std::min(wake_at, due);
  }
  status = work_pending(now, pending);
  state_.drained = !pending && in_flight_.empty();
  refresh_state();
  return status;
}

void RelayCore::refresh_state() {
  using Phase = RelayState::Phase;
  if (!leased_ && standby_until_ > 0 && link_up_ && session_ == Session::none && !state_.drained)
    state_.phase = Phase::standby;
  else if (!link_up_)
    state_.phase = Phase::offline;
  else
    state_.phase = in_flight_.empty() ? Phase::idle : Phase::sending;
  state_.exceptions = exceptions_total();
  state_.dead = 0;
  for (const Lane& lane : lanes_)
    for (const auto& [seq, exception] : lane.exceptions)
      if (exception.status == ExceptionStatus::dead) ++state_.dead;
  state_.link_failures = failures_;
}

}  // namespace holdfast
