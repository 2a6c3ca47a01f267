/* A C99 application: one event in a transaction of its own. */
#define _GNU_SOURCE
#include <holdfast/holdfast.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "sqlite_copies.h"

static int fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int main(int argc, char** argv) {
  holdfast_status status;
  holdfast_outbox* outbox = NULL;
  holdfast_emitted emitted;
  char id[HOLDFAST_ID_TEXT_BYTES];
  sqlite3* db = NULL;
  holdfast_event event = {.struct_size = sizeof(event)};
  event.event_type = "reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = "boiler-1";
  event.payload = "21.5";
  event.payload_size = strlen("21.5");

  if (argc != 2) return fail("usage", "outbox DB");
  if (sqlite_copies() != 1) return fail("SQLite", "more than one copy in this process");
  if (holdfast_store_init(argv[1], NULL, NULL, &status) != HOLDFAST_OK)
    return fail("init", status.text);
  if (sqlite3_open(argv[1], &db) != SQLITE_OK) return fail("open", sqlite3_errmsg(db));
  sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL", NULL, NULL, NULL);
  if (holdfast_outbox_attach(db, NULL, &outbox, &status) != HOLDFAST_OK)
    return fail("attach", status.text);
  sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
  if (holdfast_outbox_emit(outbox, &event, &emitted, &status) != HOLDFAST_OK)
    return fail("emit", status.text);
  if (sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
    return fail("commit", sqlite3_errmsg(db));
  holdfast_id_text(&emitted.id, id);
  printf("%s\n", id);
  holdfast_outbox_detach(outbox);
  sqlite3_close(db);
  return 0;
}
