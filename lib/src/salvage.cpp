// Store::salvage: what can be read of a damaged database goes into a new one. First along the
// trees, as far as they lead; then, if anything was damaged, from the pages that nothing leads to
// any more.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "btree_page.hpp"
#include "delivery.hpp"
#include "identity.hpp"
#include "page_file.hpp"
#include "platform.hpp"
#include "powered_time.hpp"
#include "schema.hpp"

namespace holdfast {

namespace {

constexpr int kDepthMax = 40;
// A number further ahead of the newest event than this is damage, not a trace of lost events.
constexpr std::int64_t kSeqAheadMax = 1'000'000;
constexpr const char* kLostDetail = "lost with a damaged file; what was readable was salvaged";

// How the records of a table look, one letter a column: k NULL (it is the rowid), i integer, t
// text, p text or blob, u id; upper case: or NULL; ? anything.
struct TableForm {
  const char* name;
  const char* insert;
  const char* columns;
  std::size_t columns_min;  // an older schema has fewer
  bool recognizable;        // also on a page that no tree leads to
};

constexpr TableForm kForms[] = {
    {"holdfast_meta", sql::kSalvageMeta, "t?", 2, false},
    {"outbox_event", sql::kSalvageEvent, "kppppIiPPPiPUIpII", 15, true},
    {"outbox_destination", sql::kSalvageDestination, "ktiUiiiUiiUUttiitiiTIiiiiii", 26, true},
    {"outbox_exception", sql::kSalvageException, "iiitiiiT", 8, true},
    {"outbox_gap", sql::kSalvageGap, "iiiiitTii", 9, true},
    {"inbox_event", sql::kSalvageInboxEvent, "uttiiiT", 7, true},
    {"inbox_stream", sql::kSalvageInboxStream, "uittiuii", 7, true},
    {"inbox_gap", sql::kSalvageInboxGap, "uitiiitPPUTi", 12, true},
    {"inbox_aggregate", sql::kSalvageAggregate, "tuippi", 6, true},
    {"inbox_owner", sql::kSalvageOwner, "uti", 3, false},
    {"inbox_denied", sql::kSalvageDenied, "ti", 2, false},
    {"holdfast_time", sql::kSalvageTime, "kitiIi", 6, true},
    {"holdfast_counter", sql::kSalvageCounter, "ti", 2, false},
    {"holdfast_audit", sql::kSalvageAudit, "kitt", 4, false},
};

using Type = StoredValue::Type;
constexpr std::size_t kIdBytes = 16;

bool fits(char form, const StoredValue& value) {
  const bool is_null = value.type == Type::null;
  switch (form) {
    case 'k':
      return is_null;
    case 'i':
      return value.type == Type::integer;
    case 'I':
      return is_null || value.type == Type::integer;
    case 't':
      return value.type == Type::text;
    case 'T':
      return is_null || value.type == Type::text;
    case 'p':
      return value.type == Type::text || value.type == Type::blob;
    case 'P':
      return is_null || value.type == Type::text || value.type == Type::blob;
    case 'u':
      return value.type == Type::blob && value.bytes.size() == kIdBytes;
    case 'U':
      return is_null || (value.type == Type::blob && value.bytes.size() == kIdBytes);
    default:
      return true;
  }
}

bool in_index(const TableForm& form) { return form.columns[0] != 'k'; }

bool fits(const TableForm& form, const StoredRecord& record) {
  const std::size_t count = record.values.size();
  if (count < form.columns_min || count > std::strlen(form.columns)) return false;
  for (std::size_t i = 0; i < count; ++i)
    if (!fits(form.columns[i], record.values[i])) return false;
  return true;
}

bool has_key(const StoredRecord& record, const char* key) {
  return !record.values.empty() && record.values[0].type == Type::text &&
         record.values[0].bytes == key;
}

// What the new database has of its own. (Counters of triggers are set anew by set_limits' rule.)
bool stays_behind(const StoredRecord& meta) {
  for (const char* key : {"schema_version", "min_writer", "stream_id", "new_stream_on_open",
                          "events", "make_room", "settled_to", "drop_from", "drop_to"})
    if (has_key(meta, key)) return true;
  return false;
}

// --- ranges of seqs, ascending and apart from each other

using Ranges = std::vector<SeqRange>;

Ranges without(const Ranges& from, const Ranges& taken) {
  Ranges out;
  auto next = taken.begin();
  for (SeqRange rest : from) {
    while (next != taken.end() && next->last < rest.first) ++next;
    for (auto at = next; at != taken.end() && at->first <= rest.last && rest.first <= rest.last;
         ++at) {
      if (at->first > rest.first) out.push_back({rest.first, at->first - 1});
      rest.first = std::max(rest.first, at->last + 1);
    }
    if (rest.first <= rest.last) out.push_back(rest);
  }
  return out;
}

Ranges within(const Ranges& from, std::int64_t first, std::int64_t last) {
  Ranges out;
  for (const SeqRange& each : from) {
    const SeqRange part{std::max(each.first, first), std::min(each.last, last)};
    if (part.first <= part.last) out.push_back(part);
  }
  return out;
}

std::int64_t count_of(const Ranges& ranges) {
  std::int64_t count = 0;
  for (const SeqRange& each : ranges) count += each.last - each.first + 1;
  return count;
}

// Joins what overlaps or touches; `ranges` ascend by first.
Ranges joined(const Ranges& ranges) {
  Ranges out;
  for (const SeqRange& each : ranges) {
    if (!out.empty() && each.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, each.last);
    else
      out.push_back(each);
  }
  return out;
}

Status read_ranges(sqlite3* db, const char* sql, std::int64_t destination, int lane, Ranges& out) {
  Statement statement;
  Status status = statement.prepare(db, sql);
  if (!status.ok()) return status;
  if (destination != 0) statement.bind(1, destination).bind(2, static_cast<std::int64_t>(lane));
  Ranges found;
  while (statement.step(status, "salvage"))
    found.push_back({statement.column_int(0), statement.column_int(1)});
  out = joined(found);
  return status;
}

// --- the pages

// A tree, as far as it leads.
struct Tree {
  bool found = false;
  int damaged = 0;  // pages
  // The first or last leaf is out of reach: what was there cannot be told from its neighbours.
  bool head_damaged = false, tail_damaged = false;
};

class Pages {
 public:
  using OnPage = std::function<void(BtreePage&)>;
  explicit Pages(PageFile& file) : file_(file), seen_(file.pages() + 1, false) {}

