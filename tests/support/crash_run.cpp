#include "support/crash_run.hpp"

#include <sqlite3.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>
#include <unordered_map>

namespace holdfast::test {

using Kind = DiskOperation::Kind;

namespace {

std::uint64_t hash_row(std::uint64_t hash, sqlite3_stmt* row) {
  for (int i = 0; i < sqlite3_column_count(row); ++i) {
    const int type = sqlite3_column_type(row, i);
    const void* const bytes = sqlite3_column_blob(row, i);
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(row, i));
    hash = hash_bytes(hash + static_cast<unsigned>(type), bytes, size);
  }
  return hash;
}

// Runs a query and hands out its rows; the text of what went wrong, or "".
std::string each_row(sqlite3* db, const std::string& sql,
                     const std::function<void(sqlite3_stmt*)>& fn) {
  sqlite3_stmt* row = nullptr;
  int rc = sqlite3_prepare_v2(db, sql.c_str(), -1, &row, nullptr);
  while (rc == SQLITE_OK || rc == SQLITE_ROW) {
    rc = sqlite3_step(row);
    if (rc == SQLITE_ROW) fn(row);
  }
  const std::string trouble = rc == SQLITE_DONE ? "" : sql + ": " + sqlite3_errmsg(db);
  sqlite3_finalize(row);
  return trouble;
}

void read_rows(sqlite3* db, DatabaseState& state) {
  std::vector<std::string> tables;
  state.rows = 1;
  state.trouble =
      each_row(db, "SELECT name,type,sql FROM sqlite_schema ORDER BY name", [&](sqlite3_stmt* row) {
        state.rows = hash_row(state.rows, row);
        if (std::strcmp(reinterpret_cast<const char*>(sqlite3_column_text(row, 1)), "table") == 0)
          tables.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(row, 0)));
      });
  for (const std::string& table : tables)
    if (state.trouble.empty())
      state.trouble = each_row(db, "SELECT * FROM \"" + table + "\"",
                               [&](sqlite3_stmt* row) { state.rows = hash_row(state.rows, row); });
  std::string finding;
  if (state.trouble.empty())
    state.trouble = each_row(db, "PRAGMA integrity_check(1)", [&](sqlite3_stmt* row) {
      finding = reinterpret_cast<const char*>(sqlite3_column_text(row, 0));
    });
  if (state.trouble.empty() && finding != "ok") state.trouble = "integrity_check: " + finding;
}

// All pages as the next reader sees them: the database with what the WAL holds.
void read_pages(sqlite3* db, DatabaseState& state) {
  sqlite3_int64 size = 0;
  unsigned char* const pages = sqlite3_serialize(db, "main", &size, 0);
  // A database without a page has none to give, and that is no error.
  if (pages == nullptr && sqlite3_errcode(db) != SQLITE_OK) {
    state.trouble = std::string("read: ") + sqlite3_errmsg(db);
    return;
  }
  if (pages != nullptr) state.pages = hash_bytes(1, pages, static_cast<std::size_t>(size));
  sqlite3_free(pages);
}

}  // namespace

DatabaseState look_at(const DiskImage& image, const std::string& database, bool thorough) {
  DatabaseState state;
  if (image.files.count(database) == 0) return state;
  CrashDisk disk(image);
  sqlite3* db = nullptr;
  if (sqlite3_open_v2(disk.path(database).c_str(), &db, SQLITE_OPEN_READWRITE, nullptr) !=
      SQLITE_OK) {
    state.trouble = std::string("open: ") + sqlite3_errmsg(db);
  } else {
    state.trouble = each_row(db, "SELECT count(*) FROM sqlite_schema", [&](sqlite3_stmt* row) {
      state.empty = sqlite3_column_int(row, 0) == 0;
    });
    if (state.trouble.empty() && !state.empty) read_pages(db, state);
    if (state.trouble.empty() && !state.empty && thorough) read_rows(db, state);
  }
  // Without a checkpoint and the deletion of the -wal: nobody reads this disk again.
  disk.power_off();
  sqlite3_close_v2(db);
  return state;
}

// --- the run -------------------------------------------------------------------------------------

