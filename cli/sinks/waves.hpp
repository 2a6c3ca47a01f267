// A batch in parts that hold one event of each aggregate: what waits for an answer never has a
// later event of its aggregate beside it, which a refusal could not stop any more (G5).
#pragma once

#include <functional>
#include <vector>

#include "refusals.hpp"

namespace holdfast::cli {

// Publishes a part, each event by its place in the batch, and waits for its answers before the next
// part; what the refusals so far hold is told so and left out. Ends at the first error.
Status deliver_in_waves(const std::vector<EventRecord>& events, const Refusals& refusals,
                        std::vector<Outcome>& outcomes,
                        const std::function<Status(std::size_t)>& publish,
                        const std::function<Status()>& wait);

}  // namespace holdfast::cli
