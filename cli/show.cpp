// holdfast show: one event, whole.
#include <unistd.h>

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
    "show", kGroupLook, "Show one event, whole, with its state at every destination.",
    "[DB] ID|SEQ [OPTIONS]",
    "ID is an event id (UUID), SEQ its number in this database. By id the newest events are\n"
    "searched first, which may take a while in a big log; by number it never does.\n"
    "With --json: one object for each destination.\n"
    "\n"
    "Examples:\n"
    "  holdfast show app.db 1042\n"
    "  holdfast show app.db 0190a6e8-2d4e-7c3a-9d5e-0f1a2b3c4d5e --json\n"
    "  holdfast show app.db 1042 --payload > reading.bin\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such event or database, 75 the\n"
    "database stayed locked."};

struct Options {
  DatabaseArgument db;
  bool json = false;
  bool payload = false;
};

void field(Output& out, const char* name, const std::string& value) {
  constexpr std::size_t kNameColumns = 19;
  if (value.empty()) return;
  std::string label = name;
  label.resize(std::max(label.size(), kNameColumns), ' ');
  out.line(coloured(out, Colour::dim, label) + escaped(value));
}

// Line by line, so that a text payload stays readable.
void print_payload(Output& out, const std::string& payload) {
  if (!is_utf8(payload)) {
    out.line("(not text; --payload writes it as it is, --json in base64)");
    return;
  }
  std::size_t at = 0;
  while (at < payload.size()) {
    const std::size_t end = std::min(payload.find('\n', at), payload.size());
    out.line(escaped(std::string_view(payload).substr(at, end - at)));
    at = end + 1;
  }
}

void print_event(Output& out, const EventRecord& event) {
  field(out, "seq", std::to_string(event.seq));
  field(out, "event_id", event.id.text());
  field(out, "event_type", event.event_type);
  field(out, "aggregate", event.aggregate_type + "/" + event.aggregate_id);
  if (event.aggregate_version != kNoVersion) {
    field(out, "aggregate_version", std::to_string(event.aggregate_version));
  }
  const std::string age = event_age(event, system_clock().wall_ms());
  field(out, "created_at",
        format_wall_time(event.created_at_ms) + (age == "-" ? "" : " (" + age + " ago)"));
  field(out, "lane", lane_text(event.lane));
  field(out, "content_type", event.content_type);
  field(out, "trace", event.trace);
  field(out, "headers", event.headers);
  field(out, "source", event.source);
  if (!event.source_stream.nil()) {
    field(out, "source_stream", event.source_stream.text());
    field(out, "source_seq", std::to_string(event.source_seq));
  }
}

void print_states(Output& out, const std::vector<EventView>& views) {
  out.write("\n");
  Table table(out, {{"DESTINATION"}, {"STATUS"}, {"ATTEMPTS", Align::right}, {"DETAIL"}});
  for (const EventView& view : views) {
    table.row({view.destination.empty() ? "-" : view.destination,
               {state_name(view.state), state_colour(view.state)},
               std::to_string(view.attempts),
               attempt_text(view)});
  }
}

int run_show(const Options& options) {
  const auto [path, name_text] = options.db.path_and_name();
  const Where where{"show", path};
  EventName name;
  if (name_text.empty()) throw CLI::RequiredError("ID|SEQ");
  if (!parse_event_name(name_text, name)) {
    return fail(where, kExitUsage, "\"" + name_text + "\" is neither a UUID nor a seq");
  }
  Store store;
  std::vector<EventView> views;
  Status status = Store::open(path, Access::read_only, {}, store);
  if (status.ok()) status = find_event(store, name, views);
  if (!status.ok()) return fail(where, status);

  Output out;
  if (options.json) {
    for (const EventView& view : views) out.line(event_line(view));
  } else if (options.payload && !is_terminal(STDOUT_FILENO)) {
    out.write(views.front().event.payload);
  } else if (options.payload) {
    print_payload(out, views.front().event.payload);
  } else {
    const EventRecord& event = views.front().event;
    print_event(out, event);
    print_states(out, views);
    if (!event.payload.empty()) {
      out.line("\n" + coloured(out, Colour::bold, "PAYLOAD") + " " +
               format_bytes(static_cast<std::int64_t>(event.payload.size())));
      print_payload(out, event.payload);
    }
  }
  return finish(where, out);
}

}  // namespace

void add_show(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add_with_rest(*command, "ID|SEQ", "The event");
  CLI::Option* json = command->add_flag("--json", options->json, "Print JSON, one object per line");
  command
      ->add_flag("--payload", options->payload,
                 "Write the payload alone: byte for byte, escaped on a terminal")
      ->excludes(json);
  command->callback([options, &run] { run = [options] { return run_show(*options); }; });
}

}  // namespace holdfast::cli
