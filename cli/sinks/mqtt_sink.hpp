// mqtt://: messages of an MQTT 5 broker, QoS 1.
#pragma once

#include <map>
#include <string>

#include "holdfast/log.hpp"
#include "message.hpp"
#include "refusals.hpp"
#include "sinks.hpp"

struct mosquitto;

namespace holdfast::cli {

// Delivered is what has a PUBACK. Each message has its event's id as a user property, for QoS 1 may
// bring it twice. One that the broker would drop, because nobody subscribes, waits, unless
// ?subscribers=optional.
class MqttSink : public StoppableSink {
 public:
  static Status open(SinkUrl url, LogFunction log, std::unique_ptr<StoppableSink>& out);
  ~MqttSink() override;

  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) override;
  Status check() override;
  Status init(bool partitioned, std::string& did) override;

 private:
  MqttSink() = default;
  struct Batch {
    const std::vector<EventRecord>& events;
    std::vector<Outcome>& outcomes;
    Refusals refusals;
    std::map<int, std::size_t> waiting;  // packet identifier: place, until its PUBACK
  };

  Status set_options(SinkUrl& url);
  Status make_client();
  Status connect();
  void disconnect();
  Status lost(const std::string& what);
  Status step();
  Status publish(Batch& batch, std::size_t place);
  void take_ack(int packet, int reason);
  Status wait_for_acks(Batch& batch);

  std::string name_;
  std::string host_;
  int port_ = 0;
  std::string client_id_;
  std::string user_;
  std::string password_;
  std::string ca_;
  std::string cert_;
  std::string key_;
  long keepalive_s_ = 60;
  bool subscribers_required_ = true;
  NameTemplate topic_;
  MessageFormat format_ = MessageFormat::json;
  mosquitto* client_ = nullptr;
  Batch* batch_ = nullptr;  // that a PUBACK is for
  bool open_ = false;       // the socket
  int connected_ = -1;      // reason code of the CONNACK; -1: none yet
  int ended_ = -1;          // why the broker ended the connection
  std::int64_t used_ms_ = 0;
};

}  // namespace holdfast::cli
