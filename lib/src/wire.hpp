// Frames between a device's relay and a gateway: what they mean, and how they become bytes.
// The byte format is specified in lib/docs/WIRE.md. Everything decoded here came from a stranger:
// decode() checks every length against what is left, and allocates no more than a constant factor
// of the bytes it was given (G10).
//
// Device = REQ, gateway = REP: HELLO → WELCOME, BATCH → ACK, BYE → ACK, anything → REFUSED.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/event.hpp"
#include "holdfast/sink.hpp"
#include "holdfast/status.hpp"

namespace holdfast::wire {

constexpr std::uint32_t kMagic = 0x54534648;  // "HFST" little-endian
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kMaxFrameBytes = 1024 * 1024;  // header included; also NNG_OPT_RECVMAXSZ
constexpr std::size_t kMaxEventsPerBatch = 1024;
constexpr std::size_t kMaxSkippedPerBatch = 4096;
constexpr std::size_t kMaxReportsPerBatch = 256;
constexpr std::size_t kMaxGapsPerWelcome = 8192;
// Reasons, names, versions: UTF-8 without control characters, for they go to logs as they are.
// encode() cuts and cleans a text that is not so, decode() refuses it.
constexpr std::size_t kMaxTextBytes = 256;

enum class Kind : std::uint8_t {
  hello = 1,
  batch = 2,
  bye = 3,
  welcome = 65,
  ack = 66,
  refused = 67
};

// A place in a stream: an event the gateway saw.
struct Mark {
  std::int64_t seq = 0;
  EventId id{};
};

struct HelloLane {
  std::uint8_t lane = 0;
  std::int64_t newest_seq = 0;  // of the whole log
  Mark acked;
};

struct Hello {
  EventId stream{};
  std::uint64_t session = 0;
  std::string device;            // a label, not an identity
  std::string software;          // e.g. "holdfast/0.1.0"
  std::vector<HelloLane> lanes;  // ascending
};

// What a gateway has open below its mark; see lib/docs/WIRE.md.
enum class GapState : std::uint8_t { skipped = 0, later = 1, rejected = 2, held = 3, dead = 4 };

struct Gap {
  std::int64_t first = 0;
  std::int64_t last = 0;
  GapState state = GapState::skipped;
};

struct WelcomeLane {
  std::uint8_t lane = 0;
  bool known = false;  // the gateway has seen this stream and lane
  Mark mark;
  std::vector<Gap> gaps;  // open ones, ascending
};

struct Welcome {
  std::uint64_t session = 0;
  EventId store{};  // identity of the gateway's database
  std::string software;
  std::vector<WelcomeLane> lanes;  // ascending
};

// Why events will not come (gone), or are given up for now (dead).
enum class GapReason : std::uint8_t {
  dead = 0,       // rejected too often; stays open for a later retry, holds nothing any more
  discarded = 1,  // by a person
  expired = 2,    // time to live
  capped = 3,     // oldest dropped at a size cap
  purged = 4,     // retention had removed it before a rewind asked for it
  lost = 5,       // unreadable: database damage
};
const char* reason_name(GapReason reason);

struct GapReport {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t count = 0;  // events of this lane in the range
  GapReason reason = GapReason::dead;
  std::string text;
};

struct Batch {
  EventId stream{};
  std::uint64_t session = 0;
  std::uint64_t frame_no = 0;  // rises within a session; older frames are refused
  std::uint8_t lane = 0;
  bool start = false;  // the stream begins after prev; valid only while the gateway has no mark
  bool retry = false;  // only events below the mark
  Mark prev;           // the last event before this batch that the gateway saw
  std::vector<std::int64_t> skipped;  // ascending: held back at the device, may come later
  std::vector<GapReport> reports;
  std::vector<EventRecord> events;  // ascending by seq
};

struct Bye {
  EventId stream{};
  std::uint64_t session = 0;
};

struct Ack {
  std::uint64_t session = 0;
  std::uint64_t frame_no = 0;
  std::uint8_t lane = 0;
  Mark mark;                      // after this batch
  std::vector<Outcome> outcomes;  // one per event, in order
};

enum class RefusedCode : std::uint16_t {
  bad_frame = 1,    // did not decode
  bad_version = 2,  // text names the versions spoken
  bad_kind = 3,
  stale_session = 4,  // a newer HELLO of this stream came, or this gateway never saw the session
  stale_frame = 5,    // frame_no was used already
  ahead_of_mark = 6,  // prev is above the mark: an earlier batch is missing
  forked = 7,         // prev is the mark's seq with another id
  not_your_stream = 8,
  busy = 9,  // try again after later_ms
  too_many_gaps = 10,
  unavailable = 11,  // the gateway cannot store now (disk full, …)
  denied = 12,       // a person barred this certificate name
};
const char* refused_name(RefusedCode code);

struct Refused {
  RefusedCode code = RefusedCode::bad_frame;
  std::uint64_t session = 0;  // 0 if the frame did not decode
  std::uint64_t frame_no = 0;
  std::uint8_t lane = 0;
  Mark mark;
  std::int64_t later_ms = 0;
  std::string text;
};

using Message = std::variant<Hello, Batch, Bye, Welcome, Ack, Refused>;

// `frame` becomes a whole frame, header and body; keep it for the next message, and its memory is
// used again. Fails with Code::invalid, and an empty frame, if the message exceeds a limit above or
// breaks an order stated above (ascending; ranges not empty; lanes that exist; nothing negative).
Status encode(const Message& message, std::string& frame);

// What decode() accepts keeps to the same limits and orders. On failure `refused` says what to
// answer, and `message` is not to be used. An event record that decodes but breaks a limit of
// event.hpp is not a failure here: the receiver answers `invalid` for it alone.
Status decode(std::string_view frame, Message& message, RefusedCode& refused);

// Bytes one event takes in a BATCH, exactly: to fill batches by size.
std::size_t event_bytes(const EventRecord& event);

}  // namespace holdfast::wire
