// Whatever arrives in place of a frame is accepted or refused: it does not crash, hang, or allocate
// more than a small multiple of its own size (G10).
#include <doctest/doctest.h>

#include <algorithm>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <sstream>

#include "support/allocations.hpp"
#include "support/bytes.hpp"
#include "support/messages.hpp"
#include "support/scale.hpp"
#include "wire.hpp"

using namespace holdfast;
using namespace holdfast::wire;
using test::AllocationMeter;
using test::Bytes;

namespace {

// An event of 54 bytes becomes a struct of about 350: the largest factor of any record.
constexpr std::size_t kBoundFactor = 10;
constexpr std::size_t kBoundConstant = 1'024;

std::string encoded(const Message& message) {
  std::string frame;
  REQUIRE(encode(message, frame).ok());
  return frame;
}

void put(std::string& frame, std::size_t at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) frame[at + i] = static_cast<char>(value >> (8 * i) & 0xFF);
}

// Makes length and CRC right again, so that what was changed reaches the decoder of the body.
void fix_header(std::string& frame) {
  if (frame.size() < kHeaderBytes) return;
  put(frame, 8, static_cast<std::uint32_t>(frame.size() - kHeaderBytes));
  put(frame, 12, test::slow_crc32(std::string_view(frame).substr(kHeaderBytes)));
}

struct Verdict {
  bool accepted = false;
  RefusedCode refused{};
  std::size_t peak_bytes = 0;
  Message message;

  bool bounded(std::string_view frame) const {
    return peak_bytes <= kBoundFactor * frame.size() + kBoundConstant;
  }
};

Verdict judge(std::string_view frame) {
  Verdict verdict;
  const AllocationMeter meter;
  verdict.accepted = decode(frame, verdict.message, verdict.refused).ok();
  verdict.peak_bytes = meter.peak_bytes();
  return verdict;
}

RefusedCode refusal(std::string_view frame) {
  const Verdict verdict = judge(frame);
  CHECK(verdict.bounded(frame));
  CHECK_FALSE(verdict.accepted);
  return verdict.refused;
}

// Some frames of each kind, a few hundred bytes to a few KB each.
std::vector<std::string> sample_frames() {
  std::vector<std::string> frames;
  for (const test::GoldenMessage& golden : test::golden_messages_v1()) {
    frames.push_back(encoded(golden.message));
  }
  std::mt19937_64 random(7);
  for (const Kind kind : test::all_kinds()) {
    for (const std::size_t size : {3, 8, 20}) {
      frames.push_back(encoded(test::random_message(kind, size, random)));
    }
  }
  return frames;
}

std::string mutate(const std::vector<std::string>& samples, std::mt19937_64& random) {
  constexpr std::uint32_t kNumbers[] = {0,          1,          2,          0x7F,       0x80,
                                        0xFF,       0x100,      0xFFFF,     0x10000,    64 << 20,
                                        0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 50};
  std::string frame = samples[random() % samples.size()];
  const std::uint64_t changes = 1 + random() % 3;
  for (std::uint64_t change = 0; change < changes; ++change) {
    const std::size_t at = random() % frame.size();
    switch (random() % 8) {
      case 0:
        frame[at] = static_cast<char>(frame[at] ^ 1 << random() % 8);
        break;
      case 1:
        frame[at] = static_cast<char>(random());
        break;
      case 2:
      case 3:
        if (at + 4 <= frame.size()) put(frame, at, kNumbers[random() % std::size(kNumbers)]);
        break;
      case 4:  // a small change of a small number: lengths that are nearly right
        frame[at] = static_cast<char>(frame[at] + static_cast<char>(random() % 5) - 2);
        break;
      case 5:
        frame.resize(kHeaderBytes + random() % frame.size());
        break;
      case 6: {
        const std::string& other = samples[random() % samples.size()];
        const std::size_t from = random() % other.size();
        const std::size_t removed = random() % 60;
        const std::size_t inserted = random() % 60;
        frame.replace(at, removed, other, from, inserted);
        break;
      }
      default:
        if (frame.size() > kHeaderBytes) {
          frame[6] = static_cast<char>(test::all_kinds()[random() % test::all_kinds().size()]);
        }
    }
    if (frame.empty()) frame = samples.front();
  }
  if (random() % 16 != 0) fix_header(frame);
  return frame;
}

