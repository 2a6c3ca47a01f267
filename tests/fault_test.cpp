// Power and kill at exact points of the path, with real processes. After each: the device's rows
// and events agree, every effect happened exactly once, and the order was kept. Each kind of check
// has a control that shows it can fail.
#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <random>

#include "support/connection.hpp"
#include "support/scale.hpp"
#include "support/world.hpp"
#include "wire.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kWaitMs = 60'000;
constexpr int kEvents = 60;
const std::string kAll = std::to_string(kEvents);

bool succeeded(Process process) {
  const ExitStatus end = process.wait(kWaitMs);
  if (!end.exited || end.code != 0) MESSAGE(process.stderr_text());
  return end.exited && end.code == 0;
}

void check_right(const World& world, std::int64_t committed) {
  const Verdict verdict = world.verdict();
  CAPTURE(verdict.text());
  CHECK(verdict.right());
  CHECK(verdict.committed == committed);
}

bool is(int kind, wire::Kind wanted) { return kind == static_cast<int>(wanted); }

}  // namespace

TEST_CASE("killed before its commit, a device has neither the reading nor the event (G1)") {
  for (const int at : {1, 7, kEvents}) {
    CAPTURE(at);
    World world;
    Process device = world.device({{"count", kAll}, {"kill_before_commit", std::to_string(at)}});
    CHECK(was_killed(device));
    CHECK(world.verdict().committed == at - 1);
    CHECK(world.verdict().without_event == 0);
    CHECK(succeeded(world.device({{"count", "5"}})));
    CHECK(world.drain());
    check_right(world, at - 1 + 5);
  }
}

TEST_CASE(
    "killed after its commit, before anything was sent, a device still delivers all (G2, G3)") {
  for (const int at : {1, 7, kEvents}) {
    CAPTURE(at);
    World world;
    Process device = world.device({{"count", kAll}, {"kill_after_commit", std::to_string(at)}});
    CHECK(was_killed(device));
    CHECK(world.verdict().committed == at);
    CHECK(world.drain());
    check_right(world, at);
  }
}

TEST_CASE(
    "control: two commits instead of one, and a kill between leaves a reading without event") {
  World world;
  Process device = world.device({{"count", kAll}, {"two_commits", "1"}, {"kill_between", "7"}});
  CHECK(was_killed(device));
  CHECK(world.drain());
  CHECK(world.verdict().committed == 7);
  CHECK(world.verdict().without_event == 1);
  CHECK_FALSE(world.verdict().right());
}

TEST_CASE("relay killed while its batch is on the way, before it arrives: sent again (G3)") {
  World world;
  CHECK(succeeded(world.device({{"count", kAll}})));
  Process gateway = world.gateway();
  Process relay;
  std::atomic<int> batches{0};
  std::atomic<bool> cut{false};
  world.wire().set_judge([&](bool up, int kind) {
    if (!up || !is(kind, wire::Kind::batch) || ++batches < 2) return TcpProxy::Verdict::pass;
    cut = true;
    return TcpProxy::Verdict::cut;
  });
  relay = world.relay();
  while (!cut && relay.running()) relay.wait(5);
  relay.kill(SIGKILL);
  CHECK(was_killed(relay));
  gateway.kill(SIGKILL);
  CHECK(was_killed(gateway));
  CHECK(world.effects() < kEvents);
  CHECK(world.drain());
  check_right(world, kEvents);
}

TEST_CASE(
    "gateway killed before its commit: the batch comes again and takes effect once (G3, G4)") {
  for (const int at : {1, 5, 16, 17, kEvents}) {
    CAPTURE(at);
    World world;
    CHECK(succeeded(world.device({{"count", kAll}})));
    Process gateway = world.gateway({{"kill_in_handler", std::to_string(at)}});
    Process relay = world.relay();
    CHECK(was_killed(gateway));
    CHECK(world.effects() < at);
    CHECK(world.acked() < at);  // nothing was answered that was not committed
    relay.kill(SIGKILL);
    CHECK(was_killed(relay));
    CHECK(world.drain());
    check_right(world, kEvents);
  }
}

TEST_CASE("gateway killed after its commit, before its answer: sent again, filtered (G3, G4)") {
  for (const int at : {1, 5, 16, 17, kEvents}) {
    CAPTURE(at);
    World world;
    CHECK(succeeded(world.device({{"count", kAll}})));
    Process gateway = world.gateway({{"kill_after_commit", std::to_string(at)}});
    Process relay = world.relay();
    CHECK(was_killed(gateway));
    CHECK(world.effects() >= at);
    CHECK(world.acked() < world.effects());
    Process second = world.gateway();  // the same relay goes on with a new gateway
    while (world.acked() < kEvents && relay.running()) relay.wait(20);
    relay.kill(SIGKILL);
    CHECK(was_killed(relay));
    check_right(world, kEvents);
  }
}

TEST_CASE("every answer lost on the wire, the link cut each time: still once in effect (G3, G4)") {
  World world;
  CHECK(succeeded(world.device({{"count", kAll}})));
  std::atomic<int> acks{0};
  world.wire().set_judge([&](bool up, int kind) {
    const bool lost = !up && is(kind, wire::Kind::ack) && ++acks % 2 == 1;
    return lost ? TcpProxy::Verdict::cut : TcpProxy::Verdict::pass;
  });
  Process gateway = world.gateway();
  CHECK(succeeded(world.relay({{"drain", "1"}, {"batch", "5"}})));
  CHECK(acks >= 12);
  check_right(world, kEvents);
}

