// Reads the small text files of /proc and /sys.
#pragma once

#include <cstddef>
#include <string>

namespace holdfast::platform {

// At most `bytes_max` bytes; false if the file cannot be read. Never use it on a database file: see
// WriteWatcher in platform.hpp.
bool read_small_file(const std::string& path, std::size_t bytes_max, std::string& out);
// The first line, without its newline; "" if the file cannot be read.
std::string read_first_line(const std::string& path);

}  // namespace holdfast::platform