// What is wrong with the verdict on a frame, "" if nothing.
std::string complaint(const Verdict& verdict, std::string_view frame) {
  if (!verdict.bounded(frame)) {
    return "allocated " + std::to_string(verdict.peak_bytes) + " bytes for a frame of " +
           std::to_string(frame.size());
  }
  if (!verdict.accepted) {
    const bool named = verdict.refused == RefusedCode::bad_frame ||
                       verdict.refused == RefusedCode::bad_version ||
                       verdict.refused == RefusedCode::bad_kind;
    return named ? "" : "refused without a reason";
  }
  std::string again;
  if (!encode(verdict.message, again).ok()) return "accepted what cannot be encoded";
  Message message;
  RefusedCode refused{};
  if (!decode(again, message, refused).ok()) return "does not decode again";
  return test::same(message, verdict.message) ? "" : "changes when sent on";
}

}  // namespace

TEST_CASE("mutated frames are accepted or refused, within the memory bound (G10)") {
  const std::vector<std::string> samples = sample_frames();
  const std::uint64_t first_seed = test::seed(1);
  const int mutations = std::max(200'000, test::scaled(200'000));
  int accepted = 0;
  for (int i = 0; i < mutations; ++i) {
    std::mt19937_64 random(first_seed + static_cast<std::uint64_t>(i));
    const std::string frame = mutate(samples, random);
    const Verdict verdict = judge(frame);
    accepted += verdict.accepted ? 1 : 0;
    const std::string what = complaint(verdict, frame);
    if (!what.empty()) {
      FAIL("HOLDFAST_TEST_SEED=" << first_seed + static_cast<std::uint64_t>(i) << " " << what);
    }
  }
  MESSAGE("accepted " << accepted << " of " << mutations);
  CHECK(accepted > mutations / 20);       // the mutations reach the inside
  CHECK(accepted < mutations * 19 / 20);  // and are noticed
}

TEST_CASE("a frame cut anywhere is refused (G10)") {
  for (const std::string& frame : sample_frames()) {
    for (std::size_t length = 0; length < frame.size(); ++length) {
      std::string cut = frame.substr(0, length);
      CHECK(refusal(cut) == RefusedCode::bad_frame);
      fix_header(cut);
      CHECK(refusal(cut) == RefusedCode::bad_frame);
    }
  }
}

TEST_CASE("any changed bit of a body is found by the CRC") {
  for (const std::string& frame : sample_frames()) {
    const std::size_t step = std::max<std::size_t>(1, frame.size() / 200);
    for (std::size_t at = kHeaderBytes; at < frame.size(); at += step) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string changed = frame;
        changed[at] = static_cast<char>(changed[at] ^ 1 << bit);
        CHECK(refusal(changed) == RefusedCode::bad_frame);
      }
    }
  }
}

TEST_CASE("a wrong header is refused with the code that says so") {
  const std::string good = encoded(Bye{});
  const auto changed = [&good](std::size_t at, char value) {
    std::string frame = good;
    frame[at] = value;
    return frame;
  };
  CHECK(refusal("") == RefusedCode::bad_frame);
  CHECK(refusal(std::string(kHeaderBytes, '\0')) == RefusedCode::bad_frame);
  CHECK(refusal("GET / HTTP/1.1\r\nHost: gateway\r\n\r\n") == RefusedCode::bad_frame);
  CHECK(refusal(changed(0, 'h')) == RefusedCode::bad_frame);
  CHECK(refusal(changed(4, 2)) == RefusedCode::bad_version);
  CHECK(refusal(changed(5, 1)) == RefusedCode::bad_version);
  for (const int kind : {0, 4, 64, 68, 255}) {
    CHECK(refusal(changed(6, static_cast<char>(kind))) == RefusedCode::bad_kind);
  }
  CHECK(refusal(changed(7, 1)) == RefusedCode::bad_frame);
  CHECK(refusal(changed(8, 7)) == RefusedCode::bad_frame);
  CHECK(refusal(changed(12, static_cast<char>(good[12] + 1))) == RefusedCode::bad_frame);
  CHECK(refusal(good + "x") == RefusedCode::bad_frame);
}

TEST_CASE("an unknown version is answered with the versions spoken, whatever follows it") {
  const std::string frame = test::frame_of(99, "a body of the future", 7, 0xFF);
  Message message;
  RefusedCode refused{};
  const Status status = decode(frame, message, refused);
  CHECK(refused == RefusedCode::bad_version);
  CHECK(std::string(status.text()).find("version 7") != std::string::npos);
  CHECK(std::string(status.text()).find("spoken here: 1") != std::string::npos);
}

