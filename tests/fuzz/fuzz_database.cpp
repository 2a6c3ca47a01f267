// A database that came from somewhere: rows, schema and bytes of file and -wal changed at will.
// Input: [u8 which golden database][u8 what is done with it], then changes (take_change). Whatever
// is in there, each call returns, and what is printed of it is well formed.
#include <unistd.h>

#include <optional>

#include "delivery.hpp"
#include "fuzz.hpp"
#include "gateway_core.hpp"
#include "holdfast/json.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "json.hpp"
#include "page_file.hpp"
#include "relay_core.hpp"
#include "stats_text.hpp"
#include "support/bytes.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"
#include "support/process.hpp"

using namespace holdfast;
using namespace holdfast::fuzz;

namespace {

constexpr std::size_t kPageBytes = 1024;  // of the golden databases
constexpr std::size_t kFileBytesMax = 256 * kPageBytes;
constexpr int kChangesMax = 24;
constexpr int kTurnsMax = 200;  // of a relay: more than a drain of these few events takes
constexpr int kJsonDepthMax = 64;

struct Files {
  std::string db, wal;
};

// --- changes -------------------------------------------------------------------------------------

// SQLite's -wal format: frames with right checksums, which SQLite and a salvage believe.
class WalWriter {
 public:
  void append(std::string& wal, std::uint32_t page, std::string_view bytes, std::uint32_t pages) {
    if (wal.empty()) {
      std::string header = words({0x377f0682, 3007000, kPageBytes, 0, 1, 2});
      sum(header);
      wal = header + words({s0_, s1_});
    }
    const std::string place = words({page, pages});
    sum(place);
    sum(bytes);
    wal += place + words({1, 2, s0_, s1_});
    wal += bytes;
  }

 private:
  static std::string words(std::initializer_list<std::uint32_t> values) {
    std::string out;
    for (const std::uint32_t value : values)
      for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFF);
    return out;
  }
  // Of 32-bit little-endian words, as the magic number says.
  void sum(std::string_view bytes) {
    Input in(bytes);
    while (!in.done()) {
      const std::uint32_t a = in.u24() | std::uint32_t{in.u8()} << 24;
      const std::uint32_t b = in.u24() | std::uint32_t{in.u8()} << 24;
      s0_ += a + s1_;
      s1_ += b + s0_;
    }
  }

  std::uint32_t s0_ = 0, s1_ = 0;
};

// Rows and schema go through SQLite with every check off, as another program could write them.
class RowWriter {
 public:
  explicit RowWriter(const std::string& path)
      : db_(path, test::Connection::Kind::bare), tables_(db_.column(kTables)) {
    db_.run(
        "PRAGMA ignore_check_constraints=ON; PRAGMA foreign_keys=OFF;"
        "PRAGMA recursive_triggers=OFF; PRAGMA synchronous=OFF");
    for (const std::string& trigger :
         db_.column("SELECT name FROM sqlite_schema WHERE type='trigger'"))
      triggers_ += db_.text("SELECT sql FROM sqlite_schema WHERE name='" + trigger + "'") + ";",
          db_.run("DROP TRIGGER \"" + trigger + "\"");
  }
  ~RowWriter() { db_.attempt(triggers_); }
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

  // A value of a column, in one row or, where there is no rowid, in all.
  void set(Input& in) {
    const std::string table = tables_[in.u8() % tables_.size()];
    const std::vector<std::string> columns = columns_of(table);
    const std::string column = columns[in.u8() % columns.size()];
    const std::string row = std::to_string(in.u8());
    const std::string value = value_of(in);
    const std::string update = "UPDATE OR REPLACE " + table + " SET " + column + "=" + value;
    if (db_.attempt(update + " WHERE rowid=" + row) != 0) db_.attempt(update);
  }
  void insert(Input& in) {
    const std::string table = tables_[in.u8() % tables_.size()];
    std::string values;
    for (std::size_t left = columns_of(table).size(); left > 0; --left)
      values += (values.empty() ? "" : ",") + value_of(in);
    db_.attempt("INSERT OR REPLACE INTO " + table + " VALUES(" + values + ")");
  }
  // A piece of a CREATE statement replaced by something else.
  void spoil_schema(Input& in) {
    const std::string row = std::to_string(1 + in.u8() % 40);
    const std::string at = std::to_string(1 + in.u16());
    const std::string end = std::to_string(1 + in.u8());
    const std::string text = literal("x", in.text());
    db_.attempt("PRAGMA writable_schema=ON");
    db_.attempt("UPDATE sqlite_schema SET sql=substr(sql,1," + at + "-1)||CAST(" + text +
                " AS TEXT)||substr(sql," + at + "+" + end + ") WHERE rowid=" + row);
    db_.attempt("PRAGMA writable_schema=OFF");
  }

