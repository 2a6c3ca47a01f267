#include "byte_size.hpp"

#include <CLI/CLI.hpp>
#include <cmath>

namespace holdfast::cli {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::int64_t kKib = 1024;
constexpr std::int64_t kBytesMax = std::int64_t{1} << 53;
// The first name of each size is the one that is printed.
constexpr Unit kUnits[] = {{"GiB", kKib* kKib* kKib},
                           {"G", kKib* kKib* kKib},
                           {"MiB", kKib* kKib},
                           {"M", kKib* kKib},
                           {"KiB", kKib},
                           {"K", kKib},
                           {"B", 1},
                           {"", 1}};

}  // namespace

bool parse_byte_size(std::string_view text, std::int64_t& bytes) {
  constexpr std::size_t kDigitsMax = 16;
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number(text.substr(0, end));
  if (number.empty() || number.size() > kDigitsMax || number.front() == '.' ||
      number.back() == '.' || number.find('.') != number.rfind('.'))
    return false;
  for (const Unit& unit : kUnits) {
    if (unit.name != text.substr(end)) continue;
    const double value = std::round(std::stod(number) * static_cast<double>(unit.bytes));
    if (value > static_cast<double>(kBytesMax)) return false;
    bytes = static_cast<std::int64_t>(value);
    return true;
  }
  return false;
}

std::string byte_size_text(std::int64_t bytes) {
  if (bytes == 0) return "0";
  for (const Unit& unit : kUnits)
    if (bytes % unit.bytes == 0) return std::to_string(bytes / unit.bytes) + std::string(unit.name);
  return std::to_string(bytes);
}

CLI::Option* add_byte_size(CLI::App& command, const std::string& name, std::int64_t& bytes,
                           const std::string& description) {
  const CLI::callback_t take = [&bytes, name](const CLI::results_t& given) {
    if (!parse_byte_size(given.back(), bytes))
      throw CLI::ValidationError(
          name, "\"" + given.back() + "\" is not a size; write it as 65536, 512KiB, 64MiB or 1GiB");
    return true;
  };
  CLI::Option* option = command.add_option(name, take, description);
  // Written by hand: a default that CLI11 knows of would be parsed back.
  option->option_text("SIZE [" + byte_size_text(bytes) + "]");
  return option;
}

}  // namespace holdfast::cli
