// Structs as payloads: both encodings there and back, and what hostile bytes do to the decoder.
#include "holdfast/typed.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cereal/archives/json.hpp>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/array.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/vector.hpp>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>

#include "db.hpp"
#include "schema.hpp"
#include "support/allocations.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using test::AllocationFailure;
using test::AllocationMeter;

namespace {

enum class Unit : std::uint8_t { celsius = 1, bar = 2 };

struct Sample {
  std::int64_t at_ms = 0;
  double value = 0;
  bool good = false;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(at_ms), CEREAL_NVP(value), CEREAL_NVP(good));
  }
  bool operator==(const Sample& other) const {
    return at_ms == other.at_ms && value == other.value && good == other.good;
  }
};

struct Reading {
  std::string sensor;
  Unit unit = Unit::celsius;
  std::int8_t tiny = 0;
  std::uint16_t small = 0;
  std::uint64_t large = 0;
  long long wide = 0;
  float rough = 0;
  std::optional<double> limit;
  std::vector<Sample> samples;
  std::vector<std::uint32_t> raw;
  std::array<bool, 3> flags{};
  std::map<std::string, int> counts;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(sensor), CEREAL_NVP(unit), CEREAL_NVP(tiny), CEREAL_NVP(small),
            CEREAL_NVP(large), CEREAL_NVP(wide), CEREAL_NVP(rough), CEREAL_NVP(limit),
            CEREAL_NVP(samples), CEREAL_NVP(raw), CEREAL_NVP(flags), CEREAL_NVP(counts));
  }
  bool operator==(const Reading& other) const {
    return sensor == other.sensor && unit == other.unit && tiny == other.tiny &&
           small == other.small && large == other.large && wide == other.wide &&
           rough == other.rough && limit == other.limit && samples == other.samples &&
           raw == other.raw && flags == other.flags && counts == other.counts;
  }
};

Reading full_reading() {
  Reading reading;
  reading.sensor = std::string("boiler \"1\"\n\0 \xE2\x82\xAC", 16);
  reading.unit = Unit::bar;
  reading.tiny = -128;
  reading.small = 65535;
  reading.large = UINT64_MAX;
  reading.wide = INT64_MIN;
  reading.rough = 0.1f;
  reading.limit = 1e-300;
  reading.samples = {{1, 0.1, true}, {-2, -1e300, false}};
  reading.raw = {0, 1, 0xFFFFFFFF};
  reading.flags = {true, false, true};
  reading.counts = {{"a", 1}, {"b", -2}};
  return reading;
}

// A type that contains itself.
struct Node {
  std::vector<Node> children;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(children));
  }
};

struct Link {
  std::unique_ptr<Link> next;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(next));
  }
};

// With functions outside of the struct, as for types of somebody else.
struct Foreign {
  int a = 0;
};
template <class Archive>
void save(Archive& archive, const Foreign& foreign) {
  archive(cereal::make_nvp("a", foreign.a));
}
template <class Archive>
void load(Archive& archive, Foreign& foreign) {
  archive(cereal::make_nvp("a", foreign.a));
}

struct Celsius {
  double degrees = 0;
};
template <class Archive>
double save_minimal(const Archive&, const Celsius& celsius) {
  return celsius.degrees;
}
template <class Archive>
void load_minimal(const Archive&, Celsius& celsius, const double& degrees) {
  celsius.degrees = degrees;
}

struct Wrapped {
  Celsius temperature;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(temperature));
  }
};

struct Throws {
  int what = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(what));
    if (what == 1) throw std::runtime_error("the application objects");
    if (what == 2) throw 42;
  }
};

struct Empty {
  template <class Archive>
  void serialize(Archive&) {}
};

void require_ok(const Status& status) {
  CAPTURE(std::string(status.text()));
  REQUIRE(status.ok());
}

template <typename T>
std::string encoded(const T& value, Encoding encoding) {
  std::string payload;
  require_ok(encode(value, encoding, payload));
  return payload;
}

template <typename T>
Status decode_json(std::string_view payload, T& value) {
  return decode(payload, kContentTypeJson, value);
}

template <typename T>
Status decode_binary(std::string_view payload, T& value) {
  return decode(payload, kContentTypeCereal, value);
}

template <typename T>
std::string stock_binary(const T& value, bool little_endian) {
  using Archive = cereal::PortableBinaryOutputArchive;
  std::ostringstream out;
  Archive archive(out,
                  little_endian ? Archive::Options::LittleEndian() : Archive::Options::BigEndian());
  archive(value);
  return out.str();
}

