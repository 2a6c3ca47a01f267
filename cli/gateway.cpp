// holdfast gateway: accept events of many devices, store each once, acknowledge.
#include "holdfast/gateway.hpp"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "byte_size.hpp"
#include "command.hpp"
#include "duration.hpp"
#include "heap.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/relay.hpp"
#include "log_lines.hpp"
#include "output.hpp"
#include "print_sink.hpp"
#include "service_notify.hpp"
#include "signals.hpp"
#include "sinks.hpp"
#include "tls_options.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "gateway", kGroupMove, "Accept events from devices, store each once, acknowledge.",
    "[DB] --listen URL... [OPTIONS] | list|allow|deny [DB] ...",
    "What is accepted is in this database's own log, from where relays carry it on. The database\n"
    "is created if it is missing. Each address really bound is said on stderr: `listening on\n"
    "tcp://127.0.0.1:40123` (port 0 lets the system choose).\n"
    "\n"
    "An address that other machines can reach needs tls+tcp://: both sides show a certificate\n"
    "of one CA. tcp:// is for loopback, or for --insecure.\n"
    "\n"
    "A device is who its certificate says: a stream belongs to the common name that first wrote "
    "it\n"
    "over TLS, and is taken under no other, nor over tcp://. list, allow and deny show and change\n"
    "that; --tls-revoked bars single certificates.\n"
    "\n"
    "--print writes each new event as a JSON line to stdout. It is a destination named `print`\n"
    "with its own place in the log, so a restart prints what was not printed yet. At least once:\n"
    "after a crash the last lines may come again, with the same event_id.\n"
    "\n"
    "--sink [NAME=]URL, with the package holdfast-gateway, delivers to PostgreSQL, NATS, MQTT or "
    "a\n"
    "command in the same way: see `holdfast sink --help`.\n"
    "\n"
    "Under systemd (Type=notify, WatchdogSec=) it tells when it is ready, and that it is alive.\n"
    "\n"
    "Examples:\n"
    "  holdfast gateway gateway.db --listen tls+tcp://0.0.0.0:7447 --tls-ca ca.crt --tls-cert\n"
    "      gateway.crt --tls-key gateway.key\n"
    "  holdfast gateway gateway.db --listen ipc:///run/holdfast.sock --print | my-consumer\n"
    "\n"
    "Exit status: 0 stopped, 1 failed (address in use, disk trouble, reader of --print gone), 2\n"
    "wrong usage or URL, 75 the database stayed locked."};

constexpr int kPollMs = 60 * 1000;  // woken earlier by whatever happens
constexpr std::int64_t kWatchSliceMs = 60 * 60 * 1000;

struct Options {
  DatabaseArgument db;
  GatewayOptions gateway;
  LogSettings log;
  bool print = false;
  std::vector<std::string> sinks;
};

// Why the gateway stops: a signal, or stdout that can't be written any more.
struct Stop {
  std::atomic<bool> asked{false};
  std::atomic<bool> reader_gone{false};
};

// Waits for what asks to stop, on a thread of its own, and wakes the polling one.
void watch_for_stop(StopSignals& signals, Stop& stop, Gateway& gateway, bool print) {
  const StopSignals::Woken woken = signals.wait(-1, print ? STDOUT_FILENO : -1);
  stop.reader_gone = woken == StopSignals::Woken::hung_up;
  stop.asked = true;
  gateway.wake();
}

bool has_ended(const RelayState& state) {
  return state.phase == RelayState::Phase::failed || state.phase == RelayState::Phase::stopped;
}

// A relay of this log to a sink, beside the gateway. Makes `signals` wake if it can't go on.
class LocalRelay {
 public:
  explicit LocalRelay(StopSignals& signals) : signals_(signals) {}
  ~LocalRelay() { (void)stop(); }
  LocalRelay(const LocalRelay&) = delete;
  LocalRelay& operator=(const LocalRelay&) = delete;

  // The sink must outlive this.
  Status start(const std::string& database, const std::string& destination, Sink& sink,
               LogFunction log) {
    RelayOptions options;
    options.database = database;
    options.destination = destination;
    options.sink = &sink;
    options.outbox_retention_ms = -1;  // the gateway purges
    options.inbox_retention_ms = -1;
    options.log = std::move(log);
    const Status status = Relay::start(options, relay_);
    if (!status.ok()) return status;
    watcher_ = std::thread([this] {
      while (!relay_.wait(kWatchSliceMs, has_ended)) {
      }
      signals_.notify();
    });
    return status;
  }

  void wake() { relay_.wake(); }

  Status stop() {
    if (!watcher_.joinable()) return {};
    Status status = relay_.stop();
    watcher_.join();
    return status;
  }

 private:
  StopSignals& signals_;
  Relay relay_;
  std::thread watcher_;
};

// Where the gateway's log goes on to: --print and each --sink, each a destination with its own
// place.
class Onward {
 public:
  explicit Onward(StopSignals& signals)
      : signals_(signals), print_sink_([&signals] { signals.notify(); }) {}

  Status start(const std::string& database, const Options& options) {
    const auto log_of = [&](const std::string& name) {
      return LogLines(name, options.log).function();
    };
    Status status = open_sinks(options.sinks, log_of, sinks_);
    if (status.ok() && options.print) {
      status = print_sink_.open_status();
      if (status.ok()) status = add(database, kPrintDestination, print_sink_, log_of);
    }
    for (const NamedSink& each : sinks_) {
      if (status.ok() && options.print && each.name == kPrintDestination) {
        status =
            Status::error(Code::invalid, "print is the name of --print; give the sink another");
      }
      if (status.ok()) status = add(database, each.name, *each.sink, log_of);
    }
    return status;
  }

