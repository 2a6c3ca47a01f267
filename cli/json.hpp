// Events as JSON: what --json prints, and what `emit --ndjson` reads. The field names are those of
// the command line's contract; a field that is not set is absent, never null.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "holdfast/event.hpp"
#include "holdfast/store.hpp"

namespace holdfast::cli {

// One JSON object on one line. Text that is not UTF-8 gets U+FFFD in place of the bad bytes, and
// control and bidirectional characters are always escaped: a JSON line shown on a terminal is as
// harmless as any other output.
class JsonLine {
 public:
  JsonLine& text(std::string_view name, std::string_view value);
  JsonLine& text_if_set(std::string_view name, std::string_view value);
  JsonLine& number(std::string_view name, std::int64_t value);
  JsonLine& real(std::string_view name, double value);
  JsonLine& boolean(std::string_view name, bool value);
  JsonLine& raw(std::string_view name, std::string_view json);  // a valid JSON value
  std::string finish() const { return line_ + "}"; }

 private:
  void name(std::string_view name);
  std::string line_ = "{";
};

// The fields of an event: seq, event_id, event_type, …, payload or payload_base64.
void add_event(JsonLine& line, const EventRecord& event);
// Those, and destination, status, attempts, next_attempt_ms (from now), last_error.
std::string event_line(const EventView& view);
std::string event_line(const EventRecord& event);

// An event as read from JSON; owns its bytes.
struct ParsedEvent {
  EventId id{};
  std::string event_type, aggregate_type, aggregate_id, payload, content_type, trace, headers;
  std::int64_t aggregate_version = kNoVersion;
  std::int64_t created_at_ms = kNow;
  int lane = kLaneNormal;
  std::int64_t ttl_ms = 0;

  Event event() const;
};

// Reads one JSON object. Required: event_type, aggregate_type, aggregate_id. The payload is a
// string, or payload_base64, or an object or array, which is taken byte for byte as it stands and
// gets the content type application/json if none is given. What `ls --json` prints may be read
// back: seq, source and the fields of an event's state are ignored. A name that is none of these
// is an error, as is one that comes twice: a misspelt field must not be dropped in silence.
// False with the reason in `why`.
bool parse_event(std::string_view json, ParsedEvent& event, std::string& why);

// True for text that SQL can read as text: UTF-8 without NUL.
bool is_sql_text(std::string_view bytes);
bool parse_lane(std::string_view text, int& lane);  // "normal", "urgent", "0", "1"
bool parse_integer(std::string_view text, std::int64_t& value);

std::string base64(std::string_view bytes);
bool parse_base64(std::string_view text, std::string& bytes);  // RFC 4648 section 4, padded

}  // namespace holdfast::cli
