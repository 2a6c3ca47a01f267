// A run of the library on a CrashDisk, step by step, and the check of what a power cut at any
// moment of it leaves.
//
// The oracle: every commit makes a state, and a cut must leave one of them, page for page (or at
// least row for row): never older than the newest one that was promised to survive, never newer
// than the step that was under way. Steps that promise nothing (the relay's bookkeeping) may be
// undone, but only from the newest backwards, for the WAL is written in the order of commits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/crash_disk.hpp"

struct sqlite3;

namespace holdfast::test {

// What a database holds.
struct DatabaseState {
  bool empty = true;        // no file, or no tables
  std::uint64_t pages = 0;  // hash of all pages, read through SQLite
  std::uint64_t rows = 0;   // hash of all rows of all tables and of the schema; if asked for
  std::string trouble;      // "" unless it cannot be read or integrity_check finds something

  bool same_pages(const DatabaseState& other) const {
    return empty == other.empty && (empty || pages == other.pages);
  }
  bool same_rows(const DatabaseState& other) const {
    return empty == other.empty && (empty || rows == other.rows);
  }
};
// `thorough`: with the rows and integrity_check, not the pages alone.
DatabaseState look_at(const DiskImage& image, const std::string& database, bool thorough);

enum class Promise {
  survives,       // the step's commit is there after a cut, once the step returned
  may_roll_back,  // it may be undone, with what came after it
};

class CrashRun {
 public:
  // `name` is the first part of its cut ids.
  CrashRun(std::string name, std::string database, const DiskImage& image = {});

  // `call` makes at most one commit, throws if it fails.
  void step(const std::string& what, Promise promise, const std::function<void()>& call);
  std::string path() const { return disk.path(database); }

  const std::string name, database;
  const DiskImage start;
  CrashDisk disk;
  DiskLog log;
  std::vector<DatabaseState> states;  // from the one at the beginning
  bool one_commit_a_step = true;      // checked

 private:
  int commits_since(std::size_t position) const;
};

struct CutOptions {
  int variants = 8;                        // between nothing and everything, at each operation
  std::size_t first = 0, last = SIZE_MAX;  // operations
  std::size_t without = SIZE_MAX;          // a sync that the disk does not do
  bool stop_at_first = false;
  int thorough_every = 16;  // images: also rows and integrity_check
  // Called with every n-th new image and its state, to go on from there; returns what is wrong, or
  // "". `cut` is the image's id.
  int go_on_every = 0;
  std::function<std::string(const std::string& cut, const DiskImage& image)> go_on;
};

struct CutVerdict {
  std::int64_t cuts = 0;    // images made
  std::int64_t unique = 0;  // different ones
  std::int64_t lost = 0;    // less than was promised
  std::int64_t wrong = 0;   // a state that never was, or that nobody asked for yet
  std::int64_t broken = 0;  // cannot be read, or integrity_check finds something
  std::int64_t stuck = 0;   // the library could not go on
  std::string first;        // what is wrong with the first bad one, with its cut id

  std::int64_t bad() const { return lost + wrong + broken + stuck; }
  void add(const CutVerdict& other);
};

// Cuts the power after each operation of the log. With HOLDFAST_CUT=ID only that one.
CutVerdict cut_everywhere(const CrashRun& run, const CutOptions& options);

// Whether HOLDFAST_CUT asks for a cut of this run, or for nothing.
bool wanted(const std::string& run_name);
bool one_cut_wanted();

}  // namespace holdfast::test
