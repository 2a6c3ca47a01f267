// How the program ends: the exit statuses scripts rely on, and the one place where a Status of the
// library becomes one of them and one line on stderr.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/status.hpp"

namespace holdfast::cli {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNotFound = 3;
constexpr int kExitWorry = 4;       // doctor found something, or a drain left events behind
constexpr int kExitTemporary = 75;  // upstream unreachable, database locked: try again later

int exit_status_of(Code code);

// What an error line is about: `holdfast: COMMAND: SUBJECT: …`.
struct Where {
  std::string command;  // "emit", "inbox ls"
  std::string subject;  // a path or URL; "" = none
};

// Prints `holdfast: command: subject: what; what to do`, always exactly one line, and returns the
// exit status. With "" as advice the usual one for the code is given, if there is one.
int fail(const Where& where, const Status& status, std::string_view advice = {});
int fail(const Where& where, int exit_status, std::string_view what, std::string_view advice = {});

// One line that is no error: `holdfast: command: text`.
void note(const Where& where, std::string_view text);

}  // namespace holdfast::cli
