// holdfast destination ls|add|rm: where a log goes.
#include <CLI/CLI.hpp>
#include <functional>

#include "command.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "destination", kGroupAct, "List, add or remove destinations.", "ls|add|rm [DB] ...",
    "A destination is a name with a place in the log. It keeps what it has not had from being\n"
    "purged; the URL a relay sends it to may change at any time.\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not found, 75 the database stayed locked."};

constexpr CommandText kListText = {"ls", nullptr, "List destinations, and how far each has come.",
                                   "[DB] [--json]",
                                   "Example:\n"
                                   "  holdfast destination ls app.db\n"
                                   "\n"
                                   "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such "
                                   "database, 75 locked."};

constexpr CommandText kAddText = {
    "add", nullptr, "Add a destination: it gets every event still in the log.", "[DB] NAME",
    "Example:\n"
    "  holdfast destination add app.db cloud\n"
    "\n"
    "Exit status: 0 done, 1 failed or exists already, 2 wrong usage, 3 no such database, 75\n"
    "locked."};

constexpr CommandText kRemoveText = {
    "rm", nullptr, "Remove a destination, with its place in the log and its rejected events.",
    "[DB] NAME [--force]",
    "Refused while events are pending there, or a relay holds it; --force gives the pending\n"
    "ones up.\n"
    "\n"
    "Example:\n"
    "  holdfast destination rm app.db clodu\n"
    "\n"
    "Exit status: 0 done, 1 failed or refused, 2 wrong usage, 3 no such destination or\n"
    "database, 75 locked."};

struct Options {
  DatabaseArgument db;
  bool json = false;
  bool force = false;
};

int run_list(const Options& options) {
  const Where where{"destination ls", options.db.path()};
  Store store;
  StoreStats stats;
  Status status = Store::open(where.subject, Access::read_only, {}, store);
  if (status.ok()) status = store.stats(stats);
  if (!status.ok()) return fail(where, status);
  Output out;
  if (options.json) {
    for (const DestinationStats& each : stats.destinations) {
      JsonLine line;
      line.text("destination", each.name)
          .number("acked_seq", each.lanes[kLaneNormal].acked_seq)
          .number("acked_urgent_seq", each.lanes[kLaneUrgent].acked_seq)
          .number("pending", each.pending)
          .boolean("leased", each.leased);
      out.line(line.finish());
    }
    return finish(where, out);
  }
  {
    Table table(out, {{"DESTINATION"},
                      {"ACKED SEQ", Align::right},
                      {"URGENT", Align::right},
                      {"PENDING", Align::right},
                      {"RELAY"}});
    for (const DestinationStats& each : stats.destinations) {
      table.row({each.name, format_count(each.lanes[kLaneNormal].acked_seq),
                 format_count(each.lanes[kLaneUrgent].acked_seq), format_count(each.pending),
                 each.leased ? "active" : "none"});
    }
  }
  return finish(where, out);
}

// Add and remove differ in one call.
int run_change(const Options& options, const char* command, const char* did,
               const std::function<Status(Store&, const std::string&)>& change) {
  const auto [path, name] = options.db.path_and_name();
  if (name.empty()) throw CLI::RequiredError("NAME");
  const Where where{command, path};
  Store store;
  Status status = Store::open(path, Access::read_write, {}, store);
  if (status.ok()) status = change(store, name);
  if (!status.ok()) return fail(where, status);
  Output out;
  out.line(std::string(did) + " " + escaped(name));
  return finish(where, out);
}

}  // namespace

void add_destination(CLI::App& program, Run& run) {
  CLI::App* group = declare(program, kText);
  group->require_subcommand(1);
  auto options = std::make_shared<Options>();

  CLI::App* list = declare(*group, kListText);
  options->db.add(*list);
  list->add_flag("--json", options->json, "Print one JSON object per line");
  list->callback([options, &run] { run = [options] { return run_list(*options); }; });

  CLI::App* add = declare(*group, kAddText);
  options->db.add_with_rest(*add, "NAME", "Letters, digits, '-', '_', '.'");
  add->callback([options, &run] {
    run = [options] {
      return run_change(
          *options, "destination add", "added",
          [](Store& store, const std::string& name) { return store.add_destination(name); });
    };
  });

  CLI::App* remove = declare(*group, kRemoveText);
  options->db.add_with_rest(*remove, "NAME", "The destination");
  remove->add_flag("--force", options->force, "Even with events pending there");
  remove->callback([options, &run] {
    run = [options] {
      return run_change(*options, "destination rm", "removed",
                        [&](Store& store, const std::string& name) {
                          return store.remove_destination(name, options->force);
                        });
    };
  });
}

}  // namespace holdfast::cli
