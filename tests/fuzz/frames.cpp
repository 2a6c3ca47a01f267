#include "frames.hpp"

#include "fuzz.hpp"
#include "support/bytes.hpp"
#include "support/messages.hpp"

namespace holdfast::fuzz {

std::vector<Step> take_steps(std::string_view input) {
  std::vector<Step> steps;
  Input in(input);
  while (!in.done() && steps.size() < kStepsMax) {
    Step step;
    step.kind = in.u8();
    step.bytes = in.bytes(in.u16());
    steps.push_back(step);
  }
  return steps;
}

void append_step(std::string& input, std::uint8_t kind, std::string_view bytes) {
  input += static_cast<char>(kind);
  input += static_cast<char>(bytes.size() & 0xFF);
  input += static_cast<char>(bytes.size() >> 8 & 0xFF);
  input += bytes.substr(0, 0xFFFF);
}

std::string frame_of(std::uint8_t kind, std::string_view body) {
  return kind == kRawFrame ? std::string(body) : test::frame_of(kind, body);
}

bool is_frame(std::uint8_t kind) {
  if (kind == kRawFrame) return true;
  for (const wire::Kind known : test::all_kinds())
    if (static_cast<std::uint8_t>(known) == kind) return true;
  return false;
}

bool decode_checked(std::string_view frame, wire::Message& message, wire::RefusedCode& refused) {
  refused = {};
  const Status status = wire::decode(frame, message, refused);
  if (!status.ok()) {
    require_explained(status, "decode");
    require(refused == wire::RefusedCode::bad_frame || refused == wire::RefusedCode::bad_version ||
                refused == wire::RefusedCode::bad_kind,
            "a frame is refused with a reason", status.text());
    return false;
  }
  std::string again;
  require_ok(wire::encode(message, again), "what was accepted can be encoded");
  wire::Message second;
  wire::RefusedCode code{};
  require_ok(wire::decode(again, second, code), "and decodes again");
  require(test::same(message, second), "and is the same then");
  return true;
}

wire::Message decode_own(const std::string& frame) {
  wire::Message message;
  wire::RefusedCode code{};
  require(frame.size() <= wire::kMaxFrameBytes, "an own frame keeps to the limit");
  require_ok(wire::decode(frame, message, code), "an own frame decodes");
  std::string again;
  require_ok(wire::encode(message, again), "an own frame encodes");
  require(again == frame, "an own frame is the same, encoded again");
  return message;
}

}  // namespace holdfast::fuzz
