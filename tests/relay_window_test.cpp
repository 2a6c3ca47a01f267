// How much a relay has under way, over links that are played in simulated time.
#include "relay_window.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

#include "holdfast/relay.hpp"
#include "support/protocol_world.hpp"

using namespace holdfast;
using test::ProtocolWorld;
using test::WorldOptions;

namespace {

// A link that carries so much, and answers after so long.
struct Link {
  std::int64_t bytes_per_ms = 0;
  std::int64_t round_trip_ms = 0;
};

struct Result {
  std::int64_t bytes = 0;          // answered
  std::size_t under_way_max = 0;   // bytes
  std::int64_t answer_ms_max = 0;  // from the send
};

struct Request {
  RelayWindow::Sent sent;
  std::int64_t answered_at = 0;
};

// A backlog without end, for `ms`; with a fixed window instead of the measured one if it is given.
Result play(const Link& link, std::int64_t ms, std::size_t fixed = 0) {
  RelayWindow window;
  std::deque<Request> under_way;
  Result result;
  std::int64_t carried_at = 0;  // when the link has carried all that was given to it
  window.answer(link.round_trip_ms, window.send(0, 0, false));  // HELLO
  for (std::int64_t now = link.round_trip_ms; now < ms; ++now) {
    while (!under_way.empty() && under_way.front().answered_at <= now) {
      window.answer(now, under_way.front().sent);
      result.bytes += static_cast<std::int64_t>(under_way.front().sent.bytes);
      result.answer_ms_max = std::max(result.answer_ms_max, now - under_way.front().sent.at);
      under_way.pop_front();
    }
    for (;;) {
      const bool room = fixed > 0 ? window.bytes_under_way() < fixed : window.has_room();
      const bool slots = under_way.size() < std::size_t{kWindowBatchesMax};
      if (!under_way.empty() && !(room && slots)) break;
      const std::size_t bytes = window.batch_bytes(kMaxBatchBytes, kWindowBatchesMax);
      carried_at = std::max(carried_at, now) + static_cast<std::int64_t>(bytes) / link.bytes_per_ms;
      under_way.push_back({window.send(now, bytes, true), carried_at + link.round_trip_ms});
      result.under_way_max = std::max(result.under_way_max, window.bytes_under_way());
    }
  }
  return result;
}

}  // namespace

TEST_CASE("a fast link with a long round trip is kept full, one batch at a time leaves it idle") {
  const Link link{12'500, 200};  // 100 Mbit/s
  const Result wide = play(link, 10'000);
  const Result one = play(link, 10'000, 1);  // control
  CHECK(wide.bytes > 10 * one.bytes);
  // 1.5 MiB in each round trip, after the first few.
  CHECK(wide.bytes > 9 * 5 * std::int64_t{kWindowBytesMax} * 8 / 10);
}

TEST_CASE("what is under way stays within its bounds (G8)") {
  for (const std::int64_t round_trip : {0, 1, 20, 200, 2'000, 20'000}) {
    for (const std::int64_t rate : {1, 10, 100, 1'000, 100'000}) {
      const Result result = play({rate, round_trip}, 60'000);
      CAPTURE(round_trip);
      CAPTURE(rate);
      CHECK(result.under_way_max < kWindowBytesMax + 2 * kMaxBatchBytes);
    }
  }
}

TEST_CASE("a slow link is given about a second's worth, so that nothing times out in the queue") {
  for (const std::int64_t rate : {10, 50, 200}) {  // 80 kbit/s to 1.6 Mbit/s
    const std::int64_t batch_ms = static_cast<std::int64_t>(kMaxBatchBytes) / rate;
    const Result result = play({rate, 300}, 60'000);
    CAPTURE(rate);
    CHECK(result.answer_ms_max <= kWindowMs + 300 + 2 * batch_ms);
    if (rate > 10) continue;
    CHECK(result.answer_ms_max < kRequestTimeoutMs);
    CHECK(play({rate, 300}, 60'000, kWindowBytesMax).answer_ms_max > kRequestTimeoutMs);  // control
  }
}

TEST_CASE("after a failure the window begins again with one batch") {
  RelayWindow window;
  for (int i = 0; i < 10; ++i) window.answer(10, window.send(0, kMaxBatchBytes, true));
  CHECK(window.has_room());
  CHECK(window.batch_bytes(kMaxBatchBytes, kWindowBatchesMax) > kMaxBatchBytes);
  window.reset();
  CHECK_FALSE(window.has_room());
  CHECK(window.batch_bytes(kMaxBatchBytes, kWindowBatchesMax) == kMaxBatchBytes);
}

// Frames under way to the gateway: how many of each lane.
namespace {

std::vector<wire::Batch> batches_under_way(ProtocolWorld& world) {
  std::vector<wire::Batch> batches;
  for (std::size_t at = 0; at < world.link.size(); ++at) {
    wire::Message message;
    wire::RefusedCode code{};
    if (world.link.at(at).up && wire::decode(world.link.at(at).bytes, message, code).ok())
      if (const auto* batch = std::get_if<wire::Batch>(&message)) batches.push_back(*batch);
  }
  return batches;
}

WorldOptions paced(int batch_events_max) {
  WorldOptions options;
  options.window = kWindowBatchesMax;
  options.paced = true;
  options.batch_events_max = batch_events_max;
  return options;
}

// The session is open and the link has shown what it carries.
void warm_up(ProtocolWorld& world) {
  for (int i = 0; i < 40; ++i) world.emit(0, "a");
  CHECK(world.settle());
}

}  // namespace

TEST_CASE("what is emitted while a batch is under way travels together, a backlog does not wait") {
  ProtocolWorld world(paced(4));
  warm_up(world);
  world.emit(0, "a");
  world.step_all();
  CHECK(batches_under_way(world).size() == 1);
  for (int i = 0; i < 3; ++i) {  // fewer than fill a batch
    world.emit(0, "a");
    world.step_all();
  }
  CHECK(batches_under_way(world).size() == 1);
  for (int i = 0; i < 20; ++i) world.emit(0, "a");
  for (int i = 0; i < 5; ++i) world.step_all();
  CHECK(batches_under_way(world).size() > 3);
  CHECK(world.settle());
  CHECK(world.verdict().empty());
}

TEST_CASE("an urgent event does not wait for the batches under way (G5)") {
  for (const int window : {1, 4}) {
    WorldOptions options = paced(1);
    options.window = window;
    options.paced = false;
    ProtocolWorld world(options);
    warm_up(world);
    for (int i = 0; i < 10; ++i) world.emit(0, "a");
    world.step_all();
    CHECK(batches_under_way(world).size() == static_cast<std::size_t>(window));  // it is full
    world.emit(0, "alarm", kLaneUrgent);
    world.step_all();
    const std::vector<wire::Batch> batches = batches_under_way(world);
    CHECK(batches.size() == static_cast<std::size_t>(window) + 1);
    CHECK(batches.back().lane == kLaneUrgent);
    CHECK(world.settle());
    CHECK(world.verdict().empty());
  }
}
