// The consuming side: apply an event's effect exactly once (G4), in your own database.
//
// The inbox row and your writes are one transaction, so the effect is there exactly if the row is.
// The key is (event_id, consumer): two consumers of one database each run once.
//
// Thread: one thread at a time for each Inbox, the one that uses the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "holdfast/clock.hpp"
#include "holdfast/event.hpp"
#include "holdfast/status.hpp"

struct sqlite3;

namespace holdfast {

enum class VersionGuard {
  apply_all,   // every event once, whatever its aggregate_version
  skip_stale,  // an event whose set version is not above the last one applied is recorded, counted
               // as stale and not applied; events without a version are always applied
};

constexpr std::size_t kMaxConsumerBytes = 64;

// What a handler says of an event. Handlers must not throw.
struct HandlerResult {
  enum class Kind { done, retry_later, reject };
  Kind kind = Kind::done;
  std::int64_t delay_ms = 0;  // retry_later: not before this
  std::string reason;         // reject, retry_later: told to the device and recorded

  static HandlerResult done() { return {}; }
  static HandlerResult retry_later(std::int64_t delay_ms, std::string reason = {});
  static HandlerResult reject(std::string reason);
};

// Runs inside the transaction that holds the inbox row. Write through `db` only (its main
// database), do not commit or roll back it, and return quickly: the database's write lock is held.
using Handler = std::function<HandlerResult(const EventRecord& event, sqlite3* db)>;

struct InboxOptions {
  VersionGuard guard = VersionGuard::apply_all;
  int busy_timeout_ms = 5000;  // as OutboxOptions
  const Clock* clock = nullptr;
};

enum class Applied { done, duplicate, stale, retry_later, rejected };

class Inbox {
 public:
  Inbox();
  ~Inbox();
  Inbox(Inbox&&) noexcept;
  Inbox& operator=(Inbox&&) noexcept;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // As Outbox::attach: the tables must be in the main database; not_durable unless WAL + FULL.
  static Status attach(sqlite3* db, const InboxOptions& options, Inbox& out);

  // Calls fn at most once in effect. The record must be valid (event.hpp), with a seq above 0: an
  // event that came by another transport and has none gets any positive number. With no transaction
  // open it opens and commits its own (BEGIN IMMEDIATE, so it waits for the write lock up to the
  // busy timeout); inside an open transaction it uses a savepoint and the caller commits.
  //
  // duplicate: fn was not called. retry_later, rejected: what fn wrote is rolled back, and the
  // failure (count, text) is recorded with the inbox row, for `holdfast inbox ls --status failed`.
  // After a crash before the commit nothing of it is there, and the event may be offered again.
  Status once(const EventRecord& event, std::string_view consumer, const Handler& fn,
              Applied& applied);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast
