// The C interface of relay and gateway.
#include <memory>
#include <vector>

#include "c_api.hpp"
#include "holdfast/gateway.hpp"
#include "holdfast/relay.hpp"

using namespace holdfast;
using namespace holdfast::c_api;

#define HOLDFAST_SAME(c_name, cpp_name) \
  static_assert(static_cast<int>(c_name) == static_cast<int>(cpp_name), #c_name)
HOLDFAST_SAME(HOLDFAST_LOG_DEBUG, LogLevel::debug);
HOLDFAST_SAME(HOLDFAST_LOG_INFO, LogLevel::info);
HOLDFAST_SAME(HOLDFAST_LOG_WARNING, LogLevel::warning);
HOLDFAST_SAME(HOLDFAST_LOG_ERROR, LogLevel::error);
HOLDFAST_SAME(HOLDFAST_OUTCOME_STORED, Outcome::Kind::stored);
HOLDFAST_SAME(HOLDFAST_OUTCOME_DUPLICATE, Outcome::Kind::duplicate);
HOLDFAST_SAME(HOLDFAST_OUTCOME_LATER, Outcome::Kind::later);
HOLDFAST_SAME(HOLDFAST_OUTCOME_REJECTED, Outcome::Kind::rejected);
HOLDFAST_SAME(HOLDFAST_OUTCOME_INVALID, Outcome::Kind::invalid);
HOLDFAST_SAME(HOLDFAST_OUTCOME_HELD, Outcome::Kind::held);
HOLDFAST_SAME(HOLDFAST_PHASE_STARTING, RelayState::Phase::starting);
HOLDFAST_SAME(HOLDFAST_PHASE_STANDBY, RelayState::Phase::standby);
HOLDFAST_SAME(HOLDFAST_PHASE_OFFLINE, RelayState::Phase::offline);
HOLDFAST_SAME(HOLDFAST_PHASE_IDLE, RelayState::Phase::idle);
HOLDFAST_SAME(HOLDFAST_PHASE_SENDING, RelayState::Phase::sending);
HOLDFAST_SAME(HOLDFAST_PHASE_STOPPED, RelayState::Phase::stopped);
HOLDFAST_SAME(HOLDFAST_PHASE_FAILED, RelayState::Phase::failed);

namespace {

class CSink : public Sink {
 public:
  CSink(holdfast_sink sink, void* context) : sink_(sink), context_(context) {}

  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) override {
    std::vector<holdfast_record> records;
    records.reserve(events.size());
    for (const EventRecord& event : events) records.push_back(record_of(event));
    std::vector<holdfast_outcome> answers(events.size());
    const int code = sink_(context_, records.data(), records.size(), answers.data());
    if (code != HOLDFAST_OK)
      return Status::error(code > HOLDFAST_OK && code <= HOLDFAST_INTERNAL ? static_cast<Code>(code)
                                                                           : Code::unavailable,
                           "the sink answered %s", holdfast_code_name(code));
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const int kind = answers[i].kind;
      if (kind < HOLDFAST_OUTCOME_STORED || kind > HOLDFAST_OUTCOME_HELD)
        return Status::error(Code::invalid, "the sink gave an outcome of unknown kind %d", kind);
      outcomes[i].kind = static_cast<Outcome::Kind>(kind);
      outcomes[i].later_ms = answers[i].later_ms;
      outcomes[i].reason = reason_text(answers[i].reason);
    }
    return Status();
  }

 private:
  holdfast_sink sink_;
  void* context_;
};

LogFunction log_of(holdfast_log log, void* context) {
  if (log == nullptr) return {};
  return [log, context](LogLevel level, std::string_view text) {
    log(context, static_cast<int>(level), std::string(text).c_str());
  };
}

holdfast_relay_state state_of(const RelayState& from) {
  holdfast_relay_state out = empty<holdfast_relay_state>();
  out.phase = static_cast<int>(from.phase);
  out.drained = from.drained ? 1 : 0;
  out.sent_events = from.sent_events;
  out.duplicate_events = from.duplicate_events;
  out.pending_events = from.pending_events;
  out.exceptions = from.exceptions;
  out.dead = from.dead;
  out.link_failures = from.link_failures;
  (void)finish(from.last_error, &out.last_error);
  copy_text(from.url, out.url, sizeof(out.url));
  return out;
}

