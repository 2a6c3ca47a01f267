#include "support/messages.hpp"

#include <algorithm>

namespace holdfast::test {
namespace {

using namespace wire;

// --- equality ---

bool equal(const Mark& a, const Mark& b) { return a.seq == b.seq && a.id == b.id; }

bool equal(const HelloLane& a, const HelloLane& b);
bool equal(const Gap& a, const Gap& b);
bool equal(const WelcomeLane& a, const WelcomeLane& b);
bool equal(const GapReport& a, const GapReport& b);
bool equal(const EventRecord& a, const EventRecord& b);
bool equal(const Outcome& a, const Outcome& b);

template <typename T>
bool equal_lists(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return equal(x, y); });
}

bool equal(const HelloLane& a, const HelloLane& b) {
  return a.lane == b.lane && a.newest_seq == b.newest_seq && equal(a.acked, b.acked);
}

bool equal(const Hello& a, const Hello& b) {
  return a.stream == b.stream && a.session == b.session && a.device == b.device &&
         a.software == b.software && equal_lists(a.lanes, b.lanes);
}

bool equal(const Gap& a, const Gap& b) {
  return a.first == b.first && a.last == b.last && a.state == b.state;
}

bool equal(const WelcomeLane& a, const WelcomeLane& b) {
  return a.lane == b.lane && a.known == b.known && equal(a.mark, b.mark) &&
         equal_lists(a.gaps, b.gaps);
}

bool equal(const Welcome& a, const Welcome& b) {
  return a.session == b.session && a.store == b.store && a.software == b.software &&
         equal_lists(a.lanes, b.lanes);
}

bool equal(const GapReport& a, const GapReport& b) {
  return a.first == b.first && a.last == b.last && a.count == b.count && a.reason == b.reason &&
         a.text == b.text;
}

bool equal(const EventRecord& a, const EventRecord& b) { return same(a, b); }

bool equal(const Batch& a, const Batch& b) {
  return a.stream == b.stream && a.session == b.session && a.frame_no == b.frame_no &&
         a.lane == b.lane && a.start == b.start && a.retry == b.retry && equal(a.prev, b.prev) &&
         a.skipped == b.skipped && equal_lists(a.reports, b.reports) &&
         equal_lists(a.events, b.events);
}

bool equal(const Bye& a, const Bye& b) { return a.stream == b.stream && a.session == b.session; }

bool equal(const Outcome& a, const Outcome& b) {
  return a.kind == b.kind && a.later_ms == b.later_ms && a.reason == b.reason;
}

bool equal(const Ack& a, const Ack& b) {
  return a.session == b.session && a.frame_no == b.frame_no && a.lane == b.lane &&
         equal(a.mark, b.mark) && equal_lists(a.outcomes, b.outcomes);
}

bool equal(const Refused& a, const Refused& b) {
  return a.code == b.code && a.session == b.session && a.frame_no == b.frame_no &&
         a.lane == b.lane && equal(a.mark, b.mark) && a.later_ms == b.later_ms && a.text == b.text;
}

// --- random values ---

class Generator {
 public:
  Generator(std::size_t size, std::mt19937_64& random) : size_(size), random_(random) {}

