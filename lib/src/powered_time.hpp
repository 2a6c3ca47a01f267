// How long ago something was, without trusting the wall clock (G7): a running total of the time
// this database's machine was powered, carried from boot to boot in holdfast_time. The time spent
// switched off counts only when the wall clock was known at both ends.
#pragma once

#include "db.hpp"
#include "holdfast/clock.hpp"

namespace holdfast {

constexpr std::int64_t kTimeSampleIntervalMs = 3'600'000;  // one sample an hour while active
constexpr std::int64_t kClockStepMs = 2'000;               // a larger disagreement is a clock step

constexpr std::int64_t kTimeMaxMs = 253'402'300'799'999;  // the year 9999, as of created_at

// A row of holdfast_time.
struct TimeSample {
  bool exists = false;
  std::int64_t powered_ms = 0;
  std::string boot_id;
  std::int64_t boot_ms = 0;  // -1: damaged
  std::int64_t wall_ms =
      -1;  // as the clock said, set or not; -1: damaged, or unset by older software
  std::int64_t last_seq = 0;  // the newest event then
};
// Reads HOLDFAST_TIME_COLUMNS.
void read_sample(const Statement& row, TimeSample& sample);

// Powered time now; reads one row, writes nothing.
Status powered_now(sqlite3* db, const Clock& clock, std::int64_t& powered_ms);

// The first, after a boot, hourly, and after a clock step: above all, when the clock was set.
Status time_sample_due(sqlite3* db, const Clock& clock, bool& due);
// Adds a sample if one is due or `force`d. In its own transaction, or in the open one.
Status sample_time(sqlite3* db, const Clock& clock, bool force);

// The wall time of the newest sample that knew it; 0: none did. Only as right as the clock was.
Status last_known_wall(sqlite3* db, std::int64_t& wall_ms);

// The newest seq that is certainly older than `age_ms`; 0 = none. The late side wins: an event
// counts as emitted when the first sample after it was taken.
Status cutoff_seq(sqlite3* db, const Clock& clock, std::int64_t age_ms, std::int64_t& seq);

// The latest powered time at which an event may have been emitted: the first sample after it. -1:
// there is none yet.
Status emitted_by(sqlite3* db, std::int64_t seq, std::int64_t& powered_ms);
// Whether plain SQL has added an event with a time to live that no sample dates yet.
Status undated_ttl(sqlite3* db, bool& undated);

// Age of an event: its created_at against the wall clock, kept within what the samples around it
// allow, so that a wrong clock is wrong by no more than the distance between two samples.
Status event_age(sqlite3* db, const Clock& clock, std::int64_t seq, std::int64_t created_at_ms,
                 std::int64_t& age_ms);

}  // namespace holdfast
