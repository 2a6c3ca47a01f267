// A C++17 application with a relay, which only libholdfast.a has: starts it on a database that
// tests/install/outbox.cpp made, with nobody listening, and stops it.
#include <cstdio>
#include <holdfast/relay.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  holdfast::RelayOptions options;
  options.database = argv[1];
  options.url = "ipc:///nonexistent/holdfast";
  holdfast::Relay relay;
  holdfast::Status s = holdfast::Relay::start(options, relay);
  if (s) s = relay.stop();
  if (!s) std::fprintf(stderr, "relay: %s\n", s.text());
  return s ? 0 : 1;
}
