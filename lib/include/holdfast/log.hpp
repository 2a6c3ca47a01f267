// Where a running relay or gateway says what it does. One line per message; the edge (the command
// line, your firmware) decides where it goes.
#pragma once

#include <functional>
#include <string_view>

namespace holdfast {

enum class LogLevel : int { debug = 0, info = 1, warning = 2, error = 3 };

// Called on the thread of the relay or gateway that speaks. Must not throw, and must not call back
// into the object that logs. The text has no newline; it names event_id, aggregate and trace where
// there is one.
using LogFunction = std::function<void(LogLevel level, std::string_view text)>;

}  // namespace holdfast
