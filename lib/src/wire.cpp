#include "wire.hpp"

#include <cereal/cereal.hpp>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

// How bytes are laid out here: fixed little-endian integers, texts as u32 length and bytes, lists
// as u32 count and records, records as u32 length and fields. A reader takes the fields it knows
// and skips the rest of a record and of a body, so that later software may append fields.
//
// Why not cereal's own archives: they allocate whatever a length in the input says before they look
// whether it is there, and their lengths are 64 bits wide.

namespace holdfast::wire {
namespace {

// Thrown and caught in this file only.
struct Malformed {
  const char* what;
};

[[noreturn]] void malformed(const char* what) { throw Malformed{what}; }

// --- integers ---

template <typename Int>
Int little_endian(Int value) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  unsigned char bytes[sizeof(Int)];
  std::memcpy(bytes, &value, sizeof(Int));
  for (std::size_t i = 0; i < sizeof(Int) / 2; ++i) std::swap(bytes[i], bytes[sizeof(Int) - 1 - i]);
  std::memcpy(&value, bytes, sizeof(Int));
#endif
  return value;
}

template <typename Int>
void store(char* at, Int value) {
  value = little_endian(value);
  std::memcpy(at, &value, sizeof value);
}

template <typename Int>
Int fetch(const char* at) {
  Int value;
  std::memcpy(&value, at, sizeof value);
  return little_endian(value);
}

// --- CRC-32 (IEEE 802.3, as in zlib), four bytes at a step ---
// Sixteen would be faster on a large machine, and take 12 kB more of the program and of a cache.

constexpr int kCrcTables = 4;

// of[n][b]: what byte b does to the CRC when n more bytes follow it within the step.
struct CrcTables {
  std::uint32_t of[kCrcTables][256];
};

constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    tables.of[0][byte] = crc;
  }
  for (int following = 1; following < kCrcTables; ++following) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables.of[following - 1][byte];
      tables.of[following][byte] = (crc >> 8) ^ tables.of[0][crc & 0xFF];
    }
  }
  return tables;
}

constexpr CrcTables kCrc = make_crc_tables();

inline std::uint32_t crc_of_word(std::uint32_t word) {
  return kCrc.of[3][word & 0xFF] ^ kCrc.of[2][word >> 8 & 0xFF] ^ kCrc.of[1][word >> 16 & 0xFF] ^
         kCrc.of[0][word >> 24];
}

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  for (; end - at >= 4; at += 4) crc = crc_of_word(fetch<std::uint32_t>(at) ^ crc);
  for (; at != end; ++at) {
    crc = (crc >> 8) ^ kCrc.of[0][(crc ^ static_cast<unsigned char>(*at)) & 0xFF];
  }
  return ~crc;
}

// --- archives ---

class FrameWriter : public cereal::OutputArchive<FrameWriter, cereal::AllowEmptyClassElision> {
 public:
  explicit FrameWriter(std::string& out) : OutputArchive(this), out_(out) {}

  void write(const void* bytes, std::size_t size) {
    out_.append(static_cast<const char*>(bytes), size);
  }
  void write_length(std::size_t length) {
    if (length > kMaxFrameBytes) malformed("a text or list is longer than a frame");
    const std::uint32_t value = little_endian(static_cast<std::uint32_t>(length));
    write(&value, sizeof value);
  }

  // What is written between the two becomes a record.
  std::size_t open_record() {
    out_.append(sizeof(std::uint32_t), '\0');
    return out_.size();
  }
  void close_record(std::size_t start) {
    store(&out_[start - sizeof(std::uint32_t)], static_cast<std::uint32_t>(out_.size() - start));
  }

 private:
  std::string& out_;
};

// Reads a span and never beyond it. A length is believed only if that much is left.
class BoundedReader : public cereal::InputArchive<BoundedReader, cereal::AllowEmptyClassElision> {
 public:
  explicit BoundedReader(std::string_view bytes)
      : InputArchive(this), next_(bytes.data()), end_(next_ + bytes.size()) {}

  std::size_t left() const { return static_cast<std::size_t>(end_ - next_); }

