#include "message.hpp"

#include <time.h>

#include <array>
#include <cstdio>

#include "holdfast/clock.hpp"
#include "holdfast/json.hpp"
#include "json.hpp"

namespace holdfast::cli {
namespace {

constexpr std::size_t kDataDepthMax = 64;  // nesting of a payload that becomes JSON data
constexpr std::int64_t kYear10000Ms = 253'402'300'800'000;

using Attributes = std::vector<std::pair<std::string, std::string>>;

std::string encode(std::string_view text, std::string_view reserved) {
  const std::string out = percent_encode(text, [&](char c) {
    return static_cast<unsigned char>(c) > 0x20 && c != 0x7f && c != '%' &&
           reserved.find(c) == std::string_view::npos;
  });
  return out.empty() ? "-" : out;
}

// RFC 3339, UTC; "" where it has no text for it.
std::string time_text(std::int64_t wall_ms) {
  if (!wall_known(wall_ms) || wall_ms >= kYear10000Ms) return "";
  const time_t seconds = wall_ms / 1000;
  tm date{};
  ::gmtime_r(&seconds, &date);
  char text[40];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", date.tm_year + 1900,
                date.tm_mon + 1, date.tm_mday, date.tm_hour, date.tm_min, date.tm_sec,
                static_cast<int>(wall_ms % 1000));
  return text;
}

// A number as text whose order is that of the number, as CloudEvents' `sequence` wants it.
std::string sequence_text(std::int64_t seq) {
  char text[24];
  std::snprintf(text, sizeof text, "%019lld", static_cast<long long>(seq));
  return text;
}

bool is_json_type(const std::string& content_type) {
  const std::string type = content_type.substr(0, content_type.find(';'));
  return type == kContentTypeJson ||
         (type.size() > 5 && type.compare(type.size() - 5, 5, "+json") == 0);
}

std::string data_type(const EventRecord& event) {
  if (!event.content_type.empty()) return event.content_type;
  if (is_json_object(event.payload)) return std::string(kContentTypeJson);
  return is_utf8(event.payload) ? "text/plain; charset=utf-8" : "application/octet-stream";
}

// Every attribute but datacontenttype, in a fixed order; none is empty.
Attributes attributes_of(const EventRecord& event) {
  const std::string subject = event.aggregate_type + "/" + event.aggregate_id;
  const bool here = event.source_seq == 0;
  Attributes all = {
      {"specversion", "1.0"},
      {"id", event.id.text()},
      {"source", "/holdfast" + (event.source.empty() ? "" : "/" + encode(event.source, "/?#"))},
      {"type", event.event_type},
      {"subject", subject},
      {"time", time_text(event.created_at_ms)},
      {"partitionkey", subject},
      {"sequence", sequence_text(here ? event.seq : event.source_seq)},
      {"traceparent", event.trace},
      {"aggregateversion",
       event.aggregate_version == kNoVersion ? "" : std::to_string(event.aggregate_version)},
      {"stream", event.source_stream.nil() ? "" : event.source_stream.text()},
      {"lane", event.lane == kLaneUrgent ? "urgent" : ""},
      {"headers", event.headers},
  };
  Attributes set;
  for (auto& each : all) {
    if (!each.second.empty()) set.push_back(std::move(each));
  }
  return set;
}

std::string structured(const EventRecord& event) {
  JsonLine line;
  for (const auto& [name, value] : attributes_of(event)) line.text(name, value);
  const std::string type = data_type(event);
  line.text("datacontenttype", type);
  if (is_json_type(type) && json::valid(event.payload, kDataDepthMax)) {
    line.raw("data", event.payload);
  } else if (!is_json_type(type) && is_utf8(event.payload)) {
    line.text("data", event.payload);
  } else {
    line.text("data_base64", base64(event.payload));
  }
  return line.finish();
}

constexpr std::array<const char*, 5> kPlaces = {"{event_type}", "{aggregate_type}",
                                                "{aggregate_id}", "{source}", "{lane}"};

const std::string& value_of(const EventRecord& event, std::size_t place) {
  static const std::string kLanes[] = {"normal", "urgent"};
  switch (place) {
    case 0:
      return event.event_type;
    case 1:
      return event.aggregate_type;
    case 2:
      return event.aggregate_id;
    case 3:
      return event.source;
    default:
      return kLanes[event.lane == kLaneUrgent ? 1 : 0];
  }
}

// The place that begins at `at`, or kPlaces.size().
std::size_t place_at(const std::string& text, std::size_t at) {
  std::size_t i = 0;
  while (i < kPlaces.size() && text.compare(at, std::string_view(kPlaces[i]).size(), kPlaces[i])) {
    ++i;
  }
  return i;
}

}  // namespace

Status take_format(SinkUrl& url, MessageFormat& format) {
  std::string text = "json";
  url.take("format", text);
  if (text == "json") {
    format = MessageFormat::json;
  } else if (text == "cloudevents") {
    format = MessageFormat::cloudevents;
  } else if (text == "cloudevents-binary") {
    format = MessageFormat::cloudevents_binary;
  } else {
    return Status::error(Code::invalid,
                         "sink %s: format is json, cloudevents or cloudevents-binary",
                         url.name.c_str());
  }
  return {};
}

Message message_of(const EventRecord& event, MessageFormat format) {
  switch (format) {
    case MessageFormat::json:
      break;
    case MessageFormat::cloudevents:
      return {"application/cloudevents+json", {}, structured(event)};
    case MessageFormat::cloudevents_binary:
      return {data_type(event), attributes_of(event), event.payload};
  }
  return {std::string(kContentTypeJson), {}, event_line(event)};
}

Status NameTemplate::parse(const std::string& text, const char* reserved,
                           const char* reserved_in_type, const std::string& sink) {
  text_ = text;
  reserved_ = reserved;
  reserved_in_type_ = reserved_in_type;
  for (std::size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    if (place_at(text, at) < kPlaces.size()) continue;
    return Status::error(Code::invalid,
                         "sink %s: %s: what stands in { } is event_type, aggregate_type, "
                         "aggregate_id, source or lane",
                         sink.c_str(), text.c_str());
  }
  if (text.empty() || !is_plain_text(text)) {
    return Status::error(Code::invalid, "sink %s: the template is empty or no plain text",
                         sink.c_str());
  }
  return {};
}

std::string NameTemplate::fill(const EventRecord& event) const {
  std::string out;
  for (std::size_t at = 0; at < text_.size();) {
    const std::size_t place = text_[at] == '{' ? place_at(text_, at) : kPlaces.size();
    if (place == kPlaces.size()) {
      out += text_[at++];
      continue;
    }
    out += encode(value_of(event, place), place == 0 ? reserved_in_type_ : reserved_);
    at += std::string_view(kPlaces[place]).size();
  }
  return out;
}

}  // namespace holdfast::cli
