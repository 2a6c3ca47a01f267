// holdfast stats: depth, ages and sizes at a glance, as JSON, or for Prometheus.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "command.hpp"
#include "duration.hpp"
#include "holdfast/clock.hpp"
#include "json.hpp"
#include "output.hpp"
#include "prometheus.hpp"
#include "signals.hpp"
#include "stats_text.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "stats", kGroupLook, "Show backlog, ages, counters and sizes.", "[DB] [OPTIONS]",
    "Examples:\n"
    "  holdfast stats app.db\n"
    "  holdfast stats app.db --watch=1s\n"
    "  holdfast stats app.db --prometheus > /run/node-exporter/holdfast.prom\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such database, 75 the database\n"
    "stayed locked."};

constexpr std::int64_t kWatchMinMs = 50;

struct Options {
  DatabaseArgument db;
  bool json = false;
  bool prometheus = false;
  std::string watch;  // "" = once
};

void print_once(const Options& options, const StoreStats& stats, Output& out) {
  if (options.prometheus) {
    out.write(prometheus_text(stats));
  } else if (options.json) {
    out.line(stats_line(stats));
  } else {
    print_stats(stats, system_clock().wall_ms(), out);
  }
}

int watch(const Options& options, std::int64_t interval_ms, Store& store, const Where& where) {
  StopSignals signals;
  const bool on_terminal = is_terminal(STDOUT_FILENO) && !options.json;
  Output out;
  for (bool first = true; !signals.stop_asked(); first = false) {
    StoreStats stats;
    const Status status = store.stats(stats);
    if (!status.ok()) return fail(where, status);
    if (on_terminal) {
      out.write("\x1b[H\x1b[J");  // home, and clear what follows
    } else if (!first && !options.json) {
      out.write("\n");
    }
    print_once(options, stats, out);
    out.flush();
    if (out.failed()) break;
    signals.wait(interval_ms);
  }
  return finish(where, out);
}

int run_stats(const Options& options) {
  const Where where{"stats", options.db.path()};
  std::int64_t interval_ms = 0;
  if (!options.watch.empty() &&
      (!parse_duration(options.watch, interval_ms) || interval_ms < kWatchMinMs)) {
    throw CLI::ValidationError("--watch", "\"" + options.watch +
                                              "\" is not a duration of 50ms or more; write it "
                                              "as --watch=2s");
  }
  Store store;
  Status status = Store::open(where.subject, Access::read_only, {}, store);
  if (!status.ok()) return fail(where, status);
  if (!options.watch.empty()) return watch(options, interval_ms, store, where);
  StoreStats stats;
  status = store.stats(stats);
  if (!status.ok()) return fail(where, status);
  Output out;
  print_once(options, stats, out);
  return finish(where, out);
}

}  // namespace

void add_stats(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  CLI::Option* json = command->add_flag("--json", options->json, "Print one JSON object");
  CLI::Option* prometheus = command->add_flag("--prometheus", options->prometheus,
                                              "Print in Prometheus' text exposition format");
  prometheus->excludes(json);
  command
      ->add_flag("--watch{2s}", options->watch,
                 "Again and again, every two seconds or every DURATION")
      ->option_text("[=DURATION]")
      ->excludes(prometheus);
  command->callback([options, &run] { run = [options] { return run_stats(*options); }; });
}

}  // namespace holdfast::cli
