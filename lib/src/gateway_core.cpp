#include "gateway_core.hpp"

#include <algorithm>

#include "delivery.hpp"
#include "holdfast/version.hpp"
#include "identity.hpp"
#include "schema.hpp"

namespace holdfast {

namespace {

using wire::GapState;
using wire::RefusedCode;

const char* state_text(GapState state) {
  switch (state) {
    case GapState::skipped:
      return "SKIPPED";
    case GapState::later:
      return "LATER";
    case GapState::rejected:
      return "REJECTED";
    case GapState::held:
      return "HELD";
    case GapState::dead:
      return "DEAD";
  }
  return "";
}

GapState parse_gap_state(std::string_view text) {
  for (const GapState state : {GapState::later, GapState::rejected, GapState::held, GapState::dead})
    if (text == state_text(state)) return state;
  return GapState::skipped;
}

// A gap that this gateway made stores its aggregate and holds what follows (G5).
bool blocks(GapState state) {
  return state == GapState::later || state == GapState::rejected || state == GapState::held;
}

std::string key_of(std::string_view origin, std::string_view type, std::string_view id) {
  std::string key(origin);
  key.append(1, '\0').append(type).append(1, '\0').append(id);
  return key;
}

std::string origin_bytes(const EventRecord& event) {
  return {reinterpret_cast<const char*>(event.source_stream.bytes.data()),
          event.source_stream.bytes.size()};
}

constexpr std::int64_t kStrangerEveryMs = 10'000;  // between two lines of the log
constexpr std::int64_t kForeignLaterMs = 60'000;
constexpr std::int64_t kFrameLaterMs = 1'000;  // a frame that could not be stored

wire::Refused refusal(RefusedCode code, std::uint64_t session, std::string text) {
  wire::Refused refused;
  refused.code = code;
  refused.session = session;
  refused.text = std::move(text);
  return refused;
}

}  // namespace

GatewayCore::GatewayCore(sqlite3* db, const Clock& clock, const GatewayCoreConfig& config)
    : db_(db), clock_(&clock), config_(config), inbox_(db, clock), owners_(db), transaction_(db) {}

void GatewayCore::say(LogLevel level, const std::string& text) const {
  if (config_.log) config_.log(level, text);
}

Status GatewayCore::open() {
  Identity identity;
  Status status = read_identity(db_, identity);
  store_id_ = identity.store;
  return status;
}

Status GatewayCore::begin() {
  appending_ = false;
  began_inbox_ = false;
  return transaction_.begin();
}

Status GatewayCore::commit() {
  Status status = inbox_.finish();
  if (status.ok()) status = transaction_.commit();
  if (status.ok()) appended_ = appending_;
  return status;
}

void GatewayCore::abandon() {
  transaction_.rollback();
  inbox_.forget();
  sessions_.clear();  // frame numbers were used up: each device says HELLO again
  appended_ = false;
}

std::string GatewayCore::unavailable(std::int64_t later_ms, const std::string& why) {
  wire::Refused refused = refusal(RefusedCode::unavailable, 0, why);
  refused.later_ms = later_ms;
  std::string frame;
  const Status status = wire::encode(refused, frame);
  return status.ok() ? frame : std::string();
}

Status GatewayCore::accept(std::string_view frame, std::int64_t now, std::string& reply,
                           std::string_view certificate) {
  certificate_ = certificate;
  wire::Message message;
  wire::Message answer;
  RefusedCode code = RefusedCode::bad_frame;
  const Status decoded = wire::decode(frame, message, code);
  Status status;
  if (!decoded.ok())
    answer = refusal(code, 0, decoded.text());
  else
    status = answer_alone(message, now, answer);
  return status.ok() ? wire::encode(answer, reply) : status;
}

Status GatewayCore::answer_alone(const wire::Message& message, std::int64_t now,
                                 wire::Message& reply) {
  const InboxWriter::Counters counted = inbox_.counted();
  const bool began_inbox = began_inbox_;
  const bool appending = appending_;
  Status status = savepoint_.prepare(db_, sql::kFrameSavepoint);
  if (status.ok()) status = savepoint_.run("savepoint");
  if (!status.ok()) return status;
  const Status failed = answer(message, now, reply);
  if (!failed.ok()) {
    // After these nothing of the transaction can be trusted, or SQLite has ended it already.
    const Code code = failed.code();
    if (code == Code::io || code == Code::corrupt || code == Code::read_only ||
        code == Code::permission || code == Code::misuse || !in_transaction(db_))
      return failed;
    status = undo_frame(message, failed, reply);
    inbox_.forget_since(counted);
    began_inbox_ = began_inbox;
    appending_ = appending;
  }
  if (status.ok()) status = release_.prepare(db_, sql::kFrameRelease);
  return status.ok() ? release_.run("savepoint") : status;
}

Status GatewayCore::undo_frame(const wire::Message& message, const Status& why,
                               wire::Message& reply) {
  Status status = undo_.prepare(db_, sql::kFrameRollback);
  if (status.ok()) status = undo_.run("savepoint");
  if (!status.ok()) return status;
  EventId stream;
  if (const auto* batch_message = std::get_if<wire::Batch>(&message))
    stream = batch_message->stream;
  if (const auto* hello_message = std::get_if<wire::Hello>(&message))
    stream = hello_message->stream;
  sessions_.erase(stream);  // its frame number was used up: the device says HELLO again
  say(LogLevel::error, "a frame of stream " + stream.text() +
                           " could not be stored, and was undone alone: " + why.text());
  wire::Refused refused = refusal(RefusedCode::unavailable, 0, code_name(why.code()));
  refused.later_ms = kFrameLaterMs;
  reply = std::move(refused);
  return status;
}

Status GatewayCore::answer(const wire::Message& message, std::int64_t now, wire::Message& reply) {
  if (const auto* hello_message = std::get_if<wire::Hello>(&message))
    return hello(*hello_message, now, reply);
  if (const auto* batch_message = std::get_if<wire::Batch>(&message))
    return batch(*batch_message, now, reply);
  if (const auto* bye = std::get_if<wire::Bye>(&message)) {
    const auto session = sessions_.find(bye->stream);
    if (session != sessions_.end() && session->second.id == bye->session) sessions_.erase(session);
    wire::Ack ack;
    ack.session = bye->session;
    reply = ack;
    return Status();
  }
  reply = refusal(RefusedCode::bad_kind, 0, "a gateway takes HELLO, BATCH and BYE");
  return Status();
}

// --- whose stream
// -----------------------------------------------------------------------------------------

Status GatewayCore::refuse_stranger(const EventId& stream, std::int64_t now, bool& bind,
                                    wire::Refused& refused) {
  using Verdict = StreamOwners::Verdict;
  Verdict verdict = Verdict::own;
  Status status = owners_.judge(stream, certificate_, verdict);
  bind = verdict == Verdict::unbound && !certificate_.empty();
  refused.text.clear();
  if (!status.ok() || verdict == Verdict::own || verdict == Verdict::unbound) return status;
  const bool denied = verdict == Verdict::denied;
  refused.code = denied ? RefusedCode::denied : RefusedCode::not_your_stream;
  const std::string allow =
      "\"; on the gateway: holdfast gateway allow DB \"" + certificate_ + "\"";
  if (denied) {
    refused.text = "certificate name \"" + certificate_ + allow;
  } else if (certificate_.empty()) {
    refused.text = "this stream is bound to a certificate name: it needs tls+tcp://";
  } else {
    refused.text = "this stream is not of certificate name \"" + certificate_ + allow +
                   " --stream " + stream.text();
  }
  inbox_.count(kNotYourStreamCounter);
  if (strangers_untold_++ > 0 && now < stranger_told_at_ + kStrangerEveryMs) return status;
  std::string owner;
  status = owners_.owner(stream, owner);
  say(LogLevel::warning,
      "refused " + std::to_string(strangers_untold_) + " frame(s), the last one " +
          (certificate_.empty() ? "without a certificate" : "of \"" + certificate_ + "\"") +
          (denied ? ", which is denied" : "") + ", for stream " + stream.text() +
          (owner.empty() ? "" : ", which is bound to \"" + owner + "\"") +
          "; see `holdfast gateway list`");
  strangers_untold_ = 0;
  stranger_told_at_ = now;
  return status;
}

// Whoever forwards events of others names their streams; not those that another certificate has
// here. `later` and not `invalid`: the event must not go DEAD for what a person can set right.
Status GatewayCore::check_origin(const EventRecord& record, Stream& stream) {
  if (record.source_stream == stream.id || record.source_stream == stream.origin) return Status();
  StreamOwners::Verdict verdict = StreamOwners::Verdict::own;
  const Status status = owners_.judge(record.source_stream, certificate_, verdict);
  stream.origin = record.source_stream;
  stream.origin_foreign = verdict == StreamOwners::Verdict::foreign;
  return status;
}

// --- HELLO
// -----------------------------------------------------------------------------------------

void GatewayCore::forget_oldest_session() {
  auto oldest = sessions_.begin();
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it)
    if (it->second.used_at < oldest->second.used_at) oldest = it;
  sessions_.erase(oldest);
}