  const char* take(std::size_t size) {
    if (size > left()) malformed("shorter than its fields");
    const char* const at = next_;
    next_ += size;
    return at;
  }
  std::uint32_t take_length() {
    const std::uint32_t length = fetch<std::uint32_t>(take(sizeof length));
    if (length > left()) malformed("a length is beyond the end");
    return length;
  }
  // The count of a list whose items take item_bytes_min each: more cannot be there.
  std::size_t take_count(std::size_t count_max, std::size_t item_bytes_min) {
    const std::uint32_t count = fetch<std::uint32_t>(take(sizeof count));
    if (count > count_max) malformed("a list is too long");
    if (count > left() / item_bytes_min) malformed("a count is beyond the end");
    return count;
  }

  // Between the two the reader sees the record alone. Returns what close_record needs.
  const char* open_record() {
    const std::uint32_t length = take_length();
    const char* const outer_end = end_;
    end_ = next_ + length;
    return outer_end;
  }
  void close_record(const char* outer_end) {
    next_ = end_;  // skips fields of later software
    end_ = outer_end;
  }

 private:
  const char* next_;
  const char* end_;
};

// --- plain fields ---

template <typename T>
using if_integer =
    std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value, int>;

template <typename T, if_integer<T> = 0>
void save(FrameWriter& out, const T& value) {
  const T bytes = little_endian(value);
  out.write(&bytes, sizeof bytes);
}
template <typename T, if_integer<T> = 0>
void load(BoundedReader& in, T& value) {
  value = fetch<T>(in.take(sizeof value));
}

// Not templates, so that nothing but a bool comes here.
void save(FrameWriter& out, const bool& value) { out(static_cast<std::uint8_t>(value ? 1 : 0)); }
void load(BoundedReader& in, bool& value) {
  const std::uint8_t byte = fetch<std::uint8_t>(in.take(1));
  if (byte > 1) malformed("a flag is neither 0 nor 1");
  value = byte == 1;
}

void save(FrameWriter& out, const EventId& id) { out.write(id.bytes.data(), id.bytes.size()); }
void load(BoundedReader& in, EventId& id) {
  std::memcpy(id.bytes.data(), in.take(id.bytes.size()), id.bytes.size());
}

void save(FrameWriter& out, const std::string& bytes) {
  out.write_length(bytes.size());
  out.write(bytes.data(), bytes.size());
}
void load(BoundedReader& in, std::string& bytes) {
  const std::uint32_t length = in.take_length();
  bytes.assign(in.take(length), length);
}

// An enumeration whose values are 0 to `last`. A later value needs a later frame version: who does
// not know it could not tell what to do with the event.
template <typename Enum>
struct Choice {
  Enum& value;
  Enum last;
};
template <typename Enum>
Choice<Enum> choice(Enum& value, Enum last) {
  return {value, last};
}

template <typename Enum>
void save(FrameWriter& out, const Choice<Enum>& field) {
  out(static_cast<std::underlying_type_t<Enum>>(field.value));
}
template <typename Enum>
void load(BoundedReader& in, Choice<Enum>& field) {
  std::underlying_type_t<Enum> number{};
  in(number);
  if (number > static_cast<std::underlying_type_t<Enum>>(field.last)) malformed("unknown value");
  field.value = static_cast<Enum>(number);
}

// A name or reason for people: at most kMaxTextBytes of UTF-8 without control characters, because
// it goes to logs and terminals as it is. Made so when written, demanded when read.
struct Text {
  std::string& text;
};

