// The program without sinks.
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "sinks.hpp"

namespace holdfast::cli {
namespace {

// From the folder of this program, as the package holdfast-gateway puts it.
constexpr const char* kGatewayProgram = "../lib/holdfast/holdfast-gateway";

bool asks_for_sink(int argc, char** argv) {
  if (argc < 2) return false;
  const std::string_view command = argv[1];
  if (command == "sink") return true;
  if (command != "relay" && command != "gateway") return false;
  return std::any_of(argv + 2, argv + argc, [](std::string_view argument) {
    return argument == "--sink" || argument.substr(0, 7) == "--sink=";
  });
}

}  // namespace

void add_sink_option(CLI::App&, std::vector<std::string>&) {}

Status open_sinks(const std::vector<std::string>&, const LogOf&, std::vector<NamedSink>&) {
  return {};
}

void add_sink(CLI::App&, Run&) {}

int hand_over_to_sinks(int argc, char** argv) {
  if (!asks_for_sink(argc, argv)) return -1;
  char own[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", own, sizeof own);
  if (length > 0) {
    std::string path(own, static_cast<std::size_t>(length));
    path.resize(path.rfind('/') + 1);
    ::execv((path + kGatewayProgram).c_str(), argv);
  }
  return fail({argv[1], ""}, kExitUsage, "this program has no sinks",
              "install the package holdfast-gateway");
}

}  // namespace holdfast::cli
