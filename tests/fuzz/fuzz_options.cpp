// Values of options, as a person or a script gives them. Input: one byte that says which, the text.
#include "byte_size.hpp"
#include "characters.hpp"
#include "duration.hpp"
#include "fuzz.hpp"
#include "holdfast/json.hpp"
#include "holdfast/store.hpp"
#include "json.hpp"

using namespace holdfast;
using namespace holdfast::fuzz;

namespace {

void take_duration(std::string_view text) {
  std::int64_t ms = 0, again = 0;
  if (!cli::parse_duration(text, ms)) return;
  require(ms >= 0 && ms <= cli::kDurationMaxMs, "a duration is within its limit", text);
  require(cli::parse_duration(cli::duration_text(ms), again) && again == ms,
          "a printed duration is the same, read back", text);
}

void take_size(std::string_view text) {
  std::int64_t bytes = 0, again = 0;
  if (!cli::parse_byte_size(text, bytes)) return;
  require(bytes >= 0 && bytes <= std::int64_t{1} << 53, "a size is within its limit", text);
  require(cli::parse_byte_size(cli::byte_size_text(bytes), again) && again == bytes,
          "a printed size is the same, read back", text);
}

void take_numbers(std::string_view text) {
  std::int64_t value = 0;
  if (cli::parse_integer(text, value)) {
    std::int64_t again = 0;
    require(cli::parse_integer(std::to_string(value), again) && again == value, "an integer", text);
  }
  int lane = 0;
  if (cli::parse_lane(text, lane)) require(lane == 0 || lane == 1, "a lane", text);
  EventState state{};
  if (parse_state(text, state)) {
    EventState again{};
    require(parse_state(state_name(state), again) && again == state, "a state", text);
  }
}

void take_id(std::string_view text) {
  EventId id, again;
  if (!EventId::parse(text, id)) return;
  require(text.size() == EventId::kTextBytes, "an id has 36 characters", text);
  require(EventId::parse(id.text(), again) && again == id, "an id is the same, read back", text);
}

void take_base64(std::string_view text) {
  std::string bytes, again;
  require(cli::parse_base64(cli::base64(text), bytes) && bytes == text, "base64 of any bytes");
  if (cli::parse_base64(text, bytes)) {
    // Bits that no byte is made of may differ: what they stand for may not.
    require(cli::parse_base64(cli::base64(bytes), again) && again == bytes, "base64", text);
    require(bytes.size() <= text.size() / 4 * 3, "base64 is longer than its bytes");
  }
}

void take_characters(std::string_view text) {
  bool utf8 = true;
  for (std::string_view rest = text; !rest.empty() && utf8;) {
    std::uint32_t code = 0;
    const std::size_t length = cli::decode_utf8(rest, code);
    require(length <= std::min<std::size_t>(4, rest.size()), "a character is inside the text");
    require(length == 0 || code <= 0x10FFFF, "a character is one of Unicode");
    utf8 = length > 0;
    rest.remove_prefix(length);
  }
  require(utf8 == is_utf8(text), "two decoders agree on what UTF-8 is");
  require(!is_plain_text(text) || utf8, "plain text is UTF-8");
  require(cli::is_sql_text(text) == (utf8 && text.find('\0') == std::string_view::npos),
          "text for SQL is UTF-8 without NUL");
  std::string quoted;
  require(json::append_string(text, quoted) == utf8, "UTF-8 can be a JSON string");
  if (utf8)
    require(json::valid(quoted, 0) && json::unescape(quoted) == text, "a JSON string", quoted);
}

// A headers option, and an event that has it.
void take_headers(std::string_view text) {
  Event event;
  event.event_type = event.aggregate_type = event.aggregate_id = "t";
  event.headers = text;
  const Status status = validate(event);
  require_explained(status, "headers");
  if (!text.empty() && status.ok()) require(is_json_object(text), "headers are an object", text);
  event.headers = {};
  event.trace = text;
  require_explained(validate(event), "trace");
  event.trace = {};
  event.event_type = event.aggregate_id = event.content_type = text;
  require_explained(validate(event), "names");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr void (*kOptions[])(std::string_view) = {
      take_duration, take_size, take_numbers, take_id, take_base64, take_characters, take_headers};
  Input in({reinterpret_cast<const char*>(data), size});
  kOptions[in.u8() % std::size(kOptions)](in.rest());
  return 0;
}
