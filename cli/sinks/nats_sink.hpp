// nats://: messages of a JetStream stream, each event_id once within the stream's duplicate window.
#pragma once

#include <string>

#include "holdfast/log.hpp"
#include "message.hpp"
#include "refusals.hpp"
#include "sinks.hpp"

struct __natsConnection;  // NOLINT: libnats names them so
struct __natsSubscription;
struct __natsOptions;
struct __natsMsg;

namespace holdfast::cli {

// Delivered is what has a PubAck. `Nats-Msg-Id` is the event's id. A refusal that is about one
// message (larger than the stream or the server takes) is an attempt of that event; everything
// else, a full stream included, is a sink that cannot be reached.
class NatsSink : public StoppableSink {
 public:
  static Status open(SinkUrl url, LogFunction log, std::unique_ptr<StoppableSink>& out);
  ~NatsSink() override;

  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) override;
  Status check() override;
  Status init(bool partitioned, std::string& did) override;

 private:
  NatsSink() = default;
  Status set_options(SinkUrl& url);
  Status connect();
  void disconnect();
  Status lost(const char* what);

  struct Batch {
    const std::vector<EventRecord>& events;
    std::vector<Outcome>& outcomes;
    Refusals refusals;
    std::vector<bool> waiting;  // for its PubAck
    std::size_t left = 0;       // of them
  };
  Status publish(Batch& batch, std::size_t place);
  Status no_stream(const EventRecord& event) const;
  Status take_ack(Batch& batch, __natsMsg* message);
  Status wait_for_acks(Batch& batch);

  std::string name_;
  std::string stream_;
  NameTemplate subject_;
  MessageFormat format_ = MessageFormat::json;
  __natsOptions* options_ = nullptr;
  __natsConnection* connection_ = nullptr;
  __natsSubscription* acks_ = nullptr;
  std::string inbox_;
  std::int64_t batch_ = 0;
};

}  // namespace holdfast::cli
