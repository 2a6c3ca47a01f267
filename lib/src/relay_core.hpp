// When a relay does what: a state machine without threads, sockets or sleep. It is told what
// happened and what time it is, and says what to do; so tests can drive it through any loss,
// duplication, delay and restart.
//
// One session: lease → HELLO → WELCOME → BATCH/ACK. Everything in flight lives in memory; the
// cursor is flushed every flush_interval_ms, fenced by the lease's epoch. When anything about the
// session is in doubt, the session is dropped and begun anew from the durable cursor: the gateway
// knows what it has (G3, G4).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "delivery.hpp"
#include "holdfast/log.hpp"
#include "holdfast/relay.hpp"
#include "relay_window.hpp"
#include "wire.hpp"

namespace holdfast {

struct RelayCoreConfig {
  std::string owner;   // of the lease: unique to this relay
  bool local = false;  // delivers to a Sink: no sessions, no marks
  int dead_after = kDeadAfterRejections;
  std::int64_t retry_delay_min_ms = kRetryDelayMinMs;
  std::int64_t retry_delay_max_ms = kRetryDelayMaxMs;
  std::int64_t link_delay_min_ms = kLinkDelayMinMs;
  std::int64_t link_delay_max_ms = kLinkDelayMaxMs;
  std::int64_t lease_ms = kLeaseMs;
  std::int64_t flush_interval_ms = kFlushIntervalMs;
  int batch_events_max = kMaxBatchEvents;
  std::size_t batch_bytes_max = kMaxBatchBytes;
  int window = kWindowBatchesMax;  // batches under way; always 1 with a sink
  // As many of them as the link has shown to carry, and partial ones only one at a time; false: all
  // of them, whatever is in them.
  bool paced = true;
  std::uint64_t seed = 0;
  LogFunction log;
};

struct RelayAction {
  enum class Kind { connect, disconnect, send };
  Kind kind = Kind::connect;
  std::uint64_t token = 0;                 // send
  const wire::Message* message = nullptr;  // send; valid until the next step() of the core
};

class RelayCore {
 public:
  RelayCore(Delivery& delivery, const RelayCoreConfig& config);

  // What happened. Times are boot ms, never going back.
  void link_up(std::int64_t now);  // also when it has moved to another URL
  void link_down(std::int64_t now, const Status& why);
  // Answers to requests that are not in flight any more change nothing. An error ends the relay.
  Status reply(std::int64_t now, std::uint64_t token, const wire::Message& message);
  void request_failed(std::int64_t now, std::uint64_t token, const Status& why);
  void committed();  // another connection committed something

  // Goes on as far as it can. Appends what to do now and says when to call again at the latest.
  // An error ends the relay: the database cannot be used.
  Status step(std::int64_t now, std::vector<RelayAction>& actions, std::int64_t& wake_at);

  // Writes the cursor and gives up the lease.
  Status stop(std::int64_t now);
  // A polite goodbye for the gateway, if a session is open.
  bool goodbye(wire::Message& message) const;

  const RelayState& state() const { return state_; }
  Status count_pending(std::int64_t& count);
  bool idle() const { return in_flight_.empty(); }
  // Events of state().sent_events that are in the database as sent.
  std::int64_t recorded_events() const { return recorded_events_; }

 private:
  struct Exception : ExceptionRow {
    bool in_flight = false;
  };
  // A batch that is being put together.
  struct Draft {
    wire::Batch batch;
    std::size_t bytes = 0;                // of its events
    bool full = false;                    // more events wait behind it
    std::int64_t events_end = INT64_MAX;  // no event beyond this seq may be in it
    std::vector<OutboxGap> reports;       // gaps and dead ones named in it
    std::vector<std::int64_t> dead_reports;
  };
  // A request under way. Of the events only their places are kept, so that a wide window costs
  // little memory; what is refused is read again.
  struct InFlight {
    std::uint64_t token = 0;
    bool is_hello = false;
    int lane = 0;
    bool retry = false;
    bool start = false;
    std::uint64_t frame_no = 0;
    std::vector<wire::Mark> events;
    std::vector<OutboxGap> reports;
    std::vector<std::int64_t> dead_reports;
    bool answered = false;
    std::vector<Outcome> outcomes;
    RelayWindow::Sent sent;
  };
  struct Lane {
    LaneCursor cursor;             // durable, as of the last flush or later
    wire::Mark sent;               // last event in flight or acked
    std::int64_t claim = 0;        // about to be sent
    std::int64_t sent_max = 0;     // the newest that was ever sent or claimed, acked or not
    std::int64_t scanned = 0;      // last row looked at
    bool exhausted = false;        // nothing after `scanned` at the last look
    bool start = false;            // the gateway does not know this stream yet
    std::int64_t full_events = 0;  // so many filled a batch lately; 0: not known
    std::map<std::int64_t, Exception> exceptions;
    std::unordered_map<std::string, std::set<std::int64_t>>
        holding;                  // RETRY and HELD, by aggregate
    std::vector<OutboxGap> gaps;  // ascending
    std::int64_t next_due = 0;    // earliest time a retry is due, as of the last change
    bool due_stale = true;        // next_due must be computed again
  };
  enum class Session { none, hello, open };

  // lease and state
  Status ensure_lease(std::int64_t now, bool& have);
  Status reload(std::int64_t now, const DestinationRow& row);
  Status check_control(std::int64_t now);
  Status reload_gaps();
  Status flush(std::int64_t now, bool force);
  void lose_lease();

