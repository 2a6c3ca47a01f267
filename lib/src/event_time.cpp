#include "event_time.hpp"

#include <algorithm>

#include "schema.hpp"

namespace holdfast {

namespace {

// A damaged sample says nothing.
bool plausible(const TimeSample& sample) { return sample.exists && sample.boot_ms >= 0; }

bool holds_unset_wall(const TimeSample& sample) {
  return sample.wall_ms >= 0 && !wall_known(sample.wall_ms);
}

Status find(sqlite3* db, const char* sql, std::int64_t seq, TimeSample& sample) {
  sample = TimeSample();
  Statement statement;
  Status status = statement.prepare(db, sql);
  if (!status.ok()) return status;
  if (statement.bind(1, seq).step(status, "holdfast_time")) read_sample(statement, sample);
  return status;
}

Status find_in_boot(sqlite3* db, const char* sql, std::int64_t seq, const std::string& boot_id,
                    TimeSample& sample) {
  sample = TimeSample();
  Statement statement;
  Status status = statement.prepare(db, sql);
  if (!status.ok()) return status;
  statement.bind(1, seq).bind_text(2, boot_id).bind(3, kWallClockKnownFromMs);
  if (statement.step(status, "holdfast_time")) read_sample(statement, sample);
  return status;
}

TimeSample sample_now(const Clock& clock) {
  TimeSample now;
  now.exists = true;
  now.boot_id = clock.boot_id();
  now.boot_ms = clock.boot_ms();
  now.wall_ms = clock.wall_ms();
  now.last_seq = INT64_MAX;
  return now;
}

// What an unset clock said, as a time since boot. False: no clock of that time said so, it is a
// time that the producer gave.
bool since_boot(std::int64_t unset_wall_ms, const TimeSample& before, const TimeSample& after,
                std::int64_t& boot_ms) {
  for (const TimeSample* sample : {&before, &after}) {
    if (!holds_unset_wall(*sample)) continue;
    boot_ms = unset_wall_ms - (sample->wall_ms - sample->boot_ms);
    if (boot_ms < before.boot_ms - kClockStepMs || boot_ms > after.boot_ms + kClockStepMs) continue;
    boot_ms = std::clamp(boot_ms, before.boot_ms, std::max(before.boot_ms, after.boot_ms));
    return true;
  }
  return false;
}

}  // namespace

Status EventTimes::correct(EventRecord& event) {
  if (!event.source_stream.nil()) return Status();
  return correct(event.seq, event.created_at_ms);
}

Status EventTimes::correct(std::int64_t seq, std::int64_t& created_at_ms) {
  if (wall_known(created_at_ms) || created_at_ms < 0) return Status();
  if (seq <= after_seq_ || seq > upto_seq_) {
    const Status status = look_up(seq);
    if (!status.ok()) return status;
  }
  std::int64_t boot_ms = 0;
  if (!set_.exists || !since_boot(created_at_ms, before_, after_, boot_ms)) return Status();
  const std::int64_t wall_ms = set_.wall_ms + (boot_ms - set_.boot_ms);
  if (wall_known(wall_ms) && wall_ms <= kTimeMaxMs) created_at_ms = wall_ms;
  return Status();
}

Status EventTimes::look_up(std::int64_t seq) {
  const TimeSample now = sample_now(clock_);
  set_ = TimeSample();
  upto_seq_ = 0;
  Status status = find(db_, sql::kTimeBefore, seq, before_);
  if (status.ok()) status = find(db_, sql::kTimeAfter, seq, after_);
  if (!status.ok()) return status;
  if (!after_.exists) after_ = now;
  if (plausible(before_) && plausible(after_) && before_.boot_id == after_.boot_id)
    status = find_set(seq, now);
  if (!status.ok()) return status;
  after_seq_ = before_.exists ? before_.last_seq : 0;
  upto_seq_ = after_.last_seq;
  return status;
}

// The moment the clock was set, so that the answer stays the same from then on; without one, what
// the clock said before somebody unset it.
Status EventTimes::find_set(std::int64_t seq, const TimeSample& now) {
  const std::string& boot_id = before_.boot_id;
  Status status = find_in_boot(db_, sql::kTimeSetAfter, seq, boot_id, set_);
  if (status.ok() && !set_.exists && now.boot_id == boot_id && wall_known(now.wall_ms)) set_ = now;
  if (status.ok() && !set_.exists)
    status = find_in_boot(db_, sql::kTimeSetBefore, seq, boot_id, set_);
  if (!plausible(set_)) set_ = TimeSample();
  return status;
}

}  // namespace holdfast
