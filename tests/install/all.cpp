// A C++17 application without exceptions and RTTI that has everything in it: a gateway with a
// handler, and a relay that sends it over TCP what tests/install/outbox.cpp left in DB. The
// gateway's database is DB-gateway.
#include <cstdio>
#include <holdfast/gateway.hpp>
#include <holdfast/relay.hpp>
#include <string>

#include "sqlite_copies.h"

static int fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage", "all DB");
  if (sqlite_copies() != 1) return fail("SQLite", "more than one copy in this process");
  int applied = 0;
  holdfast::GatewayOptions server;
  server.database = std::string(argv[1]) + "-gateway";
  server.listen = {"tcp://127.0.0.1:0"};
  server.handler = [&applied](const holdfast::EventRecord&, sqlite3*) {
    ++applied;
    return holdfast::HandlerResult::done();
  };
  holdfast::Gateway gateway;
  holdfast::Status s = holdfast::Gateway::start(server, gateway);
  if (!s) return fail("gateway", s.text());

  holdfast::RelayOptions client;
  client.database = argv[1];
  client.url = gateway.urls().at(0);
  holdfast::Relay relay;
  s = holdfast::Relay::start(client, relay);
  for (int polls = 0; s && polls < 600 && relay.state().sent_events == 0; ++polls)
    s = gateway.poll(50);
  if (s) s = relay.stop();
  if (!s) return fail("all", s.text());
  return applied == 1 ? 0 : fail("all", "the handler did not run once");
}