  // Every page of a tree, from the left to the right.
  Tree walk(std::uint32_t root, bool of_table, const OnPage& fn) {
    Tree tree;
    tree.found = true;
    visit({root, true, true, 0}, of_table, fn, tree);
    return tree;
  }
  void skip_free_pages() {
    std::string bytes;
    if (!file_.read(1, bytes)) return;
    std::uint32_t trunk = big_endian_32(bytes, 32);
    while (take(trunk) && file_.read(trunk, bytes)) {
      const std::size_t most = file_.usable_bytes() / 4 - 2;
      const std::size_t count = std::min<std::size_t>(big_endian_32(bytes, 4), most);
      for (std::size_t i = 0; i < count; ++i) take(big_endian_32(bytes, 8 + 4 * i));
      trunk = big_endian_32(bytes, 0);
    }
  }
  void each_unseen(const OnPage& fn) {
    BtreePage page;
    for (std::uint32_t number = 2; number < seen_.size(); ++number)
      if (!seen_[number] && page.load(file_, number)) fn(page);
  }

 private:
  struct Place {
    std::uint32_t page;
    bool first, last;
    int depth;
  };

  bool take(std::uint32_t page) {
    if (page == 0 || page >= seen_.size() || seen_[page]) return false;
    seen_[page] = true;
    return true;
  }

