// The C interface of outbox, writer and inbox, and what all of it shares: translation only, no
// decisions.
#include "c_api.hpp"

#include <vector>

#include "holdfast/clock.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "holdfast/version.hpp"

using namespace holdfast;
using namespace holdfast::c_api;

// The numbers of both interfaces are the same, for ever.
#define HOLDFAST_SAME(c_name, cpp_name) \
  static_assert(static_cast<int>(c_name) == static_cast<int>(cpp_name), #c_name)
HOLDFAST_SAME(HOLDFAST_OK, Code::ok);
HOLDFAST_SAME(HOLDFAST_NO_TRANSACTION, Code::no_transaction);
HOLDFAST_SAME(HOLDFAST_NOT_DURABLE, Code::not_durable);
HOLDFAST_SAME(HOLDFAST_INVALID, Code::invalid);
HOLDFAST_SAME(HOLDFAST_FULL, Code::full);
HOLDFAST_SAME(HOLDFAST_BUSY, Code::busy);
HOLDFAST_SAME(HOLDFAST_UNKNOWN, Code::unknown);
HOLDFAST_SAME(HOLDFAST_NOT_FOUND, Code::not_found);
HOLDFAST_SAME(HOLDFAST_NEWER_SCHEMA, Code::newer_schema);
HOLDFAST_SAME(HOLDFAST_NO_SCHEMA, Code::no_schema);
HOLDFAST_SAME(HOLDFAST_IO, Code::io);
HOLDFAST_SAME(HOLDFAST_READ_ONLY, Code::read_only);
HOLDFAST_SAME(HOLDFAST_CORRUPT, Code::corrupt);
HOLDFAST_SAME(HOLDFAST_NO_SPACE, Code::no_space);
HOLDFAST_SAME(HOLDFAST_MISUSE, Code::misuse);
HOLDFAST_SAME(HOLDFAST_UNAVAILABLE, Code::unavailable);
HOLDFAST_SAME(HOLDFAST_LEASE_LOST, Code::lease_lost);
HOLDFAST_SAME(HOLDFAST_PERMISSION, Code::permission);
HOLDFAST_SAME(HOLDFAST_EXISTS, Code::exists);
HOLDFAST_SAME(HOLDFAST_REFUSED, Code::refused);
HOLDFAST_SAME(HOLDFAST_INTERNAL, Code::internal);
HOLDFAST_SAME(HOLDFAST_STATUS_TEXT_BYTES, Status::kTextBytes);
HOLDFAST_SAME(HOLDFAST_ID_TEXT_BYTES, EventId::kTextBytes + 1);
HOLDFAST_SAME(HOLDFAST_REASON_BYTES, kMaxReasonBytes + 1);
HOLDFAST_SAME(HOLDFAST_LANE_NORMAL, kLaneNormal);
HOLDFAST_SAME(HOLDFAST_LANE_URGENT, kLaneUrgent);
HOLDFAST_SAME(2, kLaneCount);  // arrays of holdfast_destination
HOLDFAST_SAME(HOLDFAST_APPLY_ALL, VersionGuard::apply_all);
HOLDFAST_SAME(HOLDFAST_SKIP_STALE, VersionGuard::skip_stale);
HOLDFAST_SAME(HOLDFAST_APPLIED_DONE, Applied::done);
HOLDFAST_SAME(HOLDFAST_APPLIED_DUPLICATE, Applied::duplicate);
HOLDFAST_SAME(HOLDFAST_APPLIED_STALE, Applied::stale);
HOLDFAST_SAME(HOLDFAST_APPLIED_RETRY_LATER, Applied::retry_later);
HOLDFAST_SAME(HOLDFAST_APPLIED_REJECTED, Applied::rejected);
HOLDFAST_SAME(HOLDFAST_STATE_PENDING, EventState::pending);
HOLDFAST_SAME(HOLDFAST_STATE_PROCESSING, EventState::processing);
HOLDFAST_SAME(HOLDFAST_STATE_SENT, EventState::sent);
HOLDFAST_SAME(HOLDFAST_STATE_RETRY, EventState::retry);
HOLDFAST_SAME(HOLDFAST_STATE_HELD, EventState::held);
HOLDFAST_SAME(HOLDFAST_STATE_DEAD, EventState::dead);
HOLDFAST_SAME(HOLDFAST_STATE_GONE, EventState::gone);
static_assert(sizeof(holdfast_id) == 16 && sizeof(holdfast_status) == 8 + Status::kTextBytes);
static_assert(sizeof(holdfast_emitted) == 24 && sizeof(holdfast_code) == sizeof(int));
static_assert(std::string_view(HOLDFAST_VERSION) == HOLDFAST_VERSION_STRING);
static_assert(sizeof(holdfast_stats::device) == kMaxDeviceNameBytes + 1);

struct holdfast_inbox {
  Inbox inbox;
};

// --- shared ------------------------------------------------------------------------------------

namespace holdfast::c_api {

holdfast_code finish(const Status& status, holdfast_status* out) {
  if (out != nullptr) {
    out->code = static_cast<int>(status.code());
    out->native = status.native();
    std::memcpy(out->text, status.text(), std::strlen(status.text()) + 1);
  }
  return static_cast<holdfast_code>(status.code());
}

void copy_text(const std::string& from, char* to, std::size_t room) {
  std::size_t size = from.size() < room ? from.size() : room - 1;
  if (size < from.size())
    while (size > 0 && (static_cast<unsigned char>(from[size]) & 0xC0) == 0x80) --size;
  std::memcpy(to, from.data(), size);
  to[size] = '\0';
}

std::string reason_text(const char (&reason)[HOLDFAST_REASON_BYTES]) {
  return std::string(reason, ::strnlen(reason, sizeof(reason) - 1));
}

holdfast_id id_of(const EventId& id) {
  holdfast_id out;
  std::memcpy(out.bytes, id.bytes.data(), sizeof(out.bytes));
  return out;
}

EventId id_of(const holdfast_id& id) {
  EventId out;
  std::memcpy(out.bytes.data(), id.bytes, sizeof(id.bytes));
  return out;
}

holdfast_record record_of(const EventRecord& record) {
  holdfast_record out = empty<holdfast_record>();
  out.seq = record.seq;
  out.id = id_of(record.id);
  out.event_type = record.event_type.c_str();
  out.aggregate_type = record.aggregate_type.c_str();
  out.aggregate_id = record.aggregate_id.c_str();
  out.payload = record.payload.data();
  out.payload_size = record.payload.size();
  out.payload_is_text = record.payload_is_text ? 1 : 0;
  out.lane = record.lane;
  out.content_type = record.content_type.c_str();
  out.trace = record.trace.c_str();
  out.headers = record.headers.c_str();
  out.has_aggregate_version = record.aggregate_version != kNoVersion ? 1 : 0;
  if (out.has_aggregate_version != 0) out.aggregate_version = record.aggregate_version;
  out.created_at_ms = record.created_at_ms;
  out.source = record.source.c_str();
  out.source_stream = id_of(record.source_stream);
  out.source_seq = record.source_seq;
  out.ttl_ms = record.ttl_ms;
  return out;
}

Handler handler_of(holdfast_handler handler, void* context) {
  return [handler, context](const EventRecord& event, sqlite3* db) {
    const holdfast_record record = record_of(event);
    holdfast_answer answer = empty<holdfast_answer>();
    switch (handler(context, &record, db, &answer)) {
      case HOLDFAST_DONE:
        return HandlerResult::done();
      case HOLDFAST_RETRY_LATER:
        return HandlerResult::retry_later(answer.delay_ms, reason_text(answer.reason));
      default:
        return HandlerResult::reject(reason_text(answer.reason));
    }
  };
}

}  // namespace holdfast::c_api

namespace {

std::string bytes_of(const void* data, std::size_t size) {
  return data != nullptr ? std::string(static_cast<const char*>(data), size) : std::string();
}

Status event_of(const holdfast_event* given, Event& out) {
  if (given == nullptr) return missing("event");
  holdfast_event event;
  Status status = take(given, "event", event);
  if (!status.ok()) return status;
  if (event.payload == nullptr && event.payload_size != 0)
    return Status::error(Code::invalid, "payload: NULL, but payload_size is not 0");
  out.event_type = view_of(event.event_type);
  out.aggregate_type = view_of(event.aggregate_type);
  out.aggregate_id = view_of(event.aggregate_id);
  if (event.payload != nullptr)
    out.payload = std::string_view(static_cast<const char*>(event.payload), event.payload_size);
  out.payload_is_text = event.payload_is_text != 0;
  out.lane = event.lane;
  out.content_type = view_of(event.content_type);
  out.trace = view_of(event.trace);
  out.headers = view_of(event.headers);
  if (event.has_aggregate_version != 0) out.aggregate_version = event.aggregate_version;
  if (event.created_at_ms != 0) out.created_at_ms = event.created_at_ms;
  out.id = id_of(event.id);
  out.ttl_ms = event.ttl_ms;
  return Status();
}

Status record_of(const holdfast_record* given, EventRecord& out) {
  if (given == nullptr) return missing("event");
  holdfast_record record;
  Status status = take(given, "event", record);
  if (!status.ok()) return status;
  if (record.payload == nullptr && record.payload_size != 0)
    return Status::error(Code::invalid, "payload: NULL, but payload_size is not 0");
  out.seq = record.seq;
  out.id = id_of(record.id);
  out.event_type = text(record.event_type);
  out.aggregate_type = text(record.aggregate_type);
  out.aggregate_id = text(record.aggregate_id);
  out.payload = bytes_of(record.payload, record.payload_size);
  out.payload_is_text = record.payload_is_text != 0;
  out.lane = record.lane;
  out.content_type = text(record.content_type);
  out.trace = text(record.trace);
  out.headers = text(record.headers);
  if (record.has_aggregate_version != 0) out.aggregate_version = record.aggregate_version;
  out.created_at_ms = record.created_at_ms;
  out.source = text(record.source);
  out.source_stream = id_of(record.source_stream);
  out.source_seq = record.source_seq;
  out.ttl_ms = record.ttl_ms;
  return Status();
}

int checkpoint_frames(int given) {
  return given < 0 ? 0 : or_default(given, holdfast::kCheckpointFrames);
}

// What a function of the program returned, with the text that it left, if that is of this error.
Status told_by(const char* what, int code, const holdfast_status* told) {
  if (code == HOLDFAST_OK) return Status();
  const bool known = code > HOLDFAST_OK && code <= HOLDFAST_INTERNAL;
  const Code own = known ? static_cast<Code>(code) : Code::invalid;
  if (told != nullptr && told->code == code && told->text[0] != 0)
    return Status::native_error(own, told->native, "%s", told->text);
  return Status::error(own, "%s returned %d", what, code);
}

}  // namespace

// --- status and ids ----------------------------------------------------------------------------

extern "C" {

const char* holdfast_version(void) { return HOLDFAST_VERSION_STRING; }

const char* holdfast_code_name(int code) {
  if (code < HOLDFAST_OK || code > HOLDFAST_INTERNAL) return "?";
  return code_name(static_cast<Code>(code));
}

void holdfast_id_make(holdfast_id* id) {
  if (id != nullptr) *id = id_of(EventId::make_v7(system_clock().wall_ms()));
}

void holdfast_id_text(const holdfast_id* id, char text[HOLDFAST_ID_TEXT_BYTES]) {
  const std::string made = id_of(*id).text();
  std::memcpy(text, made.c_str(), HOLDFAST_ID_TEXT_BYTES);
}

int holdfast_id_parse(const char* text, holdfast_id* id) {
  EventId parsed;
  if (text == nullptr || id == nullptr || !EventId::parse(text, parsed)) return 0;
  *id = id_of(parsed);
  return 1;
}

// --- outbox ------------------------------------------------------------------------------------

holdfast_code holdfast_outbox_attach(sqlite3* db, const holdfast_outbox_options* options,
                                     holdfast_outbox** outbox, holdfast_status* status) {
  if (outbox == nullptr) return finish(missing("outbox"), status);
  *outbox = nullptr;
  holdfast_outbox_options given;
  Status result = take_optional(options, "holdfast_outbox_options", given);
  if (!result.ok()) return finish(result, status);
  OutboxOptions own;
  own.durability = given.relaxed != 0 ? Durability::relaxed : Durability::full;
  own.busy_timeout_ms = busy_timeout(given.busy_timeout_ms);
  own.checkpoint_frames = checkpoint_frames(given.checkpoint_frames);
  if (given.on_commit != nullptr)
    own.on_commit = [call = given.on_commit, context = given.context] { call(context); };
  auto made = std::make_unique<holdfast_outbox>();
  result = Outbox::attach(db, own, made->own);
  if (result.ok()) *outbox = made.release();
  return finish(result, status);
}

holdfast_code holdfast_outbox_emit(holdfast_outbox* outbox, const holdfast_event* event,
                                   holdfast_emitted* emitted, holdfast_status* status) {
  if (outbox == nullptr) return finish(missing("outbox"), status);
  Event own;
  Status result = event_of(event, own);
  Emitted made;
  if (result.ok()) result = outbox->outbox->emit(own, &made);
  if (result.ok() && emitted != nullptr) {
    emitted->seq = made.seq;
    emitted->id = id_of(made.id);
  }
  return finish(result, status);
}

holdfast_code holdfast_outbox_resolve(holdfast_outbox* outbox, const holdfast_emitted* emitted,
                                      holdfast_fate* fate, holdfast_status* status) {
  if (outbox == nullptr) return finish(missing("outbox"), status);
  if (emitted == nullptr) return finish(missing("emitted"), status);
  if (fate == nullptr) return finish(missing("fate"), status);
  Fate found = Fate::absent;
  const Status result = outbox->outbox->resolve(Emitted{emitted->seq, id_of(emitted->id)}, found);
  if (result.ok()) *fate = found == Fate::committed ? HOLDFAST_COMMITTED : HOLDFAST_ABSENT;
  return finish(result, status);
}

holdfast_code holdfast_outbox_resolve_id(holdfast_outbox* outbox, const holdfast_id* id,
                                         int64_t rows_max, holdfast_fate* fate,
                                         holdfast_status* status) {
  if (outbox == nullptr) return finish(missing("outbox"), status);
  if (id == nullptr) return finish(missing("id"), status);
  if (fate == nullptr) return finish(missing("fate"), status);
  Fate found = Fate::absent;
  const Status result = outbox->outbox->resolve(id_of(*id), rows_max, found);
  if (result.ok()) *fate = found == Fate::committed ? HOLDFAST_COMMITTED : HOLDFAST_ABSENT;
  return finish(result, status);
}

void holdfast_outbox_detach(holdfast_outbox* outbox) { delete outbox; }

// --- writer ------------------------------------------------------------------------------------

holdfast_code holdfast_writer_open(const char* path, const holdfast_writer_options* options,
                                   holdfast_writer** writer, holdfast_status* status) {
  if (writer == nullptr) return finish(missing("writer"), status);
  *writer = nullptr;
  if (path == nullptr) return finish(missing("path"), status);
  holdfast_writer_options given;
  Status result = take_optional(options, "holdfast_writer_options", given);
  if (!result.ok()) return finish(result, status);
  WriterOptions own;
  own.busy_timeout_ms = busy_timeout(given.busy_timeout_ms);
  own.wait_us = given.wait_us;
  own.members_max = or_default(given.members_max, holdfast::kMaxGroupMembers);
  own.checkpoint_frames = checkpoint_frames(given.checkpoint_frames);
  if (given.on_commit != nullptr)
    own.on_commit = [call = given.on_commit, context = given.context] { call(context); };
  if (given.setup != nullptr)
    own.setup = [call = given.setup, context = given.context](sqlite3* db) {
      return told_by("setup", call(context, db), nullptr);
    };
  auto made = std::make_unique<holdfast_writer>();
  result = Writer::open(path, own, made->writer);
  if (result.ok()) *writer = made.release();
  return finish(result, status);
}

holdfast_code holdfast_writer_run(holdfast_writer* writer, holdfast_work work, void* context,
                                  holdfast_status* status) {
  if (writer == nullptr) return finish(missing("writer"), status);
  if (work == nullptr) return finish(missing("work"), status);
  const Status result = writer->writer.run([&](sqlite3* db, Outbox& outbox) {
    writer->outbox.outbox = &outbox;
    holdfast_status told;
    std::memset(&told, 0, sizeof(told));
    return told_by("work", work(context, db, &writer->outbox, &told), &told);
  });
  return finish(result, status);
}

void holdfast_writer_close(holdfast_writer* writer) { delete writer; }

// --- inbox -------------------------------------------------------------------------------------

holdfast_code holdfast_inbox_attach(sqlite3* db, const holdfast_inbox_options* options,
                                    holdfast_inbox** inbox, holdfast_status* status) {
  if (inbox == nullptr) return finish(missing("inbox"), status);
  *inbox = nullptr;
  holdfast_inbox_options given;
  Status result = take_optional(options, "holdfast_inbox_options", given);
  if (result.ok() && given.guard != HOLDFAST_APPLY_ALL && given.guard != HOLDFAST_SKIP_STALE)
    result = Status::error(Code::invalid, "guard: not a holdfast_guard");
  if (!result.ok()) return finish(result, status);
  InboxOptions own;
  own.guard = static_cast<VersionGuard>(given.guard);
  own.busy_timeout_ms = busy_timeout(given.busy_timeout_ms);
  auto made = std::make_unique<holdfast_inbox>();
  result = Inbox::attach(db, own, made->inbox);
  if (result.ok()) *inbox = made.release();
  return finish(result, status);
}

holdfast_code holdfast_inbox_once(holdfast_inbox* inbox, const holdfast_record* event,
                                  const char* consumer, holdfast_handler handler, void* context,
                                  holdfast_applied* applied, holdfast_status* status) {
  if (inbox == nullptr) return finish(missing("inbox"), status);
  if (handler == nullptr) return finish(missing("handler"), status);
  EventRecord own;
  Status result = record_of(event, own);
  Applied done = Applied::done;
  if (result.ok())
    result = inbox->inbox.once(own, view_of(consumer), handler_of(handler, context), done);
  if (result.ok() && applied != nullptr) *applied = static_cast<holdfast_applied>(done);
  return finish(result, status);
}

void holdfast_inbox_detach(holdfast_inbox* inbox) { delete inbox; }

}  // extern "C"