TEST_CASE("requests and answers swallowed without a word: the timeout finds out (G3, G4)") {
  World world;
  CHECK(succeeded(world.device({{"count", kAll}})));
  std::atomic<int> messages{0};
  world.wire().set_judge([&](bool, int) {
    return ++messages % 5 == 0 ? TcpProxy::Verdict::drop : TcpProxy::Verdict::pass;
  });
  Process gateway = world.gateway();
  CHECK(succeeded(world.relay({{"drain", "1"}, {"batch", "10"}, {"request_timeout", "150"}})));
  CHECK(messages >= 10);
  check_right(world, kEvents);
}

TEST_CASE("every request and every answer arrives twice: still once in effect, in order (G4, G5)") {
  World world;
  CHECK(succeeded(world.device({{"count", kAll}})));
  world.wire().set_judge([](bool, int) { return TcpProxy::Verdict::twice; });
  Process gateway = world.gateway();
  CHECK(succeeded(world.relay({{"drain", "1"}, {"batch", "5"}})));
  CHECK(world.wire().messages(true) >= kEvents / 5);
  check_right(world, kEvents);
  CHECK(world.acked() == kEvents);
}

TEST_CASE("relay killed after the answer, before the mark: sent again, filtered (G3, G4)") {
  for (const int at : {1, 17, kEvents}) {
    CAPTURE(at);
    World world;
    CHECK(succeeded(world.device({{"count", kAll}})));
    Process gateway = world.gateway();
    Process relay = world.relay({{"kill_after_sent", std::to_string(at)}, {"flush", "3600000"}});
    CHECK(was_killed(relay));
    CHECK(world.effects() >= at);
    CHECK(world.acked() < at);
    gateway.kill(SIGKILL);
    CHECK(was_killed(gateway));
    CHECK(world.drain());
    check_right(world, kEvents);
  }
}

TEST_CASE("control: the same kill with a consumer that keeps no inbox counts events twice") {
  World world;
  CHECK(succeeded(world.device({{"count", kAll}})));
  Process relay = world.relay({{"kill_after_sent", "17"}, {"flush", "3600000"}, {"naive", "1"}});
  CHECK(was_killed(relay));
  CHECK(succeeded(world.relay({{"drain", "1"}, {"naive", "1"}})));
  const Verdict verdict = world.verdict();
  CHECK(verdict.twice >= 17);
  CHECK_FALSE(verdict.right());
}

TEST_CASE("control: a lost, an invented and two swapped effects are seen by the comparison") {
  World world;
  CHECK(succeeded(world.device({{"count", kAll}})));
  CHECK(world.drain());
  check_right(world, kEvents);
  Connection gateway(world.gateway_db());
  gateway.run("BEGIN; DELETE FROM effect WHERE n=30");
  CHECK(gateway.number("SELECT count(*) FROM effect") == kEvents - 1);
  gateway.run("COMMIT");
  CHECK(world.verdict().lost == 1);
  gateway.run("UPDATE effect SET n=3000 WHERE n=" + kAll);
  CHECK(world.verdict().invented == 1);
  gateway.run("UPDATE effect SET n=CASE n WHEN 1 THEN 4 ELSE 1 END WHERE n IN (1,4)");
  CHECK(world.verdict().out_of_order >= 1);
}

TEST_CASE(
    "device, relay and gateway killed at random, again and again: nothing lost or twice (G1-G5)") {
  const std::uint64_t start = seed(4'711);
  CAPTURE(start);  // HOLDFAST_TEST_SEED
  std::mt19937_64 random(start);
  World world;
  const World::Options endless = {{"count", "1000000"}};
  Process device = world.device(endless), gateway = world.gateway(), relay = world.relay();
  const int rounds = scaled(30);
  int killed[3] = {0, 0, 0};
  for (int round = 0; round < rounds; ++round) {
    device.wait(static_cast<int>(random() % 120));  // it runs on: a pause of random length
    const std::uint64_t victim = random() % 3;
    ++killed[victim];
    Process& process = victim == 0 ? device : victim == 1 ? relay : gateway;
    process.kill(SIGKILL);
    REQUIRE(was_killed(process));
    if (victim == 0)
      device = world.device(endless);
    else if (victim == 1)
      relay = world.relay();
    else
      gateway = world.gateway();
  }
  // Everybody works again after the last kill: something new arrives.
  const std::int64_t before = world.effects();
  for (int i = 0; i < 1000 && world.effects() == before; ++i) relay.wait(20);
  CHECK(world.effects() > before);
  for (Process* process : {&device, &relay, &gateway}) {
    process->kill(SIGKILL);
    REQUIRE(was_killed(*process));
  }
  CHECK(world.drain({{"batch", "1024"}}));
  const Verdict verdict = world.verdict();
  CAPTURE(verdict.text());
  CHECK(verdict.right());
  CHECK(verdict.committed > rounds);
}
