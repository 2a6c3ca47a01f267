#include "json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "characters.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/json.hpp"

namespace holdfast::cli {
namespace {

constexpr std::size_t kEventDepthMax = 64;  // nesting of one input line

constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void append_unicode_escape(std::string& out, std::uint32_t code) {
  if (code < 0x10000) {
    append_hex(out, "\\u%04x", code);
    return;
  }
  append_hex(out, "\\u%04x", 0xd800 + ((code - 0x10000) >> 10));
  append_hex(out, "\\u%04x", 0xdc00 + ((code - 0x10000) & 0x3ffU));
}

// A valid JSON text on one line, with the same meaning and nothing a terminal obeys. Numbers keep
// every digit: headers are shown, and read back, as the producer wrote them.
std::string compact(std::string_view json) {
  std::string out;
  bool in_string = false;
  while (!json.empty()) {
    const char c = json.front();
    std::uint32_t code = 0;
    const std::size_t length = decode_utf8(json, code);
    if (in_string && c == '\\') {
      out += json.substr(0, 2);
      json.remove_prefix(2);
      continue;
    }
    if (c == '"') in_string = !in_string;
    if (!in_string && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
      json.remove_prefix(1);
      continue;
    }
    if (is_unsafe_to_show(code)) {
      append_unicode_escape(out, code);
    } else {
      out += json.substr(0, length);
    }
    json.remove_prefix(length);
  }
  return out;
}

// nlohmann's text of a value; what is not UTF-8 becomes U+FFFD.
std::string dump(const nlohmann::json& value) {
  return compact(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// --- reading ---

struct Field {
  std::string_view name;
  bool (*take)(std::string_view value, ParsedEvent& event, std::string& why);
};

bool take_text(std::string_view value, std::string& out, std::string& why) {
  if (json::type_of(value) != json::Type::string) {
    why = "must be a string";
    return false;
  }
  out = json::unescape(value);
  return true;
}

bool take_integer(std::string_view value, std::int64_t& out, std::string& why) {
  if (json::type_of(value) == json::Type::number && parse_integer(value, out)) return true;
  why = "must be an integer";
  return false;
}

bool take_id(std::string_view value, ParsedEvent& event, std::string& why) {
  std::string text;
  if (!take_text(value, text, why)) return false;
  if (EventId::parse(text, event.id) && !event.id.nil()) return true;
  why = "is not a UUID";
  return false;
}

bool take_payload(std::string_view value, ParsedEvent& event, std::string& why) {
  switch (json::type_of(value)) {
    case json::Type::string:
      event.payload = json::unescape(value);
      return true;
    case json::Type::object:
    case json::Type::array:
      event.payload = value;
      if (event.content_type.empty()) event.content_type = "application/json";
      return true;
    default:
      why = "must be a string, an object or an array";
      return false;
  }
}

bool take_base64(std::string_view value, ParsedEvent& event, std::string& why) {
  std::string text;
  if (!take_text(value, text, why)) return false;
  if (parse_base64(text, event.payload)) return true;
  why = "is not base64 (RFC 4648, with padding)";
  return false;
}

bool take_headers(std::string_view value, ParsedEvent& event, std::string& why) {
  switch (json::type_of(value)) {
    case json::Type::object:
      event.headers = value;
      return true;
    case json::Type::string:
      event.headers = json::unescape(value);
      return true;
    default:
      why = "must be an object";
      return false;
  }
}

bool take_lane(std::string_view value, ParsedEvent& event, std::string& why) {
  const bool quoted = json::type_of(value) == json::Type::string;
  if (parse_lane(quoted ? json::unescape(value) : std::string(value), event.lane)) return true;
  why = "must be 0 (normal) or 1 (urgent)";
  return false;
}

bool ignore(std::string_view, ParsedEvent&, std::string&) { return true; }

constexpr Field kFields[] = {
    {"event_id", take_id},
    {"event_type", [](std::string_view v, ParsedEvent& e,
                      std::string& w) { return take_text(v, e.event_type, w); }},
    {"aggregate_type", [](std::string_view v, ParsedEvent& e,
                          std::string& w) { return take_text(v, e.aggregate_type, w); }},
    {"aggregate_id", [](std::string_view v, ParsedEvent& e,
                        std::string& w) { return take_text(v, e.aggregate_id, w); }},
    {"aggregate_version", [](std::string_view v, ParsedEvent& e,
                             std::string& w) { return take_integer(v, e.aggregate_version, w); }},
    {"created_at", [](std::string_view v, ParsedEvent& e,
                      std::string& w) { return take_integer(v, e.created_at_ms, w); }},
    {"created_at_known", ignore},  // created_at says it
    {"content_type", [](std::string_view v, ParsedEvent& e,
                        std::string& w) { return take_text(v, e.content_type, w); }},
    {"trace",
     [](std::string_view v, ParsedEvent& e, std::string& w) { return take_text(v, e.trace, w); }},
    {"headers", take_headers},
    {"lane", take_lane},
    {"ttl_ms", [](std::string_view v, ParsedEvent& e,
                  std::string& w) { return take_integer(v, e.ttl_ms, w); }},
    {"payload", take_payload},
    {"payload_base64", take_base64},
    // Of an event's place in another log, as printed there.
    {"seq", ignore},
    {"source", ignore},
    {"source_stream", ignore},
    {"source_seq", ignore},
    {"destination", ignore},
    {"status", ignore},
    {"attempts", ignore},
    {"next_attempt_ms", ignore},
    {"last_error", ignore},
    {"gone_reason", ignore},
};
constexpr std::size_t kFieldCount = sizeof kFields / sizeof kFields[0];

std::size_t field_of(const std::string& name) {
  std::size_t i = 0;
  while (i < kFieldCount && kFields[i].name != name) ++i;
  return i;
}

bool check_required(const std::array<bool, kFieldCount>& seen, std::string& why) {
  for (const char* name : {"event_type", "aggregate_type", "aggregate_id"}) {
    if (seen[field_of(name)]) continue;
    why = std::string(name) + " is missing";
    return false;
  }
  if (seen[field_of("payload")] && seen[field_of("payload_base64")]) {
    why = "payload and payload_base64 are both given";
    return false;
  }
  return true;
}

int base64_digit(char c) {
  const std::size_t at = kBase64Digits.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

}  // namespace

void JsonLine::name(std::string_view name) {
  if (line_.size() > 1) line_ += ',';
  line_ += dump(name);
  line_ += ':';
}

JsonLine& JsonLine::text(std::string_view field, std::string_view value) {
  return raw(field, dump(value));
}

JsonLine& JsonLine::text_if_set(std::string_view field, std::string_view value) {
  return value.empty() ? *this : text(field, value);
}

JsonLine& JsonLine::number(std::string_view field, std::int64_t value) {
  return raw(field, std::to_string(value));
}

JsonLine& JsonLine::real(std::string_view field, double value) { return raw(field, dump(value)); }

JsonLine& JsonLine::boolean(std::string_view field, bool value) {
  return raw(field, value ? "true" : "false");
}

JsonLine& JsonLine::raw(std::string_view field, std::string_view json) {
  name(field);
  line_ += json;
  return *this;
}

void add_event(JsonLine& line, const EventRecord& event) {
  line.number("seq", event.seq)
      .text("event_id", event.id.text())
      .text("event_type", event.event_type)
      .text("aggregate_type", event.aggregate_type)
      .text("aggregate_id", event.aggregate_id);
  if (event.aggregate_version != kNoVersion) {
    line.number("aggregate_version", event.aggregate_version);
  }
  line.number("created_at", event.created_at_ms);
  if (!wall_known(event.created_at_ms)) line.boolean("created_at_known", false);
  line.text_if_set("content_type", event.content_type).text_if_set("trace", event.trace);
  if (is_json_object(event.headers)) {
    line.raw("headers", compact(event.headers));
  } else {
    line.text_if_set("headers", event.headers);
  }
  line.number("lane", event.lane).text_if_set("source", event.source);
  if (event.ttl_ms > 0) line.number("ttl_ms", event.ttl_ms);
  if (is_utf8(event.payload)) {
    line.text("payload", event.payload);
  } else {
    line.text("payload_base64", base64(event.payload));
  }
}

std::string event_line(const EventRecord& event) {
  JsonLine line;
  add_event(line, event);
  return line.finish();
}

std::string event_line(const EventView& view) {
  JsonLine line;
  add_event(line, view.event);
  line.text_if_set("destination", view.destination).text("status", state_name(view.state));
  line.number("attempts", view.attempts);
  if (view.next_attempt_in_ms >= 0) line.number("next_attempt_ms", view.next_attempt_in_ms);
  line.text_if_set("last_error", view.last_error).text_if_set("gone_reason", view.gone_reason);
  return line.finish();
}

Event ParsedEvent::event() const {
  Event out;
  out.event_type = event_type;
  out.aggregate_type = aggregate_type;
  out.aggregate_id = aggregate_id;
  out.payload = payload;
  out.payload_is_text = is_sql_text(payload);
  out.content_type = content_type;
  out.trace = trace;
  out.headers = headers;
  out.aggregate_version = aggregate_version;
  out.created_at_ms = created_at_ms;
  out.lane = lane;
  out.ttl_ms = ttl_ms;
  out.id = id;
  return out;
}

bool parse_event(std::string_view text, ParsedEvent& event, std::string& why) {
  event = ParsedEvent{};
  if (!json::valid(text, kEventDepthMax)) {
    why = "is not valid JSON in UTF-8, or nested more than " + std::to_string(kEventDepthMax) +
          " deep";
    return false;
  }
  const std::string_view value = text.substr(text.find_first_not_of(" \t\r\n"));
  if (json::type_of(value) != json::Type::object) {
    why = "is not a JSON object";
    return false;
  }
  std::array<bool, kFieldCount> seen{};
  for (json::Members members(value); members.next();) {
    const std::string name = json::unescape(members.name());
    const std::size_t index = field_of(name);
    if (index == kFieldCount) {
      why = "unknown field \"" + name + "\"";
      return false;
    }
    if (seen[index]) {
      why = name + " is given twice";
      return false;
    }
    seen[index] = true;
    std::string problem;
    if (!kFields[index].take(members.value(), event, problem)) {
      why = name + " " + problem;
      return false;
    }
  }
  return check_required(seen, why);
}

bool is_sql_text(std::string_view bytes) {
  return bytes.find('\0') == std::string_view::npos && is_utf8(bytes);
}

bool parse_lane(std::string_view text, int& lane) {
  if (text == "normal" || text == "0") {
    lane = kLaneNormal;
  } else if (text == "urgent" || text == "1") {
    lane = kLaneUrgent;
  } else {
    return false;
  }
  return true;
}

bool parse_integer(std::string_view text, std::int64_t& value) {
  const char* const start = text.data();  // NOLINT: it is used with its end
  const char* const end = start + text.size();
  const std::from_chars_result result = std::from_chars(start, end, value);
  return result.ec == std::errc() && result.ptr == end;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < left ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= left ? kBase64Digits[group >> (18 - 6 * k) & 0x3fU] : '=';
    }
  }
  return out;
}

bool parse_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.size() % 4 != 0) return false;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    std::size_t pads = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const char c = text[i + k];
      const bool last_group = i + 4 == text.size();
      if (c == '=' && last_group && k >= 2) {
        ++pads;
        group <<= 6;
        continue;
      }
      const int digit = base64_digit(c);
      if (digit < 0 || pads > 0) return false;
      group = group << 6 | static_cast<std::uint32_t>(digit);
    }
    for (std::size_t k = 0; k < 3 - pads; ++k) bytes += static_cast<char>(group >> (16 - 8 * k));
  }
  return true;
}

}  // namespace holdfast::cli
