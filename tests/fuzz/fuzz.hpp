// What the fuzz targets share. A target is one file that defines LLVMFuzzerTestOneInput over code
// of the product: an input is bytes of a stranger, and the target ends the program when the code
// under test breaks a promise (or the sanitizers do). It keeps nothing from one input to the next,
// so that a file alone replays what was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "db.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace holdfast::fuzz {

// Prints what is broken and aborts, unless `kept`.
void require(bool kept, const char* promise, std::string_view detail = {});
void require_ok(const Status& status, const char* what);
// Not ok, then: with a text for people, and a code that bytes from outside may cause.
void require_explained(const Status& status, const char* what);

// Takes an input apart. Beyond its end everything is 0 and empty.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }
  std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(integer(2)); }
  std::uint32_t u24() { return integer(3); }
  std::string_view bytes(std::size_t count);
  std::string_view text() { return bytes(u8()); }  // one byte of length before it
  std::string_view rest() const { return rest_; }

 private:
  std::uint32_t integer(int bytes);

  std::string_view rest_;
};

// An id that is the same in each run.
EventId fixed_id(std::uint8_t number);
// The bytes of tests/golden/databases/vN.db: real rows in every table of a device, always the same.
const std::string& golden_database(int version);
// An empty database of today's schema in memory, with ids that are always the same.
Db empty_database(const char* device);
Db memory_database();
void write_bytes(const std::string& path, std::string_view bytes);
// Puts the rows of all tables back as they were, in a tenth of the time that copying the database
// takes: SQLite need not read the schema again.
class Rows {
 public:
  explicit Rows(Db& db);
  void restore();

 private:
  Db& db_;
  std::string restore_;
};
void run_sql(Db& db, const std::string& sql);
std::int64_t number(Db& db, const std::string& query);

}  // namespace holdfast::fuzz