TEST_CASE("a frame is at most 1 MiB long (G8)") {
  Bytes body;
  body.id({}).u64(1);
  std::string frame =
      test::frame_of(3, body.str() + std::string(kMaxFrameBytes - kHeaderBytes - body.size(), 'x'));
  CHECK(frame.size() == kMaxFrameBytes);
  CHECK(judge(frame).accepted);
  frame += 'x';
  fix_header(frame);
  CHECK(refusal(frame) == RefusedCode::bad_frame);
}

TEST_CASE("every four bytes of a frame may claim to be huge (G10)") {
  for (const std::string& good : sample_frames()) {
    for (std::size_t at = kHeaderBytes; at + 4 <= good.size(); ++at) {
      for (const std::uint32_t claim : {0xFFFFFFFFu, 0x7FFFFFFFu, 64u << 20, 0x000FFFFFu, 4'096u}) {
        std::string frame = good;
        put(frame, at, claim);
        fix_header(frame);
        const Verdict verdict = judge(frame);
        const std::string what = complaint(verdict, frame);
        if (!what.empty()) FAIL("at " << at << " claiming " << claim << ": " << what);
      }
    }
  }
}

TEST_CASE("each length and count beyond what is left is refused (G10)") {
  // Where the lengths and counts of these frames are: by hand, from WIRE.md.
  Bytes event;
  event.i64(1).id({}).i64(0).u16(1 << 2 | 1 << 3 | 1 << 4 | 1 << 5);
  const std::size_t event_text = event.size();
  event.text("t").text("a").text("i").text("p").text("c").text("x").text("h").text("s");
  Bytes report;
  report.i64(1).i64(1).i64(1).u8(0).text("r");
  Bytes body;
  body.id({}).u64(1).u64(1).u8(0).u8(0).u8(0).i64(0).id({});
  std::vector<std::size_t> lengths = {body.size()};
  body.u32(1).i64(1);
  lengths.push_back(body.size());
  body.u32(1);
  lengths.insert(lengths.end(), {body.size(), body.size() + 4 + 25});
  body.record(report);
  lengths.push_back(body.size());
  body.u32(1);
  lengths.push_back(body.size());
  for (std::size_t text = 0; text < 8; ++text) {
    lengths.push_back(body.size() + 4 + event_text + 5 * text);
  }
  body.record(event);
  const std::string good = test::frame_of(2, body.str());
  REQUIRE(judge(good).accepted);
  for (const std::size_t at : lengths) {
    for (const std::uint32_t claim : {0xFFFFFFFFu, 0x80000000u, 0x7FFFFFFFu, 64u << 20, 4'000u}) {
      CAPTURE(at);
      std::string frame = good;
      put(frame, kHeaderBytes + at, claim);
      fix_header(frame);
      CHECK(refusal(frame) == RefusedCode::bad_frame);
    }
  }
}

TEST_CASE("a count is believed only if that many records could be there (G10)") {
  Bytes body;
  body.u64(1).u64(1).u8(0).i64(0).id({});
  const std::string before = body.str();
  for (std::uint32_t count = 1; count <= kMaxEventsPerBatch; ++count) {
    Bytes ack;
    ack.raw(before).u32(count).raw(std::string(6 * count - 1, '\0'));
    const std::string frame = test::frame_of(66, ack.str());
    const Verdict verdict = judge(frame);
    CHECK_FALSE(verdict.accepted);
    CHECK(verdict.peak_bytes < kBoundConstant);
  }
}

TEST_CASE("cereal's own archive allocates what a length claims, and the meter sees it (control)") {
  constexpr std::uint32_t kClaim = 64 << 20;
  Bytes bytes;
  bytes.u8(1).u64(kClaim).raw("few");
  std::istringstream in(bytes.str());
  cereal::PortableBinaryInputArchive stock(in);
  std::vector<char> into;
  const AllocationMeter meter;
  CHECK_THROWS(stock(into));
  CHECK(meter.peak_bytes() >= kClaim);
  CHECK(meter.peak_bytes() > kBoundFactor * bytes.size() + kBoundConstant);
}

TEST_CASE("values that no sender means are refused") {
  const auto batch = [](std::uint8_t lane, std::uint8_t start, std::int64_t prev,
                        std::uint8_t reason, std::int64_t first_seq, std::int64_t second_seq) {
    Bytes report;
    report.i64(1).i64(1).i64(1).u8(reason).text("");
    Bytes body;
    body.id({}).u64(1).u64(1).u8(lane).u8(start).u8(0).i64(prev).id({});
    body.u32(0).u32(1).record(report).u32(2);
    for (const std::int64_t seq : {first_seq, second_seq}) {
      Bytes event;
      event.i64(seq).id({}).i64(0).u16(0).text("t").text("a").text("i").text("");
      body.record(event);
    }
    return test::frame_of(2, body.str());
  };
  CHECK(judge(batch(0, 0, 0, 0, 1, 2)).accepted);
  CHECK(refusal(batch(2, 0, 0, 0, 1, 2)) == RefusedCode::bad_frame);   // no such lane
  CHECK(refusal(batch(0, 2, 0, 0, 1, 2)) == RefusedCode::bad_frame);   // a bool that is 2
  CHECK(refusal(batch(0, 0, -1, 0, 1, 2)) == RefusedCode::bad_frame);  // a negative mark
  CHECK(refusal(batch(0, 0, 0, 6, 1, 2)) == RefusedCode::bad_frame);   // an unknown reason
  CHECK(refusal(batch(0, 0, 0, 0, 2, 2)) == RefusedCode::bad_frame);   // not ascending
  CHECK(refusal(batch(0, 0, 0, 0, 0, 2)) == RefusedCode::bad_frame);   // seq 0

  const auto content = [](std::uint16_t present) {
    Bytes event;
    event.i64(1).id({}).i64(0).u16(present).text("t").text("a").text("i").text("").text("c");
    Bytes body;
    body.id({}).u64(1).u64(1).u8(0).u8(0).u8(0).i64(0).id({}).u32(0).u32(0).u32(1).record(event);
    return test::frame_of(2, body.str());
  };
  CHECK(judge(content(1 << 2)).accepted);
  for (const int bits : {1 << 2 | 1 << 8, 1 << 2 | 1 << 9, 1 << 8 | 1 << 9, 1 << 2 | 3 << 8}) {
    CHECK(refusal(content(static_cast<std::uint16_t>(bits))) == RefusedCode::bad_frame);
  }

  const auto refused = [](std::string_view text) {
    Bytes body;
    body.u16(9).u64(0).u64(0).u8(0).i64(0).id({}).i64(0).text(text);
    return test::frame_of(67, body.str());
  };
  CHECK(judge(refused(std::string(kMaxTextBytes, 'x'))).accepted);
  CHECK(refusal(refused(std::string(kMaxTextBytes + 1, 'x'))) == RefusedCode::bad_frame);
  CHECK(refusal(refused("two\nlines")) == RefusedCode::bad_frame);
  CHECK(refusal(refused("\xFF")) == RefusedCode::bad_frame);
}

TEST_CASE("an event that breaks a limit of events is not a broken frame: it is answered alone") {
  Batch batch;
  batch.events.resize(2);
  batch.events[0].seq = 1;  // no names, no id
  batch.events[1].seq = 2;
  batch.events[1].event_type = std::string(kMaxEventTypeBytes + 1, '\n');
  batch.events[1].trace = "nonsense";
  batch.events[1].headers = "{";
  batch.events[1].payload = std::string(kMaxPayloadBytes + 1, '\0');
  batch.events[1].payload_is_text = true;
  const Verdict verdict = judge(encoded(batch));
  REQUIRE(verdict.accepted);
  for (const EventRecord& event : std::get<Batch>(verdict.message).events) {
    CHECK_FALSE(validate(event).ok());
  }
}

TEST_CASE("out of memory is a status at every allocation") {
  std::mt19937_64 random(3);
  for (const Kind kind : test::all_kinds()) {
    const Message message = test::random_message(kind, 20, random);
    const std::string good = encoded(message);
    for (const bool encoding : {true, false}) {
      for (std::int64_t nth = 0;; ++nth) {
        REQUIRE(nth < 100'000);
        std::string frame;
        Message into;
        RefusedCode refused{};
        Code code = Code::ok;
        bool happened = false;
        {
          const test::AllocationFailure failure(nth);
          code = encoding ? encode(message, frame).code() : decode(good, into, refused).code();
          happened = failure.happened();
        }
        CHECK(code == (happened ? Code::unavailable : Code::ok));
        if (!happened) break;
        if (!encoding) CHECK(refused == RefusedCode::unavailable);
      }
    }
  }
}
