// Devices, a network and a gateway in one process: the real RelayCore, Delivery, GatewayCore and
// inbox over real databases in memory, driven step by step, and the oracle that says whether every
// promise was kept. No threads, sockets or sleep: a seed replays a run exactly.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "delivery.hpp"
#include "gateway_core.hpp"
#include "support/frame_link.hpp"
#include "support/manual_clock.hpp"
#include "support/relay_seat.hpp"

namespace holdfast::test {

struct WorldOptions {
  int window = 1;
  bool paced = false;  // else the whole window is used, whatever the link carries
  int batch_events_max = 3;
  int dead_after = 3;
  bool with_handler = true;  // false: events go to the gateway's own log
  std::int64_t lease_ms = 2'000;
  std::int64_t request_timeout_ms = 500;
  std::uint64_t seed = 1;
};

// One event that a device committed, as the test remembers it; its seq is its place in the log.
struct Fact {
  EventId id{};
  int lane = kLaneNormal;
  std::string aggregate;
  bool bad = false;  // no valid event: can only go dead
};

// One event applied at the gateway, as its database has it.
struct Effect {
  EventId id{};
  EventId stream{};
  std::int64_t seq = 0;
  int lane = kLaneNormal;
};

struct Device {
  ManualClock clock;
  Delivery delivery;
  Statement insert, quiet_exceptions, quiet_events;
  std::vector<Seat> seats;

  std::vector<Fact> log;
  std::set<std::int64_t> discarded, purged;
  std::set<EventId> streams;  // that it ever had

  sqlite3* db() { return delivery.db().handle(); }
};

class ProtocolWorld {
 public:
  explicit ProtocolWorld(const WorldOptions& options = {});
  // Everything as at the beginning; the databases are used again.
  void reset(const WorldOptions& options);

  // --- what a person, a program or fate does ---
  std::int64_t emit(int device, const std::string& aggregate, int lane = kLaneNormal);
  std::int64_t emit_bad_row(int device);
  void start_relay(int device, int seat);
  void kill_relay(int device, int seat);
  void stop_relay(int device, int seat);
  // Without `flush`, what was committed since the last synced commit may be gone: a power cut.
  void keep_flush_point(int device);
  void power_cut(int device, bool lose_unsynced, bool wall_known);
  void retry(int device, std::int64_t seq);
  void discard(int device, std::int64_t seq);
  void purge_outbox(int device);
  void purge_inbox();
  void restart_gateway();
  void replace_gateway();
  void keep_gateway_backup();
  void restore_gateway();
  void keep_device_backup(int device);
  void restore_device(int device);
  int clone_device(int device);  // returns the new device's number
  void link_cut();               // every connection breaks
  bool link_works = true;

  // --- time and frames ---
  void advance(std::int64_t ms);
  void step(int device);  // fires what is due, lets its relays go on
  void step_all();
  // Delivers these frames; those to the gateway are one group with one commit.
  enum class Group { commit, abandon, commit_unknown };
  void deliver(std::vector<std::size_t> indices, Group group = Group::commit);
  void deliver_all();  // in order, until nothing is under way
  // A good network for that long.
  void run(std::int64_t ms);
  // A good network until everything is where it should be; false: stuck.
  bool settle(int steps_max = 3'000);
  bool quiet(std::string* why = nullptr);

  // --- look ---
  std::vector<Effect> effects();
  std::vector<std::int64_t> applied(int device);  // seqs of its events, in order of application
  std::int64_t number(sqlite3* db, const std::string& query);
  std::vector<std::string> column(sqlite3* db, const std::string& query);
  std::int64_t counter(sqlite3* db, const std::string& name);
  EventId stream(int device);
  // Checks the promises; each line of the result is one that was broken.
  std::vector<std::string> verdict();

  // A whole random run from options.seed: chaos, healing, verdict.
  struct Features {
    bool two_relays = false, power_cuts = false, operators = false, purges = false;
    bool gateway_restore = false, device_copies = false, bad_rows = false, poison = false;
    int steps = 80, aggregates = 2;
  };
  Features draw_features();
  std::vector<std::string> run_schedule(const Features& features);
  // Called between two steps of a schedule: where controls break something on purpose.
  std::function<void()> between_steps;
  // Frames pass here on their way; where controls forge something.
  std::function<void(Packet&)> on_wire;

  WorldOptions options;
  FrameLink link;
  std::vector<std::unique_ptr<Device>> devices;
  ManualClock gateway_clock;
  Db gateway_db;
  std::unique_ptr<GatewayCore> gateway;
  // What the handler says the nth time (from 0) it sees an event.
  std::function<HandlerResult(const EventRecord&, int nth)> answer;
  std::map<EventId, int> calls, rejections;
  bool gateway_lost_state = false;
  bool may_fork = false;
  std::mt19937_64 random;
  bool trace;
  std::vector<std::string> lines;  // the trace
  void say(const std::string& line) {
    if (trace) lines.push_back(line);
  }
  int below(int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  Device& device(int index) { return *devices[static_cast<std::size_t>(index)]; }
  Device& add_device(sqlite3* from);
  void empty_device(Device& device);
  void empty_gateway();
  void set_id(sqlite3* db, const char* key);
  std::int64_t number(Statement& statement, sqlite3* db, const char* query);
  void open_gateway();
  void send(int index, const Seat& seat, std::uint64_t token, const wire::Message& message);
  void committed(Device& device);
  HandlerResult handle(const EventRecord& event, sqlite3* db);
  EventId next_id();
  void chaos_step(const Features& features);
  void fate(const Features& features);

  struct Backup {
    Db db;
    bool valid = false;
    std::vector<Fact> log;
    std::set<std::int64_t> discarded, purged;
  };
  Db device_template_, gateway_template_;
  std::vector<std::unique_ptr<Device>> spare_;
  Backup device_backup_, flush_point_, gateway_backup_;
  int flush_point_of_ = -1;
  Statement effect_;
  std::uint64_t relays_ = 0;
};

// Throws with the Status's text unless it is ok.
void check_ok(const Status& status, const char* what);

}  // namespace holdfast::test