CrashRun::CrashRun(std::string run_name, std::string database_name, const DiskImage& image)
    : name(std::move(run_name)), database(std::move(database_name)), start(image), disk(image) {
  states.push_back(look_at(image, database, true));
  if (!states.back().trouble.empty()) throw std::runtime_error(name + ": " + states.back().trouble);
  disk.record(&log);
}

// Frames with the size of the database in their header end a transaction. SQLite may write such a
// header twice, at the same place.
int CrashRun::commits_since(std::size_t position) const {
  std::unordered_map<int, bool> is_wal;
  std::set<std::int64_t> ends;
  for (std::size_t i = 0; i < log.size(); ++i) {
    const DiskOperation& each = *log[i];
    if (each.kind == Kind::create)
      is_wal[each.file] = each.name.size() > 4 && each.name.substr(each.name.size() - 4) == "-wal";
    constexpr std::size_t kFrameHeader = 24;
    if (i < position || each.kind != Kind::write || each.data.size() != kFrameHeader) continue;
    if (is_wal[each.file] && each.data.compare(4, 4, std::string(4, '\0')) != 0)
      ends.insert(each.offset);
  }
  return static_cast<int>(ends.size());
}

void CrashRun::step(const std::string& what, Promise promise, const std::function<void()>& call) {
  const std::size_t position = log.size();
  const auto before = static_cast<std::int64_t>(states.size()) - 1;
  disk.mark("begin " + what, before);
  call();
  if (one_commit_a_step && commits_since(position) > 1)
    throw std::runtime_error(name + ": " + what + " makes more than one commit; split the step");
  DatabaseState now = look_at(disk.image(DiskState::kEverything), database, false);
  if (!now.same_pages(states.back())) {
    now = look_at(disk.image(DiskState::kEverything), database, true);
    if (!now.trouble.empty()) throw std::runtime_error(name + ": " + what + ": " + now.trouble);
    states.push_back(now);
  }
  const auto after = static_cast<std::int64_t>(states.size()) - 1;
  const bool promised = promise == Promise::survives && after > before;
  disk.mark((promised ? "acked " : "done ") + what, after);
}

// --- cuts ----------------------------------------------------------------------------------------

void CutVerdict::add(const CutVerdict& other) {
  cuts += other.cuts;
  unique += other.unique;
  lost += other.lost;
  wrong += other.wrong;
  broken += other.broken;
  stuck += other.stuck;
  if (first.empty()) first = other.first;
}

namespace {

// A cut id: RUN:OPERATION:VARIANT, and for a cut during what follows that cut, once more
// :OPERATION:VARIANT.
const char* wanted_cut() { return std::getenv("HOLDFAST_CUT"); }

// The id, or the beginning of an id, that ends at a ':' or the end.
bool leads_to_wanted(const std::string& id) {
  const char* const cut = wanted_cut();
  if (cut == nullptr) return true;
  const std::size_t size = id.size();
  return std::strncmp(cut, id.c_str(), size) == 0 && (cut[size] == 0 || cut[size] == ':');
}

class Cutter {
 public:
  Cutter(const CrashRun& run, const CutOptions& options)
      : run_(run), options_(options), state_(run.start) {}

  CutVerdict everywhere() {
    for (position_ = 0; position_ < run_.log.size() && position_ <= options_.last; ++position_) {
      take(*run_.log[position_]);
      if (position_ != options_.without) state_.apply(run_.log[position_]);
      if (position_ < options_.first) continue;
      const int variants = state_.anything_unsynced() ? options_.variants + 2 : 1;
      for (int variant = 0; variant < variants; ++variant) {
        if (!leads_to_wanted(id(variant))) continue;
        cut(variant);
        if (options_.stop_at_first && verdict_.bad() > 0) return verdict_;
      }
    }
    return verdict_;
  }

 private:
  std::string id(int variant) const {
    return run_.name + ":" + std::to_string(position_) + ":" + std::to_string(variant);
  }

