// The control: a decoder with the fault that decoders have. It believes a length. A fuzz run that
// does not find it within seconds finds nothing, and fails.
#include <cstring>
#include <vector>

#include "frames.hpp"
#include "fuzz.hpp"

using namespace holdfast::fuzz;

namespace {

// A text of a BYE's reason, if there were one: [u8 length][that many bytes].
std::size_t read_text(std::string_view body) {
  if (body.size() < 2 || body[0] != 'B') return 0;
  const std::vector<char> copy(body.begin() + 2, body.end());
  std::size_t sum = 0;
  for (std::size_t i = 0; i < static_cast<std::uint8_t>(body[1]); ++i)
    sum += static_cast<std::uint8_t>(copy.data()[i]);  // never asks whether so much is there
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const Step& step : take_steps({reinterpret_cast<const char*>(data), size}))
    if (is_frame(step.kind)) read_text(step.bytes);
  return 0;
}