 private:
  static constexpr const char* kTables =
      "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT GLOB 'sqlite_*'"
      " ORDER BY name";

  std::vector<std::string> columns_of(const std::string& table) {
    return db_.column("SELECT name FROM pragma_table_info('" + table + "')");
  }
  static std::string literal(const char* prefix, std::string_view bytes) {
    std::string out = std::string(prefix) + "'";
    for (const char c : bytes) {
      constexpr const char* kDigits = "0123456789abcdef";
      out += kDigits[static_cast<unsigned char>(c) >> 4];
      out += kDigits[c & 0xF];
    }
    return out + "'";
  }
  static std::string value_of(Input& in) {
    constexpr const char* kNumbers[] = {
        "-1",         "0",     "1",      "9223372036854775807", "-9223372036854775808",
        "4294967296", "1e300", "'RETRY'"};
    const std::uint8_t kind = in.u8();
    switch (kind % 8) {
      case 0:
        return "NULL";
      case 1:
        return std::to_string(in.u8());
      case 2:
        return kNumbers[in.u8() % std::size(kNumbers)];
      case 3:
        return std::to_string(in.u24());
      case 4:
        return literal("x", in.text());
      case 5:
        return "zeroblob(" + std::to_string(in.u16() * 16) + ")";
      case 6:
        return "CAST(" + literal("x", in.bytes(16)) + " AS BLOB)";
      default:
        return "CAST(" + literal("x", in.text()) + " AS TEXT)";
    }
  }

  test::Connection db_;
  std::vector<std::string> tables_;
  std::string triggers_;
};

// Changes through SQLite come first, whatever their place in the input: later ones may leave no
// database that SQLite would open.
enum Change : std::uint8_t {
  kBytes,
  kTruncate,
  kCopyPage,
  kZeroPage,
  kWalFrame,
  kWalBytes,
  kCell,
  kRow,
  kSchemaText,
  kChangeKinds
};

void change_bytes(Change kind, Input& in, Files& files, WalWriter& wal_writer) {
  const std::size_t pages = std::max<std::size_t>(1, files.db.size() / kPageBytes);
  const std::size_t at = in.u8() % pages * kPageBytes;
  switch (kind) {
    case kBytes: {
      const std::size_t from = at + in.u16() % kPageBytes;
      const std::string_view bytes = in.text();
      if (from + bytes.size() <= files.db.size()) files.db.replace(from, bytes.size(), bytes);
      break;
    }
    case kTruncate:
      files.db.resize(std::min(files.db.size(), at + in.u16() % kPageBytes));
      break;
    case kCopyPage: {
      const std::string page = files.db.substr(std::min(at, files.db.size()), kPageBytes);
      const std::size_t to = in.u8() % (pages + 4) * kPageBytes;
      if (to + kPageBytes > files.db.size())
        files.db.resize(std::min(to + kPageBytes, kFileBytesMax));
      if (to + page.size() <= files.db.size()) files.db.replace(to, page.size(), page);
      break;
    }
    case kZeroPage:
      for (std::size_t i = at; i < std::min(at + kPageBytes, files.db.size()); ++i) files.db[i] = 0;
      break;
    case kWalFrame: {
      std::string page = files.db.substr(std::min(at, files.db.size()), kPageBytes);
      page.resize(kPageBytes);
      const std::size_t from = in.u16() % kPageBytes;
      const std::string_view bytes = in.text().substr(0, kPageBytes - from);
      page.replace(from, bytes.size(), bytes);
      wal_writer.append(files.wal, static_cast<std::uint32_t>(at / kPageBytes + 1), page,
                        in.u8() % 4 == 0 ? 0 : static_cast<std::uint32_t>(pages));
      break;
    }
    default: {
      const std::size_t from = in.u16();
      const std::string_view bytes = in.text();
      if (from + bytes.size() <= files.wal.size()) files.wal.replace(from, bytes.size(), bytes);
    }
  }
}