std::string_view cut_at_character(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

std::string made_plain(std::string_view text) {
  std::string plain(text);
  for (char& c : plain) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  if (is_plain_text(plain)) return plain;
  for (char& c : plain) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return plain;
}

void save(FrameWriter& out, const Text& field) {
  const std::string_view text = cut_at_character(field.text, kMaxTextBytes);
  if (text.size() == field.text.size() && is_plain_text(text)) {
    out(field.text);
  } else {
    out(made_plain(text));
  }
}
void load(BoundedReader& in, Text& field) {
  in(field.text);
  if (field.text.size() > kMaxTextBytes) malformed("a text is too long");
  if (!is_plain_text(field.text)) malformed("a text is not plain UTF-8");
}

// --- lists ---

// Bytes of a record's fields when all its texts and lists are empty.
template <typename T>
constexpr std::size_t kFieldBytesMin = 0;
template <>
constexpr std::size_t kFieldBytesMin<HelloLane> = 33;
template <>
constexpr std::size_t kFieldBytesMin<WelcomeLane> = 30;
template <>
constexpr std::size_t kFieldBytesMin<Gap> = 17;
template <>
constexpr std::size_t kFieldBytesMin<GapReport> = 29;
template <>
constexpr std::size_t kFieldBytesMin<EventRecord> = 50;
template <>
constexpr std::size_t kFieldBytesMin<Outcome> = 2;

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);

template <typename T>
struct Records {
  std::vector<T>& items;
  std::size_t count_max;
};
template <typename T>
Records<T> records(std::vector<T>& items, std::size_t count_max) {
  static_assert(kFieldBytesMin<T> > 0, "say how small a record of this type can be");
  return {items, count_max};
}

template <typename T>
void save(FrameWriter& out, const Records<T>& list) {
  if (list.items.size() > list.count_max) malformed("a list is too long");
  out.write_length(list.items.size());
  for (const T& item : list.items) {
    const std::size_t start = out.open_record();
    out(item);
    out.close_record(start);
  }
}
template <typename T>
void load(BoundedReader& in, Records<T>& list) {
  const std::size_t count = in.take_count(list.count_max, kLengthBytes + kFieldBytesMin<T>);
  list.items.clear();
  list.items.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const char* const outer_end = in.open_record();
    in(list.items.emplace_back());
    in.close_record(outer_end);
  }
}

// Sequence numbers are a list without records: eight bytes each, and nothing to add later.
struct Seqs {
  std::vector<std::int64_t>& items;
};

void save(FrameWriter& out, const Seqs& list) {
  if (list.items.size() > kMaxSkippedPerBatch) malformed("more skipped events than allowed");
  out.write_length(list.items.size());
  for (const std::int64_t seq : list.items) out(seq);
}
void load(BoundedReader& in, Seqs& list) {
  const std::size_t count = in.take_count(kMaxSkippedPerBatch, sizeof(std::int64_t));
  list.items.resize(count);
  for (std::int64_t& seq : list.items) in(seq);
}

// --- events ---

// What is present behind the fixed fields of an event, in this order. Unknown bits announce fields
// of later software, which follow the known ones.
enum EventBits : std::uint16_t {
  kPayloadIsText = 1 << 0,
  kHasVersion = 1 << 1,
  kHasContentType = 1 << 2,
  kHasTrace = 1 << 3,
  kHasHeaders = 1 << 4,
  kHasSource = 1 << 5,
  kHasSourceStream = 1 << 6,
  kHasSourceSeq = 1 << 7,
  kContentIsJson = 1 << 8,
  kContentIsCereal = 1 << 9,
};

std::uint16_t content_bit(std::string_view content_type) {
  if (content_type.empty()) return 0;
  if (content_type == kContentTypeJson) return kContentIsJson;
  if (content_type == kContentTypeCereal) return kContentIsCereal;
  return kHasContentType;
}

std::uint16_t bits_of(const EventRecord& event) {
  unsigned bits = content_bit(event.content_type);
  if (event.payload_is_text) bits |= kPayloadIsText;
  if (event.aggregate_version != kNoVersion) bits |= kHasVersion;
  if (!event.trace.empty()) bits |= kHasTrace;
  if (!event.headers.empty()) bits |= kHasHeaders;
  if (!event.source.empty()) bits |= kHasSource;
  if (!event.source_stream.nil()) bits |= kHasSourceStream;
  if (event.source_seq != 0) bits |= kHasSourceSeq;
  return static_cast<std::uint16_t>(bits);
}

