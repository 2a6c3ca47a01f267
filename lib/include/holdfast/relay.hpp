// The relay: forwards a log to one destination, in order, until the other side has it durably (G3).
//
// A Relay owns one thread and its own connections to the database; firmware that emits in the same
// process gives Relay::waker() to its Outbox. Several relays (in any processes) may serve one
// destination: one holds the lease and works, the others stand by.
//
// What survives a crash: the cursor is written every kFlushIntervalMs while it moves, without an
// fsync of its own. A crash in between only offers the last events again, which the gateway knows.
//
// fork: start a relay after daemonising; neither SQLite nor NNG survive a fork.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/clock.hpp"
#include "holdfast/log.hpp"
#include "holdfast/sink.hpp"
#include "holdfast/status.hpp"
#include "holdfast/tls.hpp"

namespace holdfast {

constexpr const char* kDefaultDestination = "upstream";
constexpr std::int64_t kFlushIntervalMs = 250;      // cursor to the database while it moves
constexpr std::int64_t kLeaseMs = 10'000;           // a relay that hangs is replaced after this
constexpr std::int64_t kRetryDelayMinMs = 1'000;    // first wait after a rejection
constexpr std::int64_t kRetryDelayMaxMs = 300'000;  // cap of the exponential back-off
constexpr std::int64_t kLinkDelayMinMs = 100;       // first wait after a transport failure
constexpr std::int64_t kLinkDelayMaxMs = 2'000;     // cap: heals within this of the link's return
constexpr std::int64_t kRequestTimeoutMs = 10'000;  // no answer: the pipe is closed
// Of several URLs: the next one is tried as well when one has not answered for so long, and on a
// later one the earlier ones are looked at this often.
constexpr std::int64_t kNextUrlAfterMs = 1'000;
constexpr std::int64_t kReturnDelayMs = 30'000;
constexpr int kRelayUrlsMax = 8;
// No answer for so long, and for four times the slowest of late: a second connection is tried
// beside the first.
constexpr std::int64_t kStallMs = 2'000;
constexpr int kDeadAfterRejections = 10;
// Beyond that the cursor stops (G8). What was under way by then may still add to it.
constexpr int kMaxExceptionsPerDestination = 4096;
constexpr int kMaxBatchEvents = 1024;
constexpr std::size_t kMaxBatchBytes = 64 * 1024;  // or one event, if larger
// Batches under way at once. One, until answers show that the link carries more: then what it
// carries in kWindowMs, or in two round trips if they take longer, and at most the rest of these.
// Beside a full window one batch of urgent events may go. Batches of a wide window may have twice
// the usual bytes.
constexpr int kWindowBatchesMax = 14;
constexpr std::size_t kWindowBytesMax = 1536 * 1024;
constexpr int kWindowEventsMax = 6144;
constexpr std::int64_t kWindowMs = 1'000;
constexpr std::int64_t kOutboxRetentionMs = 7LL * 24 * 3600 * 1000;
constexpr std::int64_t kInboxRetentionMs = 14LL * 24 * 3600 * 1000;
constexpr int kPurgeStepRows = 5000;
// Room held back on the disk for the relay's own writes (G8); on a file system of less than 16 MiB
// a quarter of it, and none below 256 KiB.
constexpr std::int64_t kReserveBytes = 4 * 1024 * 1024;

class Writer;

struct RelayOptions {
  std::string database;  // path; must exist and be initialised
  std::string destination = kDefaultDestination;
  std::string url;  // tls+tcp://host:port, tcp://host:port, ipc:///path; "" with a sink
  // Other ways to the same gateway, in the order in which they are tried when those before do not
  // answer. On a later one the relay goes back to an earlier one that answers again.
  std::vector<std::string> more_urls;
  TlsOptions tls;        // for tls+tcp; without a server_name all are checked for the first's host
  Sink* sink = nullptr;  // instead of url; must outlive the Relay
  int dead_after = kDeadAfterRejections;
  std::int64_t retry_delay_min_ms = kRetryDelayMinMs;
  std::int64_t retry_delay_max_ms = kRetryDelayMaxMs;
  std::int64_t link_delay_min_ms = kLinkDelayMinMs;
  std::int64_t link_delay_max_ms = kLinkDelayMaxMs;
  std::int64_t request_timeout_ms = kRequestTimeoutMs;
  std::int64_t return_delay_ms = kReturnDelayMs;
  std::int64_t lease_ms = kLeaseMs;
  std::int64_t flush_interval_ms = kFlushIntervalMs;
  std::int64_t outbox_retention_ms = kOutboxRetentionMs;  // < 0: never purge
  std::int64_t inbox_retention_ms = kInboxRetentionMs;    // < 0: never purge
  // At most so many bytes are held in the file `<database>-reserve`, and given back when the disk
  // is full, so that what was acknowledged can be recorded and removed (sent events are then not
  // kept for their retention). Taken when twice as much is free. 0: none, and an old one is
  // removed.
  std::int64_t reserve_bytes = kReserveBytes;
  int batch_events_max = kMaxBatchEvents;
  std::size_t batch_bytes_max = kMaxBatchBytes;
  int window_batches_max = kWindowBatchesMax;  // 1: the next batch waits for the answer to the last
  // That of the producers in this process, for the same database; must outlive the Relay. What the
  // relay writes then takes turns with them or is a part of their commits, and nobody in the
  // process waits for the lock.
  Writer* writer = nullptr;
  bool create_destination = true;  // add the destination if it is not there yet
  LogFunction log;
  const Clock* clock = nullptr;
};

// What the relay knows; up to flush_interval_ms ahead of what the database shows.
struct RelayState {
  enum class Phase { starting, standby, offline, idle, sending, stopped, failed };
  Phase phase = Phase::starting;
  std::int64_t sent_events = 0;       // accepted (or known already) at the other side, since start
  std::int64_t duplicate_events = 0;  // of those: known already
  std::int64_t pending_events = 0;    // not yet accepted, exceptions excluded; as of the last look
  std::int64_t exceptions = 0;        // RETRY, HELD and DEAD rows
  std::int64_t dead = 0;              // of those: DEAD
  std::int64_t link_failures = 0;     // in a row; 0 when connected
  bool drained = false;               // a look since the last commit found nothing more to send now
  // Turns of the thread's loop. It grows after each wake(), and with no work every few seconds, so
  // one that stands still is a thread that is stuck: in a disk that does not answer, in a sink.
  std::int64_t turns = 0;
  std::string url;    // in use; "" while offline
  Status last_error;  // of the link, the lease or the database; ok when all is well
};

const char* phase_name(RelayState::Phase phase);

class Relay {
 public:
  Relay();
  ~Relay();  // stops
  Relay(Relay&&) noexcept;
  Relay& operator=(Relay&&) noexcept;
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Opens the database, checks URL and schema, and starts the thread. An unreachable gateway is
  // not an error: the relay keeps trying.
  static Status start(const RelayOptions& options, Relay& out);

  // Something was committed. May be called from any thread and any number of times; cheap.
  // Commits of other processes are noticed without it.
  void wake();
  // The same as a function, valid after the Relay is gone (then it does nothing).
  std::function<void()> waker() const;

  RelayState state() const;  // any thread
  // Blocks until the state satisfies `done` or the time is over; true if it did. Any thread.
  bool wait(std::int64_t timeout_ms, const std::function<bool(const RelayState&)>& done) const;

  // Finishes the request under way (at most 1 s), writes the cursor, gives up the lease, joins
  // the thread. Returns the error that ended the relay early, if one did.
  Status stop();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace holdfast
