// Inputs that are a conversation: steps, each [u8 kind][u16 length][that many bytes], the last one
// as long as what is left. A kind of wire.hpp makes the bytes the body of a frame with a right
// header, so that a mutation reaches the decoder behind the checksum.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wire.hpp"

namespace holdfast::fuzz {

struct Step {
  std::uint8_t kind = 0;
  std::string_view bytes;  // of the input
};

constexpr std::uint8_t kRawFrame = 0;  // the bytes are a whole frame, header included
constexpr std::size_t kStepsMax = 64;  // what follows is left out

std::vector<Step> take_steps(std::string_view input);
void append_step(std::string& input, std::uint8_t kind, std::string_view bytes);
std::string frame_of(std::uint8_t kind, std::string_view body);
bool is_frame(std::uint8_t kind);  // a kind of wire.hpp, or kRawFrame

// One input, as LLVMFuzzerTestOneInput has it, in a Conversation(site) that takes the steps.
template <typename Conversation, typename Site>
int converse(Site& site, const std::uint8_t* data, std::size_t size) {
  Conversation conversation(site);
  for (const Step& step : take_steps({reinterpret_cast<const char*>(data), size}))
    conversation.take(step);
  conversation.finish();
  return 0;
}

// Decodes, and requires of the decoder: a refusal is named; what is accepted can be encoded, and
// decodes again to the same message.
bool decode_checked(std::string_view frame, wire::Message& message, wire::RefusedCode& refused);
// Of a frame that the product made: it decodes, and is exactly what its message encodes to.
wire::Message decode_own(const std::string& frame);

}  // namespace holdfast::fuzz