// Both directions at once, so that they cannot differ.
template <typename Archive>
void optional_fields(Archive& archive, EventRecord& event, std::uint16_t bits) {
  if ((bits & kHasVersion) != 0) archive(event.aggregate_version);
  if ((bits & kHasContentType) != 0) archive(event.content_type);
  if ((bits & kHasTrace) != 0) archive(event.trace);
  if ((bits & kHasHeaders) != 0) archive(event.headers);
  if ((bits & kHasSource) != 0) archive(event.source);
  if ((bits & kHasSourceStream) != 0) archive(event.source_stream);
  if ((bits & kHasSourceSeq) != 0) archive(event.source_seq);
}

template <typename Archive>
void fixed_fields(Archive& archive, EventRecord& event, std::uint16_t& bits) {
  archive(event.seq, event.id, event.created_at_ms, bits, event.event_type, event.aggregate_type,
          event.aggregate_id, event.payload);
}

void save(FrameWriter& out, const EventRecord& event) {
  std::uint16_t bits = bits_of(event);
  EventRecord& fields = const_cast<EventRecord&>(event);  // only read, by the shared templates
  fixed_fields(out, fields, bits);
  optional_fields(out, fields, bits);
}

void load(BoundedReader& in, EventRecord& event) {
  std::uint16_t bits = 0;
  fixed_fields(in, event, bits);
  const unsigned content_bits = bits & (kHasContentType | kContentIsJson | kContentIsCereal);
  if ((content_bits & (content_bits - 1)) != 0) malformed("more than one content type");
  optional_fields(in, event, bits);
  event.payload_is_text = (bits & kPayloadIsText) != 0;
  if ((bits & kContentIsJson) != 0) event.content_type = kContentTypeJson;
  if ((bits & kContentIsCereal) != 0) event.content_type = kContentTypeCereal;
}

std::size_t text_bytes(const std::string& text) { return kLengthBytes + text.size(); }

// --- records and messages, each in both directions ---

template <typename Archive>
void serialize(Archive& archive, Mark& mark) {
  archive(mark.seq, mark.id);
}

template <typename Archive>
void serialize(Archive& archive, HelloLane& lane) {
  archive(lane.lane, lane.newest_seq, lane.acked);
}

template <typename Archive>
void serialize(Archive& archive, Hello& hello) {
  archive(hello.stream, hello.session, Text{hello.device}, Text{hello.software},
          records(hello.lanes, kLaneCount));
}

template <typename Archive>
void serialize(Archive& archive, Gap& gap) {
  archive(gap.first, gap.last, choice(gap.state, GapState::dead));
}

template <typename Archive>
void serialize(Archive& archive, WelcomeLane& lane) {
  archive(lane.lane, lane.known, lane.mark, records(lane.gaps, kMaxGapsPerWelcome));
}

template <typename Archive>
void serialize(Archive& archive, Welcome& welcome) {
  archive(welcome.session, welcome.store, Text{welcome.software},
          records(welcome.lanes, kLaneCount));
}

template <typename Archive>
void serialize(Archive& archive, GapReport& report) {
  archive(report.first, report.last, report.count, choice(report.reason, GapReason::lost),
          Text{report.text});
}

template <typename Archive>
void serialize(Archive& archive, Batch& batch) {
  archive(batch.stream, batch.session, batch.frame_no, batch.lane, batch.start, batch.retry,
          batch.prev, Seqs{batch.skipped}, records(batch.reports, kMaxReportsPerBatch),
          records(batch.events, kMaxEventsPerBatch));
}

template <typename Archive>
void serialize(Archive& archive, Bye& bye) {
  archive(bye.stream, bye.session);
}

enum OutcomeBits : std::uint8_t { kHasLater = 1 << 0, kHasReason = 1 << 1 };

std::uint8_t bits_of(const Outcome& outcome) {
  return static_cast<std::uint8_t>((outcome.later_ms != 0 ? kHasLater : 0) |
                                   (outcome.reason.empty() ? 0 : kHasReason));
}

