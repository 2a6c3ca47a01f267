// A device and a gateway, each with a disk that loses power at any operation, clocks that jump, and
// a network that loses, copies, delays and reorders between them: the real library, driven by one
// seed. At the end everything heals, and each promise is checked.
#pragma once

#include "device.hpp"
#include "gateway.hpp"
#include "run.hpp"
#include "support/frame_link.hpp"

namespace holdfast::simulation {

class Simulation {
 public:
  Simulation(std::uint64_t seed, Control control, bool trace);

  // Throws nothing; run.broken says what went wrong.
  const Run& go();

 private:
  void one_step();
  void fate();
  void pass(std::int64_t ms);
  void deliver_some();
  void deliver(std::vector<std::size_t> indices);
  void spoil_a_frame();
  void partition();
  void look_after_power();
  void exchange();
  void fair_weather();
  bool settle();
  void verdict();
  void check_order(const std::vector<Effect>& effects);
  void check_applied(const std::map<EventId, int>& times);
  bool route() const { return link_works_ && gateway_.on(); }

  Run run_;
  test::FrameLink link_;
  DeviceMachine device_;
  GatewayMachine gateway_;
  bool link_works_ = true, gateway_was_on_ = false;
};

}  // namespace holdfast::simulation
