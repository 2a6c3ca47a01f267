// A C++17 application without exceptions and RTTI: one event in a transaction of its own.
#include <sqlite3.h>

#include <cstdio>
#include <holdfast/outbox.hpp>
#include <holdfast/store.hpp>

#include "sqlite_copies.h"

static int fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage", "outbox DB");
  if (sqlite_copies() != 1) return fail("SQLite", "more than one copy in this process");
  holdfast::Status s = holdfast::Store::init(argv[1], {}, nullptr);
  if (!s) return fail("init", s.text());

  sqlite3* db = nullptr;
  if (sqlite3_open(argv[1], &db) != SQLITE_OK) return fail("open", sqlite3_errmsg(db));
  sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL", nullptr, nullptr, nullptr);
  holdfast::Outbox outbox;
  s = holdfast::Outbox::attach(db, {}, outbox);
  if (!s) return fail("attach", s.text());

  holdfast::Event event;
  event.event_type = "reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = "boiler-1";
  event.payload = "21.5";
  holdfast::Emitted emitted;
  sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
  s = outbox.emit(event, &emitted);
  if (!s) return fail("emit", s.text());
  if (sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr) != SQLITE_OK)
    return fail("commit", sqlite3_errmsg(db));
  std::printf("%s\n", emitted.id.text().c_str());
  outbox.detach();
  sqlite3_close(db);
  return 0;
}