// The files of one input, in a directory that lasts as long as the program.
struct Place {
  test::TemporaryDirectory directory;
  std::string path = directory.file("app.db");

  void clear() const {
    for (const char* name : {"app.db", "new.db", "copy.db"})
      for (const char* suffix : {"", "-wal", "-shm", "-reserve", "-journal"})
        ::unlink(directory.file(std::string(name) + suffix).c_str());
  }
  void put(const Files& files) const {
    clear();
    write_bytes(path, files.db);
    if (!files.wal.empty()) write_bytes(path + "-wal", files.wal);
  }
  std::string file() const;
};

std::string Place::file() const {
  std::string out;
  RawFile raw;
  require_ok(RawFile::open(path, RawFile::Part::database, raw), "read");
  require_ok(raw.read(0, static_cast<std::size_t>(raw.size()), out), "read");
  return out;
}

void make_database(const Place& place, int version, Input& in) {
  Files files{golden_database(version), ""};
  WalWriter wal_writer;
  std::vector<std::pair<Change, std::string_view>> later;
  std::optional<RowWriter> rows;
  for (int count = 0; count < kChangesMax && !in.done(); ++count) {
    const auto kind = static_cast<Change>(in.u8() % kChangeKinds);
    const std::string_view before = in.rest();
    if (kind < kCell) {
      Files none;
      WalWriter nothing;
      change_bytes(kind, in, none, nothing);  // only to know how long it is
      later.emplace_back(kind, before.substr(0, before.size() - in.rest().size()));
      continue;
    }
    if (!rows) {
      place.put(files);
      rows.emplace(place.path);
    }
    if (kind == kCell) rows->set(in);
    if (kind == kRow) rows->insert(in);
    if (kind == kSchemaText) rows->spoil_schema(in);
  }
  if (rows) {
    rows.reset();
    files.db = place.file();
  }
  for (const auto& [kind, bytes] : later) {
    Input one(bytes);
    change_bytes(kind, one, files, wal_writer);
  }
  place.put(files);
}

// --- what is done with it ------------------------------------------------------------------------

void require_json(const std::string& line) {
  require(json::valid(line, kJsonDepthMax), "a printed line is JSON", line);
  require(is_plain_text(line), "a printed line can be shown", line);
}

void look(const std::string& path) {
  Store store;
  Status status = Store::open(path, Access::read_only, {}, store);
  require_explained(status, "open");
  if (!status.ok()) return;
  ListFilter filter;
  filter.all_states = true;
  filter.limit = -1;
  require_explained(store.list(filter,
                               [](const EventView& view) {
                                 require_json(cli::event_line(view));
                                 return true;
                               }),
                    "list");
  std::vector<EventView> views;
  for (const std::int64_t seq : {1, 3, 5, 9}) require_explained(store.find(seq, views), "find");
  require_explained(store.find(fixed_id(1), views), "find");
  StoreStats stats;
  status = store.stats(stats);
  require_explained(status, "stats");
  if (status.ok()) require_json(cli::stats_line(stats));
  std::vector<AuditRow> audit;
  require_explained(store.audit(100, audit), "audit");
  require_explained(store.list_inbox({}, [](const InboxRow&) { return true; }), "inbox");
  require_explained(store.list_streams([](const InboxStreamRow&) { return true; }), "streams");
  require_explained(store.list_gaps([](const InboxGapRow&) { return true; }), "gaps");
  require_explained(store.list_certificates([](const CertificateStream&) { return true; }),
                    "names");
  Store::Health health;
  require_explained(store.health(false, health), "health");
}

void act(const std::string& path) {
  Store store;
  const Status status = Store::open(path, Access::read_write, {}, store);
  require_explained(status, "open");
  if (!status.ok()) return;
  std::int64_t changed = 0;
  require_explained(store.retry(5, "", changed), "retry");
  require_explained(store.retry_all_dead("", changed), "retry");
  require_explained(store.discard(3, "", "a test", changed), "discard");
  PurgeOptions options;
  options.outbox_older_than_ms = 0;
  options.inbox_older_than_ms = 0;
  PurgeResult purged;
  require_explained(store.purge(options, purged), "purge");
  if (!store.begin().ok()) return;
  Outbox outbox;
  Status emitted = Outbox::attach(store.connection(), {}, outbox);
  if (emitted.ok()) emitted = outbox.emit(test::sensor_event("new"));
  require_explained(emitted, "emit");
  require_explained(emitted.ok() ? store.commit() : store.rollback(), "commit");
}