Status GatewayCore::hello(const wire::Hello& hello, std::int64_t now, wire::Message& reply) {
  if (hello.stream.nil() || hello.session == 0 || hello.device.size() > kMaxDeviceNameBytes ||
      !is_utf8(hello.device)) {
    reply = refusal(RefusedCode::bad_frame, hello.session, "HELLO: stream, session or device name");
    return Status();
  }
  bool bind = false;
  wire::Refused stranger = refusal(RefusedCode::not_your_stream, hello.session, "");
  const Status known = refuse_stranger(hello.stream, now, bind, stranger);
  if (!known.ok() || !stranger.text.empty()) {
    reply = std::move(stranger);
    return known;
  }
  wire::Welcome welcome;
  welcome.session = hello.session;
  welcome.store = store_id_;
  welcome.software = std::string("holdfast/") + kVersion;
  std::size_t gaps_told = 0;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    Stream stream;
    stream.id = hello.stream;
    stream.lane = lane;
    Status status = load(stream);
    if (!status.ok()) return status;
    wire::WelcomeLane told;
    told.lane = static_cast<std::uint8_t>(lane);
    told.known = stream.known;
    told.mark = stream.mark;
    for (const auto& [seq, gap] : stream.gaps)
      if (gaps_told++ < wire::kMaxGapsPerWelcome) told.gaps.push_back({seq, seq, gap.state});
    welcome.lanes.push_back(std::move(told));
  }
  // The newer HELLO wins; whoever had the session hears stale_session at its next BATCH.
  if (sessions_.size() >= kMaxSessions && sessions_.count(hello.stream) == 0)
    forget_oldest_session();
  sessions_[hello.stream] = Session{hello.session, 0, now, hello.device};
  say(LogLevel::debug, "session of " + (hello.device.empty() ? "a device" : hello.device) +
                           ", stream " + hello.stream.text());
  reply = std::move(welcome);
  return Status();
}

