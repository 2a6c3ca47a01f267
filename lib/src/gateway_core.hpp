// What a gateway answers: frames in, frames out, free of sockets and threads. All durable state is
// in the database and read anew for each frame, inside the transaction that changes it; only
// sessions live in memory, and losing them costs each device a HELLO.
//
// Use: begin() · accept() for each frame of a group · commit() · only then send the replies. After
// an error from accept() or commit(): abandon(), and answer every frame of the group with
// unavailable().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "db.hpp"
#include "holdfast/gateway.hpp"
#include "inbox.hpp"
#include "owners.hpp"
#include "wire.hpp"

namespace holdfast {

struct GatewayCoreConfig {
  std::string consumer = kDefaultConsumer;
  Handler handler;  // empty: append to the own log
  VersionGuard guard = VersionGuard::apply_all;
  LogFunction log;
};

class GatewayCore {
 public:
  GatewayCore(sqlite3* db, const Clock& clock, const GatewayCoreConfig& config);

  Status open();  // reads the store's identity

  Status begin();
  // Each frame has a savepoint of its own: one that cannot be stored is undone alone, and answered
  // unavailable(). An error means that the group's transaction must be abandoned; a bad frame is no
  // error.
  // `certificate`: the name in the device's certificate, "" for one that came without TLS.
  Status accept(std::string_view frame, std::int64_t now, std::string& reply,
                std::string_view certificate = {});
  Status commit();
  void abandon();
  bool appended() const { return appended_; }  // did the last committed group add to the log

  static std::string unavailable(std::int64_t later_ms, const std::string& why);

 private:
  struct Session {
    std::uint64_t id = 0;
    std::uint64_t last_frame = 0;
    std::int64_t used_at = 0;
    std::string device;
  };
  struct Gap {
    wire::GapState state = wire::GapState::skipped;
    std::string aggregate;  // empty: not known
  };
  // One stream and lane, as it is inside this transaction.
  struct Stream {
    EventId id;
    int lane = 0;
    std::string device;
    bool known = false;
    wire::Mark mark;
    std::map<std::int64_t, Gap> gaps;  // open ones
    std::unordered_map<std::string, std::map<std::int64_t, bool>> blocking;
    bool gone_loaded = false;
    std::map<std::int64_t, std::int64_t> gone;  // first → last; read only when needed
    std::int64_t events = 0;                    // stored in this frame
    EventId origin{};                           // the last one asked for, and the answer
    bool origin_foreign = false;
  };

  // Before anything else about the stream is looked at, so that a stranger learns nothing of it.
  Status refuse_stranger(const EventId& stream, std::int64_t now, bool& bind,
                         wire::Refused& refused);
  Status check_origin(const EventRecord& record, Stream& stream);
  Status answer(const wire::Message& message, std::int64_t now, wire::Message& reply);
  Status answer_alone(const wire::Message& message, std::int64_t now, wire::Message& reply);
  Status undo_frame(const wire::Message& message, const Status& why, wire::Message& reply);
  Status hello(const wire::Hello& hello, std::int64_t now, wire::Message& reply);
  Status batch(const wire::Batch& batch, std::int64_t now, wire::Message& reply);
  bool refuse(const wire::Batch& batch, const Stream& stream, wire::Refused& refused) const;
  Status tell_new_stream(const Stream& stream) const;
  Status process(const wire::Batch& batch, Stream& stream, wire::Ack& ack);
  Status report(const wire::GapReport& report, Stream& stream);
  Status skip(const wire::Batch& batch, Stream& stream);
  Status event(const wire::Batch& batch, EventRecord record, Stream& stream, Outcome& outcome);
  Status seen(Stream& stream, std::int64_t seq, Outcome& outcome);
  Status load(Stream& stream);
  Status store(const Stream& stream);
  Status put_gap(Stream& stream, std::int64_t seq, wire::GapState state, const EventRecord* event,
                 const std::string& reason);
  Status close_gap(Stream& stream, std::int64_t seq);
  bool blocked(const Stream& stream, const std::string& aggregate, std::int64_t seq) const;
  void forget_oldest_session();
  void say(LogLevel level, const std::string& text) const;

  sqlite3* db_;
  const Clock* clock_;
  GatewayCoreConfig config_;
  EventId store_id_{};
  InboxWriter inbox_;
  StreamOwners owners_;
  std::string certificate_;  // of the frame being accepted
  std::int64_t stranger_told_at_ = 0;
  std::int64_t strangers_untold_ = 0;
  Transaction transaction_;
  std::map<EventId, Session> sessions_;
  bool began_inbox_ = false;
  bool appending_ = false;
  bool appended_ = false;
  Statement stream_get_, stream_put_, gap_open_, gap_put_, gap_delete_, gone_at_, gone_all_,
      gone_trim_, savepoint_, undo_, release_;
};

}  // namespace holdfast
