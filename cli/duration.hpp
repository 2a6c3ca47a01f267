// Durations and counts as people write them on a command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace holdfast::cli {

constexpr std::int64_t kDurationMaxMs = 100LL * 365 * 24 * 3600 * 1000;  // a hundred years

// "250ms", "10s", "1.5h", "5min" or "5m", "7d", "2w"; "0" needs no unit. False if it is none of
// these, negative, or above kDurationMaxMs.
bool parse_duration(std::string_view text, std::int64_t& ms);

// Adds an option that takes a duration; its default is what `ms` holds. With or_never, "never" is
// taken as well and stored as -1.
CLI::Option* add_duration(CLI::App& command, const std::string& name, std::int64_t& ms,
                          const std::string& description, bool or_never = false);
// As add_duration's defaults are shown: the largest unit that is exact. "7d", "250ms", "never".
std::string duration_text(std::int64_t ms);

}  // namespace holdfast::cli
