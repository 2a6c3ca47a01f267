// An event: the fact that something happened to an aggregate, as written by a producer (Event) and
// as read back from the log (EventRecord). Events are written once and never changed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "holdfast/status.hpp"

namespace holdfast {

// Limits. An event beyond one is refused at emit with a Status that names the field (G8).
constexpr std::size_t kMaxEventTypeBytes = 128;
constexpr std::size_t kMaxAggregateTypeBytes = 128;
constexpr std::size_t kMaxAggregateIdBytes = 256;
constexpr std::size_t kMaxContentTypeBytes = 128;
constexpr std::size_t kMaxTraceBytes = 128;           // W3C traceparent is 55 bytes
constexpr std::size_t kMaxHeadersBytes = 8 * 1024;    // JSON text
constexpr std::size_t kMaxHeadersDepth = 16;          // nesting of objects and arrays
constexpr std::size_t kMaxPayloadBytes = 900 * 1024;  // fits a 1 MiB frame with everything else
constexpr std::int64_t kMaxTtlMs = 100LL * 365 * 24 * 3600 * 1000;
constexpr std::size_t kMaxDeviceNameBytes = 64;
constexpr std::size_t kMaxReasonBytes = 200;  // of a rejection; longer texts are cut

// Content types of typed payloads (typed.hpp). On the wire each costs a bit instead of its text.
constexpr std::string_view kContentTypeJson = "application/json";
constexpr std::string_view kContentTypeCereal = "application/x-cereal-portable-binary";

// Lanes are separate streams: order holds within a lane. Urgent events overtake any backlog.
constexpr int kLaneNormal = 0;
constexpr int kLaneUrgent = 1;
constexpr int kLaneCount = 2;

// A UUID (RFC 9562). New ids are version 7: time-ordered, which keeps the inbox's index local.
struct EventId {
  std::array<std::uint8_t, 16> bytes{};

  static constexpr std::size_t kTextBytes = 36;

  bool nil() const;
  std::string text() const;                                // lower case, with hyphens
  static bool parse(std::string_view text, EventId& out);  // either case; false if not a UUID
  // Version 7 from a wall time in ms and the kernel's random source.
  static EventId make_v7(std::int64_t wall_ms);
  static EventId make_random();  // version 4: stream and store ids

  friend bool operator==(const EventId& a, const EventId& b) { return a.bytes == b.bytes; }
  friend bool operator!=(const EventId& a, const EventId& b) { return !(a == b); }
  friend bool operator<(const EventId& a, const EventId& b) { return a.bytes < b.bytes; }
};

constexpr std::int64_t kNoVersion = INT64_MIN;  // aggregate_version not set
constexpr std::int64_t kNow = INT64_MIN;        // created_at: take the wall clock

// What a producer gives. The views need to live only until emit() returns.
struct Event {
  std::string_view event_type;      // required, e.g. "sensor.reading.v1"
  std::string_view aggregate_type;  // required, e.g. "sensor"
  std::string_view aggregate_id;    // required, e.g. "boiler-1"
  std::string_view payload;         // any bytes
  bool payload_is_text = false;     // stored as TEXT (must be UTF-8), so that SQL can read it
  std::string_view content_type;    // "" = none given
  std::string_view trace;           // W3C traceparent, "" = none
  std::string_view headers;         // a JSON object, "" = none
  std::int64_t aggregate_version = kNoVersion;
  std::int64_t created_at_ms = kNow;  // Unix time in ms; information only, never orders anything
  int lane = kLaneNormal;
  EventId id{};  // nil: a new version 7 id is made
  // Not worth delivering any more after so long; 0: always. Counted in the time the machine was on
  // (and off, where the clock was known), never by the wall clock. An event that is not sent by
  // then is given up with a gap record `expired`; never early, and not while it is under way.
  std::int64_t ttl_ms = 0;
};

// What the log holds. Owns its bytes.
struct EventRecord {
  std::int64_t seq = 0;  // commit order in this database
  EventId id{};
  std::string event_type;
  std::string aggregate_type;
  std::string aggregate_id;
  std::int64_t aggregate_version = kNoVersion;
  // Unix time in ms. Of an event from before the clock was set: its right time, if that is known by
  // now; else below kWallClockKnownFromMs (clock.hpp), and unknown.
  std::int64_t created_at_ms = 0;
  std::string content_type;
  std::string trace;
  std::string headers;
  int lane = kLaneNormal;
  std::string source;           // device name as told by the sender; "" = this device
  EventId source_stream{};      // identity of the stream it was emitted on; nil = this device
  std::int64_t source_seq = 0;  // seq in that stream; 0 = this device
  std::string payload;
  bool payload_is_text = false;
  std::int64_t ttl_ms = 0;       // 0: none; of the log it was emitted to alone
  std::int64_t emitted_ms = -1;  // powered time; -1: not known, see powered_time.hpp
};

// Checks every field against the limits and formats above. The text names the field.
Status validate(const Event& event);
Status validate(const EventRecord& record);

// True if the bytes are well-formed UTF-8 (RFC 3629).
bool is_utf8(std::string_view bytes);
// True if they are UTF-8 without control characters (C0, DEL, C1), which would break the lines of
// logs and listings or steer the terminal that shows them.
bool is_plain_text(std::string_view bytes);
// True if text is one JSON object (RFC 8259) nested at most kMaxHeadersDepth deep.
bool is_json_object(std::string_view text);

}  // namespace holdfast
