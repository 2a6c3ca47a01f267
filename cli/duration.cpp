#include "duration.hpp"

#include <CLI/CLI.hpp>
#include <cmath>

namespace holdfast::cli {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t ms;
};

constexpr std::int64_t kSecondMs = 1000;
constexpr std::int64_t kDayMs = 24 * 3600 * kSecondMs;
// The first name of each size is the one that is printed.
constexpr Unit kUnits[] = {{"d", kDayMs},         {"h", 3600 * kSecondMs}, {"min", 60 * kSecondMs},
                           {"m", 60 * kSecondMs}, {"s", kSecondMs},        {"ms", 1},
                           {"w", 7 * kDayMs}};

}  // namespace

bool parse_duration(std::string_view text, std::int64_t& ms) {
  constexpr std::size_t kDigitsMax = 15;
  double value = 0;
  double scale = 1;
  std::size_t digits = 0;
  std::size_t i = 0;
  bool point = false;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !point && digits > 0) {
      point = true;
    } else if (text[i] >= '0' && text[i] <= '9') {
      if (++digits > kDigitsMax) return false;
      value = value * 10 + (text[i] - '0');
      if (point) scale *= 10;
    } else {
      break;
    }
  }
  if (digits == 0 || text[i - 1] == '.') return false;
  const std::string_view unit_name = text.substr(i);
  if (unit_name.empty()) {
    ms = 0;
    return value == 0;
  }
  for (const Unit& unit : kUnits) {
    if (unit.name != unit_name) continue;
    const double result = std::round(value / scale * static_cast<double>(unit.ms));
    if (result > static_cast<double>(kDurationMaxMs)) return false;
    ms = static_cast<std::int64_t>(result);
    return true;
  }
  return false;
}

std::string duration_text(std::int64_t ms) {
  if (ms < 0) return "never";
  if (ms == 0) return "0";
  for (const Unit& unit : kUnits) {
    if (ms % unit.ms == 0) return std::to_string(ms / unit.ms) + std::string(unit.name);
  }
  return std::to_string(ms) + "ms";
}

CLI::Option* add_duration(CLI::App& command, const std::string& name, std::int64_t& ms,
                          const std::string& description, bool or_never) {
  const CLI::callback_t take = [&ms, name, or_never](const CLI::results_t& given) {
    const std::string& text = given.back();
    if (or_never && text == "never") {
      ms = -1;
    } else if (!parse_duration(text, ms)) {
      throw CLI::ValidationError(
          name, "\"" + text + "\" is not a duration; write it as 250ms, 10s, 5min, 2h or 7d" +
                    (or_never ? ", or never" : ""));
    }
    return true;
  };
  CLI::Option* option = command.add_option(name, take, description);
  // Written by hand: a default that CLI11 knows of would be parsed back.
  option->option_text("DURATION [" + duration_text(ms) + "]");
  return option;
}

}  // namespace holdfast::cli