  void visit(const Place& at, bool of_table, const OnPage& fn, Tree& tree) {
    BtreePage page;
    const bool fresh = at.page > 0 && at.page < seen_.size() && !seen_[at.page];
    if (!fresh || at.depth > kDepthMax || !page.load(file_, at.page) ||
        page.of_table() != of_table) {
      ++tree.damaged;
      tree.head_damaged = tree.head_damaged || at.first;
      tree.tail_damaged = tree.tail_damaged || at.last;
      return;
    }
    take(at.page);
    const std::vector<std::uint32_t> children = page.children();
    for (std::size_t i = 0; i < children.size(); ++i)
      visit({children[i], at.first && i == 0, at.last && i + 1 == children.size(), at.depth + 1},
            of_table, fn, tree);
    fn(page);
  }

  PageFile& file_;
  std::vector<bool> seen_;
};

// --- the work

class Salvage {
 public:
  Salvage(PageFile& file, SalvageReport& report) : file_(file), pages_(file), report_(report) {}

  // Reads the schema. no_schema if nothing is damaged and there are no tables of ours.
  Status look(const std::string& path);
  // Into a new database, in its open transaction.
  Status copy(Db& db, std::int64_t wall_ms);

 private:
  struct Table {
    Statement insert;
    Tree tree;
  };

  Status copy_tree(std::size_t index);
  Status copy_unreachable();
  void put(std::size_t index, const StoredRecord& record, bool from_tree);
  void put_unreachable(BtreePage& page);
  void read_urgent();
  bool damaged(const char* name) const;
  Status settle();
  Status newest_known(std::int64_t& newest);
  Status account(std::int64_t wall_ms);
  Status lose_at(const DestinationRow& row, const Ranges& normal, const Ranges& urgent,
                 std::int64_t wall_ms);
  Status lose(std::int64_t destination, int lane, const Ranges& ranges, std::int64_t wall_ms);