// --- BATCH
// -----------------------------------------------------------------------------------------

Status GatewayCore::load(Stream& stream) {
  Status status = stream_get_.prepare(db_, sql::kStreamGet);
  if (!status.ok()) return status;
  stream_get_.bind_id(1, stream.id)
      .bind(2, static_cast<std::int64_t>(stream.lane))
      .bind_text(3, config_.consumer);
  stream.known = stream_get_.step(status, "inbox_stream");
  if (stream.known) {
    stream.mark.seq = stream_get_.column_int(0);
    if (!stream_get_.column_id(1, stream.mark.id)) stream.mark.id = EventId();
  }
  stream_get_.reset();
  if (status.ok()) status = gap_open_.prepare(db_, sql::kInboxGapOpen);
  if (!status.ok()) return status;
  gap_open_.bind_id(1, stream.id)
      .bind(2, static_cast<std::int64_t>(stream.lane))
      .bind_text(3, config_.consumer);
  while (gap_open_.step(status, "inbox_gap")) {
    const std::int64_t seq = gap_open_.column_int(0);
    Gap& gap = stream.gaps[seq];
    gap.state = parse_gap_state(gap_open_.column_text(1));
    if (!gap_open_.column_is_null(2))
      gap.aggregate =
          key_of(gap_open_.column_blob(4), gap_open_.column_text(2), gap_open_.column_text(3));
    if (blocks(gap.state)) stream.blocking[gap.aggregate][seq] = true;
  }
  gap_open_.reset();
  return status;
}