template <typename Archive>
void serialize(Archive& archive, Outcome& outcome) {
  std::uint8_t bits = bits_of(outcome);  // when reading: of an empty outcome, and overwritten
  archive(choice(outcome.kind, Outcome::Kind::held), bits);
  if ((bits & kHasLater) != 0) archive(outcome.later_ms);
  if ((bits & kHasReason) != 0) archive(Text{outcome.reason});
}

template <typename Archive>
void serialize(Archive& archive, Ack& ack) {
  archive(ack.session, ack.frame_no, ack.lane, ack.mark, records(ack.outcomes, kMaxEventsPerBatch));
}

template <typename Archive>
void serialize(Archive& archive, Refused& refused) {
  // Any code: a device that does not know it still sees that it was refused.
  archive(choice(refused.code, static_cast<RefusedCode>(0xFFFF)), refused.session, refused.frame_no,
          refused.lane, refused.mark, refused.later_ms, Text{refused.text});
}

}  // namespace
}  // namespace holdfast::wire

CEREAL_SETUP_ARCHIVE_TRAITS(holdfast::wire::BoundedReader, holdfast::wire::FrameWriter)

namespace holdfast::wire {
namespace {

// --- what a message must keep to, whoever made it: nullptr, or what is wrong ---

bool is_lane(unsigned lane) { return lane < static_cast<unsigned>(kLaneCount); }

bool is_range(std::int64_t first, std::int64_t last) { return first >= 1 && first <= last; }

template <typename Lane>
bool lanes_ascend(const std::vector<Lane>& lanes) {
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (!is_lane(lanes[i].lane) || (i > 0 && lanes[i].lane <= lanes[i - 1].lane)) return false;
  }
  return true;
}

const char* problem(const Hello& hello) {
  if (!lanes_ascend(hello.lanes)) return "lanes do not ascend";
  for (const HelloLane& lane : hello.lanes) {
    if (lane.newest_seq < 0 || lane.acked.seq < 0) return "a seq is negative";
  }
  return nullptr;
}

const char* problem(const Welcome& welcome) {
  if (!lanes_ascend(welcome.lanes)) return "lanes do not ascend";
  std::size_t gaps = 0;
  for (const WelcomeLane& lane : welcome.lanes) {
    if (lane.mark.seq < 0) return "a mark is negative";
    std::int64_t last = 0;
    for (const Gap& gap : lane.gaps) {
      if (!is_range(gap.first, gap.last) || gap.first <= last) return "gaps do not ascend";
      last = gap.last;
    }
    gaps += lane.gaps.size();
  }
  return gaps > kMaxGapsPerWelcome ? "too many gaps" : nullptr;
}

const char* problem(const Batch& batch) {
  if (!is_lane(batch.lane)) return "no such lane";
  if (batch.prev.seq < 0) return "prev is negative";
  std::int64_t last = 0;
  for (const std::int64_t seq : batch.skipped) {
    if (seq <= last) return "skipped seqs do not ascend";
    last = seq;
  }
  for (const GapReport& report : batch.reports) {
    if (!is_range(report.first, report.last)) return "a reported range is empty";
    if (report.count < 0 || report.count - 1 > report.last - report.first) {
      return "a reported count is beyond its range";
    }
  }
  last = 0;
  for (const EventRecord& event : batch.events) {
    if (event.seq <= last) return "events do not ascend";
    if (event.lane != batch.lane) return "an event is of another lane";
    last = event.seq;
  }
  return nullptr;
}

const char* problem(const Bye&) { return nullptr; }

const char* problem(const Ack& ack) {
  if (!is_lane(ack.lane)) return "no such lane";
  if (ack.mark.seq < 0) return "a mark is negative";
  for (const Outcome& outcome : ack.outcomes) {
    if (outcome.later_ms < 0) return "a delay is negative";
  }
  return nullptr;
}

const char* problem(const Refused& refused) {
  if (!is_lane(refused.lane)) return "no such lane";
  if (refused.mark.seq < 0) return "a mark is negative";
  return refused.later_ms < 0 ? "a delay is negative" : nullptr;
}

// --- frames ---

Kind kind_of(const Hello&) { return Kind::hello; }
Kind kind_of(const Batch&) { return Kind::batch; }
Kind kind_of(const Bye&) { return Kind::bye; }
Kind kind_of(const Welcome&) { return Kind::welcome; }
Kind kind_of(const Ack&) { return Kind::ack; }
Kind kind_of(const Refused&) { return Kind::refused; }

// About how long the body will be, to allocate once.
template <typename AnyMessage>
std::size_t body_bytes(const AnyMessage&) {
  return 512;
}
std::size_t body_bytes(const Batch& batch) {
  std::size_t bytes = 512 + batch.skipped.size() * sizeof(std::int64_t) + batch.reports.size() * 64;
  for (const EventRecord& event : batch.events) bytes += event_bytes(event);
  return bytes;
}
std::size_t body_bytes(const Ack& ack) { return 512 + ack.outcomes.size() * 8; }

template <typename AnyMessage>
void write_frame(const AnyMessage& message, std::string& frame) {
  const char* const what = problem(message);
  if (what != nullptr) malformed(what);
  frame.clear();
  frame.reserve(kHeaderBytes + body_bytes(message));
  frame.append(kHeaderBytes, '\0');
  FrameWriter writer(frame);
  writer(message);
  if (frame.size() > kMaxFrameBytes) malformed("the frame is too long");
  const std::string_view body = std::string_view(frame).substr(kHeaderBytes);
  store(&frame[0], kMagic);
  store(&frame[4], kVersion);
  store(&frame[6], static_cast<std::uint8_t>(kind_of(message)));
  store(&frame[7], std::uint8_t{0});  // flags
  store(&frame[8], static_cast<std::uint32_t>(body.size()));
  store(&frame[12], crc32(body));
}

bool is_kind(std::uint8_t kind) {
  return (kind >= static_cast<std::uint8_t>(Kind::hello) &&
          kind <= static_cast<std::uint8_t>(Kind::bye)) ||
         (kind >= static_cast<std::uint8_t>(Kind::welcome) &&
          kind <= static_cast<std::uint8_t>(Kind::refused));
}

Status refuse(RefusedCode code, const char* what, RefusedCode& refused) {
  refused = code;
  return Status::error(Code::invalid, "%s: %s", refused_name(code), what);
}

// Magic, version and kind come first: they are the same in every version of the format.
Status check_header(std::string_view frame, RefusedCode& refused) {
  if (frame.size() < kHeaderBytes) return refuse(RefusedCode::bad_frame, "too short", refused);
  if (frame.size() > kMaxFrameBytes) return refuse(RefusedCode::bad_frame, "too long", refused);
  const char* const at = frame.data();
  if (fetch<std::uint32_t>(at) != kMagic) {
    return refuse(RefusedCode::bad_frame, "not a Holdfast frame", refused);
  }
  const unsigned version = fetch<std::uint16_t>(at + 4);
  if (version != kVersion) {
    refused = RefusedCode::bad_version;
    return Status::error(Code::invalid, "frame version %u; spoken here: %u", version,
                         unsigned{kVersion});
  }
  const unsigned kind = fetch<std::uint8_t>(at + 6);
  if (!is_kind(static_cast<std::uint8_t>(kind))) {
    refused = RefusedCode::bad_kind;
    return Status::error(Code::invalid, "frame kind %u is unknown here", kind);
  }
  if (at[7] != 0) return refuse(RefusedCode::bad_frame, "unknown flags", refused);
  if (fetch<std::uint32_t>(at + 8) != frame.size() - kHeaderBytes) {
    return refuse(RefusedCode::bad_frame, "its length is not what it says", refused);
  }
  if (fetch<std::uint32_t>(at + 12) != crc32(frame.substr(kHeaderBytes))) {
    return refuse(RefusedCode::bad_frame, "its CRC does not match", refused);
  }
  return {};
}

template <typename AnyMessage>
AnyMessage& read_body(std::string_view body, Message& message) {
  AnyMessage& into = message.emplace<AnyMessage>();
  BoundedReader reader(body);
  reader(into);
  return into;
}

void read_batch(std::string_view body, Message& message) {
  Batch& batch = read_body<Batch>(body, message);
  for (EventRecord& event : batch.events) event.lane = batch.lane;
}

void read_message(Kind kind, std::string_view body, Message& message) {
  switch (kind) {
    case Kind::hello:
      read_body<Hello>(body, message);
      break;
    case Kind::batch:
      read_batch(body, message);
      break;
    case Kind::bye:
      read_body<Bye>(body, message);
      break;
    case Kind::welcome:
      read_body<Welcome>(body, message);
      break;
    case Kind::ack:
      read_body<Ack>(body, message);
      break;
    case Kind::refused:
      read_body<Refused>(body, message);
      break;
  }
  const char* const what = std::visit([](const auto& any) { return problem(any); }, message);
  if (what != nullptr) malformed(what);
}

}  // namespace

