// What retry and discard have in common: events named one by one, each acted on and told of.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "command.hpp"

namespace holdfast::cli {

using Action = std::function<Status(Store& store, std::int64_t seq, std::int64_t& changed)>;

// `did` completes "event 1042 …". Goes on after an event that is not there or in no state for it,
// says so, and returns the worst exit status; stops at any other error.
int act_on_each(const Where& where, const std::vector<std::string>& ids, const char* did,
                const Action& action);

}  // namespace holdfast::cli
