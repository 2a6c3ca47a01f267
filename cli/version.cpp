// holdfast version: of everything that is linked in.
#include "holdfast/version.hpp"

#include <CLI/CLI.hpp>

#include "command.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {"version", kGroupLook, "Print the versions of everything linked in.",
                               "[--json]",
                               "Example:\n"
                               "  holdfast version --json\n"
                               "\n"
                               "Exit status: 0."};

struct Options {
  bool json = false;
};

int run_version(const Options& options) {
  const Versions versions = library_versions();
  Output out;
  if (options.json) {
    JsonLine line;
    line.text("holdfast", versions.holdfast)
        .text("sqlite", versions.sqlite)
        .text("nng", versions.nng)
        .text_if_set("tls", versions.tls)
        .text("cli11", CLI11_VERSION)
        .number("schema", kSchemaVersion);
    out.line(line.finish());
    return finish({"version", ""}, out);
  }
  out.line("holdfast  " + versions.holdfast + " (schema " + std::to_string(kSchemaVersion) + ")");
  out.line("SQLite    " + versions.sqlite);
  out.line("NNG       " + versions.nng);
  if (!versions.tls.empty()) out.line("TLS       " + versions.tls);
  out.line("CLI11     " CLI11_VERSION);
  return finish({"version", ""}, out);
}

}  // namespace

void add_version(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &run] { run = [options] { return run_version(*options); }; });
}

}  // namespace holdfast::cli
