// holdfast doctor --salvage: what can be read of a damaged database, in a new one.
#pragma once

#include <string>

namespace holdfast::cli {

// Returns the exit status: 4 if something is lost.
int run_salvage(const std::string& path, const std::string& new_path, bool json);

}  // namespace holdfast::cli
