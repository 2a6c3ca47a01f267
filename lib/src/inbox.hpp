// Applying one event for one consumer inside an open transaction: what Inbox::once and the gateway
// share.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "db.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/inbox.hpp"

namespace holdfast {

class InboxWriter {
 public:
  InboxWriter(sqlite3* db, const Clock& clock) : db_(db), clock_(&clock) {}

  // Once per transaction, before the first apply().
  Status begin();
  // With a handler: inbox row and handler in a savepoint, rolled back together if it fails.
  // Without: the event is appended to this database's own log.
  // An error means that the transaction cannot be trusted and must be rolled back.
  Status apply(const EventRecord& event, std::string_view consumer, const Handler& handler,
               VersionGuard guard, Applied& applied, HandlerResult& result);
  void count(const char* name, std::int64_t delta = 1) { counters_[name] += delta; }
  // Writes the counters into the transaction, before its commit.
  Status finish();
  // After a rollback: forgets what was counted.
  void forget() { counters_.clear(); }
  // After one to a savepoint: goes back to what was counted before it.
  using Counters = std::map<std::string, std::int64_t>;
  const Counters& counted() const { return counters_; }
  void forget_since(Counters before) { counters_ = std::move(before); }

 private:
  Status find(const EventRecord& event, std::string_view consumer, std::string& status_text);
  Status insert(const EventRecord& event, std::string_view consumer, const char* status_text,
                bool& fresh);
  Status finish_row(const EventRecord& event, std::string_view consumer, const char* status_text);
  Status stale(const EventRecord& event, std::string_view consumer, bool& is_stale);
  Status set_version(const EventRecord& event, std::string_view consumer);
  Status append(const EventRecord& event);
  Status run_handler(const EventRecord& event, std::string_view consumer, const Handler& handler,
                     HandlerResult& result);
  Status fail(const EventRecord& event, std::string_view consumer, const std::string& reason);
  void time_handler(std::int64_t us);

  sqlite3* db_;
  const Clock* clock_;
  std::int64_t powered_ms_ = 0;
  std::int64_t wall_ms_ = 0;
  Counters counters_;
  Statement insert_, status_, finish_, fail_, version_get_, version_set_, append_, savepoint_,
      release_, rollback_, counter_;
};

// Upper bounds of the handler histogram's buckets, in microseconds; the last is "infinite".
constexpr std::int64_t kHandlerBucketsUs[] = {100,     1'000,   5'000,     10'000,    50'000,
                                              100'000, 500'000, 1'000'000, 5'000'000, INT64_MAX};
std::string handler_bucket_name(std::int64_t le_us);
constexpr const char* kHandlerSumCounter = "handler_us_sum";

}  // namespace holdfast