Status GatewayCore::store(const Stream& stream) {
  Status status = stream_put_.prepare(db_, sql::kStreamPut);
  if (!status.ok()) return status;
  return stream_put_.bind_id(1, stream.id)
      .bind(2, static_cast<std::int64_t>(stream.lane))
      .bind_text(3, config_.consumer)
      .bind_text(4, stream.device)
      .bind(5, stream.mark.seq)
      .bind_id(6, stream.mark.id)
      .bind(7, std::max<std::int64_t>(0, clock_->wall_ms()))
      .bind(8, stream.events)
      .run("inbox_stream");
}

// What cannot be taken as a whole. Nothing has been written yet.
bool GatewayCore::refuse(const wire::Batch& batch, const Stream& stream,
                         wire::Refused& refused) const {
  refused.session = batch.session;
  refused.frame_no = batch.frame_no;
  refused.lane = batch.lane;
  refused.mark = stream.mark;
  std::int64_t before = batch.retry ? 0 : batch.prev.seq;
  for (const EventRecord& event : batch.events) {
    if (event.seq <= before || batch.prev.seq < 0) {
      refused.code = RefusedCode::bad_frame;
      refused.text = "events are not in ascending order after prev";
      return true;
    }
    before = event.seq;
  }
  const bool begins = !stream.known && batch.start && !batch.retry;
  const std::int64_t mark = begins ? batch.prev.seq : stream.mark.seq;
  const bool ahead = batch.retry ? !batch.events.empty() && batch.events.back().seq > mark
                                 : batch.prev.seq > mark || (!stream.known && !begins);
  if (ahead) {
    refused.code = RefusedCode::ahead_of_mark;
    refused.text = "an earlier batch is missing here";
    return true;
  }
  if (!batch.retry && stream.known && batch.prev.seq == stream.mark.seq && !batch.prev.id.nil() &&
      !stream.mark.id.nil() && batch.prev.id != stream.mark.id) {
    refused.code = RefusedCode::forked;
    refused.text = "another event is known at this seq: two databases use one stream";
    return true;
  }
  if (stream.gaps.size() + batch.skipped.size() > static_cast<std::size_t>(kMaxGapsPerStream)) {
    refused.code = RefusedCode::too_many_gaps;
    refused.text = "too many events of this stream wait for a retry or a person";
    return true;
  }
  return false;
}

Status GatewayCore::batch(const wire::Batch& batch, std::int64_t now, wire::Message& reply) {
  const auto session = sessions_.find(batch.stream);
  wire::Refused refused;
  refused.session = batch.session;
  refused.frame_no = batch.frame_no;
  refused.lane = batch.lane;
  bool bind = false;
  Status status = refuse_stranger(batch.stream, now, bind, refused);
  if (!status.ok() || !refused.text.empty()) {
    reply = refused;
    return status;
  }
  if (session == sessions_.end() || session->second.id != batch.session) {
    refused.code = RefusedCode::stale_session;
    refused.text = "say HELLO again";
    reply = refused;
    return Status();
  }
  session->second.used_at = now;
  if (batch.lane >= kLaneCount) {
    refused.code = RefusedCode::bad_frame;
    refused.text = "lane";
    reply = refused;
    return Status();
  }
  // Strictly rising within a session: a frame that was delayed or copied by the network, or held
  // up while a newer one was answered, changes nothing.
  if (batch.frame_no <= session->second.last_frame) {
    refused.code = RefusedCode::stale_frame;
    refused.text = "an old frame";
    reply = refused;
    return Status();
  }
  Stream stream;
  stream.id = batch.stream;
  stream.lane = batch.lane;
  stream.device = session->second.device;
  status = load(stream);
  if (!status.ok()) return status;
  if (refuse(batch, stream, refused)) {
    reply = refused;
    return Status();
  }
  session->second.last_frame = batch.frame_no;
  if (!began_inbox_) status = inbox_.begin();
  began_inbox_ = true;
  if (status.ok() && bind) status = owners_.bind(stream.id, certificate_, clock_->wall_ms());
  wire::Ack ack;
  if (status.ok()) status = process(batch, stream, ack);
  reply = std::move(ack);
  return status;
}

// A name that comes with another stream: the device forked or was set up anew (G11). Names are
// labels, so it may also be a second device that has the same one.
Status GatewayCore::tell_new_stream(const Stream& stream) const {
  if (stream.device.empty()) return Status();
  Statement others;
  Status status = others.prepare(db_, sql::kStreamsOfDevice);
  if (!status.ok()) return status;
  others.bind_text(1, stream.device).bind_id(2, stream.id).bind_text(3, config_.consumer);
  const std::int64_t known = others.step(status, "inbox_stream") ? others.column_int(0) : 0;
  if (status.ok() && known > 0)
    say(LogLevel::warning,
        stream.device + " begins stream " + stream.id.text() + ", known before under " +
            std::to_string(known) +
            " other: it was copied, restored or set up anew, or two devices share the name");
  return status;
}

Status GatewayCore::process(const wire::Batch& batch, Stream& stream, wire::Ack& ack) {
  const bool begins = !stream.known;
  if (begins) stream.mark = batch.prev;
  Status status = begins ? tell_new_stream(stream) : Status();
  // Skips first: a report in the same frame may say that a skipped event is dead.
  if (!batch.retry) status = skip(batch, stream);
  for (const wire::GapReport& told : batch.reports)
    if (status.ok()) status = report(told, stream);
  const std::int64_t mark_before = stream.mark.seq;
  ack.outcomes.resize(batch.events.size());
  for (std::size_t i = 0; i < batch.events.size() && status.ok(); ++i) {
    EventRecord record = batch.events[i];
    record.lane = batch.lane;
    status = event(batch, std::move(record), stream, ack.outcomes[i]);
  }
  if (status.ok() && (begins || stream.events > 0 || stream.mark.seq != mark_before))
    status = store(stream);
  ack.session = batch.session;
  ack.frame_no = batch.frame_no;
  ack.lane = batch.lane;
  ack.mark = stream.mark;
  return status;
}

Status GatewayCore::put_gap(Stream& stream, std::int64_t seq, GapState state,
                            const EventRecord* event, const std::string& reason) {
  Status status = gap_put_.prepare(db_, sql::kInboxGapPut);
  if (!status.ok()) return status;
  gap_put_.bind_id(1, stream.id)
      .bind(2, static_cast<std::int64_t>(stream.lane))
      .bind_text(3, config_.consumer)
      .bind(4, seq)
      .bind(5, seq)
      .bind(6, std::int64_t{1})
      .bind_text(7, state_text(state));
  const std::string origin = event != nullptr ? origin_bytes(*event) : std::string();
  if (event != nullptr)
    gap_put_.bind_text(8, event->aggregate_type)
        .bind_text(9, event->aggregate_id)
        .bind_blob(10, origin);
  else
    gap_put_.bind_null(8).bind_null(9).bind_null(10);
  gap_put_.bind_text_or_null(11, reason).bind(12, std::max<std::int64_t>(0, clock_->wall_ms()));
  status = gap_put_.run("inbox_gap");
  gap_put_.reset();
  if (!status.ok()) return status;
  Gap& gap = stream.gaps[seq];
  if (blocks(gap.state)) stream.blocking[gap.aggregate].erase(seq);
  gap.state = state;
  if (event != nullptr) gap.aggregate = key_of(origin, event->aggregate_type, event->aggregate_id);
  if (blocks(state)) stream.blocking[gap.aggregate][seq] = true;
  return Status();
}

Status GatewayCore::close_gap(Stream& stream, std::int64_t seq) {
  const auto gap = stream.gaps.find(seq);
  if (gap == stream.gaps.end()) return Status();
  Status status = gap_delete_.prepare(db_, sql::kInboxGapDelete);
  if (!status.ok()) return status;
  status = gap_delete_.bind_id(1, stream.id)
               .bind(2, static_cast<std::int64_t>(stream.lane))
               .bind_text(3, config_.consumer)
               .bind(4, seq)
               .run("inbox_gap");
  if (!status.ok()) return status;
  if (blocks(gap->second.state)) stream.blocking[gap->second.aggregate].erase(seq);
  stream.gaps.erase(gap);
  return Status();
}