  PageFile& file_;
  Pages pages_;
  SalvageReport& report_;
  Db* db_ = nullptr;
  Status status_;  // the first error of writing
  std::map<std::string, std::uint32_t> roots_;
  std::vector<std::uint32_t> other_roots_[2];  // of indexes, of tables
  Table tables_[std::size(kForms)];
  Tree schema_, urgent_tree_;
  std::set<std::int64_t> urgent_;
  bool newer_ = false;
  int identity_rows_ = 0;  // of device label and store id: the new database has some of its own
};

std::size_t form_index(const char* name) {
  std::size_t i = 0;
  while (i + 1 < std::size(kForms) && std::strcmp(kForms[i].name, name) != 0) ++i;
  return i;
}

Status Salvage::look(const std::string& path) {
  int bad = 0;
  schema_ = pages_.walk(1, true, [&](BtreePage& page) {
    bad += page.records([&](StoredRecord&& row) {
      if (row.values.size() < 5 || row.values[0].type != Type::text ||
          row.values[1].type != Type::text || row.values[3].type != Type::integer) {
        ++bad;
        return;
      }
      const std::string& name = row.values[1].bytes;
      const auto root = static_cast<std::uint32_t>(row.values[3].integer);
      const bool ours = name == "outbox_event_urgent" ||
                        std::any_of(std::begin(kForms), std::end(kForms),
                                    [&](const TableForm& form) { return name == form.name; });
      if (root == 0) return;  // a view or trigger
      if (ours)
        roots_[name] = root;
      else  // an autoindex of a table without rowid is the table
        other_roots_[row.values[0].bytes == "table" ? 1 : 0].push_back(root);
    });
  });
  report_.pages = file_.pages();
  report_.wal_damaged = file_.wal_damaged();
  report_.header_damaged = !file_.header_readable() || schema_.damaged > 0 || bad > 0;
  if (!report_.header_damaged && !report_.wal_damaged && roots_.empty())
    return Status::error(Code::no_schema, "%s: has no Holdfast tables", path.c_str());
  return Status();
}

bool Salvage::damaged(const char* name) const {
  const std::size_t index = form_index(name);
  return report_.header_damaged || report_.wal_damaged || !tables_[index].tree.found ||
         tables_[index].tree.damaged > 0 || report_.tables[index].unreadable > 0;
}

Statement& bind_value(Statement& statement, int index, const StoredValue& value) {
  switch (value.type) {
    case Type::integer:
      return statement.bind(index, value.integer);
    case Type::real:
      return statement.bind(index, value.real);
    case Type::text:
      return statement.bind_text(index, value.bytes);
    case Type::blob:
      return statement.bind_blob(index, value.bytes);
    default:
      return statement.bind_null(index);
  }
}

void Salvage::put(std::size_t index, const StoredRecord& record, bool from_tree) {
  const TableForm& form = kForms[index];
  SalvagedTable& told = report_.tables[index];
  if (!status_.ok()) return;
  if (!fits(form, record)) {
    ++told.unreadable;
    return;
  }
  if (index == 0) {
    if (has_key(record, "schema_version") && record.values[1].type == Type::integer)
      newer_ = newer_ || record.values[1].integer > kSchemaVersion;
    if (stays_behind(record)) return;
    if (has_key(record, "device") || has_key(record, "store_id")) ++identity_rows_;
  }
  Statement& insert = tables_[index].insert;
  status_ = insert.prepare(db_->handle(), form.insert);
  if (!status_.ok()) return;
  const int columns = static_cast<int>(std::strlen(form.columns));
  for (int i = 0; i < columns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i == 0 && form.columns[0] == 'k')
      insert.bind(1, record.rowid);
    else if (at < record.values.size())
      bind_value(insert, i + 1, record.values[at]);
    else
      insert.bind_null(i + 1);
  }
  const Status status = insert.run(form.name);
  insert.reset();
  if (status.ok() && changed_rows(db_->handle()) > 0)
    ++told.rows;
  else if (status.ok() ? from_tree : status.code() == Code::invalid)
    ++told.unreadable;  // a second row of the same key, or one that a CHECK refuses
  else if (!status.ok())
    status_ = status;
}

Status Salvage::copy_tree(std::size_t index) {
  const TableForm& form = kForms[index];
  const auto root = roots_.find(form.name);
  if (root == roots_.end()) return Status();
  tables_[index].tree = pages_.walk(root->second, !in_index(form), [&](BtreePage& page) {
    report_.tables[index].unreadable +=
        page.records([&](StoredRecord&& record) { put(index, record, true); });
  });
  report_.damaged_pages += tables_[index].tree.damaged;
  return status_;
}

// Which of the lost events were urgent.
void Salvage::read_urgent() {
  const auto root = roots_.find("outbox_event_urgent");
  if (root == roots_.end()) return;
  int bad = 0;
  urgent_tree_ = pages_.walk(root->second, false, [&](BtreePage& page) {
    bad += page.records([&](StoredRecord&& record) {
      if (record.values.size() >= 2 && record.values[1].type == Type::integer)
        urgent_.insert(record.values[1].integer);
    });
  });
  if (bad > 0) urgent_tree_.found = false;
}

void Salvage::put_unreachable(BtreePage& page) {
  std::vector<StoredRecord> records;
  page.records([&](StoredRecord&& record) { records.push_back(std::move(record)); });
  const bool meta = !page.of_table() &&
                    std::any_of(records.begin(), records.end(), [](const StoredRecord& record) {
                      return has_key(record, "stream_id") && record.values.size() == 2 &&
                             fits('u', record.values[1]);
                    });
  for (const StoredRecord& record : records)
    for (std::size_t i = 0; i < std::size(kForms); ++i) {
      if (in_index(kForms[i]) == page.of_table() || !fits(kForms[i], record)) continue;
      if (meta ? i != 0 : !kForms[i].recognizable) continue;
      put(i, record, false);
      break;
    }
}

Status Salvage::copy_unreachable() {
  bool any = report_.header_damaged || report_.wal_damaged;
  for (const Table& table : tables_) any = any || table.tree.damaged > 0 || !table.tree.found;
  if (!any) return Status();
  // What other trees and the list of free pages hold is no loss of ours.
  for (int of_table = 0; of_table < 2; ++of_table)
    for (const std::uint32_t root : other_roots_[of_table])
      pages_.walk(root, of_table == 1, [](BtreePage&) {});
  pages_.skip_free_pages();
  pages_.each_unseen([&](BtreePage& page) { put_unreachable(page); });
  return status_;
}

Status Salvage::copy(Db& db, std::int64_t wall_ms) {
  db_ = &db;
  for (const TableForm& form : kForms) report_.tables.push_back({form.name, 0, 0});
  Status status = db.exec(sql::kSalvageEmptyTime, "salvage");
  for (std::size_t i = 0; i < std::size(kForms) && status.ok(); ++i) status = copy_tree(i);
  if (status.ok()) read_urgent();
  if (status.ok()) status = copy_unreachable();
  for (Table& table : tables_) table.insert.finalize();  // or the file could not be closed
  if (newer_)
    return Status::error(Code::newer_schema,
                         "is of a newer schema than this software's %d; use the newer software",
                         kSchemaVersion);
  std::int64_t rows = 0;
  for (const SalvagedTable& table : report_.tables) rows += table.rows;
  if (status.ok() && rows == 0)
    return Status::error(Code::corrupt, "nothing of Holdfast's tables is readable");
  if (status.ok()) status = settle();
  return status.ok() ? account(wall_ms) : status;
}

Status Salvage::settle() {
  Status status = db_->exec(sql::kSalvageSettle, "salvage");
  report_.identity_lost = identity_rows_ < 2;
  if (status.ok() && damaged("outbox_destination")) {
    std::int64_t destinations = 0;
    status = db_->query_int(sql::kDestinationCount, destinations, "salvage");
    Statement add;
    if (status.ok() && destinations == 0) status = add.prepare(db_->handle(), sql::kDestinationAdd);
    if (status.ok() && destinations == 0)
      status = add.bind_text(1, kDefaultDestination).run("destination");
  }
  // A mark whose open gaps are not known would swallow what comes late: without it the devices
  // send again what they keep, and the ids tell what is here.
  if (status.ok() && damaged("inbox_gap")) status = db_->exec(sql::kSalvageForgetMarks, "salvage");
  if (status.ok()) status = db_->exec(sql::kEventCountReset, "salvage");
  return status;
}

// The newest seq that left a trace. A cursor far ahead of the log is damaged, and goes back.
Status Salvage::newest_known(std::int64_t& newest) {
  std::int64_t row = 0;
  Status status = db_->query_int(sql::kNewestSeq, row, "salvage");
  if (status.ok()) status = db_->query_int(sql::kSalvageNewestKnown, newest, "salvage");
  if (!status.ok()) return status;
  if (newest - row > kSeqAheadMax) newest = row;
  const Tree& tree = tables_[form_index("outbox_event")].tree;
  report_.newest_lost = newest == row && tree.tail_damaged;
  if (report_.newest_lost) ++newest;  // a leaf is never empty
  Statement reset;
  status = reset.prepare(db_->handle(), sql::kSalvageResetCursors);
  return status.ok() ? reset.bind(1, newest).run("outbox_destination") : status;
}

// Says what is gone, in the report and to each destination.
Status Salvage::account(std::int64_t wall_ms) {
  if (!damaged("outbox_event")) return Status();
  std::int64_t newest = 0, oldest = 0;
  Status status = newest_known(newest);
  if (status.ok()) status = db_->query_int(sql::kOldestSeq, oldest, "salvage");
  std::vector<DestinationRow> rows;
  if (status.ok()) status = list_destinations(db_->handle(), rows);
  if (!status.ok()) return status;
  if (oldest == 0) oldest = newest + 1;
  // Below the oldest: what no destination can have had was never purged.
  const Tree& tree = tables_[form_index("outbox_event")].tree;
  std::int64_t first = oldest;
  for (const DestinationRow& row : rows)
    if (!tree.found || tree.head_damaged)
      first = std::min(first, std::max(row.lanes[0].acked_seq, row.lanes[1].acked_seq) + 1);
  Ranges there, told, urgent;
  status = read_ranges(db_->handle(), sql::kSalvageSeqs, 0, 0, there);
  if (status.ok()) status = read_ranges(db_->handle(), sql::kSalvageGapRanges, 0, 0, told);
  if (!status.ok()) return status;
  const Ranges missing = without({{first, newest}}, there);
  for (const std::int64_t seq : urgent_)
    for (const SeqRange& each : within(missing, seq, seq)) urgent.push_back(each);
  urgent = joined(urgent);
  report_.lost_events = without(missing, told);
  report_.lost_count = count_of(report_.lost_events);
  const Ranges normal = without(missing, urgent);
  for (const DestinationRow& row : rows)
    if (status.ok()) status = lose_at(row, normal, urgent, wall_ms);
  if (status.ok()) status = db_->exec(sql::kSalvageDropOrphanExceptions, "salvage");
  std::int64_t newest_row = 0;
  if (status.ok()) status = db_->query_int(sql::kNewestSeq, newest_row, "salvage");
  if (!status.ok() || newest_row >= newest) return status;
  Statement placeholder;
  status = placeholder.prepare(db_->handle(), sql::kSalvagePlaceholder);
  if (!status.ok()) return status;
  const int lane = urgent_.count(newest) != 0 ? kLaneUrgent : kLaneNormal;
  return placeholder.bind(1, newest).bind(2, static_cast<std::int64_t>(lane)).run("outbox_event");
}

// At one destination: what was lost before it was sent, and what waited for another attempt.
Status Salvage::lose_at(const DestinationRow& row, const Ranges& normal, const Ranges& urgent,
                        std::int64_t wall_ms) {
  const std::int64_t acked = row.lanes[kLaneNormal].acked_seq;
  const std::int64_t urgent_acked = row.lanes[kLaneUrgent].acked_seq;
  const Ranges all[kLaneCount] = {within(normal, acked + 1, INT64_MAX),
                                  within(urgent, urgent_acked + 1, INT64_MAX)};
  Ranges lost[kLaneCount];
  Status status;
  for (int lane = 0; lane < kLaneCount && status.ok(); ++lane) {
    Ranges gaps, waiting;
    status = read_ranges(db_->handle(), sql::kSalvageGapRangesAt, row.id, lane, gaps);
    if (status.ok())
      status = read_ranges(db_->handle(), sql::kSalvageOrphanExceptions, row.id, lane, waiting);
    lost[lane] = all[lane];
    // Without the index it may have been urgent: rather told once too often.
    const bool unsure = !urgent_tree_.found || urgent_tree_.damaged > 0;
    if (lane == kLaneUrgent && unsure) {
      const Ranges maybe = within(normal, urgent_acked + 1, acked);
      lost[lane].insert(lost[lane].end(), maybe.begin(), maybe.end());
    }
    lost[lane].insert(lost[lane].end(), waiting.begin(), waiting.end());
    std::sort(lost[lane].begin(), lost[lane].end(),
              [](const SeqRange& a, const SeqRange& b) { return a.first < b.first; });
    lost[lane] = without(joined(lost[lane]), gaps);
    if (status.ok()) status = lose(row.id, lane, lost[lane], wall_ms);
  }
  return status;
}

Status Salvage::lose(std::int64_t destination, int lane, const Ranges& ranges,
                     std::int64_t wall_ms) {
  Statement add;
  Status status = add.prepare(db_->handle(), sql::kGapAdd);
  for (const SeqRange& each : ranges) {
    if (!status.ok()) return status;
    const std::int64_t count = each.last - each.first + 1;
    report_.lost_pending += count;
    add.reset();
    status = add.bind(1, destination)
                 .bind(2, static_cast<std::int64_t>(lane))
                 .bind(3, each.first)
                 .bind(4, each.last)
                 .bind(5, count)
                 .bind_text(6, "lost")
                 .bind_text(7, kLostDetail)
                 .bind(8, wall_ms)
                 .run("outbox_gap");
  }
  return status;
}

// --- the new file

void remove_files(const std::string& path) {
  for (const char* end : {"", "-wal", "-shm"}) ::unlink((path + end).c_str());
}

bool exists(const std::string& path) {
  struct stat facts{};
  return ::lstat(path.c_str(), &facts) == 0;
}

Status fill(Salvage& salvage, const std::string& path, const std::string& from,
            const SalvageReport& report, const Clock& clock) {
  Db db;
  Status status = Db::open(path, OpenMode::read_write, kBusyTimeoutMs, db);
  if (status.ok()) status = db.set_triggers(false);  // rows come in any order, and as they were
  if (!status.ok()) return status;
  Transaction transaction(db.handle());
  status = transaction.begin();
  const std::int64_t wall_ms = std::max<std::int64_t>(0, clock.wall_ms());
  if (status.ok()) status = salvage.copy(db, wall_ms);
  if (status.ok()) status = sample_time(db.handle(), clock, true);
  if (status.ok())
    status = add_audit(db.handle(), wall_ms, "salvage",
                       "from " + from + ", events lost: " + std::to_string(report.lost_count));
  return status.ok() ? transaction.commit() : status;
}

// The file that is salvaged has to be named: the others are none of a person's business.
Status naming(const std::string& path, const Status& status) {
  if (status.ok() || std::string_view(status.text()).find(path) != std::string_view::npos)
    return status;
  return Status::native_error(status.code(), status.native(), "%s: %s", path.c_str(),
                              status.text());
}

}  // namespace

