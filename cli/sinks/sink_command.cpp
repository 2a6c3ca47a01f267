// holdfast sink init|check: what a sink needs on its server.
#include <CLI/CLI.hpp>

#include "command.hpp"
#include "log_lines.hpp"
#include "output.hpp"
#include "sinks.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "sink", kGroupMove, "Prepare or check a server that events go to.", "init|check URL",
    "A sink is a destination of a log other than a gateway: `--sink [NAME=]URL` of `holdfast\n"
    "gateway` (several) or `holdfast relay` (one). The name keeps its place in the log; the URL\n"
    "may change. Without one the name is nats, postgres, mqtt or exec.\n"
    "\n"
    "  nats://[USER@]HOST[:4222][?subject=TEMPLATE&stream=NAME&creds=FILE&format=FORMAT]\n"
    "  postgres://[USER@]HOST[:5432]/DATABASE[?table=NAME&sslmode=...]\n"
    "  mqtt://[USER@]HOST[:1883][?topic=TEMPLATE&subscribers=optional&format=FORMAT]\n"
    "  exec:COMMAND\n"
    "\n"
    "nats+tls:// and mqtts:// need ?ca=FILE, and take cert=FILE&key=FILE. A password comes from\n"
    "?password_file=FILE or ?password_env=VARIABLE, for postgres also from PGPASSFILE and\n"
    "PGPASSWORD; never from the command line. TEMPLATE has {event_type}, {aggregate_type},\n"
    "{aggregate_id}, {source} and {lane}; FORMAT is json, cloudevents or cloudevents-binary.\n"
    "\n"
    "What \"delivered\" means for each, and what it needs: "
    "/usr/share/doc/holdfast-gateway/SINKS.md"};

constexpr CommandText kInitText = {
    "init", nullptr, "Make the table of postgres://, or the stream of nats://...?stream=NAME.",
    "URL [--partitioned]",
    "Does nothing where all is there already.\n"
    "\n"
    "Example:\n"
    "  holdfast sink init 'postgres://holdfast@db.example/plant'\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage or URL, 75 the server cannot be reached."};

constexpr CommandText kCheckText = {
    "check", nullptr, "Connect, and look whether events would be accepted.", "URL",
    "Delivers nothing.\n"
    "\n"
    "Example:\n"
    "  holdfast sink check 'nats://nats.example?creds=/etc/holdfast/nats.creds'\n"
    "\n"
    "Exit status: 0 they would, 1 they would not, 2 wrong usage or URL, 75 the server cannot be\n"
    "reached."};

int run_sink(const char* command, const std::string& given,
             const std::function<Status(StoppableSink&, std::string&)>& act) {
  LogSettings settings;
  settings.level = LogLevel::warning;
  LogLines log("sink", settings);
  std::vector<NamedSink> sinks;
  Status status = open_sinks({given}, [&](const std::string&) { return log.function(); }, sinks);
  if (!status.ok()) return fail({command, ""}, status);
  const Where where{command, sinks.front().url};
  std::string did = "ready";
  status = act(*sinks.front().sink, did);
  if (!status.ok()) return fail(where, status);
  Output out;
  out.line(escaped(sinks.front().name) + ": " + did);
  return finish(where, out);
}

}  // namespace

void add_sink(CLI::App& program, Run& run) {
  CLI::App* group = declare(program, kText);
  group->require_subcommand(1);
  auto url = std::make_shared<std::string>();

  CLI::App* init = declare(*group, kInitText);
  init->add_option("URL", *url, "As for --sink")->required()->type_name("");
  auto partitioned = std::make_shared<bool>(false);
  init->add_flag("--partitioned", *partitioned,
                 "postgres: a partition a month, by the time in event_id; adds those of the\n"
                 "next 3 months");
  init->callback([url, partitioned, &run] {
    run = [url, partitioned] {
      return run_sink("sink init", *url, [&](StoppableSink& sink, std::string& did) {
        return sink.init(*partitioned, did);
      });
    };
  });

  CLI::App* check = declare(*group, kCheckText);
  check->add_option("URL", *url, "As for --sink")->required()->type_name("");
  check->callback([url, &run] {
    run = [url] {
      return run_sink("sink check", *url,
                      [](StoppableSink& sink, std::string&) { return sink.check(); });
    };
  });
}

}  // namespace holdfast::cli
