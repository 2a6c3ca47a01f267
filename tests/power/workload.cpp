#include "workload.hpp"

#include <unistd.h>

#include <exception>
#include <random>
#include <stdexcept>
#include <vector>

#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "support/connection.hpp"

namespace holdfast::power {
namespace {

using test::Connection;
using test::must;

constexpr int kAggregates = 7;
constexpr int kMaxValueBytes = 900;  // several events a page, and some that cross one

std::string value_of(std::uint64_t seed, std::int64_t number) {
  std::mt19937_64 random(seed * 1'000'003 + static_cast<std::uint64_t>(number));
  std::string value(1 + random() % kMaxValueBytes, ' ');
  for (char& c : value) c = static_cast<char>('a' + random() % 26);
  return value;
}

std::string aggregate_of(std::int64_t number) { return std::to_string(number % kAggregates); }

void transact(Connection& db, Outbox& outbox, std::uint64_t seed, std::int64_t number) {
  const std::string value = value_of(seed, number), aggregate = aggregate_of(number);
  db.run("BEGIN IMMEDIATE");
  db.run("INSERT INTO reading(id,value) VALUES(" + std::to_string(number) + ",'" + value + "')");
  Emitted emitted;
  must(outbox.emit(test::sensor_event(aggregate, value), &emitted));
  db.run("COMMIT");
  if (emitted.seq != number)
    throw std::runtime_error("event " + std::to_string(number) + " got seq " +
                             std::to_string(emitted.seq));
}

bool has_readings(Connection& db) {
  return db.number("SELECT count(*) FROM sqlite_schema WHERE name='reading'") != 0;
}

// The first difference between the log and what transactions 1…rows wrote.
std::string check_events(Store& store, std::uint64_t seed, std::int64_t rows) {
  std::int64_t events = 0;
  std::string problem;
  ListFilter filter;
  filter.all_states = true;
  filter.limit = -1;
  must(store.list(filter, [&](const EventView& view) {
    const EventRecord& event = view.event;
    ++events;
    if (event.seq != events || view.state != EventState::pending || event.id.nil() ||
        event.aggregate_id != aggregate_of(events) || event.payload != value_of(seed, events)) {
      problem = "event " + std::to_string(events) + " (seq " + std::to_string(event.seq) +
                ") is not as it was written";
    }
    return problem.empty();
  }));
  if (problem.empty() && events != rows) {
    problem = std::to_string(rows) + " business rows, but " + std::to_string(events) + " events";
  }
  return problem;
}

std::string check_readings(Connection& db, std::uint64_t seed, std::int64_t& rows) {
  const std::vector<std::string> values = db.column("SELECT value FROM reading ORDER BY id");
  rows = static_cast<std::int64_t>(values.size());
  if (db.number("SELECT max(id) FROM reading") != rows) return "the business rows have a hole";
  for (std::int64_t i = 1; i <= rows; ++i) {
    if (values[static_cast<std::size_t>(i - 1)] != value_of(seed, i)) {
      return "business row " + std::to_string(i) + " is not as it was written";
    }
  }
  return "";
}

std::string check_health(Store& store) {
  Store::Health health;
  must(store.health(false, health));
  if (health.integrity != "ok") return "integrity_check: " + health.integrity;
  return health.application_triggers_ok ? "" : "guard triggers are missing";
}

std::string check_stats(Store& store, std::int64_t rows) {
  StoreStats stats;
  must(store.stats(stats));
  if (stats.destinations.size() != 1) return "the destination is missing";
  const std::int64_t pending = stats.destinations[0].pending;
  if (stats.newest_seq == rows && pending == rows) return "";
  return "stats: newest " + std::to_string(stats.newest_seq) + ", pending " +
         std::to_string(pending) + ", business rows " + std::to_string(rows);
}

Verdict judge_opened(const std::string& database, std::uint64_t seed) {
  Verdict verdict;
  Store store;
  const Status opened = Store::open(database, Access::read_write, {}, store);
  // Before the first promise: a cut inside init, which repeating init completes.
  if (opened.code() == Code::no_schema) return verdict;
  must(opened);
  verdict.problem = check_health(store);
  Connection db(database, Connection::Kind::bare);
  if (!verdict.problem.empty() || !has_readings(db)) return verdict;
  verdict.problem = check_readings(db, seed, verdict.rows);
  if (verdict.problem.empty()) verdict.problem = check_events(store, seed, verdict.rows);
  if (verdict.problem.empty()) verdict.problem = check_stats(store, verdict.rows);
  return verdict;
}

}  // namespace

void write(const Workload& workload, const std::function<void(std::int64_t)>& acknowledge) {
  must(Store::init(workload.database, {}, nullptr));
  Connection db(workload.database);
  OutboxOptions options;
  if (workload.relaxed) {
    db.run("PRAGMA synchronous=NORMAL");
    options.durability = Durability::relaxed;
  }
  if (workload.checkpoint_frames != 0) options.checkpoint_frames = workload.checkpoint_frames;
  Outbox outbox;
  must(Outbox::attach(db, options, outbox));
  db.run("CREATE TABLE IF NOT EXISTS reading(id INTEGER PRIMARY KEY, value TEXT NOT NULL)");
  const std::int64_t before = db.number("SELECT max(id) FROM reading");
  acknowledge(before);
  for (std::int64_t i = 1; i <= workload.count; ++i) {
    transact(db, outbox, workload.seed, before + i);
    acknowledge(before + i);
  }
}

Verdict judge(const std::string& database, std::uint64_t seed) {
  if (access(database.c_str(), F_OK) != 0) return {};
  try {
    return judge_opened(database, seed);
  } catch (const std::exception& error) {
    return {kNothing, error.what()};
  }
}

}  // namespace holdfast::power
