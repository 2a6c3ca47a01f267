// holdfast capture: table changes become events, by triggers, with no change to the application.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "command.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "capture", kGroupWrite, "Make a table's changes events, in the same transaction, by triggers.",
    "[DB] --table T --on LIST --type TYPE --aggregate-type TYPE\n"
    "                         --aggregate-id EXPR --payload EXPR [OPTIONS]\n"
    "       holdfast capture [DB] --table T --remove",
    "EXPR is an SQL expression over NEW.column (OLD.column on delete). In TYPE, {op} becomes\n"
    "insert, update or delete. Repeated, it replaces the table's triggers.\n"
    "\n"
    "Example:\n"
    "  holdfast capture app.db --table reading --on insert,update --type 'reading.{op}.v1' \\\n"
    "      --aggregate-type sensor --aggregate-id NEW.sensor \\\n"
    "      --payload \"json_object('celsius', NEW.celsius)\"\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage or a bad expression, 3 no such table or\n"
    "database, 75 the database stayed locked."};

struct Options {
  DatabaseArgument db;
  CaptureSpec spec;
  std::string on;
  std::string lane = "normal";
  bool remove = false;
};

void parse_operations(const std::string& list, CaptureSpec& spec) {
  std::size_t at = 0;
  while (at <= list.size()) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string name = list.substr(at, end - at);
    at = end + 1;
    if (name == "insert") {
      spec.on_insert = true;
    } else if (name == "update") {
      spec.on_update = true;
    } else if (name == "delete") {
      spec.on_delete = true;
    } else {
      throw CLI::ValidationError("--on", "\"" + name + "\" is none of insert, update, delete");
    }
  }
}

void require(const std::string& value, const char* name) {
  if (value.empty()) throw CLI::RequiredError(name);
}

int run_remove(const Options& options, const Where& where) {
  Store store;
  int removed = 0;
  Status status = Store::open(where.subject, Access::read_write, {}, store);
  if (status.ok()) status = store.remove_capture(options.spec.table, removed);
  if (!status.ok()) return fail(where, status);
  if (removed == 0) {
    return fail(where, kExitNotFound, "table " + options.spec.table + " is not captured");
  }
  Output out;
  out.line("removed " + plural(removed, "trigger") + " of table " + escaped(options.spec.table));
  return finish(where, out);
}

int run_capture(const Options& options) {
  const Where where{"capture", options.db.path()};
  if (options.remove) return run_remove(options, where);
  require(options.on, "--on");
  require(options.spec.event_type, "--type");
  require(options.spec.aggregate_type, "--aggregate-type");
  require(options.spec.aggregate_id, "--aggregate-id");
  require(options.spec.payload, "--payload");
  CaptureSpec spec = options.spec;
  parse_operations(options.on, spec);
  if (!parse_lane(options.lane, spec.lane)) {
    throw CLI::ValidationError("--lane", "choose normal or urgent");
  }
  Store store;
  Status status = Store::open(where.subject, Access::read_write, {}, store);
  if (status.ok()) status = store.capture(spec);
  if (!status.ok()) return fail(where, status);
  Output out;
  out.line("changes of table " + escaped(spec.table) + " (" + escaped(options.on) +
           ") are events now");
  return finish(where, out);
}

}  // namespace

void add_capture(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  const auto add = [&](const char* name, std::string& value, const char* description,
                       const char* text) {
    return command->add_option(name, value, description)->option_text(text);
  };
  add("--table", options->spec.table, "The table to watch", "TABLE (required)")->required();
  const std::vector<CLI::Option*> what = {
      add("--on", options->on, "Which changes, separated by commas", "insert,update,delete"),
      add("--type", options->spec.event_type, "Event type; {op} is replaced", "TYPE"),
      add("--aggregate-type", options->spec.aggregate_type, "Aggregate type", "TYPE"),
      add("--aggregate-id", options->spec.aggregate_id, "Aggregate id", "EXPR"),
      add("--payload", options->spec.payload, "Payload", "EXPR"),
      add("--aggregate-version", options->spec.aggregate_version, "Aggregate version", "EXPR"),
      add("--lane", options->lane, "urgent overtakes any backlog", "normal|urgent [normal]")};
  CLI::Option* remove =
      command->add_flag("--remove", options->remove, "Remove the table's triggers");
  for (CLI::Option* option : what) remove->excludes(option);
  command->callback([options, &run] { run = [options] { return run_capture(*options); }; });
}

}  // namespace holdfast::cli
