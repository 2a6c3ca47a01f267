// One rule of the protocol each, told as a story; protocol_test.cpp mixes them all by seed.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "identity.hpp"
#include "support/connection.hpp"
#include "support/protocol_world.hpp"

using namespace holdfast;
using test::ProtocolWorld;
using test::WorldOptions;
using Seqs = std::vector<std::int64_t>;

namespace {

WorldOptions with_window(int window, int batch_events_max = 3) {
  WorldOptions options;
  options.window = window;
  options.batch_events_max = batch_events_max;
  return options;
}

std::int64_t of_device(ProtocolWorld& world, const std::string& query) {
  return world.number(world.devices[0]->db(), query);
}

std::int64_t of_gateway(ProtocolWorld& world, const std::string& query) {
  return world.number(world.gateway_db.handle(), query);
}

std::int64_t acked(ProtocolWorld& world) {
  return of_device(world, "SELECT acked_seq FROM outbox_destination");
}

std::size_t place(const Seqs& seqs, std::int64_t seq) {
  return static_cast<std::size_t>(std::find(seqs.begin(), seqs.end(), seq) - seqs.begin());
}

void check_kept(ProtocolWorld& world) {
  for (const std::string& line : world.verdict()) FAIL_CHECK(line);
}

void settle(ProtocolWorld& world) {
  std::string why;
  const bool settled = world.settle() || world.quiet(&why);
  CAPTURE(why);
  CHECK(settled);
  check_kept(world);
}

// Goes on until a frame of that direction is under way, and says where in the bag it is.
std::size_t wait_for_frame(ProtocolWorld& world, bool up, std::size_t frame_bytes_min = 0) {
  for (int i = 0; i < 1'000; ++i) {
    for (std::size_t at = 0; at < world.link.size(); ++at)
      if (world.link.at(at).up == up && world.link.at(at).bytes.size() >= frame_bytes_min)
        return at;
    if (!world.link.empty()) world.deliver({0});
    world.advance(5);
    world.step_all();
  }
  FAIL("no frame came");
  return 0;
}

std::size_t wait_for_batch(ProtocolWorld& world) {
  for (int i = 0; i < 1'000; ++i) {
    for (std::size_t at = 0; at < world.link.size(); ++at) {
      wire::Message message;
      wire::RefusedCode code{};
      if (world.link.at(at).up && wire::decode(world.link.at(at).bytes, message, code).ok() &&
          std::holds_alternative<wire::Batch>(message))
        return at;
    }
    if (!world.link.empty()) world.deliver({0});
    world.advance(5);
    world.step_all();
  }
  FAIL("no BATCH came");
  return 0;
}

void take_new_stream_by_hand(ProtocolWorld& world) {
  Transaction transaction(world.devices[0]->db());
  test::check_ok(transaction.begin(), "begin");
  test::check_ok(take_new_stream(world.devices[0]->db(), 0, "by hand"), "stream");
  test::check_ok(transaction.commit(), "commit");
  world.may_fork = true;
}

}  // namespace

