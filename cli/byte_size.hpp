// Sizes as people write them on a command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace holdfast::cli {

// "4096", "512KiB", "4MiB", "1GiB", "1.5M": always powers of 1024. False if it is none of these,
// negative, or above 2^53.
bool parse_byte_size(std::string_view text, std::int64_t& bytes);
// As defaults are shown: the largest unit that is exact.
std::string byte_size_text(std::int64_t bytes);

// Adds an option that takes a size; its default is what `bytes` holds.
CLI::Option* add_byte_size(CLI::App& command, const std::string& name, std::int64_t& bytes,
                           const std::string& description);

}  // namespace holdfast::cli
