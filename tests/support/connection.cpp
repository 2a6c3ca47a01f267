#include "support/connection.hpp"

#include <sqlite3.h>

#include <stdexcept>

namespace holdfast::test {

// Delegates, so that a failure in here closes what was opened.
Connection::Connection(const std::string& path, Kind kind) : Connection() {
  if (sqlite3_open_v2(path.c_str(), &db_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXRESCODE,
                      nullptr) != SQLITE_OK) {
    throw std::runtime_error(path + ": " + sqlite3_errmsg(db_));
  }
  if (kind == Kind::bare) return;
  sqlite3_busy_timeout(db_, 10'000);
  run("PRAGMA journal_mode=WAL");
  run("PRAGMA synchronous=FULL");
}

Connection::~Connection() { close(); }

void Connection::close() {
  sqlite3_close_v2(db_);
  db_ = nullptr;
}

int Connection::attempt(const std::string& sql) {
  char* text = nullptr;
  const int rc = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &text);
  error_ = text != nullptr ? text : "";
  sqlite3_free(text);
  return rc;
}

std::string Connection::error() const { return error_; }

void Connection::run(const std::string& sql) {
  if (attempt(sql) != SQLITE_OK) throw std::runtime_error(sql + ": " + error_);
}

std::vector<std::string> Connection::column(const std::string& query) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(db_, query.c_str(), -1, &statement, nullptr) != SQLITE_OK)
    throw std::runtime_error(query + ": " + sqlite3_errmsg(db_));
  std::vector<std::string> out;
  int rc = SQLITE_ROW;
  while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
    const void* bytes = sqlite3_column_blob(statement, 0);
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, 0));
    out.emplace_back(bytes != nullptr ? static_cast<const char*>(bytes) : "", size);
  }
  sqlite3_finalize(statement);
  if (rc != SQLITE_DONE) throw std::runtime_error(query + ": " + sqlite3_errmsg(db_));
  return out;
}

std::string Connection::text(const std::string& query) {
  const std::vector<std::string> rows = column(query);
  return rows.empty() ? std::string() : rows.front();
}

std::int64_t Connection::number(const std::string& query) {
  const std::string value = text(query);
  return value.empty() ? 0 : std::stoll(value);
}

void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.text());
}

void make_database(const std::string& path, const std::string& destination, const Clock* clock) {
  InitOptions options;
  options.destination = destination;
  options.device = "board-1";
  options.clock = clock;
  must(Store::init(path, options, nullptr));
}

Event sensor_event(std::string_view id, std::string_view payload) {
  Event event;
  event.event_type = "sensor.reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = id;
  event.payload = payload;
  event.payload_is_text = true;
  return event;
}

EventRecord sensor_record(const std::string& id, std::int64_t seq) {
  EventRecord event;
  event.seq = seq;
  event.id = EventId::make_v7(1'767'225'600'000);
  event.event_type = "sensor.reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = id;
  event.payload = "{}";
  event.payload_is_text = true;
  return event;
}

void insert_events(Connection& db, int count, const std::string& id, int lane) {
  db.run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<" +
         std::to_string(count) +
         ") INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,lane,payload)"
         " SELECT 'sensor.reading.v1','sensor','" +
         id + "'," + std::to_string(lane) + ",CAST(i AS TEXT) FROM n");
}

}  // namespace holdfast::test
