// holdfast resolve: is an event there, after a COMMIT that returned an I/O error?
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "command.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "resolve", kGroupLook, "Tell whether an event was written, after a COMMIT that is unknown.",
    "[DB] ID [--seq N] [--json]",
    "Prints `committed` or `absent`. Ask once the program that wrote has closed the database, and\n"
    "before a purge: an event that was sent and removed is absent too. With --seq, as emit told\n"
    "it, one look is enough; without, the whole log is searched, newest first.\n"
    "\n"
    "`committed` says that it can be read, and will be sent. Whether a disk that answers with\n"
    "errors has it, `holdfast doctor` may know. To emit once more with the same id is harmless.\n"
    "\n"
    "Examples:\n"
    "  holdfast resolve app.db 0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e --seq 1042\n"
    "  holdfast resolve app.db 0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e --json\n"
    "\n"
    "Exit status: 0 committed, 1 failed, 2 wrong usage, 3 absent, or no such database, 75 the\n"
    "database stayed locked."};

struct Options {
  DatabaseArgument db;
  std::optional<std::int64_t> seq;
  bool json = false;
};

// Reads only, so that it works on a file system that errors have made read-only.
Status look(const std::string& path, const EventId& id, std::int64_t seq, std::int64_t& found_seq) {
  Store store;
  std::vector<EventView> views;
  Status status = Store::open(path, Access::read_only, {}, store);
  if (!status.ok()) return status;
  status = seq > 0 ? store.find(seq, views) : store.find(id, views);
  found_seq = status.ok() && views.front().event.id == id ? views.front().event.seq : 0;
  return status.code() == Code::not_found ? Status() : status;
}

int run_resolve(const Options& options) {
  const auto [path, id_text] = options.db.path_and_name();
  const Where where{"resolve", path};
  EventId id;
  if (id_text.empty()) throw CLI::RequiredError("ID");
  if (!EventId::parse(id_text, id) || id.nil()) {
    return fail(where, kExitUsage, "\"" + id_text + "\" is not a UUID");
  }
  if (options.seq && *options.seq < 1) throw CLI::ValidationError("--seq", "give a number above 0");
  std::int64_t seq = 0;
  const Status status = look(path, id, options.seq.value_or(0), seq);
  if (!status.ok()) return fail(where, status);

  Output out;
  const char* const fate = seq > 0 ? "committed" : "absent";
  if (options.json) {
    JsonLine line;
    line.text("event_id", id.text()).text("fate", fate);
    if (seq > 0) line.number("seq", seq);
    out.line(line.finish());
  } else {
    out.line(fate);
  }
  const int printed = finish(where, out);
  if (printed != kExitDone || seq > 0) return printed;
  return fail(where, kExitNotFound, "event " + id.text() + " is not there",
              "it was never written, or was sent and purged; to emit it again is harmless");
}

}  // namespace

void add_resolve(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add_with_rest(*command, "ID", "The event's id (UUID)");
  command->add_option("--seq", options->seq, "Its number in this database")->type_name("N");
  command->add_flag("--json", options->json, "Print JSON, one object per line");
  command->callback([options, &run] { run = [options] { return run_resolve(*options); }; });
}

}  // namespace holdfast::cli
