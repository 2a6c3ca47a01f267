// Small programs that a test starts as processes of their own, to kill them. They live in the test
// program itself, which runs itself again: a fork without exec survives neither SQLite nor threads.
//
//   const Program kDevice("device", [](const Arguments& arguments) { …; return 0; });
//   Process device = start_program("device", {{"db", path}, {"kill_at", "7"}});
//
// Nothing in the product knows of them.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "support/process.hpp"

namespace holdfast::test {

class Arguments {
 public:
  explicit Arguments(std::map<std::string, std::string> values) : values_(std::move(values)) {}
  std::string text(const std::string& name, const std::string& otherwise = "") const;
  std::int64_t number(const std::string& name, std::int64_t otherwise = 0) const;

 private:
  std::map<std::string, std::string> values_;
};

struct Program {
  Program(const char* name, std::function<int(const Arguments&)> body);
};

// For main(): true if the command line names a program, which then has run.
bool run_program(int argc, char** argv, int& code);

// The command line that is this program as that one, for whoever starts it in another way.
std::vector<std::string> program_command(const std::string& name,
                                         const std::map<std::string, std::string>& arguments);
Process start_program(const std::string& name, const std::map<std::string, std::string>& arguments,
                      const SpawnOptions& options = {});

// kill -9 of this very process, now.
[[noreturn]] void die();

}  // namespace holdfast::test
