#include "event_row.hpp"

namespace holdfast {

namespace {

void bind_version(Statement& statement, int index, std::int64_t version) {
  if (version == kNoVersion)
    statement.bind_null(index);
  else
    statement.bind(index, version);
}

void bind_payload(Statement& statement, int index, std::string_view payload, bool is_text) {
  if (is_text)
    statement.bind_text(index, payload);
  else
    statement.bind_blob(index, payload);
}

}  // namespace

void bind_event(Statement& statement, const Event& event, const std::string& id_text,
                std::int64_t created_at_ms, std::int64_t emitted_ms) {
  statement.bind_text(1, id_text)
      .bind_text(2, event.event_type)
      .bind_text(3, event.aggregate_type)
      .bind_text(4, event.aggregate_id);
  bind_version(statement, 5, event.aggregate_version);
  statement.bind(6, created_at_ms)
      .bind_text_or_null(7, event.content_type)
      .bind_text_or_null(8, event.trace)
      .bind_text_or_null(9, event.headers)
      .bind(10, static_cast<std::int64_t>(event.lane));
  bind_payload(statement, 11, event.payload, event.payload_is_text);
  if (event.ttl_ms > 0)
    statement.bind(12, event.ttl_ms).bind(13, emitted_ms);
  else
    statement.bind_null(12).bind_null(13);
}

void bind_record(Statement& statement, const EventRecord& event, const std::string& id_text) {
  statement.bind_text(1, id_text)
      .bind_text(2, event.event_type)
      .bind_text(3, event.aggregate_type)
      .bind_text(4, event.aggregate_id);
  bind_version(statement, 5, event.aggregate_version);
  statement.bind(6, event.created_at_ms)
      .bind_text_or_null(7, event.content_type)
      .bind_text_or_null(8, event.trace)
      .bind_text_or_null(9, event.headers)
      .bind(10, static_cast<std::int64_t>(event.lane));
  bind_payload(statement, 11, event.payload, event.payload_is_text);
  statement.bind_text_or_null(12, event.source);
  if (event.source_stream.nil())
    statement.bind_null(13).bind_null(14);
  else
    statement.bind_id(13, event.source_stream).bind(14, event.source_seq);
}

Status read_event(const Statement& statement, EventRecord& event) {
  event.seq = statement.column_int(0);
  event.lane = statement.column_int(10) == kLaneUrgent ? kLaneUrgent : kLaneNormal;
  const bool id_ok = EventId::parse(statement.column_text(1), event.id);
  event.event_type = std::string(statement.column_text(2));
  event.aggregate_type = std::string(statement.column_text(3));
  event.aggregate_id = std::string(statement.column_text(4));
  event.aggregate_version = statement.column_is_null(5) ? kNoVersion : statement.column_int(5);
  event.created_at_ms = statement.column_int(6);
  event.content_type = std::string(statement.column_text(7));
  event.trace = std::string(statement.column_text(8));
  event.headers = std::string(statement.column_text(9));
  event.source = std::string(statement.column_text(11));
  event.source_stream = EventId();
  event.source_seq = 0;
  const bool source_ok =
      statement.column_is_null(12) || statement.column_id(12, event.source_stream);
  if (!statement.column_is_null(13)) event.source_seq = statement.column_int(13);
  event.payload_is_text = statement.column_is_text(14);
  event.payload = std::string(statement.column_blob(14));
  event.ttl_ms = statement.column_is_null(15) ? 0 : statement.column_int(15);
  event.emitted_ms = statement.column_is_null(16) ? -1 : statement.column_int(16);
  if (!id_ok) return Status::error(Code::invalid, "event_id: is not a UUID");
  if (!source_ok) return Status::error(Code::invalid, "source_stream: is not 16 bytes");
  return validate(event);
}

}  // namespace holdfast
