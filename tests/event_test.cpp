// Ids, field limits and formats of events, and the JSON checks they rest on.
#include "holdfast/event.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/json.hpp"

using namespace holdfast;

namespace {

constexpr std::int64_t kWallMs = 1'750'000'000'123;
const std::string kTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

std::uint64_t ms_of(const EventId& id) {
  std::uint64_t ms = 0;
  for (int i = 0; i < 6; ++i) ms = ms << 8 | id.bytes[i];
  return ms;
}

Event good_event() {
  Event event;
  event.event_type = "sensor.reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = "boiler-1";
  return event;
}

EventRecord good_record() {
  EventRecord record;
  record.seq = 1;
  record.id = EventId::make_v7(kWallMs);
  record.event_type = "sensor.reading.v1";
  record.aggregate_type = "sensor";
  record.aggregate_id = "boiler-1";
  return record;
}

// The field that a refusal names: the first word of its text. "" if it was accepted.
template <typename AnyEvent>
std::string refused_field(const AnyEvent& event) {
  const Status status = validate(event);
  if (status.ok()) return "";
  CHECK(status.code() == Code::invalid);
  const std::string text = status.text();
  return text.substr(0, text.find(' '));
}

std::string nested_arrays(std::size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

std::string nested_objects(std::size_t depth) {
  std::string text = "1";
  for (std::size_t i = 0; i < depth; ++i) text = "{\"a\":" + text + "}";
  return text;
}

}  // namespace

TEST_CASE("an id survives being written as text and parsed again") {
  for (int i = 0; i < 100; ++i) {
    const EventId id = EventId::make_random();
    EventId parsed;
    REQUIRE(EventId::parse(id.text(), parsed));
    CHECK(parsed == id);
  }
}

TEST_CASE("an id is written in lower case with hyphens, and read in either case") {
  EventId id;
  REQUIRE(EventId::parse("01890A5D-AC96-774B-BCCE-B302099A8057", id));
  CHECK(id.text() == "01890a5d-ac96-774b-bcce-b302099a8057");
  CHECK(id.bytes[0] == 0x01);
  CHECK(id.bytes[15] == 0x57);
}

TEST_CASE("what is not a UUID is refused and leaves the id as it was (G10)") {
  const EventId before = EventId::make_random();
  EventId id = before;
  for (const char* text :
       {"", "01890a5d-ac96-774b-bcce-b302099a805", "01890a5d-ac96-774b-bcce-b302099a80577",
        "01890a5dac96774bbcceb302099a8057", "{01890a5d-ac96-774b-bcce-b302099a805}",
        "01890a5d-ac96-774b-bcce_b302099a8057", "01890a5g-ac96-774b-bcce-b302099a8057",
        "01890a5d-ac9-6774b-bcce-b302099a8057", " 1890a5d-ac96-774b-bcce-b302099a8057",
        "-1890a5d-ac96-774b-bcce-b302099a8057"}) {
    CAPTURE(text);
    CHECK_FALSE(EventId::parse(text, id));
    CHECK(id == before);
  }
}

TEST_CASE("a version 7 id holds its time, version and variant (RFC 9562)") {
  const EventId id = EventId::make_v7(kWallMs + 1000 * 3600 * 24 * 365LL);
  CHECK(ms_of(id) == static_cast<std::uint64_t>(kWallMs + 1000 * 3600 * 24 * 365LL));
  CHECK((id.bytes[6] & 0xF0) == 0x70);
  CHECK((id.bytes[8] & 0xC0) == 0x80);
}

TEST_CASE("a random id has version 4 and the variant") {
  const EventId id = EventId::make_random();
  CHECK((id.bytes[6] & 0xF0) == 0x40);
  CHECK((id.bytes[8] & 0xC0) == 0x80);
}

TEST_CASE("version 7 ids of one millisecond increase strictly") {
  const std::int64_t ms = kWallMs + 1000 * 3600 * 24 * 366LL;
  EventId last = EventId::make_v7(ms);
  bool increasing = true;
  for (int i = 0; i < 20'000; ++i) {
    const EventId next = EventId::make_v7(ms);
    increasing = increasing && last < next;
    last = next;
  }
  CHECK(increasing);
  // 12 bits count 4,096 in a millisecond; the rest borrows from the next ones.
  CHECK(ms_of(last) - static_cast<std::uint64_t>(ms) <= 20'000 / 4096 + 1);
}

TEST_CASE("version 7 ids keep increasing when the clock steps back a little") {
  const std::int64_t ms = kWallMs + 1000 * 3600 * 24 * 367LL;
  const EventId before = EventId::make_v7(ms);
  const EventId after = EventId::make_v7(ms - 5'000);
  CHECK(before < after);
}

TEST_CASE("version 7 ids follow a clock that was corrected by a lot (G7)") {
  const std::int64_t wrong_ms = 4'000'000'000'000;  // the year 2096
  EventId::make_v7(wrong_ms);
  CHECK(ms_of(EventId::make_v7(kWallMs)) == static_cast<std::uint64_t>(kWallMs));
}

TEST_CASE("wall clocks before 1970 or beyond 48 bits still give distinct ids") {
  for (const std::int64_t ms : {std::int64_t{-5}, std::int64_t{0}, INT64_MIN, INT64_MAX}) {
    const EventId a = EventId::make_v7(ms);
    const EventId b = EventId::make_v7(ms);
    CHECK(a != b);
    CHECK((a.bytes[6] & 0xF0) == 0x70);
  }
  EventId::make_v7(kWallMs);
}

TEST_CASE("ids made by several threads at once are all different") {
  std::vector<std::vector<EventId>> made(4);
  std::vector<std::thread> threads;
  for (auto& ids : made) {
    threads.emplace_back([&ids] {
      for (int i = 0; i < 5'000; ++i) ids.push_back(EventId::make_v7(kWallMs));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<EventId> all;
  for (const auto& ids : made) all.insert(ids.begin(), ids.end());
  CHECK(all.size() == 20'000);
}

TEST_CASE("an event with the required fields alone is valid") {
  CHECK(refused_field(good_event()) == "");
  CHECK(refused_field(good_record()) == "");
}

TEST_CASE("an event with everything set is valid") {
  Event event = good_event();
  event.payload = "{\"celsius\": 71.5}";
  event.payload_is_text = true;
  event.content_type = kContentTypeJson;
  event.trace = kTrace;
  event.headers = "{\"tenant\": \"a\", \"list\": [1, {\"b\": null}]}";
  event.aggregate_version = 3;
  event.created_at_ms = kWallMs;
  event.lane = kLaneUrgent;
  event.id = EventId::make_random();
  CHECK(refused_field(event) == "");
}

TEST_CASE("a missing required field is refused by name") {
  Event event = good_event();
  event.event_type = "";
  CHECK(refused_field(event) == "event_type");
  event = good_event();
  event.aggregate_type = "";
  CHECK(refused_field(event) == "aggregate_type");
  event = good_event();
  event.aggregate_id = "";
  CHECK(refused_field(event) == "aggregate_id");
}

TEST_CASE("a field at its limit is accepted, and one byte more is refused by name (G8)") {
  const std::string big(kMaxPayloadBytes + 1, 'x');
  const std::string_view text = big;
  const auto check_limit = [&](std::string_view Event::* field, std::size_t limit,
                               const char* name) {
    Event event = good_event();
    event.*field = text.substr(0, limit);
    CHECK(refused_field(event) == "");
    event.*field = text.substr(0, limit + 1);
    CHECK(refused_field(event) == name);
  };
  check_limit(&Event::event_type, kMaxEventTypeBytes, "event_type");
  check_limit(&Event::aggregate_type, kMaxAggregateTypeBytes, "aggregate_type");
  check_limit(&Event::aggregate_id, kMaxAggregateIdBytes, "aggregate_id");
  check_limit(&Event::content_type, kMaxContentTypeBytes, "content_type");
  check_limit(&Event::payload, kMaxPayloadBytes, "payload");
}

TEST_CASE("headers at their limit are accepted, and one byte more is refused (G8)") {
  std::string headers = "{\"a\":\"" + std::string(kMaxHeadersBytes - 8, 'x') + "\"}";
  REQUIRE(headers.size() == kMaxHeadersBytes);
  Event event = good_event();
  event.headers = headers;
  CHECK(refused_field(event) == "");
  headers += ' ';
  event.headers = headers;
  CHECK(refused_field(event) == "headers");
}

TEST_CASE("names that are not UTF-8 or hold control characters are refused (G10)") {
  for (const std::string& bad :
       {std::string("a\nb"), std::string("a\0b", 3), std::string("\x1B[2J"), std::string("\x7F"),
        std::string("\xC2\x9B"), std::string("\xFF"), std::string("\xC0\xAF"),
        std::string("\xED\xA0\x80"), std::string("caf\xC3")}) {
    for (const auto field :
         {&EventRecord::event_type, &EventRecord::aggregate_type, &EventRecord::aggregate_id,
          &EventRecord::content_type, &EventRecord::source}) {
      EventRecord record = good_record();
      record.*field = bad;
      CHECK(refused_field(record) != "");
    }
  }
  EventRecord record = good_record();
  record.aggregate_id = "Kühlraum-1 \xE2\x82\xAC \xF0\x9F\x94\xA5 \xC2\xA0";
  CHECK(refused_field(record) == "");
}

TEST_CASE("a trace is a W3C traceparent, of this or a later version") {
  const std::string ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  Event event = good_event();
  const auto refused = [&event](const std::string& trace) {
    event.trace = trace;
    return refused_field(event) == "trace";
  };
  CHECK_FALSE(refused("00-" + ids));
  CHECK_FALSE(refused("01-" + ids));
  CHECK_FALSE(refused("cc-" + ids + "-what-the-future-will-bring"));
  CHECK(refused("00-" + ids + "-more"));  // version 00 is 55 bytes
  CHECK(refused("cc-" + ids + "."));
  CHECK(refused("ff-" + ids));  // forbidden by the specification
  CHECK(refused("00-" + ids.substr(1)));
  CHECK(refused("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"));
  CHECK(refused("00-00000000000000000000000000000000-b7ad6b7169203331-01"));
  CHECK(refused("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"));
  CHECK(refused("00_" + ids));
  CHECK(refused("trace me"));
  CHECK(refused("cc-" + ids + "-" + std::string(kMaxTraceBytes, 'x')));
}

TEST_CASE("headers are one JSON object") {
  Event event = good_event();
  for (const char* bad : {"[]", "1", "null", "{", "{}{}", "{\"a\":}", "{'a':1}", "{\"a\":NaN}"}) {
    CAPTURE(bad);
    event.headers = bad;
    CHECK(refused_field(event) == "headers");
  }
}

TEST_CASE("a payload marked as text is UTF-8 without NUL; other payloads are any bytes") {
  const std::string with_nul("a\0b", 3);
  for (const std::string& bytes : {with_nul, std::string("\xFF\xFE"), std::string("\x80")}) {
    Event event = good_event();
    event.payload = bytes;
    CHECK(refused_field(event) == "");
    event.payload_is_text = true;
    CHECK(refused_field(event) == "payload");
  }
}

TEST_CASE("lanes that do not exist and dates out of range are refused") {
  for (const int lane : {-1, kLaneCount, 77}) {
    Event event = good_event();
    event.lane = lane;
    CHECK(refused_field(event) == "lane");
  }
  Event event = good_event();
  event.created_at_ms = 0;
  CHECK(refused_field(event) == "");
  event.created_at_ms = 253'402'300'799'999;
  CHECK(refused_field(event) == "");
  for (const std::int64_t ms : {std::int64_t{-1}, std::int64_t{253'402'300'800'000}, INT64_MAX}) {
    event.created_at_ms = ms;
    CHECK(refused_field(event) == "created_at");
  }
}

TEST_CASE("a record has a seq, an id and a whole source or none") {
  EventRecord record = good_record();
  record.seq = 0;
  CHECK(refused_field(record) == "seq");
  record = good_record();
  record.id = EventId();
  CHECK(refused_field(record) == "event_id");
  record = good_record();
  record.created_at_ms = kNow;
  CHECK(refused_field(record) == "created_at");
  record = good_record();
  record.source_seq = 5;
  CHECK(refused_field(record) == "source_stream");
  record.source_stream = EventId::make_random();
  CHECK(refused_field(record) == "");
  record.source_seq = -5;
  CHECK(refused_field(record) == "source_seq");
  record = good_record();
  record.source = std::string(kMaxDeviceNameBytes, 'x');
  CHECK(refused_field(record) == "");
  record.source += 'x';
  CHECK(refused_field(record) == "source");
}

TEST_CASE("UTF-8 is checked as RFC 3629 defines it (G10)") {
  for (const char* good :
       {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    CHECK(is_utf8(good));
  }
  for (const char* bad :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF", "\xE0\xA0",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF0\x90\x80", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFE", "\xFF", "a\xC3"}) {
    CHECK_FALSE(is_utf8(bad));
  }
}

TEST_CASE("JSON is checked as RFC 8259 defines it (G10)") {
  for (const char* good :
       {"0", "-0", "12", "-1.5e+10", "1E5", "0.5", "\"\"", "\"\\u00e4\\n\\/\"", "true", "false",
        "null", "[]", "{}", " [ 1 , 2 ] ", "{\"a\":{\"b\":[]}}", "\t\r\n{\"\":0}\n",
        "\"\\ud83d\\udd25\"", "\"\x7F\"", "\"\xE2\x82\xAC\""}) {
    CAPTURE(good);
    CHECK(json::valid(good, 8));
  }
  for (const char* bad : {"",
                          " ",
                          "01",
                          "+1",
                          "-",
                          "1.",
                          ".5",
                          "1e",
                          "1e+",
                          "0x10",
                          "NaN",
                          "Infinity",
                          "-Infinity",
                          "tru",
                          "truee",
                          "nul",
                          "\"",
                          "\"\\\"",
                          "\"\\x\"",
                          "\"\\u12\"",
                          "\"\\u12g4\"",
                          "\"a\nb\"",
                          "\"\x01\"",
                          "[1,]",
                          "[,1]",
                          "[1 2]",
                          "[",
                          "]",
                          "{\"a\"}",
                          "{\"a\":1,}",
                          "{a:1}",
                          "{1:2}",
                          "{\"a\":1 \"b\":2}",
                          "{]",
                          "[}",
                          "1 2",
                          "[] []",
                          "//c\n1",
                          "\xEF\xBB\xBF{}",
                          "\"\xFF\"",
                          "\"\\ud83d\"",
                          "\"\\ud83dx\"",
                          "\"\\ud83d\\u0041\"",
                          "\"\\udd25\""}) {
    CAPTURE(bad);
    CHECK_FALSE(json::valid(bad, 8));
  }
  CHECK_FALSE(json::valid(std::string_view("{}\0", 3), 8));
}

TEST_CASE("JSON is nested at most as deep as allowed, and a hostile depth is refused (G10)") {
  CHECK(json::valid("7", 0));
  CHECK_FALSE(json::valid("[]", 0));
  CHECK(json::valid(nested_arrays(8), 8));
  CHECK_FALSE(json::valid(nested_arrays(9), 8));
  CHECK(is_json_object(nested_objects(kMaxHeadersDepth)));
  CHECK_FALSE(is_json_object(nested_objects(kMaxHeadersDepth + 1)));
  CHECK_FALSE(json::valid(std::string(10'000'000, '['), 16));
  CHECK_FALSE(json::valid(nested_objects(2'000), 16));
}

TEST_CASE("members of a JSON text are walked in order, names unescaped on demand") {
  const std::string text =
      " {\"a\" : 1 , \"b\":[1,{\"x\":\"]}\"},\"\\\"\"] ,\"c\\u0064\":{\"y\":\"\\\\\"}, \"e\":\"q\" "
      "} ";
  REQUIRE(json::valid(text, 8));
  json::Members members(text);
  REQUIRE(members.next());
  CHECK(members.name() == "\"a\"");
  CHECK(members.value() == "1");
  REQUIRE(members.next());
  CHECK(members.value() == "[1,{\"x\":\"]}\"},\"\\\"\"]");
  CHECK(json::type_of(members.value()) == json::Type::array);
  json::Members elements(members.value());
  REQUIRE(elements.next());
  REQUIRE(elements.next());
  REQUIRE(elements.next());
  CHECK(elements.name().empty());
  CHECK(json::unescape(elements.value()) == "\"");
  CHECK_FALSE(elements.next());
  REQUIRE(members.next());
  CHECK(json::name_is(members.name(), "cd"));
  CHECK(json::type_of(members.value()) == json::Type::object);
  REQUIRE(members.next());
  CHECK(json::name_is(members.name(), "e"));
  CHECK(json::unescape(members.value()) == "q");
  CHECK_FALSE(members.next());
  CHECK_FALSE(members.next());
  CHECK_FALSE(json::Members("{ }").next());
  CHECK_FALSE(json::Members("[]").next());
  CHECK_FALSE(json::Members("17").next());
}

TEST_CASE("any UTF-8 text survives being written as a JSON string and read again") {
  std::string text("\"\\/\b\f\n\r\t\0\x01\x1F\x7F plain ", 20);
  text += "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x94\xA5";
  std::string written;
  REQUIRE(json::append_string(text, written));
  CHECK(json::valid(written, 0));
  CHECK(json::unescape(written) == text);
  CHECK(json::unescape("\"\\ud83d\\udd25\\u20ac\\u00e4\\/\"") ==
        "\xF0\x9F\x94\xA5\xE2\x82\xAC\xC3\xA4/");
  CHECK_FALSE(json::append_string("\xFF", written));
}

TEST_CASE("the reading functions stay inside a text that was never checked (G10)") {
  const std::string base = "{\"a\\u00e4\":[1,{\"b\":\"\\ud83d\\udd25\"},true],\"c\":null}";
  for (std::size_t length = 0; length <= base.size(); ++length) {
    for (const char c : {'"', '\\', '{', '}', ',', 'u', ' '}) {
      std::vector<char> exact(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(length));
      if (length > 0) exact[length / 2] = c;
      const std::string_view text(exact.data(), exact.size());
      std::size_t steps = 0;
      for (json::Members members(text); members.next() && steps < 100; ++steps) {
        json::unescape(members.name());
        json::unescape(members.value());
        for (json::Members inner(members.value()); inner.next() && steps < 100; ++steps) {
          json::unescape(inner.value());
        }
      }
      CHECK(steps < 100);
      json::unescape(text);
    }
  }
}
