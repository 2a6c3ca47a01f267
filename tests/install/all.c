/* A C99 application with everything in it: a gateway, and a relay that sends it over TCP what
   tests/install/outbox.c left in DB. The gateway's database is DB-gateway. */
#define _GNU_SOURCE
#include <holdfast/holdfast.h>
#include <stdio.h>

#include "sqlite_copies.h"

static int fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int main(int argc, char** argv) {
  char path[512];
  const char* listen[] = {"tcp://127.0.0.1:0"};
  holdfast_status status;
  holdfast_gateway* gateway = NULL;
  holdfast_relay* relay = NULL;
  holdfast_gateway_options server = {.struct_size = sizeof(server)};
  holdfast_relay_options client = {.struct_size = sizeof(client)};
  holdfast_relay_state state = {.struct_size = sizeof(state)};
  int polls;
  if (argc != 2) return fail("usage", "all DB");
  if (sqlite_copies() != 1) return fail("SQLite", "more than one copy in this process");
  snprintf(path, sizeof(path), "%s-gateway", argv[1]);
  server.database = path;
  server.listen = listen;
  server.listen_count = 1;
  if (holdfast_gateway_start(&server, &gateway, &status) != HOLDFAST_OK)
    return fail("gateway", status.text);
  client.database = argv[1];
  client.url = holdfast_gateway_url(gateway, 0);
  if (holdfast_relay_start(&client, &relay, &status) != HOLDFAST_OK)
    return fail("relay", status.text);
  for (polls = 0; polls < 600 && state.sent_events == 0; ++polls) {
    if (holdfast_gateway_poll(gateway, 50, &status) != HOLDFAST_OK)
      return fail("gateway", status.text);
    if (holdfast_relay_get_state(relay, &state, &status) != HOLDFAST_OK)
      return fail("relay", status.text);
  }
  if (holdfast_relay_stop(relay, &status) != HOLDFAST_OK) return fail("relay", status.text);
  holdfast_relay_close(relay);
  holdfast_gateway_close(gateway);
  return state.sent_events > 0 ? 0 : fail("all", "the gateway accepted nothing");
}