TlsOptions tls_of(const holdfast_tls& given) {
  TlsOptions own;
  own.ca_file = text(given.ca_file);
  own.cert_file = text(given.cert_file);
  own.key_file = text(given.key_file);
  own.server_name = text(given.server_name);
  return own;
}

RelayOptions options_of(const holdfast_relay_options& given) {
  RelayOptions own;
  own.database = text(given.database);
  own.destination = text(given.destination, kDefaultDestination);
  own.url = text(given.url);
  for (std::size_t i = 0; given.more_urls != nullptr && i < given.more_urls_count; ++i)
    own.more_urls.push_back(text(given.more_urls[i]));
  own.create_destination = given.no_create_destination == 0;
  own.dead_after = or_default(given.dead_after, own.dead_after);
  own.retry_delay_min_ms = or_default(given.retry_delay_min_ms, own.retry_delay_min_ms);
  own.retry_delay_max_ms = or_default(given.retry_delay_max_ms, own.retry_delay_max_ms);
  own.link_delay_min_ms = or_default(given.link_delay_min_ms, own.link_delay_min_ms);
  own.link_delay_max_ms = or_default(given.link_delay_max_ms, own.link_delay_max_ms);
  own.request_timeout_ms = or_default(given.request_timeout_ms, own.request_timeout_ms);
  own.return_delay_ms = or_default(given.return_delay_ms, own.return_delay_ms);
  own.lease_ms = or_default(given.lease_ms, own.lease_ms);
  own.flush_interval_ms = or_default(given.flush_interval_ms, own.flush_interval_ms);
  own.outbox_retention_ms = or_default(given.outbox_retention_ms, own.outbox_retention_ms);
  own.inbox_retention_ms = or_default(given.inbox_retention_ms, own.inbox_retention_ms);
  own.batch_events_max = or_default(given.batch_events_max, own.batch_events_max);
  own.batch_bytes_max = or_default(given.batch_bytes_max, own.batch_bytes_max);
  own.reserve_bytes = given.reserve_bytes < 0 ? 0 : or_default(given.reserve_bytes, kReserveBytes);
  own.tls = tls_of(given.tls);
  own.tls.revoked_file = text(given.tls_revoked_file);
  own.log = log_of(given.log, given.context);
  return own;
}

}  // namespace

// Members are destroyed from the last to the first: the relay ends before its sink.
struct holdfast_relay {
  std::unique_ptr<CSink> sink;
  Relay relay;
};

struct holdfast_gateway {
  Gateway gateway;
  std::vector<std::string> urls;
};