// `dead`: stays open for a later retry, but holds nothing any more. `gone`: closed, and counted.
Status GatewayCore::report(const wire::GapReport& report, Stream& stream) {
  std::vector<std::int64_t> open;
  for (auto it = stream.gaps.lower_bound(report.first);
       it != stream.gaps.end() && it->first <= report.last; ++it)
    open.push_back(it->first);
  const std::string reason = report.text.empty() ? wire::reason_name(report.reason) : report.text;
  Status status;
  for (const std::int64_t seq : open) {
    if (!status.ok()) return status;
    if (report.reason != wire::GapReason::dead) {
      status = close_gap(stream, seq);
      continue;
    }
    Gap& gap = stream.gaps[seq];
    if (blocks(gap.state)) stream.blocking[gap.aggregate].erase(seq);
    gap.state = GapState::dead;
    status = put_gap(stream, seq, GapState::dead, nullptr, reason);
  }
  if (!status.ok()) return status;
  if (report.reason == wire::GapReason::dead) {
    // Above the mark: the newest event of all can go dead, and nothing follows it yet.
    const bool above = report.first > stream.mark.seq && report.first == report.last;
    if (!above || !open.empty() || stream.gaps.size() >= std::size_t{kMaxGapsPerStream})
      return status;
    return put_gap(stream, report.first, GapState::dead, nullptr, reason);
  }
  // One event that is stored here already: it arrived after all, and nothing is gone.
  if (report.first == report.last && open.empty() && report.first <= stream.mark.seq)
    return Status();
  status = gone_at_.prepare(db_, sql::kInboxGapGoneAt);
  if (!status.ok()) return status;
  gone_at_.bind_id(1, stream.id)
      .bind(2, static_cast<std::int64_t>(stream.lane))
      .bind_text(3, config_.consumer)
      .bind(4, report.first);
  const bool begun = gone_at_.step(status, "inbox_gap");
  const bool known = begun && gone_at_.column_int(0) >= report.last;
  const std::int64_t told_before = begun ? gone_at_.column_int(1) : 0;  // it grew since
  gone_at_.reset();
  if (!status.ok() || known) return status;
  const std::int64_t count =
      std::min(std::max<std::int64_t>(report.count, 0), report.last - report.first + 1);
  const std::string name = wire::reason_name(report.reason);
  status = gap_put_.prepare(db_, sql::kInboxGapPut);
  if (!status.ok()) return status;
  gap_put_.bind_id(1, stream.id)
      .bind(2, static_cast<std::int64_t>(stream.lane))
      .bind_text(3, config_.consumer)
      .bind(4, report.first)
      .bind(5, report.last)
      .bind(6, count)
      .bind_text(7, "GONE")
      .bind_null(8)
      .bind_null(9)
      .bind_null(10);
  const std::string text = report.text.empty() ? name : name + ": " + report.text;
  gap_put_.bind_text(11, text).bind(12, std::max<std::int64_t>(0, clock_->wall_ms()));
  status = gap_put_.run("inbox_gap");
  gap_put_.reset();
  if (!status.ok()) return status;
  if (stream.gone_loaded) stream.gone[report.first] = report.last;
  const std::int64_t news = std::max<std::int64_t>(0, count - told_before);
  inbox_.count("gone", news);
  inbox_.count(("gone_" + name).c_str(), news);
  say(LogLevel::warning, "stream " + stream.id.text() + " (" + stream.device + "): seq " +
                             std::to_string(report.first) + " to " + std::to_string(report.last) +
                             " will not come, " + std::to_string(count) + " event(s): " + text);
  status = gone_trim_.prepare(db_, sql::kInboxGapGoneTrim);
  if (!status.ok()) return status;
  return gone_trim_.bind_id(1, stream.id)
      .bind(2, static_cast<std::int64_t>(stream.lane))
      .bind_text(3, config_.consumer)
      .bind(4, static_cast<std::int64_t>(kMaxGapsPerStream))
      .run("inbox_gap");
}

Status GatewayCore::skip(const wire::Batch& batch, Stream& stream) {
  // Below the mark everything is known already; only the frame that begins a stream tells of what
  // is open below it.
  for (const std::int64_t seq : batch.skipped) {
    if (seq <= 0 || (stream.known && seq <= stream.mark.seq)) continue;
    if (stream.gaps.count(seq) != 0) continue;  // reported dead before anything followed it
    const Status status = put_gap(stream, seq, GapState::skipped, nullptr, "");
    if (!status.ok()) return status;
  }
  return Status();
}

bool GatewayCore::blocked(const Stream& stream, const std::string& aggregate,
                          std::int64_t seq) const {
  const auto group = stream.blocking.find(aggregate);
  return group != stream.blocking.end() && !group->second.empty() &&
         group->second.begin()->first < seq;
}

