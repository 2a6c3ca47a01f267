#include "fuzz.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "schema.hpp"

namespace holdfast::fuzz {

void require(bool kept, const char* promise, std::string_view detail) {
  if (kept) return;
  std::fprintf(stderr, "fuzz: broken: %s%s%.*s\n", promise, detail.empty() ? "" : ": ",
               static_cast<int>(detail.size()), detail.data());
  std::abort();
}

void require_ok(const Status& status, const char* what) {
  require(status.ok(), what, status.text());
}

void require_explained(const Status& status, const char* what) {
  if (status.ok()) return;
  require(*status.text() != '\0', "an error has a text", what);
  require(status.code() != Code::internal, what, status.text());
}

std::string_view Input::bytes(std::size_t count) {
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(taken.size());
  return taken;
}

std::uint32_t Input::integer(int bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < bytes && !rest_.empty(); ++i) {
    value |= std::uint32_t{static_cast<std::uint8_t>(rest_.front())} << (8 * i);
    rest_.remove_prefix(1);
  }
  return value;
}

EventId fixed_id(std::uint8_t number) {
  EventId id;
  id.bytes.fill(number);
  return id;
}

const std::string& golden_database(int version) {
  static std::string files[kSchemaVersion + 1];
  std::string& file = files[version];
  if (file.empty()) {
    const std::string path =
        HOLDFAST_SOURCE "/tests/golden/databases/v" + std::to_string(version) + ".db";
    std::ifstream in(path, std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
    require(!file.empty(), "a golden database can be read", path);
  }
  return file;
}

Db memory_database() {
  Db db;
  require_ok(Db::open(":memory:", OpenMode::create, 0, db), "open in memory");
  return db;
}

Db empty_database(const char* device) {
  Db db = memory_database();
  SchemaFacts before;
  require_ok(migrate_schema(db, device, before), "migrate");
  Statement set;
  for (const char* key : {"stream_id", "store_id"}) {
    require_ok(set.prepare(db.handle(), sql::kMetaSet), key);
    set.bind_text(1, key).bind_id(2, fixed_id(static_cast<std::uint8_t>(key[1])));
    require_ok(set.run(key), key);
  }
  return db;
}

void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  require(out.flush().good(), "a file can be written", path);
}

void run_sql(Db& db, const std::string& sql) {
  require_ok(db.exec(sql.c_str(), "sql"), sql.c_str());
}

std::int64_t number(Db& db, const std::string& query) {
  std::int64_t value = 0;
  require_ok(db.query_int(query.c_str(), value, "query"), query.c_str());
  return value;
}

Rows::Rows(Db& db) : db_(db) {
  Statement tables;
  require_ok(tables.prepare(db.handle(),
                            "SELECT name FROM sqlite_schema WHERE type='table'"
                            " AND name NOT GLOB 'sqlite_*'"),
             "tables");
  std::string keep;
  restore_ = "BEGIN IMMEDIATE;";
  Status status;
  while (tables.step(status, "tables")) {
    const std::string name(tables.column_text(0));
    keep += "CREATE TEMP TABLE before_" + name + " AS SELECT * FROM main." + name + ";";
    restore_ += "DELETE FROM main." + name + ";INSERT INTO main." + name +
                " SELECT * FROM before_" + name + ";";
  }
  restore_ += "COMMIT";
  tables.finalize();
  run_sql(db, keep);
}

void Rows::restore() {
  require_ok(db_.set_triggers(false), "triggers");
  run_sql(db_, restore_);
  require_ok(db_.set_triggers(true), "triggers");
}

}  // namespace holdfast::fuzz