std::string u64(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

const std::string kLittleEndian(1, '\1');

}  // namespace

TEST_CASE("a struct comes back from both encodings as it was") {
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    const std::string payload = encoded(full_reading(), encoding);
    Reading decoded;
    const Status status = decode(payload, content_type_of(encoding), decoded);
    CAPTURE(std::string(status.text()));
    REQUIRE(status.ok());
    CHECK(decoded == full_reading());
  }
}

TEST_CASE("JSON of a struct is one flat, compact object") {
  const Sample sample{1750000000123, 71.5, true};
  CHECK(encoded(sample, Encoding::json) == R"({"at_ms":1750000000123,"value":71.5,"good":true})");
  CHECK(encoded(Foreign{7}, Encoding::json) == R"({"a":7})");
  CHECK(encoded(Wrapped{{21.5}}, Encoding::json) == R"({"temperature":21.5})");
  CHECK(encoded(Empty(), Encoding::json) == "{}");
  CHECK(encoded(Node(), Encoding::json) == R"({"children":[]})");
  CHECK(is_json_object(encoded(full_reading(), Encoding::json)));
}

TEST_CASE("types with functions outside of them come back as well") {
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    Foreign foreign;
    REQUIRE(decode(encoded(Foreign{-7}, encoding), content_type_of(encoding), foreign).ok());
    CHECK(foreign.a == -7);
    Wrapped wrapped;
    REQUIRE(decode(encoded(Wrapped{{1.25}}, encoding), content_type_of(encoding), wrapped).ok());
    CHECK(wrapped.temperature.degrees == 1.25);
    std::vector<int> numbers;
    REQUIRE(
        decode(encoded(std::vector<int>{1, 2}, encoding), content_type_of(encoding), numbers).ok());
    CHECK(numbers == std::vector<int>{1, 2});
  }
}

TEST_CASE("portable binary is byte for byte what cereal's own archive writes") {
  CHECK(encoded(full_reading(), Encoding::portable_binary) == stock_binary(full_reading(), true));
  CHECK(encoded(Sample{1, 2, true}, Encoding::portable_binary) ==
        stock_binary(Sample{1, 2, true}, true));
}

TEST_CASE("portable binary of either byte order is read") {
  for (const bool little_endian : {true, false}) {
    Reading decoded;
    REQUIRE(decode_binary(stock_binary(full_reading(), little_endian), decoded).ok());
    CHECK(decoded == full_reading());
  }
}

TEST_CASE("cereal's own archive reads our portable binary") {
  std::istringstream in(encoded(full_reading(), Encoding::portable_binary));
  cereal::PortableBinaryInputArchive archive(in);
  Reading decoded;
  archive(decoded);
  CHECK(decoded == full_reading());
}

TEST_CASE("JSON members may come in any order, with unknown ones and white space between") {
  Sample sample;
  REQUIRE(decode_json("{ \"good\": true, \"new\": [1,{\"value\":5}],\n \"value\" : 2.5e0 , "
                      "\"at\\u005fms\": 9 }",
                      sample)
              .ok());
  CHECK(sample == Sample{9, 2.5, true});
}

TEST_CASE("a record is decoded by its content type, parameters and case aside") {
  EventRecord record;
  record.payload = encoded(Sample{1, 2, true}, Encoding::json);
  Sample sample;
  for (const char* type :
       {"application/json", "application/json; charset=utf-8", "Application/JSON ;x=y"}) {
    record.content_type = type;
    CHECK(decode(record, sample).ok());
  }
  for (const char* type : {"", "text/plain", "application/jsonx", "application/xjson", ";"}) {
    record.content_type = type;
    CHECK(decode(record, sample).code() == Code::invalid);
  }
}

TEST_CASE("a typed event is complete but for what only the caller knows") {
  std::string payload;
  Event event;
  REQUIRE(typed_event("sensor.reading.v1", "sensor", "boiler-1", Sample{1, 2, true}, Encoding::json,
                      payload, event)
              .ok());
  CHECK(validate(event).ok());
  CHECK(event.payload == payload);
  CHECK(event.payload_is_text);
  CHECK(event.content_type == kContentTypeJson);
  REQUIRE(typed_event("sensor.reading.v1", "sensor", "boiler-1", Sample{1, 2, true},
                      Encoding::portable_binary, payload, event)
              .ok());
  CHECK(validate(event).ok());
  CHECK_FALSE(event.payload_is_text);
  CHECK(event.content_type == kContentTypeCereal);
}

