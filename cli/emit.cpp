// holdfast emit: one event, or many from NDJSON, durably. An id is printed only after the COMMIT
// that holds its event returned OK (G2).
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <vector>

#include "command.hpp"
#include "duration.hpp"
#include "holdfast/outbox.hpp"
#include "json.hpp"
#include "line_reader.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "emit", kGroupWrite, "Write events durably; print their ids.",
    "[DB] --type TYPE --aggregate TYPE/ID [OPTIONS]\n"
    "       holdfast emit [DB] --ndjson FILE|- [--batch N]",
    "Once an id is printed, its event survives a power cut. With an --id of your own, a repeated\n"
    "emit is harmless: the receiving side applies an id once.\n"
    "\n"
    "NDJSON: one object per line with the names that `holdfast ls --json` prints (event_type,\n"
    "aggregate_type, aggregate_id, payload or payload_base64, …); a payload that is an object or\n"
    "array is stored as it stands. A batch of lines is one transaction: all of it or nothing. A\n"
    "bad line ends the run; the batches before it stand, and their ids were printed.\n"
    "\n"
    "Examples:\n"
    "  holdfast emit app.db --type sensor.reading.v1 --aggregate sensor/boiler-1 \\\n"
    "      --payload '{\"celsius\":71.5}' --content-type application/json\n"
    "  holdfast emit app.db --ndjson readings.ndjson --batch 100\n"
    "\n"
    "After an I/O error at COMMIT nobody knows at once: the message says the id, and how to find\n"
    "out with `holdfast resolve`.\n"
    "\n"
    "Exit status: 0 done, 1 failed (or unknown: the message says how to find out), 2 wrong\n"
    "usage or a bad line, 3 no such file, 75 locked or full: nothing was written, try again."};

// A payload of kMaxPayloadBytes in which every byte is written as \u00XX, and the rest.
constexpr std::size_t kMaxLineBytes = 6 * kMaxPayloadBytes + 128 * 1024;
constexpr std::size_t kMaxBatchLines = 10'000;
constexpr std::size_t kMaxBatchInputBytes = 64 * 1024 * 1024;

struct Options {
  DatabaseArgument db;
  ParsedEvent event;
  std::string aggregate, id, payload, lane = "normal";
  std::optional<std::int64_t> version, created_at;
  std::string ndjson;
  std::int64_t batch = 1;
  bool json = false;
};

// A connection to emit on, and how to get another after a COMMIT whose outcome is open.
class Emitter {
 public:
  Status open(const std::string& path) {
    path_ = path;
    outbox_.detach();
    store_ = Store();
    Status status = Store::open(path, Access::read_write, {}, store_);
    if (status.ok()) status = Outbox::attach(store_.connection(), {}, outbox_);
    return status;
  }

  // All of them or none. `failed_at` is the index of the event that was refused. After
  // Code::unknown nobody knows; see resolve().
  Status emit(const std::vector<ParsedEvent>& events, std::vector<Emitted>& emitted,
              std::size_t& failed_at) {
    emitted.assign(events.size(), {});
    failed_at = events.size();
    Status status = store_.begin();
    if (!status.ok()) return status;
    for (std::size_t i = 0; i < events.size(); ++i) {
      status = outbox_.emit(events[i].event(), &emitted[i]);
      if (status.ok()) continue;
      failed_at = i;
      // The emit's error is what matters; a ROLLBACK that fails leaves nothing committed either.
      (void)store_.rollback();
      return status;
    }
    return store_.commit();
  }

  // After Code::unknown: reopens and looks. A batch commits as a whole, so its last event tells.
  Status resolve(const Emitted& last, Fate& fate) {
    Status status = open(path_);
    if (status.ok()) status = outbox_.resolve(last, fate);
    return status;
  }

 private:
  std::string path_;
  Store store_;
  Outbox outbox_;  // after store_: detached before its connection closes
};

void print_ids(Output& out, const std::vector<Emitted>& emitted, bool json) {
  for (const Emitted& each : emitted) {
    if (json) {
      JsonLine line;
      out.line(line.number("seq", each.seq).text("event_id", each.id.text()).finish());
    } else {
      out.line(each.id.text());
    }
  }
  out.flush();
}

