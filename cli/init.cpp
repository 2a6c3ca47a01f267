// holdfast init: create or migrate the tables.
#include <CLI/CLI.hpp>
#include <optional>

#include "byte_size.hpp"
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
    "Caps are kept in the database, so that every writer obeys. Events that every destination has\n"
    "are removed first. At the cap, refuse (the default) makes an emit fail with `full`, which\n"
    "leaves the application's transaction as it was; drop-oldest removes the oldest events that "
    "are\n"
    "not sent and not under way, counts them, and tells the gateway. The cap in events holds for\n"
    "plain SQL too, the one in bytes (pages in use, and the WAL) for the library's emits. Run "
    "init\n"
    "again to change them; what is not given stays.\n"
    "\n"
    "Examples:\n"
    "  holdfast init /var/lib/app/app.db --device boiler-7\n"
    "  holdfast init app.db --max-events 100000 --when-full drop-oldest\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 75 the database stayed locked."};

struct Options {
  DatabaseArgument db;
  InitOptions init;
  bool no_destination = false;
  std::optional<std::int64_t> max_events, max_bytes;
  std::optional<WhenFull> when_full;
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

// What was asked for; everything else stays.
Status change_limits(const Options& options, const std::string& path) {
  if (!options.max_events && !options.max_bytes && !options.when_full) return {};
  Store store;
  Limits limits;
  Status status = Store::open(path, Access::read_write, {}, store);
  if (status.ok()) status = store.limits(limits);
  if (!status.ok()) return status;
  limits.max_events = options.max_events.value_or(limits.max_events);
  limits.max_bytes = options.max_bytes.value_or(limits.max_bytes);
  limits.when_full = options.when_full.value_or(limits.when_full);
  return store.set_limits(limits);
}

int run_init(const Options& options) {
  const std::string path = options.db.path();
  const Where where{"init", path};
  InitOptions init = options.init;
  if (options.no_destination) init.destination.clear();
  InitResult result;
  Status status = Store::init(path, init, &result);
  if (status.ok()) status = change_limits(options, path);
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
  command->add_option("--max-events", options->max_events, "Most events in the log; 0: no cap")
      ->check(CLI::NonNegativeNumber)
      ->option_text("N [0]");
  const CLI::callback_t take_bytes = [options](const CLI::results_t& given) {
    std::int64_t bytes = 0;
    if (!parse_byte_size(given.back(), bytes)) return false;
    options->max_bytes = bytes;
    return true;
  };
  command->add_option("--max-bytes", take_bytes, "Most bytes of database and WAL; 0: no cap")
      ->option_text("SIZE [0]");
  const CLI::callback_t take_policy = [options](const CLI::results_t& given) {
    options->when_full = given.back() == "refuse" ? WhenFull::refuse : WhenFull::drop_oldest;
    return given.back() == "refuse" || given.back() == "drop-oldest" ||
           given.back() == "drop_oldest";
  };
  command->add_option("--when-full", take_policy, "What becomes of an emit at a cap")
      ->option_text("refuse|drop-oldest [refuse]");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &run] { run = [options] { return run_init(*options); }; });
}

}  // namespace holdfast::cli
