#include "nats_sink.hpp"

#include <nats/nats.h>

#include <algorithm>
#include <charconv>

#include "holdfast/clock.hpp"
#include "holdfast/json.hpp"
#include "json.hpp"
#include "waves.hpp"

namespace holdfast::cli {
namespace {

constexpr std::int64_t kConnectTimeoutMs = 2'000;  // of a connection, authentication included
constexpr std::int64_t kAckTimeoutMs = 10'000;  // without any PubAck; then the connection is closed
constexpr std::int64_t kRequestTimeoutMs = 5'000;       // of the questions of check and init
constexpr std::int64_t kLookMs = 50;                    // for stop()
constexpr std::int64_t kDuplicateWindowMs = 3'600'000;  // of a stream that `sink init` makes
constexpr int kDefaultPort = 4222;
constexpr int kMessageTooLarge = 10054;  // err_code of JetStream: larger than max_msg_size
constexpr std::size_t kAckDepthMax = 8;  // nesting of a PubAck
constexpr const char* kDefaultSubject = "holdfast.{aggregate_type}.{aggregate_id}";

std::int64_t integer_of(std::string_view value) {
  std::int64_t number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

struct PubAck {
  bool valid = false;
  bool duplicate = false;
  bool error = false;
  std::int64_t error_code = 0;
  std::string description;
};

PubAck parse_ack(std::string_view text) {
  PubAck ack;
  if (!json::valid(text, kAckDepthMax) || json::type_of(text) != json::Type::object) return ack;
  for (json::Members members(text); members.next();) {
    if (json::name_is(members.name(), "stream")) ack.valid = true;
    if (json::name_is(members.name(), "duplicate")) ack.duplicate = members.value() == "true";
    if (!json::name_is(members.name(), "error")) continue;
    ack.error = true;
    if (json::type_of(members.value()) != json::Type::object) continue;
    for (json::Members error(members.value()); error.next();) {
      if (json::name_is(error.name(), "err_code")) ack.error_code = integer_of(error.value());
      if (json::name_is(error.name(), "description")) {
        ack.description = json::unescape(error.value());
      }
    }
  }
  return ack;
}

// The subject that takes all of a template: each token with a place in it becomes *.
std::string subjects_of(const std::string& subject_template) {
  std::string out;
  for (std::size_t at = 0; at <= subject_template.size();) {
    const std::size_t end = std::min(subject_template.find('.', at), subject_template.size());
    const std::string token = subject_template.substr(at, end - at);
    if (token.find("{event_type}") != std::string::npos) return out + ">";  // it has dots
    out += token.find('{') == std::string::npos ? token : "*";
    if (end < subject_template.size()) out += '.';
    at = end + 1;
  }
  return out;
}

// Values of headers are one line; what is not printable ASCII becomes %XX, as the binding of
// CloudEvents to NATS has it.
std::string header_value(const std::string& value) {
  return percent_encode(value, [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '%'; });
}

Status bad_option(const SinkUrl& url, natsStatus status) {
  natsStatus ignored = NATS_OK;
  const char* const why = nats_GetLastError(&ignored);
  return Status::error(Code::invalid, "sink %s: %s: %s", url.name.c_str(),
                       natsStatus_GetText(status), why != nullptr ? why : "");
}

}  // namespace

Status NatsSink::open(SinkUrl url, LogFunction, std::unique_ptr<StoppableSink>& out) {
  std::unique_ptr<NatsSink> sink(new NatsSink());
  sink->name_ = url.name;
  std::string subject = kDefaultSubject;
  url.take("subject", subject);
  url.take("stream", sink->stream_);
  if (url.host.empty()) {
    return Status::error(Code::invalid, "sink %s: the URL has no host", url.name.c_str());
  }
  Status status = sink->subject_.parse(subject, ".*>", "*>", url.name);
  if (status.ok()) status = take_format(url, sink->format_);
  if (status.ok()) status = sink->set_options(url);
  if (status.ok()) status = url.none_left();
  if (status.ok()) out = std::move(sink);
  return status;
}

Status NatsSink::set_options(SinkUrl& url) {
  std::string password;
  std::string token;
  Status status = take_secret(url, "password", password);
  if (status.ok()) status = take_secret(url, "token", token);
  if (!status.ok()) return status;
  natsStatus s = natsOptions_Create(&options_);
  const std::string host =
      url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  const std::string server =
      "nats://" + host + ":" + std::to_string(url.port == 0 ? kDefaultPort : url.port);
  if (s == NATS_OK) s = natsOptions_SetURL(options_, server.c_str());
  if (s == NATS_OK) s = natsOptions_SetName(options_, ("holdfast " + url.name).c_str());
  if (s == NATS_OK) s = natsOptions_SetAllowReconnect(options_, false);  // the relay backs off
  if (s == NATS_OK) s = natsOptions_SetTimeout(options_, kConnectTimeoutMs);
  if (s == NATS_OK && !url.user.empty()) {
    s = natsOptions_SetUserInfo(options_, url.user.c_str(), password.c_str());
  }
  if (s == NATS_OK && !token.empty()) s = natsOptions_SetToken(options_, token.c_str());
  std::string file;
  if (s == NATS_OK && url.take("creds", file)) {
    s = natsOptions_SetUserCredentialsFromFiles(options_, file.c_str(), nullptr);
  }
  const bool tls = url.scheme == "nats+tls";
  const bool has_ca = url.take("ca", file);
  if (tls != has_ca) {
    return Status::error(Code::invalid,
                         "sink %s: TLS is nats+tls:// with ?ca=FILE, for example "
                         "/etc/ssl/certs/ca-certificates.crt",
                         url.name.c_str());
  }
  if (s == NATS_OK && tls) s = natsOptions_SetSecure(options_, true);
  if (s == NATS_OK && tls) s = natsOptions_LoadCATrustedCertificates(options_, file.c_str());
  if (s == NATS_OK && tls) s = natsOptions_SetExpectedHostname(options_, url.host.c_str());
  std::string key;
  const bool has_key = url.take("key", key);
  if (url.take("cert", file) != has_key) {
    return Status::error(Code::invalid, "sink %s: cert= and key= belong together",
                         url.name.c_str());
  }
  if (s == NATS_OK && has_key) {
    s = natsOptions_LoadCertificatesChain(options_, file.c_str(), key.c_str());
  }
  return s == NATS_OK ? Status() : bad_option(url, s);
}

NatsSink::~NatsSink() {
  disconnect();
  natsOptions_Destroy(options_);
}

void NatsSink::disconnect() {
  natsSubscription_Destroy(acks_);
  natsConnection_Destroy(connection_);
  acks_ = nullptr;
  connection_ = nullptr;
}

Status NatsSink::lost(const char* what) {
  const Status status = Status::error(Code::unavailable, "%s", what);
  disconnect();
  return status;
}

Status NatsSink::connect() {
  if (stopping()) return Status::error(Code::unavailable, "stopping");
  if (connection_ != nullptr && !natsConnection_IsClosed(connection_)) return {};
  disconnect();
  natsStatus s = natsConnection_Connect(&connection_, options_);
  natsInbox* inbox = nullptr;
  if (s == NATS_OK) s = natsInbox_Create(&inbox);
  if (s == NATS_OK) {
    inbox_ = inbox;
    natsInbox_Destroy(inbox);
    s = natsConnection_SubscribeSync(&acks_, connection_, (inbox_ + ".*.*").c_str());
  }
  return s == NATS_OK ? Status() : lost(natsStatus_GetText(s));
}

Status NatsSink::publish(Batch& batch, std::size_t place) {
  const EventRecord& event = batch.events[place];
  const Message content = message_of(event, format_);
  const std::string reply = inbox_ + "." + std::to_string(batch_) + "." + std::to_string(place);
  natsMsg* message = nullptr;
  natsStatus s = natsMsg_Create(&message, subject_.fill(event).c_str(), reply.c_str(),
                                content.body.data(), static_cast<int>(content.body.size()));
  if (s == NATS_OK) s = natsMsgHeader_Set(message, "Nats-Msg-Id", event.id.text().c_str());
  if (s == NATS_OK && !stream_.empty()) {
    s = natsMsgHeader_Set(message, "Nats-Expected-Stream", stream_.c_str());
  }
  if (s == NATS_OK) {
    s = natsMsgHeader_Set(message, "content-type", header_value(content.content_type).c_str());
  }
  for (const auto& [name, value] : content.attributes) {
    if (s != NATS_OK) break;
    s = natsMsgHeader_Set(message, ("ce-" + name).c_str(), header_value(value).c_str());
  }
  if (s == NATS_OK) s = natsConnection_PublishMsg(connection_, message);
  natsMsg_Destroy(message);
  if (s == NATS_OK) {
    batch.waiting[place] = true;
    ++batch.left;
    return {};
  }
  if (s != NATS_MAX_PAYLOAD) return lost(natsStatus_GetText(s));
  batch.refusals.refuse(event, Outcome::Kind::rejected,
                        "larger than the server's max_payload of " +
                            std::to_string(natsConnection_GetMaxPayload(connection_)) + " bytes",
                        batch.outcomes[place]);
  return {};
}

Status NatsSink::no_stream(const EventRecord& event) const {
  return Status::error(Code::unavailable, "no stream takes the subject %s",
                       subject_.fill(event).c_str());
}

// The reply's subject is INBOX.BATCH.PLACE; an answer to an earlier batch says nothing any more.
Status NatsSink::take_ack(Batch& batch, natsMsg* message) {
  const std::string subject = natsMsg_GetSubject(message);
  const std::string mine = inbox_ + "." + std::to_string(batch_) + ".";
  if (subject.compare(0, mine.size(), mine) != 0) return {};
  const auto place =
      static_cast<std::size_t>(integer_of(std::string_view(subject).substr(mine.size())));
  if (place >= batch.waiting.size() || !batch.waiting[place]) return {};
  const PubAck ack = parse_ack(
      {natsMsg_GetData(message), static_cast<std::size_t>(natsMsg_GetDataLength(message))});
  if (ack.error && ack.error_code == kMessageTooLarge) {
    batch.refusals.refuse(batch.events[place], Outcome::Kind::rejected, ack.description,
                          batch.outcomes[place]);
  } else if (ack.error || !ack.valid) {
    return Status::error(Code::unavailable, "JetStream: %s (err_code %d)",
                         ack.error ? ack.description.c_str() : "an answer that is no PubAck",
                         static_cast<int>(ack.error_code));
  } else if (ack.duplicate) {
    batch.outcomes[place].kind = Outcome::Kind::duplicate;
  }
  batch.waiting[place] = false;
  --batch.left;
  return {};
}

Status NatsSink::wait_for_acks(Batch& batch) {
  const Clock& clock = system_clock();
  std::int64_t until = clock.boot_ms() + kAckTimeoutMs;
  for (bool stop_seen = false; batch.left > 0;) {
    natsMsg* message = nullptr;
    const natsStatus s = natsSubscription_NextMsg(&message, acks_, kLookMs);
    Status status;
    if (s == NATS_OK) {
      status = take_ack(batch, message);
      natsMsg_Destroy(message);
      until = stop_seen ? until : clock.boot_ms() + kAckTimeoutMs;
    } else if (s == NATS_NO_RESPONDERS) {
      const auto first = std::find(batch.waiting.begin(), batch.waiting.end(), true);
      status = no_stream(batch.events[static_cast<std::size_t>(first - batch.waiting.begin())]);
    } else if (s != NATS_TIMEOUT || natsConnection_IsClosed(connection_)) {
      return lost("the server closed the connection");
    }
    if (!status.ok()) return status;
    if (stopping() && !stop_seen) {
      stop_seen = true;
      until = clock.boot_ms() + kSinkStopMs / 2;
    }
    if (clock.boot_ms() >= until) return lost(stop_seen ? "stopping" : "no PubAck in time");
  }
  return {};
}

Status NatsSink::deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) {
  const Status status = connect();
  ++batch_;
  Batch batch{events, outcomes, {}, std::vector<bool>(events.size()), 0};
  if (!status.ok()) return status;
  return deliver_in_waves(
      events, batch.refusals, outcomes, [&](std::size_t place) { return publish(batch, place); },
      [&] { return wait_for_acks(batch); });
}

// The stream that takes the subjects is asked for by name where one is given, else by subject.
Status NatsSink::check() {
  const Status status = connect();
  if (!status.ok()) return status;
  natsMsg* reply = nullptr;
  const std::string question =
      stream_.empty() ? "$JS.API.STREAM.NAMES" : "$JS.API.STREAM.INFO." + stream_;
  std::string body = "{\"subject\":";
  json::append_string(subjects_of(subject_.text()), body);
  body += "}";
  const natsStatus s =
      natsConnection_RequestString(&reply, connection_, question.c_str(),
                                   stream_.empty() ? body.c_str() : "", kRequestTimeoutMs);
  if (s == NATS_NO_RESPONDERS) return Status::error(Code::refused, "the server has no JetStream");
  if (s != NATS_OK) return lost(natsStatus_GetText(s));
  const std::string answer(natsMsg_GetData(reply),
                           static_cast<std::size_t>(natsMsg_GetDataLength(reply)));
  natsMsg_Destroy(reply);
  const PubAck parsed = parse_ack(answer);
  if (parsed.error)
    return Status::error(Code::refused, "JetStream: %s", parsed.description.c_str());
  if (stream_.empty() && answer.find("\"streams\":[") == std::string::npos) {
    return Status::error(Code::refused,
                         "no stream takes %s; make one, or `holdfast sink init` with ?stream=NAME",
                         subjects_of(subject_.text()).c_str());
  }
  return {};
}

Status NatsSink::init(bool partitioned, std::string& did) {
  if (partitioned || stream_.empty()) {
    return Status::error(Code::invalid, "sink %s: say which stream to make: ?stream=NAME",
                         name_.c_str());
  }
  Status status = connect();
  if (!status.ok()) return status;
  jsCtx* jetstream = nullptr;
  natsStatus s = natsConnection_JetStream(&jetstream, connection_, nullptr);
  if (s != NATS_OK) return lost(natsStatus_GetText(s));
  const std::string subjects = subjects_of(subject_.text());
  const char* list[] = {subjects.c_str()};
  jsStreamConfig config;
  jsStreamConfig_Init(&config);
  config.Name = stream_.c_str();
  config.Subjects = list;
  config.SubjectsLen = 1;
  config.Duplicates = kDuplicateWindowMs * 1'000'000;
  jsStreamInfo* info = nullptr;
  s = js_GetStreamInfo(&info, jetstream, stream_.c_str(), nullptr, nullptr);
  did = "stream " + stream_ + " is there";
  if (s == NATS_NOT_FOUND) {
    s = js_AddStream(&info, jetstream, &config, nullptr, nullptr);
    did = "made stream " + stream_ + " of " + subjects;
  }
  if (s != NATS_OK) {
    natsStatus ignored = NATS_OK;
    const char* const why = nats_GetLastError(&ignored);
    status =
        Status::error(Code::refused, "JetStream: %s", why != nullptr ? why : natsStatus_GetText(s));
  }
  jsStreamInfo_Destroy(info);
  jsCtx_Destroy(jetstream);
  return status;
}

}  // namespace holdfast::cli
