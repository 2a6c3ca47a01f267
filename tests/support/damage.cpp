#include "support/damage.hpp"

#include <unistd.h>

#include <algorithm>
#include <random>

#include "support/command_line.hpp"
#include "support/connection.hpp"

namespace holdfast::test {

namespace {

constexpr std::size_t kWalHeaderBytes = 32;
constexpr std::size_t kFrameBytes = 24 + kDamagePageBytes;

void emit_some(Connection& app, int count, int first) {
  for (int i = first; i < first + count; ++i) {
    const std::string number = std::to_string(i);
    // Every 16th lies on several pages.
    const std::string payload(i % 16 == 0 ? 3000 : 40 + i % 90, static_cast<char>('a' + i % 26));
    app.run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,aggregate_version,lane,"
        "content_type,headers,payload) VALUES('sensor.reading.v1','sensor','s" +
        std::to_string(i % 7) + "'," + number + "," + (i % 11 == 0 ? "1" : "0") +
        ",'text/plain','{\"n\":" + number + "}','" + number + ":" + payload +
        "');"
        "INSERT INTO reading VALUES(" +
        number + ",'" + payload.substr(0, 40) + "')");
  }
}

void receive_some(Connection& app) {
  app.run(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<120)"
      " INSERT INTO inbox_event SELECT randomblob(16),CASE WHEN i%3 THEN 'log' ELSE 'billing' END,"
      "CASE WHEN i%40=0 THEN 'FAILED' ELSE 'DONE' END,1,i*1000,1767225600000+i,NULL FROM n;"
      "INSERT INTO inbox_stream VALUES(x'00112233445566778899aabbccddeeff',0,'log','board-7',130,"
      "x'0102030405060708090a0b0c0d0e0f10',1767225600000,130);"
      "INSERT INTO inbox_owner VALUES(x'00112233445566778899aabbccddeeff','board-7',1767225600000);"
      "INSERT INTO inbox_denied VALUES('board-8',1767225600000);"
      "INSERT INTO inbox_gap VALUES(x'00112233445566778899aabbccddeeff',0,'log',60,60,1,'REJECTED',"
      "'sensor','b',x'00112233445566778899aabbccddeeff','not now',1767225600000),"
      "(x'00112233445566778899aabbccddeeff',0,'log',20,25,6,'GONE',NULL,NULL,NULL,'expired',"
      "1767225600000);"
      "INSERT INTO inbox_aggregate VALUES('log',x'00112233445566778899aabbccddeeff',0,'sensor','a',"
      "7)");
}

}  // namespace

FilePair realistic_database() {
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  InitOptions options;
  options.page_size = kDamagePageBytes;
  options.device = "board-1";
  must(Store::init(path, options, nullptr));
  Connection app(path);
  app.run("PRAGMA wal_autocheckpoint=0; PRAGMA secure_delete=OFF");
  app.run(
      "CREATE TABLE reading(id INTEGER PRIMARY KEY, value TEXT);"
      "CREATE INDEX reading_value ON reading(value)");
  app.run("BEGIN");
  emit_some(app, 220, 1);
  receive_some(app);
  app.run(
      "UPDATE outbox_destination SET acked_seq=100,claimed_seq=100,urgent_acked_seq=110,"
      "urgent_claimed_seq=110,sent=95,acked_id=randomblob(16);"
      "INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts,last_error) VALUES"
      "(1,61,0,'RETRY',2,'not now'),(1,68,0,'HELD',0,NULL),(1,72,0,'DEAD',10,'never');"
      "INSERT INTO outbox_gap VALUES(1,0,50,50,1,'discarded','a test',1767225600000,1)");
  app.run("COMMIT");
  // As a purge leaves it: free pages.
  app.run(
      "BEGIN; DELETE FROM outbox_event WHERE seq<=40; DELETE FROM reading WHERE id<=40; COMMIT");
  app.run("PRAGMA wal_checkpoint(TRUNCATE)");
  for (int i = 0; i < 12; ++i) {
    app.run("BEGIN");
    emit_some(app, 5, 221 + 5 * i);
    app.run("COMMIT");
  }
  app.run("UPDATE outbox_destination SET acked_seq=120,claimed_seq=120");
  return {read_file(path), read_file(path + "-wal")};
}

std::string Damage::text() const {
  const char* const names[] = {"truncated", "zeros", "noise", "another page", "flipped bit"};
  return std::string(wal ? "-wal" : "database") + ": " + names[static_cast<int>(kind)] + " at " +
         std::to_string(offset) + " for " + std::to_string(bytes) + ", seed " +
         std::to_string(seed);
}

void Damage::apply(FilePair& files) const {
  std::string& file = wal ? files.wal : files.db;
  const std::size_t end = std::min(file.size(), offset + bytes);
  std::mt19937_64 random(seed);
  switch (kind) {
    case Kind::truncate:
      file.resize(std::min(offset, file.size()));
      return;
    case Kind::zeros:
      for (std::size_t i = offset; i < end; ++i) file[i] = 0;
      return;
    case Kind::noise:
      for (std::size_t i = offset; i < end; ++i) file[i] = static_cast<char>(random());
      return;
    case Kind::flip:
      if (offset < file.size()) file[offset] = static_cast<char>(file[offset] ^ 1 << seed % 8);
      return;
    case Kind::other_page: {
      const std::size_t from = random() % (files.db.size() / kDamagePageBytes) * kDamagePageBytes;
      for (std::size_t i = offset; i < end; ++i) file[i] = files.db[from + i - offset];
      return;
    }
  }
}

std::vector<Damage> every_damage(const FilePair& files, std::uint64_t seed) {
  using Kind = Damage::Kind;
  std::vector<Damage> out;
  std::mt19937_64 random(seed);
  const auto spoil = [&](bool wal, std::size_t offset, std::size_t bytes) {
    for (const Kind kind : {Kind::zeros, Kind::noise, Kind::other_page})
      out.push_back({kind, wal, offset, bytes, random()});
  };
  for (std::size_t page = 0; page < files.db.size(); page += kDamagePageBytes) {
    spoil(false, page, kDamagePageBytes);
    spoil(false, page, 8);                     // the page's header
    spoil(false, page + random() % 1000, 20);  // cells
    out.push_back({Kind::flip, false, page + static_cast<std::size_t>(random() % kDamagePageBytes),
                   1, random()});
    for (const int near : {-1, 0, 1, 512})
      out.push_back({Kind::truncate, false, page + static_cast<std::size_t>(near), 0, 0});
  }
  for (std::size_t field = 0; field < 100; field += 4) spoil(false, field, 4);
  for (std::size_t field = 0; field < kWalHeaderBytes; field += 4) spoil(true, field, 4);
  for (std::size_t frame = kWalHeaderBytes; frame < files.wal.size(); frame += kFrameBytes) {
    spoil(true, frame, 24);
    spoil(true, frame + 24, kDamagePageBytes);
    for (const int near : {-1, 0, 1, 24, 512})
      out.push_back({Kind::truncate, true, frame + static_cast<std::size_t>(near), 0, 0});
  }
  for (std::size_t size = 0; size < 120; size += 7) {
    out.push_back({Kind::truncate, false, size, 0, 0});
    out.push_back({Kind::truncate, true, size, 0, 0});
  }
  for (Damage& each : out)  // page 0 - 1
    if (each.offset > files.db.size() + files.wal.size()) each.offset = 0;
  return out;
}

void place(const FilePair& files, const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-reserve"}) ::unlink((path + suffix).c_str());
  write_file(path, files.db);
  if (!files.wal.empty()) write_file(path + "-wal", files.wal);
}

}  // namespace holdfast::test
