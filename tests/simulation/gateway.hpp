// The gateway: a consumer whose effects are rows of the gateway's own database, written in the
// handler's transaction. It serves as Gateway does, without its sockets.
#pragma once

#include <memory>
#include <vector>

#include "db.hpp"
#include "gateway_core.hpp"
#include "machine.hpp"
#include "support/connection.hpp"
#include "support/frame_link.hpp"

namespace holdfast::simulation {

struct Effect {
  EventId id{};
  std::int64_t seq = 0;  // at the device
  int lane = 0;
};

class GatewayMachine : public Machine {
 public:
  GatewayMachine(Run& run, test::FrameLink& link);
  ~GatewayMachine() override { drop_processes(); }

  // One commit for all of them, then the answers.
  void serve(const std::vector<test::Packet>& group);
  void restart();  // the process
  void purge();
  void heal() { healed_ = true; }  // handlers refuse for a good reason alone from here on

  std::vector<Effect> effects();  // in order of application
  bool told_gone(std::int64_t seq, int lane);
  void check_end();
  bool poisoned(const EventId& id) const;

 private:
  Status boot() override;
  void drop_processes() override;
  Status open();
  Status accept(const std::vector<test::Packet>& group, std::vector<std::string>& answers);
  void answer(const std::vector<test::Packet>& group, const std::vector<std::string>& answers);
  Status upkeep();
  HandlerResult handle(const EventRecord& event, sqlite3* db);
  HandlerResult opinion(const EventRecord& event);
  Status apply(const EventRecord& event, sqlite3* db);

  test::FrameLink& link_;
  Db db_, guard_;
  WalHookSlot hook_;
  int wal_frames_ = 0;
  std::unique_ptr<test::Connection> outside_;  // control: effects that are a commit of their own
  std::unique_ptr<GatewayCore> core_;
  std::uint64_t salt_;
  bool healed_ = false, has_identity_ = false;
};

}  // namespace holdfast::simulation
