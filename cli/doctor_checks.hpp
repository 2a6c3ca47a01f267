// What `holdfast doctor` looks at. Each check adds what it finds; it never ends the program.
#pragma once

#include <string>
#include <vector>

#include "holdfast/store.hpp"

namespace holdfast::cli {

enum class Level { ok, note, warn, fail };

struct Finding {
  Level level = Level::ok;
  std::string check;
  std::string text;
  std::string advice;  // a remedy; each warn and fail has one
};

class Findings {
 public:
  void add(Level level, const char* check, std::string text, std::string advice = {}) {
    if (level > worst_) worst_ = level;
    list_.push_back({level, check, std::move(text), std::move(advice)});
  }
  Level worst() const { return worst_; }
  const std::vector<Finding>& list() const { return list_; }

 private:
  std::vector<Finding> list_;
  Level worst_ = Level::ok;
};

// What the checks of storage and access have to know of the database.
struct DatabaseFacts {
  bool exists = false;
  bool wal_reset_fixed = false;  // SQLite has not got the WAL-reset race
  Limits limits;
  std::int64_t bytes = 0;  // with its WAL
  // As StoreStats.
  std::int64_t relay_certificate_ends_at_ms = 0, gateway_certificate_ends_at_ms = 0;
};

// Schema, integrity, settings, triggers, SQLite, streams, destinations.
DatabaseFacts check_database(const std::string& path, bool quick, Findings& out);
// File system, mount, write cache, space, syncs of the file and of its folder.
void check_storage(const std::string& path, const DatabaseFacts& database, int sync_rounds,
                   Findings& out);
// Who has the database open, and whether `user` could; "" for the packaged relay's user, if there
// is one.
void check_access(const std::string& path, const DatabaseFacts& database, const std::string& user,
                  Findings& out);

}  // namespace holdfast::cli
