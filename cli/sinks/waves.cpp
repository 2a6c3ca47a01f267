#include "waves.hpp"

#include <map>

namespace holdfast::cli {
namespace {

using Wave = std::vector<std::size_t>;

std::vector<Wave> waves_of(const std::vector<EventRecord>& events) {
  std::vector<Wave> waves;
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::size_t wave = seen[aggregate_of(events[i])]++;
    if (wave == waves.size()) waves.emplace_back();
    waves[wave].push_back(i);
  }
  return waves;
}

}  // namespace

Status deliver_in_waves(const std::vector<EventRecord>& events, const Refusals& refusals,
                        std::vector<Outcome>& outcomes,
                        const std::function<Status(std::size_t)>& publish,
                        const std::function<Status()>& wait) {
  for (const Wave& wave : waves_of(events)) {
    for (const std::size_t place : wave) {
      if (refusals.holds(events[place], outcomes[place])) continue;
      const Status status = publish(place);
      if (!status.ok()) return status;
    }
    const Status status = wait();
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace holdfast::cli
