// holdfast discard: give up events for good.
#include <CLI/CLI.hpp>

#include "act.hpp"
#include "command.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "discard", kGroupAct, "Give up rejected events for good, with a reason.",
    "[DB] ID|SEQ... --reason TEXT [OPTIONS]",
    "Acts on RETRY, HELD and DEAD events. The reason is counted, written to the audit trail and\n"
    "told to the gateway, which then waits for the event no longer. This can't be undone; while\n"
    "an event is only DEAD, `holdfast retry` can still bring it back.\n"
    "\n"
    "Example:\n"
    "  holdfast discard app.db 1042 --reason 'sensor was in calibration'\n"
    "\n"
    "Exit status: 0 done, 1 failed or an event was in no state for it, 2 wrong usage, 3 no\n"
    "such event or database, 75 the database stayed locked."};

struct Options {
  DatabaseArgument db;
  std::string destination;
  std::string reason;
};

int run_discard(const Options& options) {
  const auto [path, ids] = options.db.path_and_ids();
  if (ids.empty()) throw CLI::RequiredError("ID|SEQ");
  if (options.reason.empty()) throw CLI::ValidationError("--reason", "must not be empty");
  const Where where{"discard", path};
  return act_on_each(where, ids, "discarded",
                     [&](Store& store, std::int64_t seq, std::int64_t& changed) {
                       return store.discard(seq, options.destination, options.reason, changed);
                     });
}

}  // namespace

void add_discard(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add_with_rest(*command, "ID|SEQ", "The events");
  command->add_option("--reason", options->reason, "Why; is told to the gateway")
      ->required()
      ->option_text("TEXT (required)");
  command->add_option("--destination", options->destination, "Only at this destination")
      ->option_text("NAME");
  command->callback([options, &run] { run = [options] { return run_discard(*options); }; });
}

}  // namespace holdfast::cli