  // session
  void reset_session();
  void back_off(std::int64_t now, std::int64_t at_least_ms);
  void shrink_batches();
  void grow_batches(std::int64_t answer_ms);
  void note_trouble(const Status& why);
  Status send_hello(std::int64_t now, std::vector<RelayAction>& actions);
  Status on_welcome(std::int64_t now, const wire::Welcome& welcome);
  Status check_lane(int lane, const wire::WelcomeLane& told, bool& forked);
  Status meet_gateway(std::int64_t now, const wire::Welcome& welcome, Delivery::PeerUpdate& update);
  void rewind_lane(int lane, const wire::Mark& to, Delivery::PeerUpdate& update,
                   std::int64_t oldest_seq);
  void unreport_gaps(int lane, std::int64_t above, Delivery::PeerUpdate& update);
  void report_what_is_missing(int lane, const wire::WelcomeLane& told,
                              Delivery::PeerUpdate& update);
  void report_dead_again(int lane, std::int64_t seq);
  Status reconcile_gap(int lane, std::int64_t seq, wire::GapState state,
                       Delivery::PeerUpdate& update);
  void on_refused(std::int64_t now, const wire::Refused& refused);

  // batches
  Status work_pending(std::int64_t now, bool& pending);
  bool reports_waiting(int lane) const;
  std::int64_t room_for_exceptions() const;
  bool under_way(int lane) const;
  Status may_send(int lane, bool& may);
  Status fill_window(std::int64_t now, std::vector<RelayAction>& actions, bool& again);
  Status compose_retry(int lane, std::int64_t now, Draft& draft, bool& any);
  Status compose_fresh(int lane, std::int64_t now, Draft& draft, bool& any, bool& again);
  bool take_row(int lane, std::int64_t now, EventRecord&& event, const Status& bad, Draft& draft,
                std::set<std::int64_t>& included);
  std::size_t batch_bytes() const;
  bool fits(const Draft& draft, std::size_t bytes) const;
  void expire(int lane, const EventRecord& event);
  void add_reports(int lane, Draft& draft);
  std::int64_t reports_end(int lane) const;
  bool told(int lane, std::int64_t dead_seq) const;
  bool told(int lane, const OutboxGap& gap) const;
  void add_skipped(int lane, wire::Batch& batch) const;
  Status claim(std::int64_t now, const Draft& draft, bool& claimed);
  void dispatch(std::int64_t now, Draft&& draft, std::vector<RelayAction>& actions);
  void send(wire::Message&& message, InFlight&& frame, std::vector<RelayAction>& actions);
  wire::Batch new_batch(int lane) const;

  // answers
  Status on_ack(std::int64_t now, const wire::Ack& ack, InFlight& frame);
  Status apply_answered(std::int64_t now);
  Status apply(std::int64_t now, const InFlight& frame);
  Status apply_outcome(std::int64_t now, int lane, const wire::Mark& place, const Outcome& outcome);
  void apply_refusal(std::int64_t now, int lane, const EventRecord& event,
                     const std::string& aggregate, const Outcome& outcome);

  // exceptions
  Exception& put_exception(int lane, std::int64_t seq, const std::string& aggregate,
                           ExceptionStatus status);
  void set_status(int lane, Exception& exception, ExceptionStatus status);
  void erase_exception(int lane, std::int64_t seq);
  void touch(int lane, std::int64_t seq);
  bool gone(int lane, std::int64_t seq) const;
  std::int64_t exceptions_total() const;
  bool holds_back(const Lane& lane, const std::string& aggregate, std::int64_t seq,
                  const std::set<std::int64_t>& included) const;
  // Exceptions that may be offered now, ascending; heads of their aggregates and what follows them.
  std::vector<std::int64_t> due_exceptions(int lane, std::int64_t now) const;
  std::int64_t next_due(int lane);
  std::int64_t jitter(std::int64_t ceiling_ms);
  void refresh_state();
  void say(LogLevel level, const std::string& text) const;

  Delivery& delivery_;
  RelayCoreConfig config_;
  std::uint64_t random_;

  bool leased_ = false;
  std::int64_t epoch_ = 0;
  std::int64_t lease_until_ = 0;
  std::int64_t standby_until_ = 0;
  std::int64_t control_ = 0;
  std::int64_t capped_ = 0;      // as of which the gaps are
  bool drops_oldest_ = false;    // nothing is sent that is not claimed in the database
  bool loaded_ = false;          // cursor, exceptions and gaps are in memory
  std::int64_t seen_epoch_ = 0;  // of the row they were read from
  EventId peer_store_{}, peer_stream_{};
  Identity identity_;

  bool link_up_ = false;
  bool connecting_ = false;
  std::int64_t connect_at_ = 0;
  std::int64_t try_at_ = 0;    // not before: connect, HELLO
  std::int64_t failures_ = 0;  // in a row, of link or session; reset by an ACK
  int refusals_ = 0;
  bool link_noted_ = false;  // trouble written to the destination row

  Session session_ = Session::none;
  std::uint64_t session_id_ = 0;
  std::uint64_t next_token_ = 1;
  std::uint64_t next_frame_ = 1;
  std::deque<InFlight> in_flight_;
  std::deque<wire::Message> outgoing_;  // of the actions of the last step
  RelayWindow window_;
  static constexpr std::size_t kNoBatchLimit = std::size_t{1} << 30;
  std::size_t batch_limit_ = kNoBatchLimit;  // bytes, after a failure
  Lane lanes_[kLaneCount];

  bool dirty_ = false;
  std::int64_t recorded_events_ = 0;
  std::int64_t flushed_at_ = 0;
  std::int64_t flush_not_before_ = 0;
  CursorFlush changes_;                         // counters and reported gaps since the last flush
  std::set<std::int64_t> touched_[kLaneCount];  // exceptions to write or erase
  bool want_disconnect_ = false;
  bool look_again_ = true;  // a commit happened: control and lanes must be looked at

  RelayState state_;
};

}  // namespace holdfast