Status Store::salvage(const std::string& path, const std::string& new_path, SalvageReport& report,
                      const Clock* clock) {
  report = SalvageReport();
  if (exists(new_path))
    return Status::error(Code::exists, "%s: exists already; give a new file name",
                         new_path.c_str());
  PageFile file;
  Status status = file.open(path);
  if (!status.ok()) return status;
  if (!file.utf8())
    return Status::error(Code::invalid, "%s: is in UTF-16, which cannot be salvaged", path.c_str());
  Salvage salvage(file, report);
  status = salvage.look(path);
  if (!status.ok()) return status;
  const std::string partial = new_path + "-partial";
  remove_files(partial);
  InitOptions options;
  options.destination = "";
  options.page_size = static_cast<int>(file.page_bytes());
  options.clock = clock;
  InitResult made;
  status = init(partial, options, &made);
  report.stream = made.stream;
  if (status.ok())
    status = naming(
        path, fill(salvage, partial, path, report, clock != nullptr ? *clock : system_clock()));
  // Closing moved the -wal into the file, and synced it.
  if (status.ok() && exists(partial + "-wal"))
    status = Status::error(Code::io, "%s: could not be completed", partial.c_str());
  if (status.ok() && ::rename(partial.c_str(), new_path.c_str()) != 0)
    status = Status::error(Code::io, "%s: cannot be named %s", partial.c_str(), new_path.c_str());
  if (status.ok()) return platform::sync_parent_directory(new_path);
  remove_files(partial);
  return status;
}

}  // namespace holdfast
