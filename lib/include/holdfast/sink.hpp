// A place a relay delivers to, other than a Holdfast gateway: implement this to forward events of a
// log into something of your own. At least once: after a crash the newest events may be offered
// again, with the same ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/event.hpp"
#include "holdfast/status.hpp"

namespace holdfast {

struct Outcome {
  enum class Kind : std::uint8_t {
    stored = 0,     // durably there
    duplicate = 1,  // was there already
    later = 2,      // try again after later_ms; counts no attempt
    rejected = 3,   // counts an attempt; dead after the configured number
    invalid = 4,    // can never be accepted: dead at once
    held = 5,       // waits for an earlier event of its aggregate
  };
  Kind kind = Kind::stored;
  std::int64_t later_ms = 0;
  std::string reason;
};

class Sink {
 public:
  virtual ~Sink() = default;
  // Called on the relay's thread. Deliver the events in order and fill one outcome for each (it
  // comes sized, all `stored`). Return an error, typically unavailable, if the sink as a whole
  // cannot be reached: then no outcome counts, and the relay backs off and offers them again.
  virtual Status deliver(const std::vector<EventRecord>& events,
                         std::vector<Outcome>& outcomes) = 0;
};

}  // namespace holdfast
