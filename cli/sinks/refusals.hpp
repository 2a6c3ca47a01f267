// What a server refused in one batch: later events of the same aggregate must not overtake it.
#pragma once

#include <set>
#include <string>

#include "holdfast/sink.hpp"

namespace holdfast::cli {

// (stream, lane, type, id), as the guarantee of order has it.
std::string aggregate_of(const EventRecord& event);

class Refusals {
 public:
  void refuse(const EventRecord& event, Outcome::Kind kind, const std::string& reason,
              Outcome& outcome, std::int64_t later_ms = 0);
  // True, with the outcome, if it waits for one of its aggregate.
  bool holds(const EventRecord& event, Outcome& outcome) const;

 private:
  std::set<std::string> aggregates_;
};

}  // namespace holdfast::cli