extern "C" {

// --- relay -------------------------------------------------------------------------------------

const char* holdfast_phase_name(int phase) {
  if (phase < HOLDFAST_PHASE_STARTING || phase > HOLDFAST_PHASE_FAILED) return "?";
  return phase_name(static_cast<RelayState::Phase>(phase));
}

holdfast_code holdfast_relay_start(const holdfast_relay_options* options, holdfast_relay** relay,
                                   holdfast_status* status) {
  if (relay == nullptr) return finish(missing("relay"), status);
  *relay = nullptr;
  if (options == nullptr) return finish(missing("holdfast_relay_options"), status);
  holdfast_relay_options given;
  Status result = take(options, "holdfast_relay_options", given);
  if (result.ok() && given.database == nullptr) result = missing("database");
  if (result.ok() && given.more_urls == nullptr && given.more_urls_count > 0)
    result = missing("more_urls");
  if (!result.ok()) return finish(result, status);
  auto made = std::make_unique<holdfast_relay>();
  RelayOptions own = options_of(given);
  if (given.sink != nullptr) {
    made->sink = std::make_unique<CSink>(given.sink, given.context);
    own.sink = made->sink.get();
  }
  if (given.writer != nullptr) own.writer = &given.writer->writer;
  result = Relay::start(own, made->relay);
  if (result.ok()) *relay = made.release();
  return finish(result, status);
}

void holdfast_relay_wake(holdfast_relay* relay) {
  if (relay != nullptr) relay->relay.wake();
}

holdfast_code holdfast_relay_get_state(holdfast_relay* relay, holdfast_relay_state* state,
                                       holdfast_status* status) {
  if (relay == nullptr || state == nullptr) return finish(missing("relay, state"), status);
  const Status result = check_result(state, "holdfast_relay_state");
  if (result.ok()) give(state_of(relay->relay.state()), state);
  return finish(result, status);
}

int holdfast_relay_wait(holdfast_relay* relay, int64_t timeout_ms,
                        int (*done)(void* context, const holdfast_relay_state* state),
                        void* context) {
  if (relay == nullptr || done == nullptr) return 0;
  const bool reached = relay->relay.wait(timeout_ms, [done, context](const RelayState& state) {
    const holdfast_relay_state out = state_of(state);
    return done(context, &out) != 0;
  });
  return reached ? 1 : 0;
}

holdfast_code holdfast_relay_stop(holdfast_relay* relay, holdfast_status* status) {
  return finish(relay != nullptr ? relay->relay.stop() : Status(), status);
}

void holdfast_relay_close(holdfast_relay* relay) { delete relay; }

// --- gateway -----------------------------------------------------------------------------------

holdfast_code holdfast_gateway_start(const holdfast_gateway_options* options,
                                     holdfast_gateway** gateway, holdfast_status* status) {
  if (gateway == nullptr) return finish(missing("gateway"), status);
  *gateway = nullptr;
  if (options == nullptr) return finish(missing("holdfast_gateway_options"), status);
  holdfast_gateway_options given;
  Status result = take(options, "holdfast_gateway_options", given);
  if (result.ok() && given.database == nullptr) result = missing("database");
  if (result.ok() && given.guard != HOLDFAST_APPLY_ALL && given.guard != HOLDFAST_SKIP_STALE)
    result = Status::error(Code::invalid, "guard: not a holdfast_guard");
  if (!result.ok()) return finish(result, status);
  if (given.listen == nullptr && given.listen_count > 0) return finish(missing("listen"), status);
  GatewayOptions own;
  own.database = given.database;
  for (std::size_t i = 0; i < given.listen_count; ++i) own.listen.push_back(text(given.listen[i]));
  own.consumer = text(given.consumer, kDefaultConsumer);
  if (given.handler != nullptr) own.handler = handler_of(given.handler, given.context);
  own.guard = static_cast<VersionGuard>(given.guard);
  own.outbox_retention_ms = or_default(given.outbox_retention_ms, own.outbox_retention_ms);
  own.inbox_retention_ms = or_default(given.inbox_retention_ms, own.inbox_retention_ms);
  own.reserve_bytes = given.reserve_bytes < 0 ? 0 : or_default(given.reserve_bytes, kReserveBytes);
  own.tls = tls_of(given.tls);
  own.tls.revoked_file = text(given.tls_revoked_file);
  own.insecure = given.insecure != 0;
  own.log = log_of(given.log, given.context);
  auto made = std::make_unique<holdfast_gateway>();
  result = Gateway::start(own, made->gateway);
  if (result.ok()) {
    made->urls = made->gateway.urls();
    if (given.on_commit != nullptr)
      made->gateway.on_commit([call = given.on_commit, context = given.context] { call(context); });
    *gateway = made.release();
  }
  return finish(result, status);
}

holdfast_code holdfast_gateway_poll(holdfast_gateway* gateway, int timeout_ms,
                                    holdfast_status* status) {
  return finish(gateway != nullptr ? gateway->gateway.poll(timeout_ms) : missing("gateway"),
                status);
}

void holdfast_gateway_wake(holdfast_gateway* gateway) {
  if (gateway != nullptr) gateway->gateway.wake();
}

const char* holdfast_gateway_url(const holdfast_gateway* gateway, size_t index) {
  if (gateway == nullptr || index >= gateway->urls.size()) return nullptr;
  return gateway->urls[index].c_str();
}

void holdfast_gateway_close(holdfast_gateway* gateway) { delete gateway; }

}  // extern "C"
