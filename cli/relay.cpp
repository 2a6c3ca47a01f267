// holdfast relay: forward a log to a gateway, until stopped or until nothing is left.
#include "holdfast/relay.hpp"

#include <CLI/CLI.hpp>
#include <thread>

#include "byte_size.hpp"
#include "command.hpp"
#include "drain.hpp"
#include "duration.hpp"
#include "heap.hpp"
#include "log_lines.hpp"
#include "output.hpp"
#include "service_notify.hpp"
#include "signals.hpp"
#include "sinks.hpp"
#include "tls_options.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "relay", kGroupMove, "Forward events to a gateway until stopped, or until all are delivered.",
    "[DB] --to URL [--to URL2]... [OPTIONS]",
    "The gateway may be unreachable for any time: nothing is lost, no attempt is counted, and\n"
    "delivery goes on within seconds of its return. Several relays on one destination are safe;\n"
    "one works, the others stand by. Commits of other processes are noticed at once.\n"
    "\n"
    "Several URLs are ways to the same gateway (the same database), in order of preference: an\n"
    "attempt to connect tries the next one when the one before fails, or after 1 s without an\n"
    "answer. On a later one, the earlier ones are looked at every 30 s (--return-delay), and the\n"
    "relay goes back without losing anything. `holdfast stats` shows which one is in use.\n"
    "\n"
    "Under systemd (Type=notify, WatchdogSec=) it tells when it is ready, and that it is alive.\n"
    "\n"
    "Examples:\n"
    "  holdfast relay app.db --to tls+tcp://gateway.example:7447 --tls-ca ca.crt --tls-cert\n"
    "      pump7.crt --tls-key pump7.key\n"
    "  holdfast relay app.db --to ipc:///run/holdfast.sock --drain && shutdown -h now\n"
    "\n"
    "Exit status: 0 stopped, or drained; 1 failed; 2 wrong usage or URL; 3 no such database; 4\n"
    "drained, but RETRY, HELD or DEAD events remain (they are listed); 75 --drain made no\n"
    "progress for --drain-timeout, or the database stayed locked."};

constexpr std::int64_t kWatchSliceMs = 60 * 60 * 1000;

struct Options {
  DatabaseArgument db;
  RelayOptions relay;
  std::vector<std::string> to;
  std::vector<std::string> sinks;
  LogSettings log;
  bool drain = false;
  bool no_create = false;
  std::int64_t drain_timeout_ms = kDrainTimeoutMs;
};

bool has_ended(const RelayState& state) {
  return state.phase == RelayState::Phase::failed || state.phase == RelayState::Phase::stopped;
}

// Waits for a signal or for the relay to end by itself; neither is polled for. A supervisor with a
// watchdog hears of the relay's thread as long as that takes its turns.
void wait_for_stop(Relay& relay, StopSignals& signals, ServiceNotify& notify) {
  std::int64_t turns = -1;
  while (signals.wait(notify.alive_every_ms()) == StopSignals::Woken::timeout) {
    const std::int64_t now = relay.state().turns;
    if (now != turns) notify.alive();
    turns = now;
    relay.wake();
  }
}

Status run_until_stopped(Relay& relay, StoppableSink* sink, StopSignals& signals,
                         ServiceNotify& notify) {
  std::thread watcher([&relay, &signals] {
    while (!relay.wait(kWatchSliceMs, has_ended)) {
    }
    signals.notify();
  });
  wait_for_stop(relay, signals, notify);
  notify.stopping();
  if (sink != nullptr) sink->stop();
  Status status = relay.stop();
  watcher.join();
  return status;
}