// The COMMIT returned an I/O error: reopens, looks, and tells what is known. Never success: even if
// the events are there to be read, the disk did not confirm that it has them (G2), so no id is
// printed.
int settle_unknown(const Where& where, Emitter& emitter, const Status& unknown,
                   const std::vector<Emitted>& emitted) {
  const std::string id = emitted.back().id.text();
  const std::string what =
      emitted.size() == 1 ? "event " + id
                          : "the batch of " + std::to_string(emitted.size()) + " up to event " + id;
  const std::string trouble = std::string("COMMIT met an I/O error (") + unknown.text() + "): ";
  const std::string check = "ask again with `holdfast resolve " + shell_quoted(where.subject) +
                            " " + id + " --seq " + std::to_string(emitted.back().seq) +
                            "` and run `holdfast doctor`, or emit again with the same id: harmless";
  Fate fate = Fate::absent;
  const Status status = emitter.resolve(emitted.back(), fate);
  if (!status.ok()) {
    return fail(where, kExitFailed,
                trouble + "unknown whether " + what + " was written, for reopening failed (" +
                    status.text() + ")",
                check);
  }
  if (fate == Fate::committed) {
    return fail(where, kExitFailed,
                trouble + what + " is there, but a power cut may still take it away", check);
  }
  return fail(where, kExitFailed, trouble + "the database was reopened, and nothing was written",
              "emit again, and run `holdfast doctor`");
}

// --- one event ---

// TEXT, @FILE or - (stdin).
Status read_payload(const std::string& argument, std::string& payload) {
  if (argument == "-") return read_whole("-", kMaxPayloadBytes, payload);
  if (!argument.empty() && argument.front() == '@') {
    return read_whole(argument.substr(1), kMaxPayloadBytes, payload);
  }
  payload = argument;
  return {};
}

ParsedEvent event_of(const Options& options) {
  ParsedEvent event = options.event;
  if (event.event_type.empty()) throw CLI::RequiredError("--type");
  if (!split_aggregate(options.aggregate, event.aggregate_type, event.aggregate_id)) {
    throw CLI::ValidationError("--aggregate", "write it as TYPE/ID, like sensor/boiler-1");
  }
  if (!options.id.empty() && (!EventId::parse(options.id, event.id) || event.id.nil())) {
    throw CLI::ValidationError("--id", "\"" + options.id + "\" is not a UUID");
  }
  if (!parse_lane(options.lane, event.lane)) {
    throw CLI::ValidationError("--lane", "choose normal or urgent");
  }
  if (options.version) event.aggregate_version = *options.version;
  if (options.created_at) event.created_at_ms = *options.created_at;
  return event;
}

// Closing another descriptor of the database would drop SQLite's locks on it in this process.
Status refuse_database_as_input(const std::string& database, const std::string& input) {
  struct stat a{}, b{};
  if (::stat(database.c_str(), &a) != 0 || ::stat(input.c_str(), &b) != 0) return {};
  if (a.st_dev != b.st_dev || a.st_ino != b.st_ino) return {};
  return Status::error(Code::invalid, "%s: is the database itself, not input for it",
                       input.c_str());
}

int run_single(const Options& options, const Where& where) {
  std::vector<ParsedEvent> events = {event_of(options)};
  Status status;
  if (!options.payload.empty() && options.payload.front() == '@') {
    status = refuse_database_as_input(where.subject, options.payload.substr(1));
  }
  if (status.ok()) status = read_payload(options.payload, events.front().payload);
  if (!status.ok()) return fail({where.command, ""}, status);

  Emitter emitter;
  std::vector<Emitted> emitted;
  std::size_t failed_at = 0;
  status = emitter.open(where.subject);
  if (status.ok()) status = emitter.emit(events, emitted, failed_at);
  Output out;
  if (status.code() == Code::unknown) return settle_unknown(where, emitter, status, emitted);
  if (!status.ok()) return fail(where, status);
  print_ids(out, emitted, options.json);
  return finish(where, out);
}

// --- NDJSON ---

struct Batch {
  std::vector<ParsedEvent> events;
  std::vector<std::int64_t> lines;  // where each event came from
  std::size_t bytes = 0;
};

class NdjsonRun {
 public:
  NdjsonRun(const Options& options, const Where& where) : options_(options), where_(where) {}

  int run() {
    Status status = refuse_database_as_input(where_.subject, options_.ndjson);
    if (status.ok()) status = reader_.open(options_.ndjson);
    if (!status.ok()) return fail({where_.command, ""}, status);
    status = emitter_.open(where_.subject);
    if (!status.ok()) return fail(where_, status);
    int exit_status = kExitDone;
    bool more = true;
    while (more && exit_status == kExitDone) {
      Batch batch;
      more = read_batch(batch, exit_status);
      if (exit_status == kExitDone && !batch.events.empty()) exit_status = write_batch(batch);
      if (out_.failed()) break;
      if (progress_.due()) progress_.show(plural(written_, "event") + " written");
    }
    progress_.clear();
    return exit_status == kExitDone ? finish(where_, out_) : exit_status;
  }

