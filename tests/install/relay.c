/* A C99 application with a relay, which only libholdfast.a has: forwards what
   tests/install/outbox.c left in the database to a place of its own. */
#define _GNU_SOURCE
#include <holdfast/holdfast.h>
#include <stdio.h>

#include "sqlite_copies.h"

static int fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

static int take(void* context, const holdfast_record* events, size_t count,
                holdfast_outcome* outcomes) {
  (void)events;
  (void)outcomes; /* they come as HOLDFAST_OUTCOME_STORED */
  *(size_t*)context += count;
  return HOLDFAST_OK;
}

static int all_sent(void* context, const holdfast_relay_state* state) {
  (void)context;
  return state->sent_events > 0 && state->drained;
}

int main(int argc, char** argv) {
  size_t taken = 0;
  holdfast_status status;
  holdfast_relay* relay = NULL;
  holdfast_relay_options options = {.struct_size = sizeof(options)};
  int sent;
  if (argc != 2) return fail("usage", "relay DB");
  if (sqlite_copies() != 1) return fail("SQLite", "more than one copy in this process");
  options.database = argv[1];
  options.sink = take;
  options.context = &taken;
  if (holdfast_relay_start(&options, &relay, &status) != HOLDFAST_OK)
    return fail("relay", status.text);
  sent = holdfast_relay_wait(relay, 30000, all_sent, NULL);
  if (holdfast_relay_stop(relay, &status) != HOLDFAST_OK) return fail("relay", status.text);
  holdfast_relay_close(relay);
  return sent && taken > 0 ? 0 : fail("relay", "sent nothing");
}
