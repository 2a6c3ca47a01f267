// holdfast inbox ls|show|stats: the receiving side.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "command.hpp"
#include "event_text.hpp"
#include "holdfast/clock.hpp"
#include "json.hpp"
#include "output.hpp"
#include "stats_text.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "inbox", kGroupLook, "Look at the receiving side: what was applied, streams, gaps.",
    "ls|show|stats [DB] ...",
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not found, 75 the database stayed locked."};

constexpr CommandText kListText = {
    "ls", nullptr, "List received events and how they were applied.", "[DB] [OPTIONS]",
    "States: DONE, STALE (older than what was applied already), FAILED (rejected or put off).\n"
    "\n"
    "Example:\n"
    "  holdfast inbox ls gateway.db --status failed\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such database, 75 locked."};

constexpr CommandText kShowText = {
    "show", nullptr, "Show what each consumer made of an event.", "[DB] ID [--json]",
    "Example:\n"
    "  holdfast inbox show gateway.db 0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 never received (or purged since), 75\n"
    "locked."};

constexpr CommandText kStatsText = {
    "stats", nullptr, "Show counters, each stream's high-water mark, and the gaps below it.",
    "[DB] [OPTIONS]",
    "With --json, one object per line with a field `kind`: inbox, stream or gap.\n"
    "\n"
    "Example:\n"
    "  holdfast inbox stats gateway.db\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such database, 75 locked."};

constexpr std::int64_t kDefaultLimit = 100;

struct Options {
  DatabaseArgument db;
  Store::InboxFilter filter;
  bool json = false;
};

std::string inbox_line(const InboxRow& row) {
  JsonLine line;
  line.text("event_id", row.id.text())
      .text("consumer", row.consumer)
      .text("status", row.status)
      .number("attempts", row.attempts)
      .number("received_at", row.received_at_ms)
      .text_if_set("last_error", row.last_error);
  return line.finish();
}

Colour status_colour(const std::string& status) {
  if (status == "FAILED") return Colour::red;
  return status == "STALE" ? Colour::yellow : Colour::none;
}

class InboxTable {
 public:
  explicit InboxTable(Output& out)
      : table_(out, {{"EVENT"},
                     {"CONSUMER"},
                     {"STATUS"},
                     {"ATTEMPTS", Align::right},
                     {"RECEIVED", Align::right},
                     {"ERROR", Align::left, 60}}) {}
  void row(const InboxRow& row) {
    table_.row({row.id.text(),
                row.consumer,
                {row.status, status_colour(row.status)},
                std::to_string(row.attempts),
                age_since(row.received_at_ms),
                row.last_error});
  }

 private:
  Table table_;
};

