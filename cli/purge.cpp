// holdfast purge: remove what retention allows, in small steps.
#include <CLI/CLI.hpp>

#include "command.hpp"
#include "duration.hpp"
#include "json.hpp"
#include "output.hpp"
#include "signals.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "purge", kGroupAct, "Remove delivered events and old inbox rows that retention allows.",
    "[DB] [OPTIONS]",
    "Never removes an event that some destination still needs, one with an open rejection, or\n"
    "the newest one. Runs in steps of at most 5,000 rows, so that producers hardly wait; it may\n"
    "be stopped at any time. Relays and gateways do the same by themselves.\n"
    "\n"
    "Examples:\n"
    "  holdfast purge app.db --older-than 7d\n"
    "  holdfast purge gateway.db --older-than never --inbox-older-than 30d\n"
    "\n"
    "Exit status: 0 done, 1 failed or interrupted, 2 wrong usage, 3 no such database, 75 the\n"
    "database stayed locked (what was removed until then stays removed)."};

struct Options {
  DatabaseArgument db;
  PurgeOptions purge;
  bool json = false;
};

int run_purge(const Options& options) {
  const Where where{"purge", options.db.path()};
  StopSignals signals;
  Store store;
  Status status = Store::open(where.subject, Access::read_write, {}, store);
  if (!status.ok()) return fail(where, status);
  PurgeResult total;
  total.more = true;
  Progress progress;
  while (total.more && !signals.stop_asked()) {
    PurgeResult step;
    status = store.purge(options.purge, step);
    if (!status.ok()) break;
    total.outbox_rows += step.outbox_rows;
    total.inbox_rows += step.inbox_rows;
    total.more = step.more;
    if (progress.due()) {
      progress.show("removed " + plural(total.outbox_rows, "event") + " and " +
                    plural(total.inbox_rows, "inbox row"));
    }
  }
  progress.clear();
  Output out;
  if (options.json) {
    JsonLine line;
    line.number("outbox_rows", total.outbox_rows).number("inbox_rows", total.inbox_rows);
    out.line(line.finish());
  } else {
    out.line("removed " + plural(total.outbox_rows, "event") + " and " +
             plural(total.inbox_rows, "inbox row"));
  }
  if (!status.ok()) {
    out.flush();
    return fail(where, status);
  }
  if (!total.more) return finish(where, out);
  out.flush();
  return fail(where, kExitFailed, "interrupted; there is more to remove");
}

}  // namespace

void add_purge(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  add_duration(*command, "--older-than", options->purge.outbox_older_than_ms,
               "Delivered events older than this, or never", true);
  add_duration(*command, "--inbox-older-than", options->purge.inbox_older_than_ms,
               "Inbox rows older than this, or never", true);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &run] { run = [options] { return run_purge(*options); }; });
}

}  // namespace holdfast::cli
