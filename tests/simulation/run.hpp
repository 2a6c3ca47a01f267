// What the parts of one simulation share: chance, the trace, what the application remembers, and
// which promises were broken. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/event.hpp"

namespace holdfast::simulation {

// What a control does wrong on purpose, outside of the library.
enum class Control {
  none,
  marked_before_ack,   // the device hears "stored" when it sends, whatever becomes of the frame
  answer_first,        // the gateway's answers leave before its commit
  gateway_unsynced,    // the gateway's connection runs at synchronous OFF
  effect_outside,      // the consumer's effect is a commit of its own, before the inbox row's
  marks_forgotten,     // a gateway that boots has no marks and no inbox rows
  wall_clock,          // leases, back-offs and deadlines are measured by the wall clock
  application_normal,  // the application's connection runs at synchronous NORMAL
};

// One event that the application wrote, with its business row, as it remembers it.
struct Fact {
  enum class Fate { open, committed, absent };
  std::int64_t seq = 0;
  std::string aggregate;
  int lane = 0;
  int transaction = 0;
  Fate fate = Fate::absent;       // open: its COMMIT did not return
  bool discarded = false;         // an operator asked for that
  int rejections = 0, calls = 0;  // of the handler
};

struct Figures {
  std::int64_t cuts = 0, cuts_of_gateway = 0;
  std::int64_t cuts_in_boot = 0;
  std::int64_t transactions = 0, events = 0;
  std::int64_t unknown = 0, unknown_there = 0;  // COMMITs without an answer, and those that stood
  std::int64_t frames = 0, dropped = 0, copied = 0, late = 0;
  std::int64_t wall_jumps = 0, dead = 0, discarded = 0, duplicates = 0, applied = 0;

  void add(const Figures& other);
};

struct Run {
  Run(std::uint64_t given_seed, Control given_control, bool given_trace)
      : seed(given_seed), control(given_control), trace(given_trace), random(given_seed) {}

  const std::uint64_t seed;
  const Control control;
  const bool trace;
  std::mt19937_64 random;
  std::map<EventId, Fact> facts;
  std::vector<std::string> broken;  // promises
  Figures figures;
  std::uint64_t digest = 0;  // of what happened: two runs of a seed have the same

  int below(int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); }
  bool percent(int n) { return below(100) < n; }
  EventId id();
  int dead_after() const { return 2 + static_cast<int>(seed % 2); }  // rejections
  // An identity that is the same at each boot.
  EventId fixed_id(std::uint64_t which) const;
  void note(std::uint64_t number);
  void say(const std::string& who, const std::string& what) const;
  void breach(const std::string& what);
};

}  // namespace holdfast::simulation
