// When an event was emitted although the wall clock was only set later (G7). Its created_at holds
// what the unset clock said, and so do the samples of holdfast_time around it: with them it becomes
// a time since boot, and with a sample of the same boot whose clock was set, a wall time.
//
// Exact to the drift of the clock if it was not stepped between the samples around the event while
// it was unset; else wrong by no more than these are apart. Never guessed: without a sample of the
// same boot on both sides (now counts as one), or if the clock was not set before that boot ended,
// created_at stays as it is, below kWallClockKnownFromMs.
#pragma once

#include "db.hpp"
#include "holdfast/clock.hpp"
#include "powered_time.hpp"

namespace holdfast {

// Keeps what it found out between two samples: make one for each batch or page, not for longer.
class EventTimes {
 public:
  EventTimes(sqlite3* db, const Clock& clock) : db_(db), clock_(clock) {}

  // Only for events of this device: others carry the time of theirs. Costs nothing, unless
  // created_at is of an unset clock.
  Status correct(EventRecord& event);
  Status correct(std::int64_t seq, std::int64_t& created_at_ms);

 private:
  Status look_up(std::int64_t seq);
  Status find_set(std::int64_t seq, const TimeSample& now);

  sqlite3* db_;
  const Clock& clock_;
  // Holds for seqs in (after_seq_, upto_seq_].
  std::int64_t after_seq_ = 0, upto_seq_ = 0;
  TimeSample before_, after_;
  TimeSample set_;  // of the same boot, with a known wall time; does not exist if there is none
};

}  // namespace holdfast
