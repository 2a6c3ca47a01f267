// Events in words, for people.
#pragma once

#include <cstdint>
#include <string>

#include "holdfast/store.hpp"
#include "output.hpp"

namespace holdfast::cli {

Colour state_colour(EventState state);
// Since created_at; "-" when either clock was never set.
std::string event_age(const EventRecord& event, std::int64_t wall_now_ms);
// What matters most about it in a few words: why it waits, else how its payload begins.
std::string event_detail(const EventView& view);
// "attempt 2, next in 12 s: reason"; "" if there is nothing to say.
std::string attempt_text(const EventView& view);
std::string lane_text(int lane);

// The age of something else, by the wall clock.
std::string age_since(std::int64_t wall_ms);

}  // namespace holdfast::cli
