// holdfast init: create or migrate the tables.
#include <CLI/CLI.hpp>

#include "command.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "init", kGroupWrite,
    "Create or migrate Holdfast's tables in a database; harmless when repeated.", "[DB] [OPTIONS]",
    "The file may be your application's own database; its other tables are left alone. It is\n"
    "switched to WAL mode. A database of a newer schema is refused and not written to.\n"
    "\n"
    "Example:\n"
    "  holdfast init /var/lib/app/app.db --device boiler-7\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 75 the database stayed locked."};

struct Options {
  DatabaseArgument db;
  InitOptions init;
  bool no_destination = false;
  bool json = false;
};

std::string summary(const std::string& path, const InitResult& result) {
  const std::string schema = "schema " + std::to_string(result.to_version);
  if (result.created) return "created " + path + ": " + schema + ", stream " + result.stream.text();
  if (result.from_version == result.to_version) {
    return path + " is ready already: " + schema + ", stream " + result.stream.text();
  }
  return "migrated " + path + " from schema " + std::to_string(result.from_version) + " to " +
         std::to_string(result.to_version) + ", stream " + result.stream.text();
}

int run_init(const Options& options) {
  const std::string path = options.db.path();
  const Where where{"init", path};
  InitOptions init = options.init;
  if (options.no_destination) init.destination.clear();
  InitResult result;
  const Status status = Store::init(path, init, &result);
  if (!status.ok()) return fail(where, status);
  Output out;
  if (options.json) {
    JsonLine line;
    line.text("database", path)
        .boolean("created", result.created)
        .number("from_version", result.from_version)
        .number("to_version", result.to_version)
        .text("stream", result.stream.text());
    out.line(line.finish());
  } else {
    out.line(escaped(summary(path, result)));
  }
  return finish(where, out);
}

}  // namespace

void add_init(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  command
      ->add_option("--device", options->init.device,
                   "Name of this device, a label for people; kept if already set")
      ->option_text("NAME [host name]");
  CLI::Option* destination =
      command->add_option("--destination", options->init.destination, "Destination to create")
          ->option_text("NAME [upstream]");
  command
      ->add_flag("--no-destination", options->no_destination,
                 "Create none: for a gateway's log that nothing is forwarded from")
      ->excludes(destination);
  command->add_option("--page-size", options->init.page_size, "Page size of a new file")
      ->check(CLI::IsMember({512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}))
      ->option_text("BYTES [4096]");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &run] { run = [options] { return run_init(*options); }; });
}

}  // namespace holdfast::cli