int run_list(const Options& options) {
  const Where where{"inbox ls", options.db.path()};
  Store store;
  Status status = Store::open(where.subject, Access::read_only, {}, store);
  if (!status.ok()) return fail(where, status);
  Store::InboxFilter filter = options.filter;
  std::transform(filter.status.begin(), filter.status.end(), filter.status.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const std::int64_t limit = filter.limit;
  filter.limit = limit > 0 ? limit + 1 : -1;  // one more tells whether there are more
  std::int64_t rows = 0;
  Output out;
  {
    InboxTable table(out);
    status = store.list_inbox(filter, [&](const InboxRow& row) {
      if (++rows > limit && limit > 0) return false;
      if (options.json) {
        out.line(inbox_line(row));
      } else {
        table.row(row);
      }
      return !out.failed();
    });
  }
  out.flush();
  if (!status.ok()) return fail(where, status);
  if (limit > 0 && rows > limit) {
    note(where, "there are more than these " + std::to_string(limit) + "; --limit 0 shows all");
  }
  return finish(where, out);
}

int run_show(const Options& options) {
  const auto [path, name] = options.db.path_and_name();
  if (name.empty()) throw CLI::RequiredError("ID");
  const Where where{"inbox show", path};
  EventId id;
  if (!EventId::parse(name, id)) return fail(where, kExitUsage, "\"" + name + "\" is not a UUID");
  Store store;
  std::vector<InboxRow> rows;
  Status status = Store::open(path, Access::read_only, {}, store);
  if (status.ok()) status = store.find_inbox(id, rows);
  if (!status.ok()) return fail(where, status);
  if (rows.empty()) {
    return fail(where, kExitNotFound, "event " + id.text() + " was never received",
                "or its inbox row has been purged");
  }
  Output out;
  {
    InboxTable table(out);
    for (const InboxRow& row : rows) {
      if (options.json) {
        out.line(inbox_line(row));
      } else {
        table.row(row);
      }
    }
  }
  return finish(where, out);
}

void print_stream(Output& out, const InboxStreamRow& row) {
  JsonLine line;
  line.text("kind", "stream")
      .text("stream", row.stream.text())
      .number("lane", row.lane)
      .text("consumer", row.consumer)
      .text_if_set("device", row.device)
      .number("mark_seq", row.mark_seq)
      .text("mark_id", row.mark_id.text())
      .number("open_gaps", row.open_gaps)
      .number("last_seen_at", row.last_seen_at_ms);
  out.line(line.finish());
}

void print_gap(Output& out, const InboxGapRow& row) {
  JsonLine line;
  line.text("kind", "gap")
      .text("stream", row.stream.text())
      .number("lane", row.lane)
      .text("consumer", row.consumer)
      .number("first_seq", row.first_seq)
      .number("last_seq", row.last_seq)
      .number("count", row.count)
      .text("state", row.state)
      .text_if_set("reason", row.reason);
  out.line(line.finish());
}

Status print_streams(Store& store, bool json, Output& out) {
  Table table(out, {{"DEVICE", Align::left, 24},
                    {"STREAM"},
                    {"LANE"},
                    {"CONSUMER"},
                    {"MARK", Align::right},
                    {"GAPS", Align::right},
                    {"LAST SEEN", Align::right}});
  return store.list_streams([&](const InboxStreamRow& row) {
    if (json) {
      print_stream(out, row);
    } else {
      table.row({row.device, row.stream.text(), lane_text(row.lane), row.consumer,
                 format_count(row.mark_seq), format_count(row.open_gaps),
                 age_since(row.last_seen_at_ms)});
    }
    return !out.failed();
  });
}

Status print_gaps(Store& store, bool json, Output& out) {
  Table table(out, {{"GAP IN STREAM"},
                    {"LANE"},
                    {"CONSUMER"},
                    {"FIRST", Align::right},
                    {"LAST", Align::right},
                    {"EVENTS", Align::right},
                    {"STATE"},
                    {"REASON", Align::left, 60}});
  return store.list_gaps([&](const InboxGapRow& row) {
    if (json) {
      print_gap(out, row);
    } else {
      table.row({row.stream.text(),
                 lane_text(row.lane),
                 row.consumer,
                 format_count(row.first_seq),
                 format_count(row.last_seq),
                 format_count(row.count),
                 {row.state, Colour::yellow},
                 row.reason});
    }
    return !out.failed();
  });
}

int run_stats(const Options& options) {
  const Where where{"inbox stats", options.db.path()};
  Store store;
  StoreStats stats;
  Status status = Store::open(where.subject, Access::read_only, {}, store);
  if (status.ok()) status = store.stats(stats);
  if (!status.ok()) return fail(where, status);
  Output out;
  if (options.json) {
    // The same object as in `stats --json`, and its kind.
    out.line("{\"kind\":\"inbox\"," + inbox_stats_json(stats.inbox).substr(1));
  } else {
    print_inbox_stats(stats.inbox, out);
    out.write("\n");
  }
  status = print_streams(store, options.json, out);
  if (status.ok() && stats.inbox.open_gaps + stats.inbox.gone > 0) {
    if (!options.json) out.write("\n");
    status = print_gaps(store, options.json, out);
  }
  out.flush();
  return status.ok() ? finish(where, out) : fail(where, status);
}

}  // namespace

void add_inbox(CLI::App& program, Run& run) {
  CLI::App* group = declare(program, kText);
  group->require_subcommand(1);
  auto options = std::make_shared<Options>();
  options->filter.limit = kDefaultLimit;

  CLI::App* list = declare(*group, kListText);
  options->db.add(*list);
  list->add_option("--status", options->filter.status, "Only this state")
      ->check(CLI::IsMember({"done", "stale", "failed"}, CLI::ignore_case))
      ->option_text("done|stale|failed");
  list->add_option("--consumer", options->filter.consumer, "Only of this consumer")
      ->option_text("NAME");
  list->add_option("--limit", options->filter.limit, "At most so many rows; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->option_text("N [100]");
  list->add_flag("--json", options->json, "Print one JSON object per line");
  list->callback([options, &run] { run = [options] { return run_list(*options); }; });

  CLI::App* show = declare(*group, kShowText);
  options->db.add_with_rest(*show, "ID", "The event's id");
  show->add_flag("--json", options->json, "Print one JSON object per line");
  show->callback([options, &run] { run = [options] { return run_show(*options); }; });

  CLI::App* stats = declare(*group, kStatsText);
  options->db.add(*stats);
  stats->add_flag("--json", options->json, "Print one JSON object per line");
  stats->callback([options, &run] { run = [options] { return run_stats(*options); }; });
}

}  // namespace holdfast::cli
