#include "mqtt_sink.hpp"

#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <mutex>

#include "holdfast/clock.hpp"
#include "waves.hpp"

namespace holdfast::cli {
namespace {

constexpr std::int64_t kConnectTimeoutMs = 5'000;  // from the first byte to the CONNACK
constexpr std::int64_t kAckTimeoutMs = 10'000;  // without any PUBACK; then the connection is closed
constexpr std::int64_t kLaterMs = 5'000;        // for a message that nobody subscribes to yet
constexpr int kLookMs = 50;                     // for stop()
constexpr int kPacketsAtOnce = 1;
constexpr int kDefaultPort = 1883;
constexpr int kDefaultTlsPort = 8883;
constexpr int kVerifyPeer = 1;                     // SSL_VERIFY_PEER
constexpr std::size_t kPropertyBytesMax = 65'535;  // of a user property's value (MQTT 5, 1.5.4)
constexpr const char* kDefaultTopic = "holdfast/{aggregate_type}/{aggregate_id}";

std::string why_text(int rc) { return mosquitto_strerror(rc); }

class Properties {
 public:
  Properties() = default;
  ~Properties() { mosquitto_property_free_all(&list_); }
  Properties(const Properties&) = delete;
  Properties& operator=(const Properties&) = delete;
  bool user(const std::string& name, const std::string& value) {
    return value.size() <= kPropertyBytesMax &&
           mosquitto_property_add_string_pair(&list_, MQTT_PROP_USER_PROPERTY, name.c_str(),
                                              value.c_str()) == MOSQ_ERR_SUCCESS;
  }
  bool content_type(const std::string& value) {
    return mosquitto_property_add_string(&list_, MQTT_PROP_CONTENT_TYPE, value.c_str()) ==
           MOSQ_ERR_SUCCESS;
  }
  const mosquitto_property* list() const { return list_; }

