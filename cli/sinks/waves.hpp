// A batch in parts that hold one event of each aggregate: what waits for an answer never has a
// later event of its aggregate beside it, which a refusal could not stop any more (G5).
#pragma once

#include <vector>

#include "refusals.hpp"

namespace holdfast::cli {

class Waves {
 public:
  explicit Waves(const std::vector<EventRecord>& events);
  // The next part, as places in the batch; those that a refusal holds are told so and left out.
  // Empty at the end.
  std::vector<std::size_t> next(const Refusals& refusals, std::vector<Outcome>& outcomes);

 private:
  const std::vector<EventRecord>& events_;
  std::vector<std::vector<std::size_t>> waves_;
  std::size_t at_ = 0;
};

}  // namespace holdfast::cli
