// holdfast ls: events and where they stand.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "command.hpp"
#include "event_text.hpp"
#include "holdfast/clock.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "ls", kGroupLook, "List events and where they stand; what is not yet delivered by default.",
    "[DB] [OPTIONS]",
    "States: PENDING, PROCESSING (under way), SENT, RETRY (was rejected, offered again later),\n"
    "HELD (waits for an earlier event of its aggregate), DEAD (given up; see retry, discard),\n"
    "GONE (discarded, expired or capped).\n"
    "The database is read in pages: a slow reader of this output holds nothing back.\n"
    "With --json, a field that is not set is absent (never null); the payload is `payload` if it\n"
    "is UTF-8, else `payload_base64`; created_at is Unix time in ms, next_attempt_ms from now.\n"
    "An event from before the clock was set shows its right time once that is known; until then\n"
    "there is created_at_known, false.\n"
    "\n"
    "Examples:\n"
    "  holdfast ls app.db --status dead,retry\n"
    "  holdfast ls app.db --status all --aggregate sensor/boiler-1 --limit 0 --json\n"
    "\n"
    "Exit status: 0 done (also when there are none), 1 failed, 2 wrong usage, 3 no such\n"
    "database, 75 the database stayed locked."};

constexpr std::int64_t kDefaultLimit = 100;
constexpr std::size_t kDetailColumns = 60;

struct Options {
  DatabaseArgument db;
  std::string status;
  std::string type;
  std::string aggregate;
  std::string destination;
  std::int64_t limit = kDefaultLimit;
  std::int64_t after = 0;
  bool json = false;
};

void parse_states(const std::string& list, ListFilter& filter) {
  std::size_t at = 0;
  while (!list.empty() && at <= list.size()) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string name = list.substr(at, end - at);
    at = end + 1;
    EventState state{};
    if (name == "all" || name == "ALL") {
      filter.all_states = true;
    } else if (parse_state(name, state)) {
      filter.states.push_back(state);
    } else {
      throw CLI::ValidationError(
          "--status",
          "there is no state \"" + name +
              "\"; choose from pending, processing, sent, retry, held, dead, gone, all");
    }
  }
}

ListFilter filter_of(const Options& options) {
  ListFilter filter;
  parse_states(options.status, filter);
  filter.event_type = options.type;
  if (!options.aggregate.empty() &&
      !split_aggregate(options.aggregate, filter.aggregate_type, filter.aggregate_id)) {
    if (options.aggregate.find('/') != std::string::npos) {
      throw CLI::ValidationError("--aggregate", "write it as TYPE/ID, or TYPE for every id");
    }
    filter.aggregate_type = options.aggregate;
  }
  filter.destination = options.destination;
  filter.after_seq = options.after;
  // One more than is shown tells whether there are more.
  filter.limit = options.limit > 0 ? options.limit + 1 : -1;
  return filter;
}

void add_row(Table& table, const EventView& view, std::int64_t wall_ms) {
  table.row({std::to_string(view.event.seq),
             event_age(view.event, wall_ms),
             {state_name(view.state), state_colour(view.state)},
             view.destination.empty() ? "-" : view.destination,
             view.event.event_type,
             view.event.aggregate_type + "/" + view.event.aggregate_id,
             event_detail(view)});
}

int run_ls(const Options& options) {
  const std::string path = options.db.path();
  const Where where{"ls", path};
  const ListFilter filter = filter_of(options);
  Store store;
  Status status = Store::open(path, Access::read_only, {}, store);
  if (!status.ok()) return fail(where, status);

  Output out;
  std::int64_t rows = 0;
  {
    Table table(out, {{"SEQ", Align::right},
                      {"AGE", Align::right},
                      {"STATUS"},
                      {"DESTINATION"},
                      {"TYPE", Align::left, 40},
                      {"AGGREGATE", Align::left, 40},
                      {"DETAIL", Align::left, kDetailColumns}});
    const std::int64_t wall_ms = system_clock().wall_ms();
    status = store.list(filter, [&](const EventView& view) {
      if (++rows > options.limit && options.limit > 0) return false;
      if (options.json) {
        out.line(event_line(view));
      } else {
        add_row(table, view, wall_ms);
      }
      return !out.failed();
    });
  }
  out.flush();
  if (!status.ok()) return fail(where, status);
  if (options.limit > 0 && rows > options.limit) {
    note(where,
         "there are more than these " + std::to_string(options.limit) + "; --limit 0 shows all");
  }
  return finish(where, out);
}

}  // namespace

void add_ls(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  command->add_option("--status", options->status, "Only these states, separated by commas")
      ->option_text("LIST|all [pending,processing,retry,held,dead]");
  command->add_option("--type", options->type, "Only this event type")->option_text("TYPE");
  command->add_option("--aggregate", options->aggregate, "Only this aggregate")
      ->option_text("TYPE[/ID]");
  command->add_option("--destination", options->destination, "Only as seen by this destination")
      ->option_text("NAME");
  command->add_option("--limit", options->limit, "At most so many rows; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->option_text("N [100]");
  command->add_option("--after", options->after, "Only events after this seq")
      ->check(CLI::NonNegativeNumber)
      ->option_text("SEQ");
  command->add_flag("--json", options->json, "Print one JSON object per line");
  command->callback([options, &run] { run = [options] { return run_ls(*options); }; });
}

}  // namespace holdfast::cli
