// Turns errno into a Status that says what was tried, on what, and why it failed.
#pragma once

#include <string>

#include "holdfast/status.hpp"

namespace holdfast::platform {

// "cannot WHAT PATH: REASON".
Status errno_status(int error, const char* what, const std::string& path);
// The text of an errno value, in English.
std::string errno_text(int error);

}  // namespace holdfast::platform