  std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : random_() % end; }
  bool maybe() { return below(2) == 1; }
  std::size_t count(std::size_t most) { return below(std::min(size_, most) + 1); }
  std::uint64_t number() { return random_() >> below(64); }
  std::int64_t positive() { return static_cast<std::int64_t>(random_() >> (1 + below(63))); }
  std::uint8_t lane() { return static_cast<std::uint8_t>(below(kLaneCount)); }

  EventId id() {
    EventId id;
    for (std::uint8_t& byte : id.bytes) byte = static_cast<std::uint8_t>(random_());
    return id;
  }
  Mark mark() { return maybe() ? Mark{positive(), id()} : Mark{}; }

  std::string bytes() {
    std::string bytes(count(kMaxFrameBytes), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  std::string plain_text() {
    std::string text(count(kMaxTextBytes / 2), ' ');
    for (char& c : text) c = static_cast<char>(' ' + below(95));
    if (maybe()) text += "\xC3\xA4\xE2\x82\xAC";
    return text;
  }

  // Rises with each call.
  std::int64_t next_seq(std::int64_t last) {
    return last + 1 + static_cast<std::int64_t>(below(3));
  }

  EventRecord event(std::int64_t seq, int lane) {
    EventRecord event;
    event.seq = seq;
    event.lane = lane;
    event.id = id();
    event.event_type = bytes();
    event.aggregate_type = bytes();
    event.aggregate_id = bytes();
    event.created_at_ms = static_cast<std::int64_t>(random_());
    event.payload = bytes();
    event.payload_is_text = maybe();
    if (maybe()) event.aggregate_version = positive();
    if (maybe()) event.content_type = content_type();
    if (maybe()) event.trace = bytes();
    if (maybe()) event.headers = bytes();
    if (maybe()) event.source = bytes();
    if (maybe()) event.source_stream = id();
    if (maybe()) event.source_seq = static_cast<std::int64_t>(random_());
    return event;
  }

  std::string content_type() {
    switch (below(3)) {
      case 0:
        return std::string(kContentTypeJson);
      case 1:
        return std::string(kContentTypeCereal);
      default:
        return bytes();
    }
  }

  GapReport report() {
    GapReport report;
    report.first = 1 + positive() / 2;
    report.last = report.first + static_cast<std::int64_t>(below(1'000));
    report.count = static_cast<std::int64_t>(
        below(static_cast<std::uint64_t>(report.last - report.first) + 2));
    report.reason = static_cast<GapReason>(below(6));
    report.text = plain_text();
    return report;
  }

  std::vector<Gap> gaps() {
    std::vector<Gap> gaps(count(kMaxGapsPerWelcome / kLaneCount));
    std::int64_t last = 0;
    for (Gap& gap : gaps) {
      gap.first = next_seq(last);
      gap.last = last = gap.first + static_cast<std::int64_t>(below(10));
      gap.state = static_cast<GapState>(below(5));
    }
    return gaps;
  }

  Hello hello() {
    Hello hello{id(), number(), plain_text(), plain_text(), {}};
    for (std::uint8_t lane = 0; lane < kLaneCount; ++lane) {
      if (maybe()) hello.lanes.push_back({lane, positive(), mark()});
    }
    return hello;
  }

  Welcome welcome() {
    Welcome welcome{number(), id(), plain_text(), {}};
    for (std::uint8_t lane = 0; lane < kLaneCount; ++lane) {
      if (maybe()) welcome.lanes.push_back({lane, maybe(), mark(), gaps()});
    }
    return welcome;
  }

  Batch batch() {
    Batch batch{id(), number(), number(), lane(), maybe(), maybe(), mark(), {}, {}, {}};
    batch.skipped.resize(count(kMaxSkippedPerBatch));
    std::int64_t last = 0;
    for (std::int64_t& seq : batch.skipped) seq = last = next_seq(last);
    batch.reports.resize(count(kMaxReportsPerBatch));
    for (GapReport& gap : batch.reports) gap = report();
    batch.events.resize(count(kMaxEventsPerBatch));
    last = positive() / 2;
    for (EventRecord& record : batch.events) {
      last = next_seq(last);
      record = event(last, batch.lane);
    }
    return batch;
  }

  Ack ack() {
    Ack ack{number(), number(), lane(), mark(), {}};
    ack.outcomes.resize(count(kMaxEventsPerBatch));
    for (Outcome& outcome : ack.outcomes) {
      outcome.kind = static_cast<Outcome::Kind>(below(6));
      if (maybe()) outcome.later_ms = positive();
      if (maybe()) outcome.reason = plain_text();
    }
    return ack;
  }

  Refused refused() {
    const auto code = static_cast<RefusedCode>(1 + below(20));
    return {code, number(), number(), lane(), mark(), positive(), plain_text()};
  }

 private:
  std::size_t size_;
  std::mt19937_64& random_;
};

// --- golden values ---

EventId golden_id(std::uint8_t first) {
  EventId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(first + i);
  }
  return id;
}

EventRecord plain_event() {
  EventRecord event;
  event.seq = 1'001;
  event.id = golden_id(0x10);
  event.event_type = "sensor.reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = "boiler-1";
  event.created_at_ms = 1'750'000'000'123;
  event.payload = std::string("\x00\x01\xFE\xFF", 4);
  return event;
}

EventRecord full_event() {
  EventRecord event = plain_event();
  event.seq = 1'005;
  event.id = golden_id(0x30);
  event.aggregate_version = -7;
  event.content_type = "text/plain";
  event.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  event.headers = R"({"tenant":"a"})";
  event.source = "press-7";
  event.source_stream = golden_id(0x50);
  event.source_seq = 42;
  event.payload =
      "71.5 \xC2\xB0"
      "C";
  event.payload_is_text = true;
  return event;
}

EventRecord typed_event(std::string_view content_type, std::int64_t seq) {
  EventRecord event = plain_event();
  event.seq = seq;
  event.id = golden_id(static_cast<std::uint8_t>(seq));
  event.content_type = content_type;
  event.payload = "{}";
  event.payload_is_text = content_type == kContentTypeJson;
  return event;
}

Batch golden_batch() {
  Batch batch;
  batch.stream = golden_id(0xA0);
  batch.session = 0x1122334455667788;
  batch.frame_no = 9;
  batch.lane = kLaneNormal;
  batch.prev = {1'000, golden_id(0xC0)};
  batch.events = {plain_event()};
  return batch;
}

Batch full_batch() {
  Batch batch = golden_batch();
  batch.start = true;
  batch.retry = true;
  batch.skipped = {1'003, 1'004};
  batch.reports = {{10, 20, 11, GapReason::expired, "older than 30 d"},
                   {21, 21, 1, GapReason::dead, ""}};
  batch.events = {plain_event(), full_event(), typed_event(kContentTypeJson, 1'006),
                  typed_event(kContentTypeCereal, 1'007)};
  return batch;
}

Batch urgent_batch() {
  Batch batch = golden_batch();
  batch.lane = kLaneUrgent;
  batch.events.front().lane = kLaneUrgent;
  return batch;
}

}  // namespace

bool same(const EventRecord& a, const EventRecord& b) {
  return a.seq == b.seq && a.id == b.id && a.event_type == b.event_type &&
         a.aggregate_type == b.aggregate_type && a.aggregate_id == b.aggregate_id &&
         a.aggregate_version == b.aggregate_version && a.created_at_ms == b.created_at_ms &&
         a.content_type == b.content_type && a.trace == b.trace && a.headers == b.headers &&
         a.lane == b.lane && a.source == b.source && a.source_stream == b.source_stream &&
         a.source_seq == b.source_seq && a.payload == b.payload &&
         a.payload_is_text == b.payload_is_text;
}

bool same(const Message& a, const Message& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&b](const auto& left) { return equal(left, std::get<std::decay_t<decltype(left)>>(b)); }, a);
}

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kinds = {Kind::hello,   Kind::batch, Kind::bye,
                                          Kind::welcome, Kind::ack,   Kind::refused};
  return kinds;
}

Message random_message(Kind kind, std::size_t size, std::mt19937_64& random) {
  Generator generate(size, random);
  switch (kind) {
    case Kind::hello:
      return generate.hello();
    case Kind::batch:
      return generate.batch();
    case Kind::bye:
      return Bye{generate.id(), generate.number()};
    case Kind::welcome:
      return generate.welcome();
    case Kind::ack:
      return generate.ack();
    case Kind::refused:
      break;
  }
  return generate.refused();
}

std::vector<GoldenMessage> golden_messages_v1() {
  const Mark mark = {1'000, golden_id(0xC0)};
  return {
      {"hello", Hello{golden_id(0xA0),
                      0x1122334455667788,
                      "press-7",
                      "holdfast/0.1.0",
                      {{0, 1'010, mark}, {1, 3, {}}}}},
      {"hello_empty", Hello{}},
      {"batch", golden_batch()},
      {"batch_full", full_batch()},
      {"batch_urgent", urgent_batch()},
      {"bye", Bye{golden_id(0xA0), 0x1122334455667788}},
      {"welcome", Welcome{0x1122334455667788,
                          golden_id(0xE0),
                          "holdfast/0.1.0",
                          {{0, true, mark, {{5, 7, GapState::rejected}, {9, 9, GapState::dead}}},
                           {1, false, {}, {}}}}},
      {"ack", Ack{0x1122334455667788,
                  9,
                  0,
                  mark,
                  {{Outcome::Kind::stored, 0, ""},
                   {Outcome::Kind::duplicate, 0, ""},
                   {Outcome::Kind::later, 5'000, "database is locked"},
                   {Outcome::Kind::rejected, 0, "no such meter"},
                   {Outcome::Kind::invalid, 0, "event_type is empty"},
                   {Outcome::Kind::held, 0, ""}}}},
      {"refused", Refused{RefusedCode::ahead_of_mark, 0x1122334455667788, 9, 0, mark, 0,
                          "prev 1010 is above the mark 1000"}},
      {"refused_busy", Refused{RefusedCode::busy, 0, 0, 1, {}, 2'500, ""}},
  };
}

}  // namespace holdfast::test