int run_relay(const Options& options) {
  const Where where{"relay", options.db.path()};
  return_large_blocks();
  ignore_broken_pipes();
  StopSignals signals;
  Status status = signals.open_status();
  if (!status.ok()) return fail(where, status);

  Progress progress;
  LogLines log("relay", options.log, options.drain ? &progress : nullptr);
  RelayOptions relay_options = options.relay;
  relay_options.database = where.subject;
  std::vector<NamedSink> sinks;
  status = open_sinks(options.sinks, [&](const std::string&) { return log.function(); }, sinks);
  if (!status.ok()) return fail(where, status);
  StoppableSink* const sink = sinks.empty() ? nullptr : sinks.front().sink.get();
  if (sink != nullptr) {
    relay_options.sink = sink;
    relay_options.destination = sinks.front().name;
  } else {
    relay_options.url = options.to.front();
    relay_options.more_urls.assign(options.to.begin() + 1, options.to.end());
  }
  relay_options.create_destination = !options.no_create;
  relay_options.log = log.function();
  Relay relay;
  status = Relay::start(relay_options, relay);
  if (!status.ok()) return fail(where, status);
  if (options.drain) {
    return drain(
        where,
        {relay_options.destination, sink == nullptr ? relay_options.url : sinks.front().url,
         options.drain_timeout_ms, sink},
        relay, signals, log);
  }
  std::string doing = "forwarding " + where.subject + " as " + relay_options.destination + " to ";
  if (sink != nullptr) doing += sinks.front().url;
  for (const std::string& url : options.to)
    doing += (&url == &options.to.front() ? "" : ", ") + url;
  log.write(LogLevel::info, doing);
  ServiceNotify notify(log);
  notify.ready(doing);
  status = run_until_stopped(relay, sink, signals, notify);
  return status.ok() ? kExitDone : fail(where, status);
}

void add_tuning(CLI::App& command, Options& options) {
  RelayOptions& relay = options.relay;
  const std::vector<CLI::Option*> added = {
      add_duration(command, "--request-timeout", relay.request_timeout_ms,
                   "No answer for so long: reconnect"),
      add_duration(command, "--link-delay-min", relay.link_delay_min_ms,
                   "First wait before reconnecting"),
      add_duration(command, "--link-delay-max", relay.link_delay_max_ms,
                   "Longest wait before reconnecting"),
      add_duration(command, "--return-delay", relay.return_delay_ms,
                   "On a later URL: look so often whether an earlier one answers"),
      add_duration(command, "--retry-delay-min", relay.retry_delay_min_ms,
                   "First wait after a rejection"),
      add_duration(command, "--retry-delay-max", relay.retry_delay_max_ms,
                   "Longest wait after a rejection"),
      command.add_option("--dead-after", relay.dead_after, "Rejections until an event is DEAD")
          ->check(CLI::Range(1, 1'000'000))
          ->option_text("N [10]"),
      add_duration(command, "--lease", relay.lease_ms, "A relay that hangs is replaced after this"),
      add_duration(command, "--flush-interval", relay.flush_interval_ms,
                   "Progress is written this often"),
      command.add_option("--batch-events", relay.batch_events_max, "Most events of one frame")
          ->check(CLI::Range(1, kMaxBatchEvents))
          ->option_text("N [1024]"),
      command.add_option("--batch-bytes", relay.batch_bytes_max, "Most bytes of one frame")
          ->check(CLI::Range(std::size_t{1}, std::size_t{kMaxBatchBytes}))
          ->option_text("N [65536]"),
      add_duration(command, "--keep-sent", relay.outbox_retention_ms,
                   "Remove delivered events after this, or never", true),
      add_duration(command, "--keep-inbox", relay.inbox_retention_ms,
                   "Remove inbox rows after this, or never", true),
      add_byte_size(command, "--reserve", relay.reserve_bytes,
                    "Room held back for the relay's own writes on a full disk; 0: none")};
  for (CLI::Option* option : added) option->group("Tuning");
}

}  // namespace

void add_relay(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  command
      ->add_option("--to", options->to,
                   "The gateway: tls+tcp://HOST:PORT, tcp://HOST:PORT or ipc:///PATH; repeatable")
      ->allow_extra_args(false)
      ->option_text("URL (required)");
  add_sink_option(*command, options->sinks);
  command
      ->add_option("--name", options->relay.destination,
                   "Destination; the URL may change, the name keeps its place")
      ->option_text("NAME [upstream]");
  command->add_flag("--no-create", options->no_create,
                    "Fail if there is no such destination, instead of creating it");
  CLI::Option* drain_option =
      command->add_flag("--drain", options->drain, "End once nothing is pending");
  add_duration(*command, "--drain-timeout", options->drain_timeout_ms,
               "With --drain: give up after so long without progress")
      ->needs(drain_option);
  add_tls_options(*command, options->relay.tls, TlsSide::relay);
  add_log_options(*command, options->log);
  add_tuning(*command, *options);
  command->callback([options, &run] {
    if (options->to.empty() && options->sinks.empty()) throw CLI::RequiredError("--to");
    if (options->to.size() * options->sinks.size() > 0 || options->sinks.size() > 1) {
      throw CLI::ValidationError("a relay has one destination: --to, or one --sink");
    }
    run = [options] { return run_relay(*options); };
  });
}

}  // namespace holdfast::cli
