// The program `relay_steps` of instructions_test.py: what a relay does to have all events of a
// database acknowledged, without threads, sockets and time, so that it takes the same number of
// instructions each time. Reading, batches, encoding, decoding and the cursor are the relay's own.
#include "relay_core.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"
#include "support/programs.hpp"

namespace holdfast::test {

namespace {

// What a gateway that takes everything answers.
wire::Message answer_to(const wire::Message& message, const EventId& store) {
  if (const auto* hello = std::get_if<wire::Hello>(&message)) {
    wire::Welcome welcome;
    welcome.session = hello->session;
    welcome.store = store;
    for (int lane = 0; lane < kLaneCount; ++lane) {
      welcome.lanes.emplace_back();
      welcome.lanes.back().lane = static_cast<std::uint8_t>(lane);
    }
    return welcome;
  }
  const auto& batch = std::get<wire::Batch>(message);
  wire::Ack ack;
  ack.session = batch.session;
  ack.frame_no = batch.frame_no;
  ack.lane = batch.lane;
  ack.outcomes.resize(batch.events.size());
  ack.mark = {batch.events.back().seq, batch.events.back().id};
  return ack;
}

int run(const Arguments& arguments) {
  const ManualClock clock;
  const EventId store = EventId::make_random();
  Delivery delivery;
  must(delivery.open(arguments.text("db"), "upstream", false, clock));
  RelayCoreConfig config;
  config.owner = "steps";
  RelayCore core(delivery, config);
  const std::int64_t now = clock.boot_ms();
  std::string frame;
  for (bool sent = true; sent;) {
    std::vector<RelayAction> actions;
    std::int64_t wake_at = 0;
    must(core.step(now, actions, wake_at));
    sent = !actions.empty();
    for (const RelayAction& action : actions) {
      if (action.kind == RelayAction::Kind::connect) core.link_up(now);
      if (action.kind != RelayAction::Kind::send) continue;
      must(wire::encode(*action.message, frame));
      const wire::Message answer = answer_to(*action.message, store);
      must(wire::encode(answer, frame));
      wire::Message arrived;
      wire::RefusedCode refused;
      must(wire::decode(frame, arrived, refused));
      must(core.reply(now, action.token, arrived));
    }
  }
  must(core.stop(now));
  return core.state().sent_events == arguments.number("events") ? 0 : 1;
}

const Program kRelaySteps("relay_steps", run);

}  // namespace

}  // namespace holdfast::test