// At or below the mark and in no open gap: seen before, even if its inbox row was purged. Unless it
// was reported gone (by a clone of the device, say): then it never came, and saying "duplicate"
// would lose it in silence (G9).
Status GatewayCore::seen(Stream& stream, std::int64_t seq, Outcome& outcome) {
  Status status;
  if (!stream.gone_loaded) {
    status = gone_all_.prepare(db_, sql::kInboxGapGoneAll);
    if (!status.ok()) return status;
    gone_all_.bind_id(1, stream.id)
        .bind(2, static_cast<std::int64_t>(stream.lane))
        .bind_text(3, config_.consumer);
    while (gone_all_.step(status, "inbox_gap"))
      stream.gone[gone_all_.column_int(0)] = gone_all_.column_int(1);
    gone_all_.reset();
    if (!status.ok()) return status;
    stream.gone_loaded = true;
  }
  auto range = stream.gone.upper_bound(seq);
  if (range != stream.gone.begin() && (--range)->second >= seq) {
    outcome.kind = Outcome::Kind::invalid;
    outcome.reason = "this event was reported gone before; the gateway has closed it";
    inbox_.count("inbox_rejected");
    return status;
  }
  outcome.kind = Outcome::Kind::duplicate;
  inbox_.count("inbox_duplicates");
  return status;
}

Status GatewayCore::event(const wire::Batch&, EventRecord record, Stream& stream,
                          Outcome& outcome) {
  const std::int64_t seq = record.seq;
  if (seq <= stream.mark.seq && stream.gaps.count(seq) == 0) return seen(stream, seq, outcome);
  if (record.source_stream.nil()) {
    record.source = stream.device;
    record.source_stream = stream.id;
    record.source_seq = seq;
  }
  if (seq > stream.mark.seq) stream.mark = {seq, record.id};
  const std::string aggregate =
      key_of(origin_bytes(record), record.aggregate_type, record.aggregate_id);
  const Status valid = validate(record);
  if (!valid.ok()) {
    outcome.kind = Outcome::Kind::invalid;
    outcome.reason = valid.text();
    inbox_.count("inbox_rejected");
    return put_gap(stream, seq, GapState::rejected, &record, outcome.reason);
  }
  if (blocked(stream, aggregate, seq)) {
    outcome.kind = Outcome::Kind::held;
    inbox_.count("inbox_held");
    return put_gap(stream, seq, GapState::held, &record, "");
  }
  Status status = check_origin(record, stream);
  if (status.ok() && record.source_stream == stream.origin && stream.origin_foreign) {
    outcome.kind = Outcome::Kind::later;
    outcome.later_ms = kForeignLaterMs;
    outcome.reason = "its source_stream is bound to another certificate name";
    inbox_.count(kNotYourStreamCounter);
    return put_gap(stream, seq, GapState::later, &record, outcome.reason);
  }
  if (!status.ok()) return status;
  Applied applied = Applied::done;
  HandlerResult result;
  status = inbox_.apply(record, config_.consumer, config_.handler, config_.guard, applied, result);
  if (!status.ok()) return status;
  outcome.reason = result.reason.substr(0, kMaxReasonBytes);
  switch (applied) {
    case Applied::done:
      appending_ = appending_ || !config_.handler;
      outcome.kind = Outcome::Kind::stored;
      ++stream.events;
      return close_gap(stream, seq);
    case Applied::stale:
      outcome.kind = Outcome::Kind::stored;
      return close_gap(stream, seq);
    case Applied::duplicate:
      // Known by its id alone: perhaps from another device, whose ids are not to be probed.
      outcome.kind = certificate_.empty() ? Outcome::Kind::duplicate : Outcome::Kind::stored;
      return close_gap(stream, seq);
    case Applied::retry_later:
      outcome.kind = Outcome::Kind::later;
      outcome.later_ms = result.delay_ms;
      return put_gap(stream, seq, GapState::later, &record, outcome.reason);
    case Applied::rejected:
      outcome.kind = Outcome::Kind::rejected;
      say(LogLevel::warning, "event " + record.id.text() + " (" + record.aggregate_type + "/" +
                                 record.aggregate_id +
                                 (record.trace.empty() ? "" : ", trace " + record.trace) + ") of " +
                                 stream.device + " was rejected: " + outcome.reason);
      return put_gap(stream, seq, GapState::rejected, &record, outcome.reason);
  }
  return Status();
}

}  // namespace holdfast
