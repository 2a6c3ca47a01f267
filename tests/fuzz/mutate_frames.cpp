// How libFuzzer changes a conversation: whole steps, and the bodies within them, so that the rest
// stays a conversation.
#include <random>

#include "frames.hpp"
#include "fuzz.hpp"
#include "support/messages.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace holdfast::fuzz {
namespace {

constexpr std::size_t kHeaderBytes = wire::kHeaderBytes;

struct OwnStep {
  std::uint8_t kind = 0;
  std::string bytes;
};
using Steps = std::vector<OwnStep>;

std::string body_of(const wire::Message& message) {
  std::string frame;
  return wire::encode(message, frame).ok() ? frame.substr(kHeaderBytes) : std::string();
}

OwnStep random_step(std::mt19937_64& random) {
  constexpr std::uint8_t kControls[] = {0x80, 0x81, 0x82, 0x83, 0x84, 0x84, 0x85, 0x86};
  if (random() % 2 == 0) {
    const std::uint8_t kind = kControls[random() % std::size(kControls)];
    return {kind, std::string(random() % 4, static_cast<char>(random()))};
  }
  const wire::Kind kind = test::all_kinds()[random() % test::all_kinds().size()];
  const auto number = static_cast<std::uint8_t>(kind);
  const std::string body = body_of(test::random_message(kind, 1 + random() % 4, random));
  // Answers mostly to the request that they meet.
  return {static_cast<std::uint8_t>(number >= 65 && random() % 4 != 0 ? number | 0xC0 : number),
          body};
}

// The batch that would follow this one, or one that is nearly that.
void follow(Steps& steps, std::size_t at, std::mt19937_64& random) {
  wire::Message message;
  wire::RefusedCode code{};
  if (!wire::decode(frame_of(steps[at].kind, steps[at].bytes), message, code).ok()) return;
  if (const auto* hello = std::get_if<wire::Hello>(&message)) {
    wire::Message made = test::random_message(wire::Kind::batch, 1 + random() % 4, random);
    auto& batch = std::get<wire::Batch>(made);
    batch.stream = hello->stream;
    batch.session = hello->session;
    batch.start = random() % 2 == 0;
    if (random() % 2 == 0) batch.prev = {};
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at) + 1, {2, body_of(made)});
  }
  auto* batch = std::get_if<wire::Batch>(&message);
  if (batch == nullptr || batch->events.empty()) return;
  const std::int64_t shift = static_cast<std::int64_t>(random() % 3) - 1 +
                             batch->events.back().seq - batch->events.front().seq + 1;
  batch->prev = {batch->events.back().seq, batch->events.back().id};
  batch->start = false;
  ++batch->frame_no;
  if (random() % 2 == 0) batch->skipped.clear();
  for (EventRecord& event : batch->events) {
    if (event.seq > 1'000'000'000) return;
    event.seq += shift;
    event.id.bytes[random() % 16] ^= static_cast<std::uint8_t>(random());
  }
  steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at) + 1, {2, body_of(message)});
}

void change(Steps& steps, std::mt19937_64& random, std::size_t bytes_max) {
  if (steps.empty()) steps.push_back(random_step(random));
  const std::size_t at = random() % steps.size();
  const auto place = steps.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random() % 10) {
    case 0:
      steps.insert(place, random_step(random));
      return;
    case 1:
      steps.push_back(random_step(random));
      return;
    case 2:
      steps.push_back(OwnStep(*place));
      return;
    case 3:
      steps.erase(place);
      return;
    case 4:
      std::swap(*place, steps[random() % steps.size()]);
      return;
    case 5:
      follow(steps, at, random);
      return;
    case 6:
      place->kind = random_step(random).kind;
      return;
    default: {
      std::string& bytes = place->bytes;
      const std::size_t size = bytes.size();
      bytes.resize(std::min<std::size_t>(bytes_max, size + 64));
      bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()),
                                    std::min(size, bytes.size()), bytes.size()));
    }
  }
}

}  // namespace
}  // namespace holdfast::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace holdfast::fuzz;
  std::mt19937_64 random(seed);
  if (random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  Steps steps;
  for (const Step& step : take_steps({reinterpret_cast<const char*>(data), size}))
    steps.push_back({step.kind, std::string(step.bytes)});
  change(steps, random, max_size);
  std::string out;
  for (const OwnStep& step : steps) append_step(out, step.kind, step.bytes);
  if (out.size() > max_size) out.resize(max_size);
  std::copy(out.begin(), out.end(), data);
  return out.size();
}