TEST_CASE("a typed event is in the log exactly if its transaction commits (G1)") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("holdfast-typed-test-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  {
    Db db;
    SchemaFacts before;
    Outbox outbox;
    require_ok(Db::open(folder / "app.db", OpenMode::create, 5'000, db));
    require_ok(db.exec("PRAGMA journal_mode=WAL", "test"));
    require_ok(migrate_schema(db, "press-7", before));
    require_ok(Outbox::attach(db.handle(), OutboxOptions(), outbox));
    const auto emit = [&outbox](double value, Emitted* emitted) {
      return emit_typed(outbox, "sensor.reading.v1", "sensor", "boiler-1", Sample{7, value, true},
                        Encoding::json, emitted);
    };
    const auto row = [&db](const char* sql) {
      std::string text;
      REQUIRE(db.query_text(sql, text, "test").ok());
      return text;
    };
    Emitted emitted;
    CHECK(emit(1, &emitted).code() == Code::no_transaction);

    Transaction given_up(db.handle());
    REQUIRE(given_up.begin().ok());
    CHECK(emit(2, nullptr).ok());
    given_up.rollback();
    CHECK(row("SELECT count(*) FROM outbox_event") == "0");

    Transaction transaction(db.handle());
    REQUIRE(transaction.begin().ok());
    CHECK(emit(std::numeric_limits<double>::infinity(), nullptr).code() == Code::invalid);
    CHECK(emit(71.5, &emitted).ok());
    REQUIRE(transaction.commit().ok());
    CHECK(emitted.seq == 1);
    CHECK(row("SELECT count(*) FROM outbox_event") == "1");
    CHECK(row("SELECT content_type || ' ' || typeof(payload) FROM outbox_event") ==
          "application/json text");
    Sample sample;
    CHECK(decode_json(row("SELECT payload FROM outbox_event"), sample).ok());
    CHECK(sample == Sample{7, 71.5, true});
    outbox.detach();
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("what JSON cannot carry is refused, not changed (G9)") {
  std::string payload;
  CHECK(encode(Sample{0, std::numeric_limits<double>::quiet_NaN(), false}, Encoding::json, payload)
            .code() == Code::invalid);
  CHECK(encode(Sample{0, std::numeric_limits<double>::infinity(), false}, Encoding::json, payload)
            .code() == Code::invalid);
  Reading reading;
  reading.sensor = "\xFF";
  CHECK(encode(reading, Encoding::json, payload).code() == Code::invalid);
  CHECK(encode(reading, Encoding::portable_binary, payload).ok());
}

TEST_CASE("a JSON number that does not fit its type is refused, not cut (G9)") {
  Reading reading;
  const std::string good = encoded(full_reading(), Encoding::json);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  REQUIRE(decode_json(good, reading).ok());
  for (const char* bad : {"-129", "128", "1.0", "1e0", "\"1\"", "true", "null", "[]", "{}"}) {
    CAPTURE(bad);
    CHECK_FALSE(decode_json(with("\"tiny\":-128", "\"tiny\":" + std::string(bad)), reading).ok());
  }
  CHECK_FALSE(decode_json(with("65535", "65536"), reading).ok());
  CHECK_FALSE(decode_json(with("65535", "-1"), reading).ok());
  CHECK_FALSE(decode_json(with("18446744073709551615", "18446744073709551616"), reading).ok());
  CHECK(decode_json(with("18446744073709551615", "\"18446744073709551615\""), reading).ok());
  CHECK_FALSE(decode_json(with("18446744073709551615", "\"\""), reading).ok());
  CHECK_FALSE(decode_json(with("\"rough\":0.1", "\"rough\":1e39"), reading).ok());
  CHECK_FALSE(decode_json(with("-1e+300", "1e999"), reading).ok());
  CHECK_FALSE(decode_json(with("-1e+300", "\"nan\""), reading).ok());
  CHECK_FALSE(decode_json(with(",\"value2\":true", ""), reading).ok());
  CHECK_FALSE(decode_json(with("\"good\":true", "\"good\":1"), reading).ok());
}

TEST_CASE("a text with NUL survives JSON, where cereal's own archive cuts it") {
  Reading reading;
  reading.sensor = std::string("a\0b", 3);
  Reading decoded;
  REQUIRE(decode_json(encoded(reading, Encoding::json), decoded).ok());
  CHECK(decoded.sensor == reading.sensor);
}

TEST_CASE("a failed decode says which member and leaves the value as it was") {
  const Sample before{1, 2, true};
  Sample sample = before;
  const Status status = decode_json(R"({"at_ms":5,"value":"x","good":true})", sample);
  CHECK(status.code() == Code::invalid);
  CHECK(std::string(status.text()).find("\"value\"") != std::string::npos);
  CHECK(sample == before);
  CHECK(std::string(decode_json(R"({"at_ms":5})", sample).text()).find("missing") !=
        std::string::npos);
  CHECK(sample == before);
}

TEST_CASE("no exception of the application leaves encode or decode") {
  std::string payload;
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    const Status said = encode(Throws{1}, encoding, payload);
    CHECK(std::string(said.text()).find("the application objects") != std::string::npos);
    CHECK(encode(Throws{2}, encoding, payload).code() == Code::invalid);
  }
  Throws value;
  CHECK(decode_json(R"({"what":1})", value).code() == Code::invalid);
  CHECK(decode_json(R"({"what":2})", value).code() == Code::invalid);
}

TEST_CASE("a struct nested too deeply is refused in both directions (G10)") {
  std::string payload;
  Node root;
  Node* deepest = &root;
  for (int i = 0; i < 5'000; ++i) deepest = &deepest->children.emplace_back();
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    CHECK(encode(root, encoding, payload).code() == Code::invalid);
  }
  Link chain;
  Link* last = &chain;
  for (int i = 0; i < 5'000; ++i) last = (last->next = std::make_unique<Link>()).get();
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    CHECK(encode(chain, encoding, payload).code() == Code::invalid);
  }
}

TEST_CASE("what can be encoded can be decoded, at every depth") {
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    bool refused_before = false;
    for (int depth = 0; depth < 40; ++depth) {
      Node root;
      Node* deepest = &root;
      for (int i = 0; i < depth; ++i) deepest = &deepest->children.emplace_back();
      std::string payload;
      const bool accepted = encode(root, encoding, payload).ok();
      CHECK_FALSE((accepted && refused_before));
      refused_before = !accepted;
      Node decoded;
      if (accepted) CHECK(decode(payload, content_type_of(encoding), decoded).ok());
    }
    CHECK(refused_before);
  }
}

TEST_CASE("hostile depth does not reach the stack's end (G10)") {
  std::string binary = kLittleEndian;
  for (int i = 0; i < 100'000; ++i) binary += u64(1);
  Node node;
  CHECK(decode_binary(binary, node).code() == Code::invalid);
  std::string json_text;
  for (int i = 0; i < 50'000; ++i) json_text += "{\"children\":[";
  CHECK(decode_json(json_text, node).code() == Code::invalid);
  CHECK(decode_json(std::string(kMaxPayloadBytes, '['), node).code() == Code::invalid);
  std::string links = kLittleEndian;
  links.append(100'000, '\1');
  Link link;
  CHECK(decode_binary(links, link).code() == Code::invalid);
}

TEST_CASE("a hostile length allocates nothing, where cereal's own archive believes it (G10)") {
  constexpr std::uint64_t kClaim = 64 << 20;
  for (const std::uint64_t claim : {kClaim, std::uint64_t{1} << 40, UINT64_MAX}) {
    const std::string bytes = kLittleEndian + u64(claim) + "few";
    std::string text;
    AllocationMeter meter;
    CHECK(decode_binary(bytes, text).code() == Code::invalid);
    std::vector<Sample> samples;
    CHECK(decode_binary(bytes, samples).code() == Code::invalid);
    CHECK(meter.peak_bytes() < 4096);
  }

  // The control: the meter sees it when it happens.
  std::istringstream in(kLittleEndian + u64(kClaim) + "few");
  cereal::PortableBinaryInputArchive stock(in);
  std::string text;
  AllocationMeter meter;
  CHECK_THROWS(stock(text));
  CHECK(meter.peak_bytes() >= kClaim);
}

TEST_CASE("lengths add up to no more than the payload, within lists of lists as well (G10)") {
  // Each inner list claims all that is left, which its elements of no bytes would not use up.
  std::string bytes = kLittleEndian + u64(50);
  for (int i = 0; i < 50; ++i) bytes += u64(300);
  std::vector<std::vector<Empty>> lists;
  AllocationMeter meter;
  CHECK(decode_binary(bytes, lists).code() == Code::invalid);
  CHECK(meter.peak_bytes() < 8 * bytes.size());
}

TEST_CASE("bytes that are no bool are refused, not loaded (G10)") {
  std::array<bool, 3> flags{};
  CHECK(decode_binary(kLittleEndian + std::string("\1\0\1", 3), flags).ok());
  CHECK(decode_binary(kLittleEndian + std::string("\1\2\1", 3), flags).code() == Code::invalid);
  bool flag = false;
  CHECK(decode_binary(kLittleEndian + "\x7F", flag).code() == Code::invalid);
  CHECK(decode_binary(std::string("\2\1", 2), flag).code() == Code::invalid);
  CHECK(decode_binary("", flag).code() == Code::invalid);
}

TEST_CASE("bytes left over are refused: they are of another type or version") {
  Sample sample;
  const std::string payload = encoded(Sample{1, 2, true}, Encoding::portable_binary);
  CHECK(decode_binary(payload, sample).ok());
  CHECK(decode_binary(payload + '\0', sample).code() == Code::invalid);
}

TEST_CASE("a payload cut anywhere is refused (G10)") {
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    const std::string payload = encoded(full_reading(), encoding);
    for (std::size_t length = 0; length < payload.size(); ++length) {
      Reading reading;
      CHECK_FALSE(decode(payload.substr(0, length), content_type_of(encoding), reading).ok());
    }
  }
}

TEST_CASE("a payload beyond the limit is neither made nor read (G8)") {
  std::string payload;
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    const std::vector<std::string> texts(10, std::string(kMaxPayloadBytes / 9, 'x'));
    CHECK(encode(texts, encoding, payload).code() == Code::invalid);
  }
  const std::string huge = "[" + std::string(kMaxPayloadBytes, ' ') + "]";
  std::vector<int> numbers;
  CHECK(decode_json(huge, numbers).code() == Code::invalid);
}

TEST_CASE("out of memory is a status at every allocation") {
  const std::string json_text = encoded(full_reading(), Encoding::json);
  const std::string binary = encoded(full_reading(), Encoding::portable_binary);
  const auto fails_cleanly = [](const auto& work) {
    for (std::int64_t nth = 0;; ++nth) {
      REQUIRE(nth < 10'000);
      Code code = Code::ok;
      bool happened = false;
      {
        AllocationFailure failure(nth);
        code = work();
        happened = failure.happened();
      }
      CHECK(code == (happened ? Code::unavailable : Code::ok));
      if (!happened) return;
    }
  };
  const Reading reading = full_reading();
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    fails_cleanly([&] {
      std::string payload;
      return encode(reading, encoding, payload).code();
    });
    fails_cleanly([&] {
      Reading decoded;
      const std::string& payload = encoding == Encoding::json ? json_text : binary;
      return decode(payload, content_type_of(encoding), decoded).code();
    });
  }
}

TEST_CASE("mutated payloads are accepted or refused, within the memory bound (G10)") {
  const std::uint64_t first_seed = test::seed(1);
  const int mutations = test::scaled(40'000);
  int accepted = 0;
  for (const Encoding encoding : {Encoding::json, Encoding::portable_binary}) {
    const std::string good = encoded(full_reading(), encoding);
    for (int i = 0; i < mutations; ++i) {
      std::mt19937_64 random(first_seed + static_cast<std::uint64_t>(i));
      std::string payload = good;
      const std::uint64_t changes = 1 + random() % 4;
      for (std::uint64_t change = 0; change < changes; ++change) {
        payload[random() % payload.size()] = random() % 2 == 0
                                                 ? "{}[]\",:\\0-e\1\0\xFF"[random() % 14]
                                                 : static_cast<char>(random());
      }
      Reading reading;
      AllocationMeter meter;
      const bool ok = decode(payload, content_type_of(encoding), reading).ok();
      accepted += ok ? 1 : 0;
      if (meter.peak_bytes() > 4096 + sizeof(Sample) * payload.size()) {
        FAIL("HOLDFAST_TEST_SEED=" << first_seed + static_cast<std::uint64_t>(i) << " allocated "
                                   << meter.peak_bytes());
      }
      std::string again;
      if (ok && !encode(reading, encoding, again).ok()) {
        FAIL("HOLDFAST_TEST_SEED=" << first_seed + static_cast<std::uint64_t>(i)
                                   << " decodes to what cannot be encoded");
      }
    }
  }
  CHECK(accepted > 100);            // the mutations reach the inside
  CHECK(accepted < mutations * 2);  // and are noticed
}
