#include "waves.hpp"

#include <map>

namespace holdfast::cli {

Waves::Waves(const std::vector<EventRecord>& events) : events_(events) {
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::size_t wave = seen[aggregate_of(events[i])]++;
    if (wave == waves_.size()) waves_.emplace_back();
    waves_[wave].push_back(i);
  }
}

std::vector<std::size_t> Waves::next(const Refusals& refusals, std::vector<Outcome>& outcomes) {
  std::vector<std::size_t> wave;
  while (wave.empty() && at_ < waves_.size()) {
    for (const std::size_t i : waves_[at_++]) {
      if (!refusals.holds(events_[i], outcomes[i])) wave.push_back(i);
    }
  }
  return wave;
}

}  // namespace holdfast::cli
