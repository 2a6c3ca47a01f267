// holdfast retry: offer RETRY, HELD and DEAD events again, now.
#include <CLI/CLI.hpp>

#include "act.hpp"
#include "command.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "retry", kGroupAct, "Offer rejected events again now, with attempts starting at 0.",
    "[DB] ID|SEQ... [OPTIONS]\n       holdfast retry [DB] --all-dead [OPTIONS]",
    "Acts on RETRY, HELD and DEAD events; what was discarded stays so. Is written to the audit\n"
    "trail.\n"
    "\n"
    "Examples:\n"
    "  holdfast retry app.db 1042 1043\n"
    "  holdfast retry app.db --all-dead --destination upstream\n"
    "\n"
    "Exit status: 0 done, 1 failed or an event was in no state for it, 2 wrong usage, 3 no\n"
    "such event or database, 75 the database stayed locked."};

struct Options {
  DatabaseArgument db;
  std::string destination;
  bool all_dead = false;
};

int retry_all(const Options& options) {
  const Where where{"retry", options.db.path()};
  Store store;
  std::int64_t changed = 0;
  Status status = Store::open(where.subject, Access::read_write, {}, store);
  if (status.ok()) status = store.retry_all_dead(options.destination, changed);
  if (!status.ok()) return fail(where, status);
  Output out;
  out.line(plural(changed, "event") + " will be offered again");
  return finish(where, out);
}

int run_retry(const Options& options) {
  if (options.all_dead) {
    if (!options.db.rest.empty()) throw CLI::ExcludesError("--all-dead", "ID");
    return retry_all(options);
  }
  const auto [path, ids] = options.db.path_and_ids();
  if (ids.empty()) throw CLI::RequiredError("ID|SEQ, or --all-dead");
  const Where where{"retry", path};
  return act_on_each(where, ids, "offered again",
                     [&](Store& store, std::int64_t seq, std::int64_t& changed) {
                       return store.retry(seq, options.destination, changed);
                     });
}

}  // namespace

void add_retry(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add_with_rest(*command, "ID|SEQ", "The events");
  command->add_flag("--all-dead", options->all_dead, "Every DEAD event");
  command->add_option("--destination", options->destination, "Only at this destination")
      ->option_text("NAME");
  command->callback([options, &run] { run = [options] { return run_retry(*options); }; });
}

}  // namespace holdfast::cli