  void take(const DiskOperation& operation) {
    if (operation.kind != Kind::mark) return;
    doing_ = operation.name;
    const bool begins = operation.name.compare(0, 5, "begin") == 0;
    newest_ = operation.offset + (begins ? 1 : 0);
    if (operation.name.compare(0, 5, "acked") == 0) promised_ = operation.offset;
  }

  // The state that an image holds: its number, kNone or kBroken.
  static constexpr int kNone = -1, kBroken = -2;
  int number_of(const DiskImage& image, std::string& trouble) const {
    const bool thorough = verdict_.unique % options_.thorough_every == 0;
    DatabaseState seen = look_at(image, run_.database, thorough);
    trouble = seen.trouble;
    if (!trouble.empty()) return kBroken;
    for (std::size_t i = run_.states.size(); i-- > 0;)
      if (seen.same_pages(run_.states[i])) return static_cast<int>(i);
    // A rollback journal does not keep the pages that held nothing: the rows count.
    if (!thorough) seen = look_at(image, run_.database, true);
    trouble = seen.trouble;
    if (!trouble.empty()) return kBroken;
    for (std::size_t i = run_.states.size(); i-- > 0;)
      if (seen.same_rows(run_.states[i])) return static_cast<int>(i);
    return kNone;
  }

  void cut(int variant) {
    ++verdict_.cuts;
    // Another way between for each operation, but for nothing and everything.
    const auto number = static_cast<std::uint64_t>(variant);
    const DiskImage image =
        state_.image(variant < 2 ? number : number + position_ * std::uint64_t{1'000'003});
    const auto [known, is_new] = numbers_.try_emplace(image.hash(), kNone);
    std::string trouble;
    if (is_new) {
      known->second = number_of(image, trouble);
      ++verdict_.unique;
    }
    judge(known->second, trouble, id(variant));
    if (!is_new || known->second < 0 || !options_.go_on) return;
    if (wanted_cut() == nullptr && verdict_.unique % options_.go_on_every != 0) return;
    trouble = options_.go_on(id(variant), image);
    if (!trouble.empty()) report(verdict_.stuck, trouble, id(variant));
  }

  void judge(int number, const std::string& trouble, const std::string& cut_id) {
    const std::string bounds = " (promised: " + std::to_string(promised_) +
                               ", newest asked for: " + std::to_string(newest_) + ")";
    if (number == kBroken)
      report(verdict_.broken, trouble, cut_id);
    else if (number == kNone)
      report(verdict_.wrong, "a state that never was" + bounds, cut_id);
    else if (allowed(number))
      return;
    else if (number < promised_)
      report(verdict_.lost, "state " + std::to_string(number) + bounds, cut_id);
    else
      report(verdict_.wrong, "state " + std::to_string(number) + bounds, cut_id);
  }

  // Two commits may cancel out (a lease taken and given back), so that states are the same.
  bool allowed(int number) const {
    const auto count = static_cast<std::int64_t>(run_.states.size());
    const DatabaseState& seen = run_.states[static_cast<std::size_t>(number)];
    for (std::int64_t i = promised_; i <= newest_ && i < count; ++i)
      if (run_.states[static_cast<std::size_t>(i)].same_rows(seen)) return true;
    return false;
  }

  void report(std::int64_t& count, const std::string& what, const std::string& cut_id) {
    ++count;
    if (!verdict_.first.empty()) return;
    verdict_.first = what + "; after: " + doing_ + ", operation " +
                     kind_name(run_.log[position_]->kind) + " of file " +
                     std::to_string(run_.log[position_]->file) +
                     "; replay with HOLDFAST_CUT=" + cut_id;
  }

  const CrashRun& run_;
  const CutOptions& options_;
  DiskState state_;
  std::size_t position_ = 0;
  std::string doing_;
  std::int64_t promised_ = 0, newest_ = 0;
  std::unordered_map<std::uint64_t, int> numbers_;
  CutVerdict verdict_;
};

}  // namespace

CutVerdict cut_everywhere(const CrashRun& run, const CutOptions& options) {
  return Cutter(run, options).everywhere();
}

bool one_cut_wanted() { return wanted_cut() != nullptr; }

bool wanted(const std::string& run_name) { return leads_to_wanted(run_name); }

}  // namespace holdfast::test
