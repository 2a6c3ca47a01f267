#include "support/programs.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

namespace holdfast::test {
namespace {

constexpr const char* kFlag = "--program";

std::map<std::string, std::function<int(const Arguments&)>>& programs() {
  static std::map<std::string, std::function<int(const Arguments&)>> all;
  return all;
}

// The kernel cannot start a program of another architecture by itself.
std::vector<std::string> this_program() {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  const char* const emulator = std::getenv("HOLDFAST_EMULATOR");
  if (emulator == nullptr || *emulator == '\0') return {path};
  return {emulator, path};
}

}  // namespace

std::string Arguments::text(const std::string& name, const std::string& otherwise) const {
  const auto value = values_.find(name);
  return value == values_.end() ? otherwise : value->second;
}

std::int64_t Arguments::number(const std::string& name, std::int64_t otherwise) const {
  const auto value = values_.find(name);
  return value == values_.end() ? otherwise : std::stoll(value->second);
}

Program::Program(const char* name, std::function<int(const Arguments&)> body) {
  programs()[name] = std::move(body);
}

bool run_program(int argc, char** argv, int& code) {
  if (argc < 3 || std::strcmp(argv[1], kFlag) != 0) return false;
  code = 2;
  const auto program = programs().find(argv[2]);
  if (program == programs().end()) return true;
  std::map<std::string, std::string> values;
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    const std::size_t equals = text.find('=');
    values[text.substr(0, equals)] = equals == std::string::npos ? "" : text.substr(equals + 1);
  }
  try {
    code = program->second(Arguments(std::move(values)));
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s: %s\n", argv[2], problem.what());
  }
  return true;
}

std::vector<std::string> program_command(const std::string& name,
                                         const std::map<std::string, std::string>& arguments) {
  std::vector<std::string> argv = this_program();
  argv.insert(argv.end(), {kFlag, name});
  for (const auto& [key, value] : arguments) argv.push_back(key + "=" + value);
  return argv;
}

Process start_program(const std::string& name, const std::map<std::string, std::string>& arguments,
                      const SpawnOptions& options) {
  return Process::spawn(program_command(name, arguments), options);
}

void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

}  // namespace holdfast::test
