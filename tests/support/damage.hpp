// Damaged databases: a realistic one with everything in it and a live WAL, and the ways in which a
// medium spoils a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast::test {

// What a device holds when the power goes: the bytes of the database and of its -wal.
struct FilePair {
  std::string db, wal;
};

constexpr std::size_t kDamagePageBytes = 1024;

// Pending, sent, retried, held and dead events in both lanes, some over several pages; gaps, time,
// audit, inbox rows, an application's table, free pages; the newest commits in the WAL alone.
FilePair realistic_database();

struct Damage {
  enum class Kind { truncate, zeros, noise, other_page, flip };
  Kind kind = Kind::truncate;
  bool wal = false;        // of the -wal, else of the database
  std::size_t offset = 0;  // where it begins
  std::size_t bytes = 0;   // how much; not for truncate
  std::uint64_t seed = 0;  // noise, other_page: which

  std::string text() const;
  void apply(FilePair& files) const;
};

// Each page and WAL frame spoiled in each way, header fields, truncations around every boundary.
std::vector<Damage> every_damage(const FilePair& files, std::uint64_t seed);

// Writes path and path-wal (none if empty); removes -shm and what a run before left.
void place(const FilePair& files, const std::string& path);

}  // namespace holdfast::test
