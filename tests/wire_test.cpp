// Frames say what was meant, byte for byte as lib/docs/WIRE.md has it, to older and later readers.
// What strangers may do to them is in wire_hostile_test.cpp.
#include "wire.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/allocations.hpp"
#include "support/bytes.hpp"
#include "support/messages.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using namespace holdfast::wire;
using test::Bytes;

namespace {

const std::string kGoldenFolder = std::string(HOLDFAST_SOURCE) + "/tests/golden/frames/v1/";

std::string encoded(const Message& message) {
  std::string frame;
  const Status status = encode(message, frame);
  CAPTURE(std::string(status.text()));
  REQUIRE(status.ok());
  return frame;
}

Message decoded(std::string_view frame) {
  Message message;
  RefusedCode refused{};
  const Status status = decode(frame, message, refused);
  CAPTURE(std::string(status.text()));
  REQUIRE(status.ok());
  return message;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

EventId id_of(std::uint8_t first) {
  EventId id;
  for (std::size_t i = 0; i < 16; ++i) id.bytes[i] = static_cast<std::uint8_t>(first + i);
  return id;
}

// A BATCH with one report and one event, as software might write it that knows more fields than we:
// `later` is appended to each record and to the body.
std::string hand_made_batch(const Bytes& later, std::uint16_t later_event_bits) {
  Bytes report;
  report.i64(10).i64(20).i64(11).u8(2).text("old").raw(later.str());
  Bytes event;
  event.i64(1'001).id(id_of(0x10)).i64(1'750'000'000'123);
  event.u16(static_cast<std::uint16_t>(1u << 0 | 1u << 1 | 1u << 8 | later_event_bits));
  event.text("sensor.reading.v1").text("sensor").text("boiler-1").text("{}");
  event.i64(-3).raw(later.str());
  Bytes body;
  body.id(id_of(0xA0)).u64(77).u64(9).u8(1).u8(0).u8(1);
  body.i64(1'000).id(id_of(0xC0));
  body.u32(2).i64(5).i64(6);
  body.u32(1).record(report);
  body.u32(1).record(event);
  body.raw(later.str());
  return test::frame_of(2, body.str());
}

Batch batch_meant_by_hand() {
  Batch batch;
  batch.stream = id_of(0xA0);
  batch.session = 77;
  batch.frame_no = 9;
  batch.lane = 1;
  batch.retry = true;
  batch.prev = {1'000, id_of(0xC0)};
  batch.skipped = {5, 6};
  batch.reports = {{10, 20, 11, GapReason::expired, "old"}};
  EventRecord event;
  event.seq = 1'001;
  event.id = id_of(0x10);
  event.created_at_ms = 1'750'000'000'123;
  event.event_type = "sensor.reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = "boiler-1";
  event.payload = "{}";
  event.payload_is_text = true;
  event.content_type = kContentTypeJson;
  event.aggregate_version = -3;
  event.lane = 1;
  batch.events = {event};
  return batch;
}

EventRecord event_with_payload(std::size_t payload_bytes, std::int64_t seq) {
  EventRecord event;
  event.seq = seq;
  event.id = EventId::make_v7(1'750'000'000'123);
  event.event_type = "sensor.reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = "boiler-1";
  event.content_type = kContentTypeJson;
  event.created_at_ms = 1'750'000'000'123;
  event.payload = std::string(payload_bytes, 'x');
  return event;
}

bool refuses_to_encode(const Message& message) {
  std::string frame = "something";
  const Status status = encode(message, frame);
  if (!status.ok()) {
    CHECK(status.code() == Code::invalid);
    CHECK(frame.empty());
  }
  return !status.ok();
}

}  // namespace

TEST_CASE("every kind of message arrives as it was sent") {
  const std::uint64_t first_seed = test::seed(1);
  for (std::uint64_t i = 0; i < 500; ++i) {
    std::mt19937_64 random(first_seed + i);
    const Kind kind = test::all_kinds()[i % test::all_kinds().size()];
    const Message message = test::random_message(kind, 1 + i % 40, random);
    const std::string frame = encoded(message);
    INFO("HOLDFAST_TEST_SEED=", first_seed + i);
    CHECK(test::same(decoded(frame), message));
    CHECK(encoded(decoded(frame)) == frame);
  }
}

TEST_CASE("the largest messages that are allowed arrive") {
  Batch batch;
  batch.stream = id_of(1);
  for (std::size_t i = 0; i < kMaxEventsPerBatch; ++i) {
    batch.events.push_back(event_with_payload(100, static_cast<std::int64_t>(i + 1)));
  }
  for (std::size_t i = 0; i < kMaxSkippedPerBatch; ++i) {
    batch.skipped.push_back(static_cast<std::int64_t>(i + 1));
  }
  for (std::size_t i = 0; i < kMaxReportsPerBatch; ++i) {
    batch.reports.push_back({1, 2, 2, GapReason::lost, std::string(kMaxTextBytes, 'x')});
  }
  CHECK(test::same(decoded(encoded(batch)), batch));

  Batch big;
  big.events = {event_with_payload(kMaxPayloadBytes, 1)};
  big.events[0].headers = std::string(kMaxHeadersBytes, 'x');
  CHECK(test::same(decoded(encoded(big)), big));

  Welcome welcome;
  welcome.lanes.resize(2);
  welcome.lanes[1].lane = 1;
  for (std::size_t i = 0; i < kMaxGapsPerWelcome; ++i) {
    const std::int64_t seq = static_cast<std::int64_t>(10 + i);
    welcome.lanes[i % 2].gaps.push_back({seq, seq, GapState::held});
  }
  CHECK(test::same(decoded(encoded(welcome)), welcome));

  Ack ack;
  ack.outcomes.resize(kMaxEventsPerBatch,
                      {Outcome::Kind::later, INT64_MAX, std::string(kMaxTextBytes, 'x')});
  CHECK(test::same(decoded(encoded(ack)), ack));
}

TEST_CASE("a message beyond a limit or out of order is not sent (G8)") {
  Batch batch;
  batch.events = {event_with_payload(1, 2), event_with_payload(1, 2)};
  CHECK(refuses_to_encode(batch));  // seqs do not ascend
  batch.events = {event_with_payload(1, 0)};
  CHECK(refuses_to_encode(batch));
  batch.events = {event_with_payload(1, 1)};
  batch.lane = 1;
  CHECK(refuses_to_encode(batch));  // the event is of lane 0
  batch.events.clear();
  batch.lane = 2;
  CHECK(refuses_to_encode(batch));
  batch.lane = 0;
  batch.skipped = {3, 3};
  CHECK(refuses_to_encode(batch));
  batch.skipped.clear();
  batch.reports = {{5, 4, 0, GapReason::dead, ""}};
  CHECK(refuses_to_encode(batch));
  batch.reports = {{4, 5, 3, GapReason::dead, ""}};
  CHECK(refuses_to_encode(batch));
  batch.reports = {{1, INT64_MAX, INT64_MAX, GapReason::dead, ""}};
  CHECK_FALSE(refuses_to_encode(batch));
  batch.reports = {{1, INT64_MAX, -1, GapReason::dead, ""}};
  CHECK(refuses_to_encode(batch));
  batch.reports.assign(kMaxReportsPerBatch + 1, {1, 1, 1, GapReason::dead, ""});
  CHECK(refuses_to_encode(batch));
  batch.reports.clear();
  for (std::size_t i = 0; i <= kMaxSkippedPerBatch; ++i) {
    batch.skipped.push_back(static_cast<std::int64_t>(i + 1));
  }
  CHECK(refuses_to_encode(batch));

  Batch many;
  for (std::size_t i = 0; i <= kMaxEventsPerBatch; ++i) {
    many.events.push_back(event_with_payload(1, static_cast<std::int64_t>(i + 1)));
  }
  CHECK(refuses_to_encode(many));
  Batch heavy;
  heavy.events = {event_with_payload(kMaxPayloadBytes, 1), event_with_payload(kMaxPayloadBytes, 2)};
  CHECK(refuses_to_encode(heavy));

  Welcome welcome;
  welcome.lanes = {{0, true, {}, {{5, 6, GapState::held}, {6, 7, GapState::held}}}};
  CHECK(refuses_to_encode(welcome));  // gaps overlap
  welcome.lanes = {{1, true, {}, {}}, {0, true, {}, {}}};
  CHECK(refuses_to_encode(welcome));
  welcome.lanes = {{0, true, {}, {}}, {0, true, {}, {}}};
  CHECK(refuses_to_encode(welcome));

  Ack ack;
  ack.outcomes = {{Outcome::Kind::later, -1, ""}};
  CHECK(refuses_to_encode(ack));
  ack.outcomes.assign(kMaxEventsPerBatch + 1, {});
  CHECK(refuses_to_encode(ack));
  CHECK(refuses_to_encode(Hello{{}, 0, "", "", {{0, -1, {}}}}));
  CHECK(refuses_to_encode(Refused{RefusedCode::busy, 0, 0, 0, {-1, {}}, 0, ""}));
}

TEST_CASE("a text for people is cut and cleaned when sent (G8, G10)") {
  const auto arrives = [](const std::string& text) {
    return std::get<Refused>(decoded(encoded(Refused{RefusedCode::busy, 0, 0, 0, {}, 0, text})))
        .text;
  };
  CHECK(arrives(std::string(1'000, 'x')) == std::string(kMaxTextBytes, 'x'));
  CHECK(arrives("a\nb\x1B[2J\x7F") == "a b [2J ");
  CHECK(arrives("not \xFF UTF-8 \xC3\xA4") == "not ? UTF-8 ??");
  CHECK(arrives("Z\xC3\xA4hler\n") == "Z\xC3\xA4hler ");
  for (std::size_t before = 0; before < 4; ++before) {
    std::string text(before, 'x');
    while (text.size() < 300) text += "\xF0\x9F\x94\xA5";
    const std::string cut = arrives(text);
    CHECK(is_utf8(cut));
    CHECK(cut.size() > kMaxTextBytes - 4);
    CHECK(cut == text.substr(0, cut.size()));
  }
}

TEST_CASE("the CRC is the one of zlib and IEEE 802.3") {
  CHECK(test::slow_crc32("123456789") == 0xCBF43926);
  for (std::size_t length = 0; length < 100; ++length) {  // the fast one, at every remainder
    const std::string frame = test::frame_of(3, std::string(24, '\0') + std::string(length, 'x'));
    CHECK(std::holds_alternative<Bye>(decoded(frame)));
  }
}

TEST_CASE("a batch is laid out as WIRE.md says") {
  const std::string frame = hand_made_batch(Bytes(), 0);
  CHECK(test::same(decoded(frame), batch_meant_by_hand()));
  CHECK(encoded(batch_meant_by_hand()) == frame);
}

TEST_CASE("an old reader skips the fields that later software appends") {
  Bytes later;
  later.text("a field of the future").u64(UINT64_MAX).raw(std::string(50, '\xFF'));
  CHECK(test::same(decoded(hand_made_batch(later, 0xFC00)), batch_meant_by_hand()));

  Bytes lane;
  lane.u8(1).i64(10).i64(9).id(id_of(3)).raw("more");
  Bytes hello;
  hello.id(id_of(1)).u64(5).text("d").text("s").u32(1).record(lane).raw("more");
  const Message meant = Hello{id_of(1), 5, "d", "s", {{1, 10, {9, id_of(3)}}}};
  CHECK(test::same(decoded(test::frame_of(1, hello.str())), meant));

  Bytes gap;
  gap.i64(3).i64(4).u8(2).raw("more");
  Bytes welcome_lane;
  welcome_lane.u8(0).u8(1).i64(9).id(id_of(3)).u32(1).record(gap).raw("more");
  Bytes welcome;
  welcome.u64(5).id(id_of(2)).text("s").u32(1).record(welcome_lane).raw("more");
  const Message welcome_meant =
      Welcome{5, id_of(2), "s", {{0, true, {9, id_of(3)}, {{3, 4, GapState::rejected}}}}};
  CHECK(test::same(decoded(test::frame_of(65, welcome.str())), welcome_meant));

  Bytes outcome;
  outcome.u8(2).u8(1 | 2 | 0xF0).i64(100).text("r").raw("more");
  Bytes ack;
  ack.u64(5).u64(6).u8(0).i64(9).id(id_of(3)).u32(1).record(outcome).raw("more");
  const Message ack_meant = Ack{5, 6, 0, {9, id_of(3)}, {{Outcome::Kind::later, 100, "r"}}};
  CHECK(test::same(decoded(test::frame_of(66, ack.str())), ack_meant));
}

TEST_CASE("a refusal that later software invented is still a refusal") {
  Bytes body;
  body.u16(4'242).u64(5).u64(6).u8(0).i64(9).id(id_of(3)).i64(1'000).text("new reason").raw("more");
  const Message message = decoded(test::frame_of(67, body.str()));
  CHECK(std::get<Refused>(message).code == static_cast<RefusedCode>(4'242));
  CHECK(std::get<Refused>(message).text == "new reason");
  CHECK(std::string(refused_name(std::get<Refused>(message).code)) == "unnamed");
}

TEST_CASE("golden frames of version 1 are read and written by this software, byte for byte") {
  const bool write = std::getenv("HOLDFAST_WRITE_GOLDEN") != nullptr;
  if (write) std::filesystem::create_directories(kGoldenFolder);
  for (const test::GoldenMessage& golden : test::golden_messages_v1()) {
    CAPTURE(golden.name);
    const std::string path = kGoldenFolder + golden.name + ".bin";
    const std::string frame = encoded(golden.message);
    if (write) std::ofstream(path, std::ios::binary) << frame;
    const std::string bytes = read_file(path);
    CHECK(frame == bytes);
    CHECK(test::same(decoded(bytes), golden.message));
  }
}

TEST_CASE("every golden frame in the folder is one that is checked") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenFolder)) {
    files += entry.path().extension() == ".bin" ? 1 : 0;
  }
  CHECK(files == test::golden_messages_v1().size());
}

TEST_CASE("event_bytes is exactly what an event adds to a batch") {
  for (std::uint64_t i = 0; i < 300; ++i) {
    std::mt19937_64 random(i);
    Batch batch = std::get<Batch>(test::random_message(Kind::batch, 30, random));
    if (batch.events.empty()) continue;
    const std::size_t whole = encoded(batch).size();
    const std::size_t last = event_bytes(batch.events.back());
    batch.events.pop_back();
    CHECK(encoded(batch).size() + last == whole);
  }
}

TEST_CASE("an event with 256 bytes of payload takes at most 345 bytes") {
  Batch batch;
  for (std::int64_t seq = 1; seq <= 100; ++seq)
    batch.events.push_back(event_with_payload(256, seq));
  CHECK(event_bytes(batch.events[0]) <= 345);
  CHECK(encoded(batch).size() / 100 <= 345);
}

TEST_CASE("a frame is encoded without growing its buffer step by step") {
  Batch batch;
  for (std::int64_t seq = 1; seq <= 180; ++seq)
    batch.events.push_back(event_with_payload(256, seq));
  const Message message = batch;
  std::string frame;
  test::AllocationMeter meter;
  REQUIRE(encode(message, frame).ok());
  CHECK(meter.peak_bytes() < frame.size() + 2'048);  // growing would hold two buffers at once
}

TEST_CASE("names of reasons and refusals are stable: they are in logs and JSON") {
  CHECK(std::string(reason_name(GapReason::dead)) == "dead");
  CHECK(std::string(reason_name(GapReason::lost)) == "lost");
  CHECK(std::string(refused_name(RefusedCode::bad_frame)) == "bad_frame");
  CHECK(std::string(refused_name(RefusedCode::unavailable)) == "unavailable");
  for (int code = 1; code <= 11; ++code) {
    CHECK(std::string(refused_name(static_cast<RefusedCode>(code))) != "unnamed");
  }
}
