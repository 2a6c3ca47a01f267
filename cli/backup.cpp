// holdfast backup: a copy of a database in use.
#include <CLI/CLI.hpp>

#include "command.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "backup", kGroupAct, "Copy a database while it is in use.", "[DB] NEW",
    "Never copy the file by hand while something has it open. The copy takes a new stream\n"
    "identity when it is first opened for writing, so that a restored device and the original\n"
    "are not taken for one.\n"
    "\n"
    "Example:\n"
    "  holdfast backup /var/lib/app/app.db /mnt/usb/app-backup.db\n"
    "\n"
    "Exit status: 0 done, 1 failed or NEW exists, 2 wrong usage, 3 no such database, 75 the\n"
    "database stayed locked."};

struct Options {
  DatabaseArgument db;
};

int run_backup(const Options& options) {
  const auto [path, copy] = options.db.path_and_name();
  if (copy.empty()) throw CLI::RequiredError("NEW");
  const Where where{"backup", path};
  Store store;
  Status status = Store::open(path, Access::read_only, {}, store);
  if (!status.ok()) return fail(where, status);
  Progress progress;
  status = store.backup(copy, [&progress](std::int64_t done, std::int64_t total) {
    if (!progress.due() || total <= 0) return;
    progress.show(std::to_string(done * 100 / total) + " % of " + plural(total, "page"));
  });
  progress.clear();
  if (!status.ok()) return fail(where, status);
  Output out;
  out.line("copied to " + escaped(copy));
  return finish(where, out);
}

}  // namespace

void add_backup(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add_with_rest(*command, "NEW", "The copy; must not exist yet");
  command->callback([options, &run] { run = [options] { return run_backup(*options); }; });
}

}  // namespace holdfast::cli