 private:
  // Nothing of the batch was written: says which line is to blame, and what stands.
  int fail_line(const Batch& batch, std::int64_t line, int exit_status, const std::string& what) {
    progress_.clear();
    const std::int64_t first = batch.lines.empty() ? line : std::min(line, batch.lines.front());
    const std::string input = options_.ndjson == "-" ? "standard input" : options_.ndjson;
    const std::string range =
        first == line ? "line " + std::to_string(line)
                      : "lines " + std::to_string(first) + " to " + std::to_string(line);
    return fail({where_.command, ""}, exit_status,
                input + ": line " + std::to_string(line) + ": " + what,
                "nothing of " + range + " was written, " + plural(written_, "event") + " before " +
                    (written_ == 1 ? "is" : "are"));
  }

  // False at the end of the input, and on an error.
  bool read_batch(Batch& batch, int& exit_status) {
    while (batch.events.size() < static_cast<std::size_t>(options_.batch)) {
      std::string_view line;
      Status status;
      if (!reader_.next(line, status)) {
        if (!status.ok()) {
          const std::int64_t number = std::max<std::int64_t>(1, reader_.line_number());
          exit_status = fail_line(batch, number, exit_status_of(status.code()), status.text());
        }
        return false;
      }
      if (reader_.line_number() == 1 && line.substr(0, 3) == "\xef\xbb\xbf") line.remove_prefix(3);
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      batch.bytes += line.size();
      ParsedEvent event;
      std::string why;
      if (batch.bytes > kMaxBatchInputBytes) {
        why = "the batch is larger than " + format_bytes(kMaxBatchInputBytes) +
              "; choose a smaller --batch";
      } else if (parse_event(line, event, why)) {
        batch.events.push_back(std::move(event));
        batch.lines.push_back(reader_.line_number());
        continue;
      }
      exit_status = fail_line(batch, reader_.line_number(), kExitUsage, why);
      return false;
    }
    return true;
  }

  int write_batch(const Batch& batch) {
    std::vector<Emitted> emitted;
    std::size_t failed_at = 0;
    const Status status = emitter_.emit(batch.events, emitted, failed_at);
    if (status.code() == Code::unknown) {
      progress_.clear();
      return settle_unknown(where_, emitter_, status, emitted);
    }
    if (!status.ok()) {
      const std::size_t at = std::min(failed_at, batch.lines.size() - 1);
      return fail_line(batch, batch.lines[at], exit_status_of(status.code()), status.text());
    }
    written_ += static_cast<std::int64_t>(emitted.size());
    print_ids(out_, emitted, options_.json);
    return kExitDone;
  }

  const Options& options_;
  const Where& where_;
  LineReader reader_{kMaxLineBytes};
  Emitter emitter_;
  Output out_;
  Progress progress_;
  std::int64_t written_ = 0;
};

int run_emit(const Options& options) {
  const Where where{"emit", options.db.path()};
  if (options.ndjson.empty()) return run_single(options, where);
  return NdjsonRun(options, where).run();
}

}  // namespace

void add_emit(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  const auto add = [&](const char* name, auto& value, const char* description, const char* text) {
    return command->add_option(name, value, description)->option_text(text);
  };
  const std::vector<CLI::Option*> single = {
      add("--type", options->event.event_type, "Type of the event, e.g. sensor.reading.v1", "TYPE"),
      add("--aggregate", options->aggregate, "What it happened to; split at the first slash",
          "TYPE/ID"),
      add("--payload", options->payload, "The payload itself, a file's contents, or stdin",
          "TEXT|@FILE|-"),
      add("--id", options->id, "Event id; a new one (version 7) if left out", "UUID"),
      add("--content-type", options->event.content_type, "Media type of the payload", "TYPE"),
      add("--trace", options->event.trace, "W3C traceparent", "TEXT"),
      add("--headers", options->event.headers, "A JSON object", "JSON"),
      add("--aggregate-version", options->version, "Version of the aggregate", "N"),
      add_duration(*command, "--ttl", options->event.ttl_ms,
                   "Give it up if it is not sent by then; 0: never"),
      add("--lane", options->lane, "urgent overtakes any backlog", "normal|urgent [normal]"),
      add("--created-at", options->created_at, "Unix time in ms; information only", "MS [now]")};
  CLI::Option* ndjson =
      add("--ndjson", options->ndjson, "Many events, one JSON object per line", "FILE|-");
  for (CLI::Option* option : single) ndjson->excludes(option);
  add("--batch", options->batch, "Lines of one transaction", "N [1]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{kMaxBatchLines}))
      ->needs(ndjson);
  command->add_flag("--json", options->json, "Print seq and event_id as JSON");
  command->callback([options, &run] { run = [options] { return run_emit(*options); }; });
}

}  // namespace holdfast::cli
