#include "drain.hpp"

#include <algorithm>

#include "command.hpp"
#include "event_text.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/store.hpp"
#include "log_lines.hpp"
#include "output.hpp"
#include "signals.hpp"
#include "sinks.hpp"

namespace holdfast::cli {
namespace {

constexpr std::int64_t kLookIntervalMs = 20;
constexpr std::int64_t kRateWindowMs = 1000;
constexpr std::int64_t kListedMax = 100;

enum class End { drained, stopped, failed, no_progress };

class DrainWatch {
 public:
  explicit DrainWatch(const DrainSettings& settings) : settings_(settings), last_ms_(now_ms()) {}

  // True when it is over.
  bool look(const RelayState& state, End& end) {
    const std::int64_t now = now_ms();
    if (state.sent_events != sent_ || state.pending_events != pending_) last_ms_ = now;
    sent_ = state.sent_events;
    pending_ = state.pending_events;
    if (state.phase == RelayState::Phase::failed) {
      end = End::failed;
    } else if (state.drained && state.pending_events == 0) {
      end = End::drained;
    } else if (now - last_ms_ >= settings_.timeout_ms) {
      end = End::no_progress;
    } else {
      return false;
    }
    return true;
  }

  std::string progress_text(const RelayState& state) {
    const std::int64_t now = now_ms();
    if (now - window_ms_ >= kRateWindowMs) {
      rate_ = window_ms_ == 0 ? 0 : (sent_ - window_sent_) * 1000 / (now - window_ms_);
      window_ms_ = now;
      window_sent_ = sent_;
    }
    std::string text = plural(sent_, "event") + " delivered, " + format_count(pending_) +
                       " remaining, " + format_count(rate_) + "/s";
    if (state.phase != RelayState::Phase::sending) {
      text += std::string(" (") + phase_name(state.phase) + ")";
    }
    return text;
  }

 private:
  static std::int64_t now_ms() { return system_clock().boot_ms(); }

  const DrainSettings& settings_;
  std::int64_t last_ms_;  // of the last progress
  std::int64_t sent_ = -1;
  std::int64_t pending_ = -1;
  std::int64_t window_ms_ = 0;
  std::int64_t window_sent_ = 0;
  std::int64_t rate_ = 0;
};

// What was not delivered and will not be by waiting here.
Status list_left(const Where& where, const std::string& destination, Output& out,
                 std::int64_t& rows) {
  Store store;
  Status status = Store::open(where.subject, Access::read_only, {}, store);
  if (!status.ok()) return status;
  ListFilter filter;
  filter.destination = destination;
  filter.states = {EventState::retry, EventState::held, EventState::dead};
  filter.limit = kListedMax + 1;
  filter.with_payload = false;
  Table table(out, {{"SEQ", Align::right},
                    {"STATUS"},
                    {"TYPE", Align::left, 40},
                    {"AGGREGATE", Align::left, 40},
                    {"DETAIL", Align::left, 80}});
  return store.list(filter, [&](const EventView& view) {
    if (++rows > kListedMax) return false;
    table.row({std::to_string(view.event.seq),
               {state_name(view.state), state_colour(view.state)},
               view.event.event_type,
               view.event.aggregate_type + "/" + view.event.aggregate_id,
               attempt_text(view)});
    return true;
  });
}

int finish_drained(const Where& where, const DrainSettings& settings, const RelayState& state) {
  note({where.command, ""}, plural(state.sent_events, "event") + " delivered, nothing pending at " +
                                settings.destination);
  if (state.exceptions == 0) return kExitDone;
  Output out;
  std::int64_t rows = 0;
  const Status status = list_left(where, settings.destination, out, rows);
  out.flush();
  if (!status.ok()) return fail(where, status);
  if (rows == 0) return finish(where, out);  // settled meanwhile
  return fail(where, kExitWorry,
              rows > kListedMax ? "more than " + plural(kListedMax, "event") + " remain"
                                : plural(rows, "event") + (rows == 1 ? " remains" : " remain") +
                                      " that the gateway rejected",
              "see `holdfast retry --help` and `holdfast discard --help`");
}

int finish_unfinished(const Where& where, const DrainSettings& settings, const RelayState& state) {
  const bool standby = state.phase == RelayState::Phase::standby;
  const std::string why = !state.last_error.ok()
                              ? state.last_error.text()
                              : std::string("the relay is ") + phase_name(state.phase) +
                                    (standby ? ": another one holds the destination" : "");
  return fail({where.command, settings.url}, kExitTemporary,
              "no progress for " + format_age(settings.timeout_ms) + ": " + why,
              plural(state.pending_events, "event") + " still pending, nothing is lost");
}

}  // namespace

int drain(const Where& where, const DrainSettings& settings, Relay& relay, StopSignals& signals,
          LogLines& log) {
  DrainWatch watch(settings);
  Progress pace;  // only to say when; the line itself belongs to the log
  End end = End::stopped;
  RelayState state = relay.state();
  while (!watch.look(state, end)) {
    if (pace.due()) log.show_progress(watch.progress_text(state));
    if (signals.wait(kLookIntervalMs) == StopSignals::Woken::signal) {
      end = End::stopped;
      break;
    }
    state = relay.state();
  }
  if (settings.sink != nullptr) settings.sink->stop();
  const Status status = relay.stop();
  log.clear_progress();
  if (!status.ok()) return fail(where, status);
  switch (end) {
    case End::drained:
      return finish_drained(where, settings, state);
    case End::stopped:
      return fail({where.command, ""}, kExitFailed, "interrupted",
                  plural(state.pending_events, "event") + " still pending, nothing is lost");
    case End::failed:
      return fail(where, state.last_error.ok()
                             ? Status::error(Code::internal, "the relay ended without a reason")
                             : state.last_error);
    case End::no_progress:
      break;
  }
  return finish_unfinished(where, settings, state);
}

}  // namespace holdfast::cli
