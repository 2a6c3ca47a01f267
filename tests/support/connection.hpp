// A plain SQLite connection, as an application or any other program would have it, and events to
// write through it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/event.hpp"
#include "holdfast/store.hpp"

struct sqlite3;

namespace holdfast::test {

class Connection {
 public:
  enum class Kind {
    application,  // WAL, synchronous FULL, a busy timeout: what Outbox::attach asks for
    bare,         // as sqlite3_open leaves it
  };

  // Throws if it cannot be opened; creates the file.
  explicit Connection(const std::string& path, Kind kind = Kind::application);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  sqlite3* handle() const { return db_; }
  operator sqlite3*() const { return db_; }
  void close();

  void run(const std::string& sql);     // throws with SQLite's text
  int attempt(const std::string& sql);  // extended result code
  std::string error() const;            // text of the last failure of attempt()
  std::int64_t number(const std::string& query);
  std::string text(const std::string& query);
  std::vector<std::string> column(const std::string& query);  // first column of every row

 private:
  Connection() = default;

  sqlite3* db_ = nullptr;
  std::string error_;
};

// Throws with the Status's text unless it is ok.
void must(const Status& status);

// A new database with Holdfast's tables; `destination` "" makes none.
void make_database(const std::string& path, const std::string& destination = "upstream",
                   const Clock* clock = nullptr);

// A valid event of aggregate sensor/`id`. The views must live on.
Event sensor_event(std::string_view id, std::string_view payload = "{}");
EventRecord sensor_record(const std::string& id, std::int64_t seq = 1);

// Emits `count` events in one transaction, by plain SQL: sensor/`id`, payload 1, 2, ….
void insert_events(Connection& db, int count, const std::string& id = "a", int lane = 0);

}  // namespace holdfast::test
