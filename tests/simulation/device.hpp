// The device: an application that writes business rows and their events, a relay, and an operator,
// on one database.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "delivery.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "machine.hpp"
#include "support/connection.hpp"
#include "support/frame_link.hpp"
#include "support/relay_seat.hpp"

namespace holdfast::simulation {

class DeviceMachine : public Machine {
 public:
  DeviceMachine(Run& run, test::FrameLink& link);
  ~DeviceMachine() override { drop_processes(); }

  // --- the application ---
  void transact();  // some business rows, each with its event; now and then rolled back
  void restart_application();
  void emit_last();  // one event for each lane: something to say
  // --- the relay ---
  void step_relay(bool route);
  void hear(const test::Packet& packet);
  void restart_relay();
  void break_connection();
  bool quiet();                  // nothing is under way or pending, in memory and in the database
  std::int64_t wait_ms() const;  // until the relay has something to do
  void purge();
  // --- the operator ---
  void operate();

  // At the end: business rows, events and counters against what the application remembers.
  void check_end();
  std::set<std::int64_t> dead();  // seqs that its database gave up for now

 private:
  Status boot() override;
  void drop_processes() override;
  Status open_application();
  Status open_relay();
  Status set_identity();
  Status settle_open_facts();
  void check_business_rows();
  void check_log();
  void write_row(const std::string& aggregate, int lane, std::vector<EventId>& ids);
  void transaction(int rows, int lane, bool gives_up);
  EventId id_at(std::int64_t seq) const;  // of a committed event
  void send(std::uint64_t token, const wire::Message& message);
  Status hear_forged();

  test::FrameLink& link_;
  std::unique_ptr<test::Connection> application_;
  Outbox outbox_;
  Delivery delivery_;
  test::Seat seat_;
  std::uint64_t relays_ = 0;
  int transactions_ = 0;
  int aggregates_ = 1;
  bool has_identity_ = false;
  std::vector<std::pair<std::uint64_t, wire::Message>> forged_;
};

}  // namespace holdfast::simulation