const char* reason_name(GapReason reason) {
  switch (reason) {
    case GapReason::dead:
      return "dead";
    case GapReason::discarded:
      return "discarded";
    case GapReason::expired:
      return "expired";
    case GapReason::capped:
      return "capped";
    case GapReason::purged:
      return "purged";
    case GapReason::lost:
      return "lost";
  }
  return "unnamed";
}

const char* refused_name(RefusedCode code) {
  switch (code) {
    case RefusedCode::bad_frame:
      return "bad_frame";
    case RefusedCode::bad_version:
      return "bad_version";
    case RefusedCode::bad_kind:
      return "bad_kind";
    case RefusedCode::stale_session:
      return "stale_session";
    case RefusedCode::stale_frame:
      return "stale_frame";
    case RefusedCode::ahead_of_mark:
      return "ahead_of_mark";
    case RefusedCode::forked:
      return "forked";
    case RefusedCode::not_your_stream:
      return "not_your_stream";
    case RefusedCode::busy:
      return "busy";
    case RefusedCode::too_many_gaps:
      return "too_many_gaps";
    case RefusedCode::denied:
      return "denied";
    case RefusedCode::unavailable:
      return "unavailable";
  }
  return "unnamed";
}

std::size_t event_bytes(const EventRecord& event) {
  const unsigned bits = bits_of(event);
  std::size_t bytes = kLengthBytes + kFieldBytesMin<EventRecord> + event.event_type.size() +
                      event.aggregate_type.size() + event.aggregate_id.size() +
                      event.payload.size();
  if ((bits & kHasVersion) != 0) bytes += sizeof event.aggregate_version;
  if ((bits & kHasContentType) != 0) bytes += text_bytes(event.content_type);
  if ((bits & kHasTrace) != 0) bytes += text_bytes(event.trace);
  if ((bits & kHasHeaders) != 0) bytes += text_bytes(event.headers);
  if ((bits & kHasSource) != 0) bytes += text_bytes(event.source);
  if ((bits & kHasSourceStream) != 0) bytes += sizeof event.source_stream.bytes;
  if ((bits & kHasSourceSeq) != 0) bytes += sizeof event.source_seq;
  return bytes;
}

Status encode(const Message& message, std::string& frame) {
  try {
    std::visit([&frame](const auto& any) { write_frame(any, frame); }, message);
    return {};
  } catch (const Malformed& error) {
    frame.clear();
    return Status::error(Code::invalid, "message not sent: %s", error.what);
  } catch (...) {  // std::bad_alloc
    frame.clear();
    return Status::error(Code::unavailable, "message not sent: out of memory");
  }
}

Status decode(std::string_view frame, Message& message, RefusedCode& refused) {
  const Status status = check_header(frame, refused);
  if (!status.ok()) return status;
  try {
    const Kind kind = static_cast<Kind>(frame[6]);
    read_message(kind, frame.substr(kHeaderBytes), message);
    return {};
  } catch (const Malformed& error) {
    return refuse(RefusedCode::bad_frame, error.what, refused);
  } catch (...) {  // std::bad_alloc: nothing is wrong with the frame
    refused = RefusedCode::unavailable;
    return Status::error(Code::unavailable, "out of memory for a frame");
  }
}

}  // namespace holdfast::wire