 private:
  mosquitto_property* list_ = nullptr;
};

}  // namespace

Status MqttSink::open(SinkUrl url, LogFunction, std::unique_ptr<StoppableSink>& out) {
  static std::once_flag once;
  std::call_once(once, [] { mosquitto_lib_init(); });
  std::unique_ptr<MqttSink> sink(new MqttSink());
  sink->name_ = url.name;
  sink->host_ = url.host;
  if (url.host.empty()) {
    return Status::error(Code::invalid, "sink %s: the URL has no host", url.name.c_str());
  }
  std::string topic = kDefaultTopic;
  url.take("topic", topic);
  std::string subscribers = "required";
  url.take("subscribers", subscribers);
  if (subscribers != "required" && subscribers != "optional") {
    return Status::error(Code::invalid, "sink %s: subscribers is required or optional",
                         url.name.c_str());
  }
  sink->subscribers_required_ = subscribers == "required";
  Status status = sink->topic_.parse(topic, "/+#", "/+#", url.name);
  if (status.ok() && topic.find_first_of("+#") != std::string::npos) {
    status = Status::error(Code::invalid, "sink %s: a topic to publish to has no + and no #",
                           url.name.c_str());
  }
  if (status.ok()) status = take_format(url, sink->format_);
  if (status.ok()) status = take_number(url, "keepalive", 5, 65535, sink->keepalive_s_);
  if (status.ok()) status = sink->set_options(url);
  if (status.ok()) status = url.none_left();
  if (status.ok()) out = std::move(sink);
  return status;
}

Status MqttSink::set_options(SinkUrl& url) {
  url.take("client_id", client_id_);
  user_ = url.user;
  Status status = take_secret(url, "password", password_);
  if (!status.ok()) return status;
  const bool tls = url.scheme == "mqtts";
  if (url.take("ca", ca_) != tls) {
    return Status::error(Code::invalid,
                         "sink %s: TLS is mqtts:// with ?ca=FILE, for example "
                         "/etc/ssl/certs/ca-certificates.crt",
                         url.name.c_str());
  }
  if (url.take("cert", cert_) != url.take("key", key_)) {
    return Status::error(Code::invalid, "sink %s: cert= and key= belong together",
                         url.name.c_str());
  }
  port_ = url.port != 0 ? url.port : (tls ? kDefaultTlsPort : kDefaultPort);
  status = make_client();
  if (status.ok()) return status;
  return Status::error(Code::invalid, "sink %s: %s", url.name.c_str(), status.text());
}

// A new one for each connection: an old one would send again by itself what it has no PUBACK of.
Status MqttSink::make_client() {
  client_ = mosquitto_new(client_id_.empty() ? nullptr : client_id_.c_str(), true, this);
  if (client_ == nullptr) return Status::error(Code::invalid, "client_id is not possible");
  mosquitto_int_option(client_, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
  mosquitto_connect_v5_callback_set(
      client_, [](mosquitto*, void* self, int reason, int, const mosquitto_property*) {
        static_cast<MqttSink*>(self)->connected_ = reason;
      });
  mosquitto_disconnect_v5_callback_set(
      client_, [](mosquitto*, void* self, int reason, const mosquitto_property*) {
        static_cast<MqttSink*>(self)->ended_ = reason;
      });
  mosquitto_publish_v5_callback_set(
      client_, [](mosquitto*, void* self, int packet, int reason, const mosquitto_property*) {
        static_cast<MqttSink*>(self)->take_ack(packet, reason);
      });
  int rc = MOSQ_ERR_SUCCESS;
  if (!user_.empty()) {
    rc = mosquitto_username_pw_set(client_, user_.c_str(),
                                   password_.empty() ? nullptr : password_.c_str());
  }
  if (rc == MOSQ_ERR_SUCCESS && !ca_.empty()) {
    rc = mosquitto_tls_set(client_, ca_.c_str(), nullptr, cert_.empty() ? nullptr : cert_.c_str(),
                           key_.empty() ? nullptr : key_.c_str(), nullptr);
    if (rc == MOSQ_ERR_SUCCESS) rc = mosquitto_tls_opts_set(client_, kVerifyPeer, nullptr, nullptr);
  }
  return rc == MOSQ_ERR_SUCCESS ? Status()
                                : Status::error(Code::unavailable, "%s", why_text(rc).c_str());
}

MqttSink::~MqttSink() { disconnect(); }

void MqttSink::disconnect() {
  if (client_ == nullptr) return;
  if (open_) {
    batch_ = nullptr;
    mosquitto_disconnect(client_);
    mosquitto_loop(client_, 0, kPacketsAtOnce);  // sends the packet; what it says is of no use now
  }
  open_ = false;
  mosquitto_destroy(client_);
  client_ = nullptr;
}

Status MqttSink::lost(const std::string& what) {
  disconnect();
  return Status::error(Code::unavailable, "%s", what.c_str());
}

// What the socket has to do, for kLookMs at most. A broker that waits for our kernel's word before
// its next small packet (mosquitto, unless set_tcp_nodelay is on) gets it at once, not after 40 ms;
// the kernel forgets that wish as it goes (tcp(7), TCP_QUICKACK).
Status MqttSink::step() {
  const int at_once = 1;
  ::setsockopt(mosquitto_socket(client_), IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof at_once);
  const int rc = mosquitto_loop(client_, kLookMs, kPacketsAtOnce);
  if (rc == MOSQ_ERR_SUCCESS) return {};
  open_ = false;
  if (ended_ > 0 && ended_ >= MQTT_RC_UNSPECIFIED) {
    return Status::error(Code::unavailable, "the broker ended the connection: %s",
                         mosquitto_reason_string(ended_));
  }
  return Status::error(Code::unavailable, "%s", why_text(rc).c_str());
}

// Between batches nobody answers the broker, which then ends the connection: one that has rested
// for half the keepalive is made anew.
Status MqttSink::connect() {
  if (stopping()) return Status::error(Code::unavailable, "stopping");
  const Clock& clock = system_clock();
  const std::int64_t rested_ms = clock.boot_ms() - used_ms_;
  used_ms_ = clock.boot_ms();
  if (open_ && rested_ms < keepalive_s_ * 1000 / 2) return {};
  disconnect();
  connected_ = -1;
  ended_ = -1;
  const Status made = make_client();
  if (!made.ok()) return made;
  const int rc =
      mosquitto_connect_async(client_, host_.c_str(), port_, static_cast<int>(keepalive_s_));
  if (rc != MOSQ_ERR_SUCCESS) return Status::error(Code::unavailable, "%s", why_text(rc).c_str());
  open_ = true;
  const std::int64_t until = clock.boot_ms() + kConnectTimeoutMs;
  while (connected_ < 0) {
    const Status status = step();
    if (!status.ok()) return status;
    if (stopping() || clock.boot_ms() >= until) return lost("no answer to CONNECT in time");
  }
  if (connected_ == 0) return {};
  return lost(std::string("the broker refused the connection: ") +
              mosquitto_reason_string(connected_));
}

Status MqttSink::publish(Batch& batch, std::size_t place) {
  const EventRecord& event = batch.events[place];
  const Message content = message_of(event, format_);
  Properties properties;
  bool fits = properties.content_type(content.content_type);
  if (content.attributes.empty()) fits = fits && properties.user("event_id", event.id.text());
  for (const auto& [name, value] : content.attributes) {
    fits = fits && properties.user(name, value);
  }
  int packet = 0;
  const int rc = !fits ? static_cast<int>(MOSQ_ERR_INVAL)
                       : mosquitto_publish_v5(client_, &packet, topic_.fill(event).c_str(),
                                              static_cast<int>(content.body.size()),
                                              content.body.data(), 1, false, properties.list());
  switch (rc) {
    case MOSQ_ERR_SUCCESS:
      batch.waiting[packet] = place;
      return {};
    case MOSQ_ERR_INVAL:
    case MOSQ_ERR_PAYLOAD_SIZE:
    case MOSQ_ERR_OVERSIZE_PACKET:
    case MOSQ_ERR_MALFORMED_UTF8:
      batch.refusals.refuse(event, Outcome::Kind::rejected, why_text(rc), batch.outcomes[place]);
      return {};
    default:
      return lost(why_text(rc));
  }
}

void MqttSink::take_ack(int packet, int reason) {
  if (batch_ == nullptr) return;
  const auto found = batch_->waiting.find(packet);
  if (found == batch_->waiting.end()) return;
  const std::size_t place = found->second;
  batch_->waiting.erase(found);
  const EventRecord& event = batch_->events[place];
  Outcome& outcome = batch_->outcomes[place];
  const std::string why = mosquitto_reason_string(reason);
  if (reason == MQTT_RC_NO_MATCHING_SUBSCRIBERS) {
    if (!subscribers_required_) return;
    batch_->refusals.refuse(event, Outcome::Kind::later,
                            "nobody subscribes to " + topic_.fill(event) +
                                ", so the broker would drop it (?subscribers=optional)",
                            outcome, kLaterMs);
  } else if (reason == MQTT_RC_PACKET_TOO_LARGE || reason == MQTT_RC_TOPIC_NAME_INVALID ||
             reason == MQTT_RC_PAYLOAD_FORMAT_INVALID) {
    batch_->refusals.refuse(event, Outcome::Kind::rejected, why, outcome);
  } else if (reason >= MQTT_RC_UNSPECIFIED) {  // rights, quotas: nothing that the event did
    batch_->refusals.refuse(event, Outcome::Kind::later, why, outcome, kLaterMs);
  }
}

Status MqttSink::wait_for_acks(Batch& batch) {
  const Clock& clock = system_clock();
  std::int64_t until = clock.boot_ms() + kAckTimeoutMs;
  std::size_t left = batch.waiting.size();
  for (bool stop_seen = false; !batch.waiting.empty();) {
    const Status status = step();
    if (!status.ok()) return status;
    if (batch.waiting.size() < left && !stop_seen) until = clock.boot_ms() + kAckTimeoutMs;
    left = batch.waiting.size();
    if (stopping() && !stop_seen) {
      stop_seen = true;
      until = clock.boot_ms() + kSinkStopMs / 2;
    }
    if (clock.boot_ms() >= until) return lost(stop_seen ? "stopping" : "no PUBACK in time");
  }
  used_ms_ = clock.boot_ms();
  return {};
}

Status MqttSink::deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) {
  Status status = connect();
  Batch batch{events, outcomes, {}, {}};
  batch_ = &batch;
  if (status.ok()) {
    status = deliver_in_waves(
        events, batch.refusals, outcomes, [&](std::size_t place) { return publish(batch, place); },
        [&] { return wait_for_acks(batch); });
  }
  batch_ = nullptr;
  if (!status.ok()) disconnect();
  return status;
}

Status MqttSink::check() { return connect(); }

Status MqttSink::init(bool, std::string&) {
  return Status::error(Code::invalid, "sink %s: there is nothing to make on a broker",
                       name_.c_str());
}

}  // namespace holdfast::cli
