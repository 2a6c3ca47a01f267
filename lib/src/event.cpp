#include "holdfast/event.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

namespace holdfast {
namespace {

constexpr std::int64_t kLastMsOfYear9999 = 253'402'300'799'999;

// --- random bytes ---

bool read_urandom(void* out, std::size_t size) {
  const int fd = ::open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t got = ::read(fd, out, size);
  ::close(fd);
  return got == static_cast<ssize_t>(size);
}

std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Only where the kernel has neither getrandom(2) nor /dev/urandom, as in a bare chroot: ids have to
// differ, not to be secret.
void guess_bytes(void* out, std::size_t size) {
  timespec boot{};
  timespec wall{};
  ::clock_gettime(CLOCK_MONOTONIC, &boot);
  ::clock_gettime(CLOCK_REALTIME, &wall);
  static std::atomic<std::uint32_t> calls{0};
  std::uint64_t state = static_cast<std::uint64_t>(boot.tv_nsec) ^
                        static_cast<std::uint64_t>(boot.tv_sec) << 32 ^
                        static_cast<std::uint64_t>(wall.tv_nsec) << 17 ^
                        static_cast<std::uint64_t>(::getpid()) << 48 ^ ++calls;
  auto* bytes = static_cast<unsigned char*>(out);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(splitmix(state));
}

// At most 256 bytes, which getrandom(2) gives whole or not at all.
void random_bytes(void* out, std::size_t size) {
  ssize_t got = 0;
  do {
    got = ::getrandom(out, size, 0);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(size)) return;
  if (!read_urandom(out, size)) guess_bytes(out, size);
}

// --- UUID version 7 ---

constexpr int kCounterBits = 12;
// A clock that steps back further than this was corrected, and new ids follow it; less, and they
// keep increasing from the last one.
constexpr std::int64_t kStepBackToleratedMs = 10'000;

std::mutex g_v7_mutex;
std::uint64_t g_v7_last = 0;  // ms << kCounterBits | counter, as in the id made last

// RFC 9562, section 6.2, method 1: the 12 bits behind the time count within a millisecond, starting
// at a random place in the lower half. What counts beyond 12 bits carries into the time.
std::uint64_t next_v7_time(std::int64_t wall_ms, std::uint64_t random) {
  constexpr std::int64_t kLastMs = (std::int64_t{1} << 48) - 1;
  const std::int64_t ms = wall_ms < 0 ? 0 : wall_ms > kLastMs ? kLastMs : wall_ms;
  const std::uint64_t start = static_cast<std::uint64_t>(ms) << kCounterBits | (random & 0x7FF);

  const std::lock_guard<std::mutex> lock(g_v7_mutex);
  const std::int64_t last_ms = static_cast<std::int64_t>(g_v7_last >> kCounterBits);
  const bool follow_clock = ms > last_ms || ms < last_ms - kStepBackToleratedMs;
  g_v7_last = follow_clock ? start : g_v7_last + 1;
  return g_v7_last;
}

void set_version(EventId& id, unsigned version) {
  id.bytes[6] = static_cast<std::uint8_t>((id.bytes[6] & 0x0F) | version << 4);
  id.bytes[8] = static_cast<std::uint8_t>((id.bytes[8] & 0x3F) | 0x80);  // the RFC's variant
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool hyphen_before_byte(std::size_t byte) {
  return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

// --- field formats ---

// The length of the well-formed character at the start of the bytes, 0 if there is none: RFC 3629,
// section 4 (no surrogates, no overlong forms, nothing above U+10FFFF).
std::size_t utf8_character(const unsigned char* at, std::size_t left) {
  const unsigned char lead = at[0];
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (left < length) return 0;
  const unsigned char second_min = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char second_max = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (at[1] < second_min || at[1] > second_max) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (at[i] < 0x80 || at[i] > 0xBF) return 0;
  }
  return length;
}

// C0, DEL and C1.
bool has_control_character(std::string_view utf8) {
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x20 || c == 0x7F) return true;
    if (c == 0xC2 && i + 1 < utf8.size() && static_cast<unsigned char>(utf8[i + 1]) < 0xA0) {
      return true;
    }
  }
  return false;
}

bool is_lower_hex(std::string_view text) {
  for (const char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

bool is_all_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

// W3C Trace Context, section 3.2: version-traceid-parentid-flags. Version ff is forbidden; a later
// version than 00 may go on behind a hyphen.
bool is_traceparent(std::string_view text) {
  constexpr std::size_t kBytes = 55;
  if (text.size() < kBytes) return false;
  const std::string_view version = text.substr(0, 2);
  const std::string_view trace_id = text.substr(3, 32);
  const std::string_view parent_id = text.substr(36, 16);
  const std::string_view flags = text.substr(53, 2);
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
  if (!is_lower_hex(version) || !is_lower_hex(trace_id) || !is_lower_hex(parent_id) ||
      !is_lower_hex(flags)) {
    return false;
  }
  if (version == "ff" || is_all_zero(trace_id) || is_all_zero(parent_id)) return false;
  return text.size() == kBytes || (version != "00" && text[kBytes] == '-');
}

// --- checks of one field, with its name in the text ---

Status too_long(const char* field, std::size_t bytes, std::size_t bytes_max) {
  return Status::error(Code::invalid, "%s has %zu bytes, at most %zu are allowed", field, bytes,
                       bytes_max);
}

Status check_text(const char* field, std::string_view text, std::size_t bytes_max) {
  if (text.size() > bytes_max) return too_long(field, text.size(), bytes_max);
  if (is_plain_text(text)) return {};
  if (!is_utf8(text)) return Status::error(Code::invalid, "%s is not UTF-8", field);
  return Status::error(Code::invalid, "%s contains a control character", field);
}

Status check_required_text(const char* field, std::string_view text, std::size_t bytes_max) {
  if (text.empty()) return Status::error(Code::invalid, "%s is empty", field);
  return check_text(field, text, bytes_max);
}

Status check_trace(std::string_view trace) {
  if (trace.empty()) return {};
  if (trace.size() > kMaxTraceBytes) return too_long("trace", trace.size(), kMaxTraceBytes);
  if (!is_traceparent(trace)) {
    return Status::error(Code::invalid,
                         "trace is not a W3C traceparent (00-<32 hex>-<16 hex>-<2 hex>)");
  }
  return {};
}

Status check_headers(std::string_view headers) {
  if (headers.empty()) return {};
  if (headers.size() > kMaxHeadersBytes)
    return too_long("headers", headers.size(), kMaxHeadersBytes);
  if (!is_json_object(headers)) {
    return Status::error(Code::invalid, "headers is not a JSON object nested at most %zu deep",
                         kMaxHeadersDepth);
  }
  return {};
}

Status check_payload(std::string_view payload, bool is_text) {
  if (payload.size() > kMaxPayloadBytes)
    return too_long("payload", payload.size(), kMaxPayloadBytes);
  if (!is_text) return {};
  // SQLite's text functions stop at a NUL (sqlite.org/nulinstr.html).
  if (payload.find('\0') != std::string_view::npos) {
    return Status::error(Code::invalid, "payload is marked as text but contains a NUL");
  }
  if (!is_utf8(payload)) {
    return Status::error(Code::invalid, "payload is marked as text but is not UTF-8");
  }
  return {};
}

Status check_created_at(std::int64_t ms) {
  if (ms >= 0 && ms <= kLastMsOfYear9999) return {};
  return Status::error(Code::invalid, "created_at is not between the years 1970 and 9999");
}

Status check_lane(int lane) {
  if (lane >= 0 && lane < kLaneCount) return {};
  return Status::error(Code::invalid, "lane is %d, not 0 (normal) or 1 (urgent)", lane);
}

// What Event and EventRecord have in common.
template <typename AnyEvent>
Status check_common(const AnyEvent& event) {
  Status status = check_required_text("event_type", event.event_type, kMaxEventTypeBytes);
  if (!status.ok()) return status;
  status = check_required_text("aggregate_type", event.aggregate_type, kMaxAggregateTypeBytes);
  if (!status.ok()) return status;
  status = check_required_text("aggregate_id", event.aggregate_id, kMaxAggregateIdBytes);
  if (!status.ok()) return status;
  status = check_text("content_type", event.content_type, kMaxContentTypeBytes);
  if (!status.ok()) return status;
  status = check_trace(event.trace);
  if (!status.ok()) return status;
  status = check_headers(event.headers);
  if (!status.ok()) return status;
  status = check_lane(event.lane);
  if (!status.ok()) return status;
  if (event.ttl_ms < 0 || event.ttl_ms > kMaxTtlMs)
    return Status::error(Code::invalid, "ttl_ms is not between 0 and 100 years");
  return check_payload(event.payload, event.payload_is_text);
}

Status check_source(const EventRecord& record) {
  Status status = check_text("source", record.source, kMaxDeviceNameBytes);
  if (!status.ok()) return status;
  if (record.source_seq < 0) return Status::error(Code::invalid, "source_seq is negative");
  if (record.source_stream.nil() != (record.source_seq == 0)) {
    return Status::error(Code::invalid, "source_stream and source_seq are set only together");
  }
  return {};
}

}  // namespace

bool EventId::nil() const {
  for (const std::uint8_t byte : bytes) {
    if (byte != 0) return false;
  }
  return true;
}

std::string EventId::text() const {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(kTextBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (hyphen_before_byte(i)) out.push_back('-');
    out.push_back(kHex[bytes[i] >> 4]);
    out.push_back(kHex[bytes[i] & 0x0F]);
  }
  return out;
}

bool EventId::parse(std::string_view text, EventId& out) {
  if (text.size() != kTextBytes) return false;
  EventId id;
  std::size_t at = 0;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    if (hyphen_before_byte(i) && text[at++] != '-') return false;
    const int high = hex_digit(text[at]);
    const int low = hex_digit(text[at + 1]);
    if (high < 0 || low < 0) return false;
    id.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
    at += 2;
  }
  out = id;
  return true;
}

EventId EventId::make_v7(std::int64_t wall_ms) {
  std::uint64_t random[2];  // [0]: where the counter starts, [1]: the last eight bytes of the id
  random_bytes(random, sizeof random);
  const std::uint64_t time = next_v7_time(wall_ms, random[0]);
  const std::uint64_t ms = time >> kCounterBits;
  EventId id;
  for (std::size_t i = 0; i < 6; ++i) id.bytes[i] = static_cast<std::uint8_t>(ms >> (40 - 8 * i));
  id.bytes[6] = static_cast<std::uint8_t>(time >> 8 & 0x0F);
  id.bytes[7] = static_cast<std::uint8_t>(time);
  std::memcpy(&id.bytes[8], &random[1], 8);
  set_version(id, 7);
  return id;
}

EventId EventId::make_random() {
  EventId id;
  random_bytes(id.bytes.data(), id.bytes.size());
  set_version(id, 4);
  return id;
}

Status validate(const Event& event) {
  Status status = check_common(event);
  if (!status.ok()) return status;
  return event.created_at_ms == kNow ? Status() : check_created_at(event.created_at_ms);
}

Status validate(const EventRecord& record) {
  if (record.seq < 1) return Status::error(Code::invalid, "seq is not above 0");
  if (record.id.nil()) return Status::error(Code::invalid, "event_id is not set");
  Status status = check_common(record);
  if (!status.ok()) return status;
  status = check_source(record);
  if (!status.ok()) return status;
  return check_created_at(record.created_at_ms);
}

bool is_utf8(std::string_view bytes) {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  while (left > 0) {
    const std::size_t length = utf8_character(at, left);
    if (length == 0) return false;
    at += length;
    left -= length;
  }
  return true;
}

bool is_plain_text(std::string_view bytes) {
  return is_utf8(bytes) && !has_control_character(bytes);
}

}  // namespace holdfast
