// holdfast bench: what this disk and this processor can do, by the program that will run on them.
#include "bench.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "command.hpp"
#include "json.hpp"
#include "output.hpp"
#include "platform.hpp"

namespace holdfast::cli {
namespace {

using namespace bench;

constexpr double kSecondsDefault = 6;
constexpr double kSecondsQuick = 1;
constexpr double kSecondsMin = 0.05;
constexpr double kSecondsMax = 600;
constexpr std::int64_t kRowsDefault = 10'000'000;
constexpr std::int64_t kRowsQuick = 100'000;
// Of disk, free before it starts: what 1 s of emit and drain writes at most, with room to spare,
// and a row of a backlog, which is also in the WAL for a while and at the gateway in part.
constexpr double kBytesPerSecond = 128e6;
constexpr double kBytesPerRow = 1000;
constexpr double kBytesAlways = 64e6;

constexpr CommandText kText = {
    "bench", kGroupAct, "Measure this machine: durable emit, drain, latency, memory.",
    "[DIR] [OPTIONS]",
    "Works in a new directory inside DIR, and removes it at the end and when it is interrupted.\n"
    "No other file or database is touched. OF LIMIT compares with the disk's own limit, a 4 KiB\n"
    "overwrite and fdatasync on the same disk, measured just before and after: 1.00 is one\n"
    "transaction for each sync the disk can do. Producers write a business row and an event of\n"
    "256 bytes (JSON) in each transaction, each on its own thread, all through one Writer.\n"
    "Figures: sync_limit, emit, emit_p99, syncs_per_commit (for each producer's transaction),\n"
    "bytes_per_event (given to write(2)) and disk_bytes_per_event (of it to the disk) with _1,\n"
    "_16 and _64 producers; drain_tcp, drain_tls (with certificates that openssl makes for it)\n"
    "and drain_ipc to a gateway that stores durably; over tcp, wire_bytes_per_event (with NNG's\n"
    "frames, without TCP's and IP's headers) and wire_overhead_per_event (of it not payload);\n"
    "wake_up from commit to send in one process, wake_up_noticed as if the relay were in another,\n"
    "deliver from commit to durable at the gateway (_p50, _p99); inbox_new and inbox_duplicate\n"
    "with _1 and _256 events in a transaction; fill, start (process start to first delivery)\n"
    "and relay_rss with _10k, _100k, _1M and _10M events pending.\n"
    "\n"
    "Examples:\n"
    "  holdfast bench --quick /var/lib/app\n"
    "  holdfast bench --json /data > figures.ndjson\n"
    "\n"
    "Exit status: 0 done, 1 failed or interrupted, 2 wrong usage."};

struct Options {
  std::string directory = ".";
  bool quick = false;
  bool json = false;
  double seconds = 0;  // 0: the default
  std::int64_t rows = -1;
};

Status check_room(const Options& options, const Bench& bench) {
  platform::DiskSpace space;
  const Status status = platform::disk_space(options.directory, space);
  if (!status.ok()) return status;
  const double needed = kBytesAlways + kBytesPerSecond * bench.seconds +
                        kBytesPerRow * static_cast<double>(bench.rows_max);
  if (static_cast<double>(space.free_bytes) >= needed) return status;
  return Status::error(Code::no_space,
                       "%s free, %s needed; choose another DIR, or less with --seconds and --rows",
                       format_bytes(space.free_bytes).c_str(),
                       format_bytes(static_cast<std::int64_t>(needed)).c_str());
}

Status measure(Bench& bench) {
  Status status;
  for (Status (*each)(Bench&) :
       {measure_emit, measure_drain, measure_wake_up, measure_inbox, measure_backlog}) {
    if (status.ok() && !bench.signals.stop_asked()) status = each(bench);
  }
  return status;
}

std::string value_text(double value) {
  if (value >= 100) return format_count(static_cast<std::int64_t>(value + 0.5));
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

void print(Output& out, const std::vector<Figure>& figures, bool json) {
  if (json) {
    for (const Figure& each : figures) {
      JsonLine line;
      line.text("name", each.name).real("value", each.value).text("unit", each.unit);
      if (each.of_limit >= 0) line.real("of_limit", each.of_limit);
      out.line(line.finish());
    }
    return;
  }
  Table table(out, {{"FIGURE"}, {"VALUE", Align::right}, {"UNIT"}, {"OF LIMIT", Align::right}});
  for (const Figure& each : figures) {
    table.row({each.name, value_text(each.value), each.unit,
               each.of_limit < 0 ? std::string() : value_text(each.of_limit)});
  }
}

int run_bench(const Options& options) {
  const Where where{"bench", options.directory};
  Bench bench;
  bench.seconds = options.seconds > 0 ? options.seconds
                  : options.quick     ? kSecondsQuick
                                      : kSecondsDefault;
  bench.rows_max = options.rows >= 0 ? options.rows : options.quick ? kRowsQuick : kRowsDefault;
  Progress progress;
  bench.progress = [&](std::string_view what) { progress.show(what); };
  Status status = bench.signals.open_status();
  if (status.ok()) status = check_room(options, bench);
  if (status.ok()) status = bench.scratch.create(options.directory);
  if (status.ok()) status = measure(bench);
  progress.clear();
  if (!status.ok()) return fail(where, status);
  if (bench.signals.stop_asked()) return fail(where, kExitFailed, "interrupted");
  for (const std::string& each : bench.left_out) note(where, "left out " + each);
  Output out;
  print(out, bench.figures, options.json);
  return finish(where, out);
}

}  // namespace

void add_bench(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  command->add_option("DIR", options->directory, "Where to measure; the current directory")
      ->type_name("");
  command->add_flag("--quick", options->quick,
                    "Under a minute: 1 s a figure, at most 100k events pending");
  command->add_option("--seconds", options->seconds, "For each figure")
      ->check(CLI::Range(kSecondsMin, kSecondsMax))
      ->option_text("SECONDS [6]");
  command->add_option("--rows", options->rows, "No backlog above so many events; 0: none")
      ->check(CLI::Range(std::int64_t{0}, kRowsDefault))
      ->option_text("COUNT [10000000]");
  command->add_flag("--json", options->json, "Print one JSON object per line");
  command->callback([options, &run] { run = [options] { return run_bench(*options); }; });
}

}  // namespace holdfast::cli