TEST_CASE("G5: v1 to v9 queued offline and v10 emitted during the drain arrive as 1 to 10") {
  for (const int window : {1, 4}) {
    ProtocolWorld world(with_window(window, 2));
    world.link_works = false;
    for (int v = 1; v <= 9; ++v) world.emit(0, "a");
    world.run(500);
    world.link_works = true;
    for (int i = 0; i < 200 && world.effects().size() < 4; ++i) world.run(10);
    world.emit(0, "a");
    settle(world);
    CHECK(world.applied(0) == Seqs{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  }
}

TEST_CASE(
    "G6: a month offline counts no attempt, makes nothing dead and writes nothing per event") {
  ProtocolWorld world;
  world.emit(0, "a");
  settle(world);
  world.link_works = false;
  world.link_cut();
  for (int i = 0; i < 20; ++i) world.emit(0, "a");
  world.run(5'000);
  const std::int64_t before = of_device(world, "SELECT total_changes()");
  for (int minutes = 0; minutes < 30 * 24 * 60; minutes += 10) {
    world.advance(600'000);
    world.step_all();
  }
  CHECK(of_device(world, "SELECT total_changes()") == before);
  CHECK(of_device(world, "SELECT count(*) FROM outbox_exception") == 0);
  settle(world);
  CHECK(world.applied(0).size() == 21);
}

TEST_CASE("G3: late, copied, reordered and invented ACKs mark nothing that was not stored") {
  ProtocolWorld world(with_window(4, 1));
  world.emit(0, "a");
  world.deliver({wait_for_batch(world)});
  const std::size_t ack = wait_for_frame(world, false);
  world.link.copy(ack);
  world.link.copy(ack);
  world.deliver({ack});
  world.run(100);  // delivers the copies too
  CHECK(acked(world) == 1);

  SUBCASE("a copy that comes when the next event is under way") {
    world.emit(0, "a");
    const std::size_t batch = wait_for_batch(world);
    test::Packet late{false, 0, world.link.at(batch).relay, 1, {}};
    test::check_ok(wire::encode(wire::Ack{1, 1, 0, {}, {Outcome()}}, late.bytes), "ack");
    world.link.put(late);
    world.deliver({world.link.size() - 1});
    world.advance(60);
    world.step_all();
    CHECK(acked(world) == 1);
  }
  SUBCASE("an invented one that names the request, but another session and frame") {
    world.emit(0, "a");
    const std::size_t batch = wait_for_batch(world);
    test::Packet forged{false, 0, world.link.at(batch).relay, world.link.at(batch).token, {}};
    test::check_ok(wire::encode(wire::Ack{77, 99, 0, {2, {}}, {Outcome()}}, forged.bytes), "ack");
    world.link.lose(batch);
    world.link.put(forged);
    world.deliver({world.link.size() - 1});
    world.advance(60);
    world.step_all();
    CHECK(acked(world) == 1);
  }
  SUBCASE("one with fewer outcomes than events") {
    world.emit(0, "a");
    world.on_wire = [](test::Packet& packet) {
      wire::Message message;
      wire::RefusedCode code{};
      if (packet.up || !wire::decode(packet.bytes, message, code).ok()) return;
      if (auto* body = std::get_if<wire::Ack>(&message)) {
        body->outcomes.clear();
        test::check_ok(wire::encode(message, packet.bytes), "ack");
      }
    };
    world.run(300);
    CHECK(acked(world) == 1);
    world.on_wire = nullptr;
  }
  SUBCASE("two that overtake each other") {
    world.emit(0, "a");
    world.emit(0, "a");
    world.advance(1);
    world.step_all();
    REQUIRE(world.link.size() == 2);
    world.deliver({0});
    world.deliver({0});
    world.deliver({1});  // the answer to the second
    world.advance(60);
    world.step_all();
    CHECK(acked(world) == 1);
  }
  settle(world);
}

TEST_CASE("G5: a refused event holds back its own aggregate and no other") {
  for (const int window : {1, 4}) {
    ProtocolWorld world(with_window(window, window == 1 ? 10 : 1));
    world.answer = [](const EventRecord& event, int nth) {
      return event.source_seq == 2 && nth == 0 ? HandlerResult::reject("no")
                                               : HandlerResult::done();
    };
    for (const char* aggregate : {"a", "a", "a", "b"}) world.emit(0, aggregate);
    settle(world);
    const Seqs seqs = world.applied(0);
    CHECK(place(seqs, 1) < place(seqs, 2));
    CHECK(place(seqs, 2) < place(seqs, 3));
    CHECK(place(seqs, 4) < place(seqs, 2));
  }
}

TEST_CASE("G4: a redelivery after the inbox was purged has no second effect") {
  ProtocolWorld world;
  world.emit(0, "a");
  world.emit(0, "b");
  world.keep_flush_point(0);
  settle(world);
  world.purge_inbox();
  CHECK(of_gateway(world, "SELECT count(*) FROM inbox_event") == 0);
  world.power_cut(0, true, false);  // the cursor is back where it was; the wall clock is in 1970
  CHECK(acked(world) == 0);
  settle(world);
  CHECK(world.applied(0).size() == 2);
  CHECK(world.counter(world.gateway_db.handle(), "inbox_duplicates") == 2);
}

TEST_CASE("G5: an urgent event overtakes the backlog") {
  ProtocolWorld world(with_window(1, 1));
  world.link_works = false;
  for (int i = 0; i < 20; ++i) world.emit(0, "a");
  const std::int64_t alarm = world.emit(0, "a", kLaneUrgent);
  settle(world);
  CHECK(world.applied(0).front() == alarm);
}

TEST_CASE("G5: what waited behind an event is released when that is dead, and it may come later") {
  ProtocolWorld world;
  world.answer = [](const EventRecord& event, int) {
    return event.source_seq == 1 ? HandlerResult::reject("no") : HandlerResult::done();
  };
  world.emit(0, "a");
  world.emit(0, "a");
  settle(world);
  CHECK(world.applied(0) == Seqs{2});
  CHECK(of_device(world, "SELECT count(*) FROM outbox_exception WHERE status='DEAD'") == 1);
  CHECK(of_gateway(world, "SELECT count(*) FROM inbox_gap WHERE state='DEAD'") == 1);
  world.answer = nullptr;
  world.retry(0, 1);
  settle(world);
  CHECK(world.applied(0) == Seqs{2, 1});
  CHECK(of_gateway(world, "SELECT count(*) FROM inbox_gap") == 0);
}

TEST_CASE("G9: a discarded event is reported, and closes the gateway's gap") {
  ProtocolWorld world;
  world.answer = [](const EventRecord&, int) { return HandlerResult::reject("no"); };
  world.emit(0, "a");
  settle(world);
  world.discard(0, 1);
  settle(world);
  CHECK(of_gateway(world, "SELECT count(*) FROM inbox_gap WHERE state='GONE'") == 1);
  CHECK(world.counter(world.gateway_db.handle(), "gone_discarded") == 1);
}

TEST_CASE("G9: a damaged row goes dead alone and the gateway hears of it, even as the newest one") {
  ProtocolWorld world;
  world.emit(0, "a");
  world.emit_bad_row(0);
  settle(world);
  CHECK(world.applied(0) == Seqs{1});
  CHECK(of_gateway(world, "SELECT first_seq FROM inbox_gap WHERE state='DEAD'") == 2);
  world.emit(0, "a");  // passes it by: it stays dead there
  settle(world);
  CHECK(of_gateway(world, "SELECT first_seq FROM inbox_gap WHERE state='DEAD'") == 2);
}

TEST_CASE("G9: a gateway restored from a backup is told again what is dead") {
  ProtocolWorld world;
  world.emit(0, "a");
  settle(world);
  world.keep_gateway_backup();
  world.answer = [](const EventRecord& event, int) {
    return event.source_seq == 2 ? HandlerResult::reject("no") : HandlerResult::done();
  };
  world.emit(0, "b");
  world.emit(0, "a");
  settle(world);
  world.restore_gateway();
  world.emit(0, "a");
  settle(world);
  CHECK(of_gateway(world, "SELECT first_seq FROM inbox_gap WHERE state='DEAD'") == 2);
}

TEST_CASE("G7: a relay that slept past its lease can write nothing, and the other one works") {
  ProtocolWorld world;
  world.start_relay(0, 1);
  test::Device& device = *world.devices[0];
  world.emit(0, "a");
  world.deliver({wait_for_batch(world)});
  const std::size_t sleeper =
      of_device(world, "SELECT lease_owner='relay/1' FROM outbox_destination") == 1 ? 0 : 1;
  // Its ACK is in memory, not yet flushed, when it stops for a while.
  world.deliver({wait_for_frame(world, false)});
  device.seats[sleeper].suspended = true;
  const std::int64_t epoch = of_device(world, "SELECT lease_epoch FROM outbox_destination");
  world.emit(0, "a");
  world.run(world.options.lease_ms + 2'000);
  CHECK(world.applied(0) == Seqs{1, 2});
  CHECK(of_device(world, "SELECT lease_epoch FROM outbox_destination") == epoch + 1);
  device.seats[sleeper].suspended = false;
  world.step_all();
  CHECK(of_device(world, "SELECT lease_epoch FROM outbox_destination") == epoch + 1);
  CHECK(acked(world) == 2);
  settle(world);
}

TEST_CASE("G7: after a reboot the old lease and the times of the old boot are void at once") {
  WorldOptions options;
  options.lease_ms = 3'600'000;
  ProtocolWorld world(options);
  world.advance(30LL * 24 * 3'600'000);  // a month up: the new boot's clock is far behind
  world.answer = [](const EventRecord&, int) { return HandlerResult::retry_later(150, "not now"); };
  world.emit(0, "a");
  world.run(300);
  CHECK(of_device(world, "SELECT count(*) FROM outbox_exception WHERE status='RETRY'") == 1);
  world.power_cut(0, false, false);
  world.answer = nullptr;
  world.run(1'000);
  CHECK(world.applied(0) == Seqs{1});
  settle(world);
}

TEST_CASE("G3: a replaced gateway gets what is kept, and hears what is not") {
  ProtocolWorld world;
  for (int i = 0; i < 5; ++i) world.emit(0, "a");
  settle(world);
  world.purge_outbox(0);  // the newest one stays
  world.replace_gateway();
  world.emit(0, "a");
  settle(world);
  CHECK(world.applied(0) == Seqs{5, 6});
  CHECK(of_gateway(world, "SELECT last_seq-first_seq+1 FROM inbox_gap WHERE state='GONE'") == 4);
  CHECK(of_device(world, "SELECT count(*) FROM outbox_gap WHERE reason='purged'") == 1);
}

TEST_CASE("G3: a gateway restored from before the device's stream gets the older stream's events") {
  ProtocolWorld world;
  world.emit(0, "a");
  settle(world);
  world.keep_gateway_backup();
  world.emit(0, "a");
  world.emit(0, "a");
  settle(world);
  take_new_stream_by_hand(world);
  world.kill_relay(0, 0);
  world.advance(world.options.lease_ms);
  world.start_relay(0, 0);
  world.emit(0, "a");
  settle(world);
  world.restore_gateway();
  world.emit(0, "a");
  settle(world);
  CHECK(world.applied(0) == Seqs{1, 2, 3, 4, 5});
}

TEST_CASE("G3: a new stream begins even when all there is to send waits for a retry") {
  ProtocolWorld world;
  world.answer = [](const EventRecord&, int) { return HandlerResult::retry_later(10, "not now"); };
  world.emit(0, "a");
  world.run(200);
  CHECK(acked(world) == 1);
  take_new_stream_by_hand(world);
  world.kill_relay(0, 0);
  world.start_relay(0, 0);
  world.answer = nullptr;
  settle(world);
  CHECK(world.applied(0) == Seqs{1});
}

TEST_CASE("G11: a restored device that went another way is seen, and nothing of it is swallowed") {
  ProtocolWorld world;
  world.emit(0, "a");
  settle(world);
  world.keep_device_backup(0);
  world.emit(0, "a");
  settle(world);
  const EventId before = world.stream(0);
  world.restore_device(0);
  world.emit(0, "a");  // takes the seq of the one that is gone
  world.emit(0, "a");
  settle(world);
  CHECK(world.stream(0) != before);
  CHECK(world.counter(world.devices[0]->db(), "forks") == 1);
  CHECK(world.applied(0) == Seqs{1, 2, 3});
  CHECK(world.effects().size() == 4);
}

TEST_CASE("G11: two clones that take turns both get everything through") {
  ProtocolWorld world;
  world.emit(0, "a");
  settle(world);
  const int clone = world.clone_device(0);
  for (int i = 0; i < 4; ++i) {
    world.emit(0, "a");
    world.run(60);
    world.emit(clone, "a");
    world.run(60);
  }
  settle(world);
  CHECK(world.applied(0) == Seqs{1, 2, 3, 4, 5});
  CHECK(world.applied(clone) == Seqs{1, 2, 3, 4, 5});
  CHECK(world.stream(0) != world.stream(clone));
}

TEST_CASE("G11: a BATCH of an older session is refused and changes nothing") {
  ProtocolWorld world;
  world.emit(0, "a");
  const std::size_t batch = wait_for_batch(world);
  const test::Packet old = world.link.take(batch);
  world.link_cut();
  world.run(300);
  CHECK(world.applied(0) == Seqs{1});
  world.link.put(old);
  world.deliver({0});
  wire::Message message;
  wire::RefusedCode code{};
  REQUIRE(wire::decode(world.link.at(0).bytes, message, code).ok());
  REQUIRE(std::holds_alternative<wire::Refused>(message));
  CHECK(std::get<wire::Refused>(message).code == wire::RefusedCode::stale_session);
  settle(world);
}

TEST_CASE("G8: with too many exceptions the cursor stops, and goes on when they are accepted") {
  ProtocolWorld world(with_window(1, 1'024));
  world.answer = [](const EventRecord&, int) { return HandlerResult::retry_later(200, "not now"); };
  constexpr int kEvents = kMaxExceptionsPerDestination + 100;
  for (int i = 0; i < kEvents; ++i) world.emit(0, std::to_string(i));
  world.run(1'000);
  CHECK(acked(world) == kMaxExceptionsPerDestination);
  CHECK(of_device(world, "SELECT count(*) FROM outbox_exception") == kMaxExceptionsPerDestination);
  world.answer = nullptr;
  settle(world);
  CHECK(world.applied(0).size() == kEvents);
}

TEST_CASE("G9: a retry by hand stands, even if the relay was about to write something older") {
  ProtocolWorld world;
  world.answer = [](const EventRecord&, int) { return HandlerResult::reject("no"); };
  world.emit(0, "a");
  const std::string deaths = "SELECT count(*) FROM outbox_exception WHERE status='DEAD'";
  for (int i = 0; i < 1'000 && of_device(world, deaths) == 0; ++i) {
    world.advance(5);
    world.step_all();
    while (!world.link.empty()) {
      const bool report = !world.rejections.empty() &&
                          world.rejections.begin()->second == world.options.dead_after &&
                          world.link.at(0).up;
      if (report) break;
      world.deliver({0});
    }
  }
  // The report of the death is answered, and the relay has not written that down yet.
  REQUIRE(world.link.size() == 1);
  world.deliver({0});
  world.deliver({0});
  REQUIRE(of_device(world, "SELECT reported FROM outbox_exception") == 0);
  world.answer = nullptr;
  world.retry(0, 1);
  settle(world);
  CHECK(world.applied(0) == Seqs{1});
}

TEST_CASE("G5: two destinations stand where each of them stands") {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("holdfast-two-" + std::to_string(::getpid()) + ".db"))
                               .string();
  test::make_database(path);
  {
    test::Connection application(path);
    test::insert_events(application, 5);
    test::ManualClock clock;
    Delivery near, far;
    test::must(near.open(path, "near", true, clock));
    test::must(far.open(path, "far", true, clock));
    RelayCoreConfig config;
    config.local = true;
    config.owner = "near/1";
    RelayCore near_core(near, config);
    config.owner = "far/1";
    RelayCore far_core(far, config);
    std::vector<RelayAction> actions;
    std::int64_t wake_at = 0;
    test::must(near_core.step(clock.boot_ms(), actions, wake_at));
    REQUIRE(actions.size() == 1);
    const auto& batch = std::get<wire::Batch>(*actions[0].message);
    wire::Ack ack{batch.session, batch.frame_no, batch.lane, {}, {}};
    ack.outcomes.resize(batch.events.size());
    CHECK(ack.outcomes.size() == 5);
    test::must(near_core.reply(clock.boot_ms(), actions[0].token, ack));
    actions.clear();
    test::must(far_core.step(clock.boot_ms(), actions, wake_at));
    REQUIRE(actions.size() == 1);
    far_core.request_failed(clock.boot_ms(), actions[0].token,
                            Status::error(Code::unavailable, "down"));
    test::must(near_core.stop(clock.boot_ms()));
    test::must(far_core.stop(clock.boot_ms()));
    CHECK(application.number("SELECT acked_seq FROM outbox_destination WHERE name='near'") == 5);
    CHECK(application.number("SELECT acked_seq FROM outbox_destination WHERE name='far'") == 0);
  }
  for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((path + suffix).c_str());
}