  void wake() {
    for (const auto& relay : relays_) relay->wake();
  }
  int print_error() const { return print_sink_.error(); }

  Status stop() {
    print_sink_.stop();
    for (const NamedSink& each : sinks_) each.sink->stop();
    Status first;
    for (const auto& relay : relays_) {
      const Status status = relay->stop();
      if (first.ok()) first = status;
    }
    relays_.clear();
    return first;
  }

 private:
  template <typename LogOf>
  Status add(const std::string& database, const std::string& name, Sink& sink,
             const LogOf& log_of) {
    relays_.push_back(std::make_unique<LocalRelay>(signals_));
    return relays_.back()->start(database, name, sink, log_of(name));
  }

  StopSignals& signals_;
  PrintSink print_sink_;
  std::vector<NamedSink> sinks_;
  std::vector<std::unique_ptr<LocalRelay>> relays_;  // after the sinks they use
};

// A supervisor with a watchdog hears of this thread as long as poll() returns.
Status poll_until_stopped(Gateway& gateway, const Stop& stop, ServiceNotify& notify) {
  const std::int64_t every_ms = notify.alive_every_ms();
  const int poll_ms =
      every_ms < 0 ? kPollMs : static_cast<int>(std::min<std::int64_t>(kPollMs, every_ms));
  const Clock& clock = system_clock();
  std::int64_t due = clock.boot_ms();
  Status status;
  while (status.ok() && !stop.asked) {
    if (every_ms > 0 && clock.boot_ms() >= due) {
      notify.alive();
      due = clock.boot_ms() + every_ms;
    }
    status = gateway.poll(poll_ms);
  }
  return status;
}

void tell_addresses(const Gateway& gateway, const Options& options, LogLines& log) {
  for (const std::string& url : gateway.urls()) {
    if (options.log.json) {
      log.write(LogLevel::error, "listening on " + url);
    } else {
      write_stderr("listening on " + escaped(url) + "\n");
    }
  }
}

int tell_print_error(const Where& where, int error) {
  const std::string what = error == EPIPE ? "the reader of standard output is gone"
                                          : std::string("standard output: ") + ::strerror(error);
  return fail({where.command, ""}, kExitFailed, what,
              "stopped; nothing is lost, and a restart with --print goes on from here");
}

int run_gateway(const Options& options) {
  const Where where{"gateway", options.db.path()};
  return_large_blocks();
  ignore_broken_pipes();
  StopSignals signals;
  Status status = signals.open_status();
  if (!status.ok()) return fail(where, status);
  LogLines log("gateway", options.log);

  Gateway gateway;
  GatewayOptions gateway_options = options.gateway;
  gateway_options.database = where.subject;
  gateway_options.log = log.function();
  status = Gateway::start(gateway_options, gateway);
  if (!status.ok()) return fail(where, status);
  Onward onward(signals);
  status = onward.start(where.subject, options);
  if (!status.ok()) return fail(where, status);
  gateway.on_commit([&onward] { onward.wake(); });
  tell_addresses(gateway, options, log);
  ServiceNotify notify(log);
  notify.ready("storing events in " + where.subject);

  Stop stop;
  std::thread watcher([&] { watch_for_stop(signals, stop, gateway, options.print); });
  status = poll_until_stopped(gateway, stop, notify);
  notify.stopping();
  signals.notify();
  watcher.join();
  gateway.stop();
  const Status onward_status = onward.stop();
  if (!status.ok()) return fail(where, status);
  if (stop.reader_gone || onward.print_error() != 0) {
    return tell_print_error(where, onward.print_error() != 0 ? onward.print_error() : EPIPE);
  }
  return onward_status.ok() ? kExitDone : fail(where, onward_status);
}

}  // namespace

void add_gateway(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  command
      ->add_option("--listen", options->gateway.listen,
                   "tls+tcp://HOST:PORT, tcp://HOST:PORT or ipc:///PATH; may be repeated")
      ->allow_extra_args(false)
      ->option_text("URL (required)");
  add_tls_options(*command, options->gateway.tls, TlsSide::gateway);
  command
      ->add_flag("--insecure", options->gateway.insecure,
                 "Allow tcp:// where others can reach it, and read and forge events")
      ->group("TLS");
  command
      ->add_option("--consumer", options->gateway.consumer,
                   "Consumer in whose name events are stored")
      ->option_text("NAME [log]");
  command->add_flag("--print", options->print, "Write each new event as a JSON line to stdout");
  add_sink_option(*command, options->sinks);
  const std::map<std::string, VersionGuard> guards = {{"apply-all", VersionGuard::apply_all},
                                                      {"skip-stale", VersionGuard::skip_stale}};
  command
      ->add_option("--guard", options->gateway.guard,
                   "Whether to skip events whose aggregate_version is not the newest")
      ->transform(CLI::Transformer(guards))
      ->option_text("apply-all|skip-stale [apply-all]");
  add_duration(*command, "--keep-sent", options->gateway.outbox_retention_ms,
               "Remove forwarded events after this, or never", true);
  add_duration(*command, "--keep-inbox", options->gateway.inbox_retention_ms,
               "Remove inbox rows after this, or never", true);
  add_byte_size(*command, "--reserve", options->gateway.reserve_bytes,
                "Room held back for removing rows on a full disk; 0: none");
  add_log_options(*command, options->log);
  add_gateway_certificates(*command, run);
  command->callback([options, command, &run] {
    if (!command->get_subcommands().empty()) return;
    if (options->gateway.listen.empty()) throw CLI::RequiredError("--listen");
    run = [options] { return run_gateway(*options); };
  });
}

}  // namespace holdfast::cli
