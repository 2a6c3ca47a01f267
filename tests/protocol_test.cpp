// The protocol as a whole: seeded schedules of everything that goes wrong between devices and a
// gateway, an oracle for every promise, and controls that show the oracle sees what is broken.
// What each rule means in one case is in protocol_rules_test.cpp.
//
// A failure names its seed. Replay it, with what happened in between:
//   HOLDFAST_SEED=n HOLDFAST_TRACE=1 holdfast_protocol_test -tc='schedules*'
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/protocol_world.hpp"
#include "support/scale.hpp"

using namespace holdfast;
using test::ProtocolWorld;
using test::WorldOptions;

namespace {

constexpr int kSchedules = 100'000;

WorldOptions options_of(std::uint64_t seed) {
  WorldOptions options;
  options.seed = seed;
  options.window = seed % 2 == 0 ? 1 : 4;
  options.batch_events_max = 1 + static_cast<int>(seed / 2 % 4);
  options.dead_after = 2 + static_cast<int>(seed / 8 % 2);
  options.with_handler = seed % 5 != 0;
  return options;
}

std::vector<std::string> run_seed(ProtocolWorld& world, std::uint64_t seed) {
  world.reset(options_of(seed));
  try {
    return world.run_schedule(world.draw_features());
  } catch (const std::exception& error) {
    return {std::string("error: ") + error.what()};
  }
}

void run_shard(int shard, int shards) {
  ProtocolWorld world;
  const char* const one = std::getenv("HOLDFAST_SEED");
  if (one != nullptr) {
    world.trace = std::getenv("HOLDFAST_TRACE") != nullptr;
    const std::vector<std::string> broken = run_seed(world, std::strtoull(one, nullptr, 10));
    for (const std::string& line : world.lines) std::fprintf(stderr, "%s\n", line.c_str());
    for (const std::string& line : broken) FAIL_CHECK(line);
    return;
  }
  const int count = test::scaled(kSchedules);
  int failures = 0;
  for (int i = shard; i < count && failures < 20; i += shards) {
    const auto seed = static_cast<std::uint64_t>(i) + 1;
    for (const std::string& line : run_seed(world, seed)) {
      ++failures;
      FAIL_CHECK("seed ", seed, ": ", line, "\n  replay: HOLDFAST_SEED=", seed,
                 " HOLDFAST_TRACE=1 holdfast_protocol_test -tc='schedules 1*'");
      break;
    }
  }
}

}  // namespace

TEST_CASE("schedules 1 of 2: every event is applied once and in order or is reported") {
  run_shard(0, 2);
}

TEST_CASE("schedules 2 of 2: every event is applied once and in order or is reported") {
  run_shard(1, 2);
}