// A relay to a sink that takes everything.
void drain(const std::string& path) {
  const test::ManualClock clock;
  Delivery delivery;
  const Status opened = delivery.open(path, kDefaultDestination, false, clock);
  require_explained(opened, "delivery");
  if (!opened.ok()) return;
  RelayCoreConfig config;
  config.owner = "fuzz";
  config.local = true;
  RelayCore core(delivery, config);
  std::int64_t now = 1'000'000;
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    std::vector<RelayAction> actions;
    std::int64_t wake_at = 0;
    const Status status = core.step(now, actions, wake_at);
    require_explained(status, "step");
    if (!status.ok()) return;
    for (const RelayAction& action : actions) {
      const auto* batch =
          action.message == nullptr ? nullptr : std::get_if<wire::Batch>(action.message);
      if (batch == nullptr) continue;
      std::string frame;
      require_ok(wire::encode(*batch, frame), "what is sent can be encoded");
      wire::Ack ack;
      ack.session = batch->session;
      ack.frame_no = batch->frame_no;
      ack.lane = batch->lane;
      ack.outcomes.resize(batch->events.size());
      const Status answered = core.reply(now, action.token, ack);
      require_explained(answered, "reply");
      if (!answered.ok()) return;
    }
    now = actions.empty() ? now + 1'000 : now;
    if (actions.empty() && turn > 10) break;
  }
  require_explained(core.stop(now), "stop");
}

void receive(const std::string& path) {
  Db db;
  const test::ManualClock clock;
  Status status = Db::open(path, OpenMode::read_write, 0, db);
  require_explained(status, "open");
  if (!status.ok()) return;
  GatewayCore core(db.handle(), clock, {});
  status = core.open();
  require_explained(status, "gateway");
  if (!status.ok()) return;
  wire::Hello hello{fixed_id(1), 7, "device", "test", {}};
  wire::Batch batch;
  batch.stream = fixed_id(1);
  batch.session = 7;
  batch.frame_no = 1;
  batch.start = true;
  batch.events.push_back(test::sensor_record("a"));
  batch.events.back().id = fixed_id(2);
  std::string frame, reply;
  status = core.begin();
  for (const wire::Message& message : {wire::Message(hello), wire::Message(batch)}) {
    if (!status.ok()) break;
    require_ok(wire::encode(message, frame), "encode");
    status = core.accept(frame, 1, reply);
    require_explained(status, "accept");
  }
  if (status.ok()) require_explained(core.commit(), "commit");
  core.abandon();
}

void salvage(const Place& place) {
  SalvageReport report;
  const std::string target = place.directory.file("new.db");
  const Status status = Store::salvage(place.path, target, report);
  require_explained(status, "salvage");
  if (!status.ok()) return;
  Store store;
  require_ok(Store::open(target, Access::read_only, {}, store), "what was salvaged can be opened");
  Store::Health health;
  require_ok(store.health(false, health), "what was salvaged is whole");
  require(health.integrity == "ok", "what was salvaged is whole", health.integrity);
  store = Store();
  look(target);
}

void copy(const Place& place) {
  InitOptions options;
  options.device = "fuzz";
  require_explained(Store::init(place.path, options, nullptr), "init");
  Store store;
  const Status status = Store::open(place.path, Access::read_only, {}, store);
  if (status.ok())
    require_explained(store.backup(place.directory.file("copy.db"), nullptr), "backup");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Place place;
  Input in({reinterpret_cast<const char*>(data), size});
  const int version = 1 + in.u8() % kSchemaVersion;
  const int what = in.u8() % 6;
  make_database(place, version, in);
  if (what == 0) look(place.path);
  if (what == 1) act(place.path);
  if (what == 2) drain(place.path);
  if (what == 3) receive(place.path);
  if (what == 4) salvage(place);
  if (what == 5) copy(place);
  place.clear();
  return 0;
}
