#include "powered_time.hpp"

#include <algorithm>
#include <cstdlib>

#include "schema.hpp"

namespace holdfast {

namespace {

Status latest_sample(sqlite3* db, TimeSample& sample) {
  Statement statement;
  Status status = statement.prepare(db, sql::kTimeLatest);
  if (!status.ok()) return status;
  if (statement.step(status, "holdfast_time")) read_sample(statement, sample);
  return status;
}

std::int64_t powered_since(const TimeSample& sample, const Clock& clock) {
  if (!sample.exists) return 0;
  const std::int64_t boot_ms = clock.boot_ms();
  if (sample.boot_id == clock.boot_id())
    return sample.powered_ms + std::max<std::int64_t>(0, boot_ms - sample.boot_ms);
  // Another boot: at least as long as this boot lasts, and the time between if both ends know it.
  std::int64_t passed = boot_ms;
  if (wall_known(sample.wall_ms) && wall_known(clock.wall_ms()))
    passed = std::max(passed, clock.wall_ms() - sample.wall_ms);
  return sample.powered_ms + passed;
}

bool sample_due(const TimeSample& sample, const Clock& clock) {
  if (!sample.exists || sample.boot_id != clock.boot_id()) return true;
  const std::int64_t boot_passed = clock.boot_ms() - sample.boot_ms;
  if (boot_passed >= kTimeSampleIntervalMs) return true;
  const std::int64_t wall = clock.wall_ms();
  if (wall_known(wall) != wall_known(sample.wall_ms)) return true;
  if (sample.wall_ms < 0) return false;
  return std::llabs((wall - sample.wall_ms) - boot_passed) > kClockStepMs;
}

Status add_sample(sqlite3* db, const Clock& clock, bool force) {
  TimeSample sample;
  Status status = latest_sample(db, sample);
  if (!status.ok() || (!force && !sample_due(sample, clock))) return status;
  Statement add;
  status = add.prepare(db, sql::kTimeAdd);
  if (!status.ok()) return status;
  const std::string boot_id = clock.boot_id();
  add.bind(1, powered_since(sample, clock))
      .bind_text(2, boot_id)
      .bind(3, clock.boot_ms())
      .bind(4, clock.wall_ms());
  return add.run("holdfast_time");
}

}  // namespace

void read_sample(const Statement& row, TimeSample& sample) {
  // A damaged row may hold anything, and sums must not overflow (G10).
  const auto time = [&row](int column) {
    const std::int64_t ms = row.column_int(column);
    return ms >= 0 && ms <= kTimeMaxMs ? ms : -1;
  };
  sample.exists = true;
  sample.powered_ms = std::max<std::int64_t>(0, time(0));
  sample.boot_id = std::string(row.column_text(1));
  sample.boot_ms = time(2);
  sample.wall_ms = row.column_is_null(3) ? -1 : time(3);
  sample.last_seq = row.column_int(4);
}

Status powered_now(sqlite3* db, const Clock& clock, std::int64_t& powered_ms) {
  TimeSample sample;
  Status status = latest_sample(db, sample);
  if (status.ok()) powered_ms = powered_since(sample, clock);
  return status;
}

Status time_sample_due(sqlite3* db, const Clock& clock, bool& due) {
  TimeSample sample;
  const Status status = latest_sample(db, sample);
  if (status.ok()) due = sample_due(sample, clock);
  return status;
}

Status sample_time(sqlite3* db, const Clock& clock, bool force) {
  if (in_transaction(db)) return add_sample(db, clock, force);
  bool due = force;
  Status status = due ? Status() : time_sample_due(db, clock, due);
  if (!status.ok() || !due) return status;
  Transaction transaction(db);
  status = transaction.begin();
  if (status.ok()) status = add_sample(db, clock, force);
  return status.ok() ? transaction.commit() : status;
}

Status last_known_wall(sqlite3* db, std::int64_t& wall_ms) {
  Statement newest;
  Status status = newest.prepare(db, sql::kTimeKnownWall);
  if (!status.ok()) return status;
  newest.bind(1, kWallClockKnownFromMs);
  wall_ms = newest.step(status, "holdfast_time") ? newest.column_int(0) : 0;
  return status;
}

Status cutoff_seq(sqlite3* db, const Clock& clock, std::int64_t age_ms, std::int64_t& seq) {
  std::int64_t now = 0;
  Status status = powered_now(db, clock, now);
  if (!status.ok()) return status;
  Statement statement;
  status = statement.prepare(db, sql::kTimeCutoff);
  if (!status.ok()) return status;
  statement.bind(1, now - age_ms);
  if (statement.step(status, "holdfast_time")) seq = statement.column_int(0);
  return status;
}

Status emitted_by(sqlite3* db, std::int64_t seq, std::int64_t& powered_ms) {
  Statement after;
  Status status = after.prepare(db, sql::kTimeAfter);
  if (!status.ok()) return status;
  powered_ms = after.bind(1, seq).step(status, "holdfast_time") ? after.column_int(0) : -1;
  return status;
}

Status undated_ttl(sqlite3* db, bool& undated) {
  Statement wanted, newest;
  Status status = wanted.prepare(db, sql::kMetaGet);
  if (status.ok()) status = newest.prepare(db, sql::kTimeNewest);
  if (!status.ok()) return status;
  const std::int64_t seq =
      wanted.bind_text(1, "undated_ttl_seq").step(status, "ttl") ? wanted.column_int(0) : 0;
  undated = status.ok() && newest.step(status, "ttl") && newest.column_int(0) < seq;
  return status;
}

Status event_age(sqlite3* db, const Clock& clock, std::int64_t seq, std::int64_t created_at_ms,
                 std::int64_t& age_ms) {
  std::int64_t now = 0;
  Status status = powered_now(db, clock, now);
  if (!status.ok()) return status;
  Statement before, after;
  status = before.prepare(db, sql::kTimeBefore);
  if (status.ok()) status = after.prepare(db, sql::kTimeAfter);
  if (!status.ok()) return status;
  TimeSample sample;
  age_ms = std::max<std::int64_t>(0, clock.wall_ms() - std::max<std::int64_t>(0, created_at_ms));
  if (before.bind(1, seq).step(status, "holdfast_time")) {
    read_sample(before, sample);
    age_ms = std::min(age_ms, now - sample.powered_ms);
  }
  if (status.ok() && after.bind(1, seq).step(status, "holdfast_time")) {
    read_sample(after, sample);
    age_ms = std::max(age_ms, now - sample.powered_ms);
  }
  return status;
}

}  // namespace holdfast
