#include "simulation.hpp"

#include <algorithm>
#include <exception>

namespace holdfast::simulation {

namespace {

constexpr int kSettleStepsMax = 3'000;
constexpr int kExchangeMax = 2'000;
constexpr std::size_t kGroupMax = 8;

}  // namespace

Simulation::Simulation(std::uint64_t seed, Control control, bool trace)
    : run_(seed, control, trace), device_(run_, link_), gateway_(run_, link_) {
  test::CrashDisk::seed_sqlite(seed);
}

const Run& Simulation::go() {
  const int steps = 60 + run_.below(120);
  try {
    for (int i = 0; i < steps && run_.broken.empty(); ++i) {
      one_step();
      run_.note(static_cast<std::uint64_t>(device_.operations()));
      run_.note(static_cast<std::uint64_t>(gateway_.operations()));
    }
    if (run_.broken.empty() && !settle()) run_.breach("stuck: it does not come to rest");
    if (run_.broken.empty()) verdict();
  } catch (const std::exception& error) {
    run_.breach(std::string("error: ") + error.what());
  }
  run_.note(run_.random());
  return run_;
}

// --- what happens --------------------------------------------------------------------------------

void Simulation::one_step() {
  look_after_power();
  const int what = run_.below(100);
  if (what < 26)
    pass(run_.percent(90) ? run_.below(60) : run_.below(3'000));
  else if (what < 60)
    deliver_some();
  else if (what < 76)
    device_.transact();
  else if (what < 84)
    spoil_a_frame();
  else if (what < (link_works_ ? 86 : 94))
    partition();
  else
    fate();
  device_.step_relay(route());
}

// What happens to the machines, not to frames.
void Simulation::fate() {
  Machine& machine = run_.percent(50) ? static_cast<Machine&>(device_) : gateway_;
  switch (run_.below(16)) {
    case 0:
      return machine.cut_now();
    case 1:
    case 2:
    case 3:
    case 4:
      return machine.arm_cut(run_.percent(60) ? 15 : 150);
    case 5:
    case 6:
      return machine.jump_wall();
    case 7:
      return device_.restart_application();
    case 8:
      return device_.restart_relay();
    case 9:
      return gateway_.restart();
    case 10:
    case 11:
      return device_.purge();
    case 12:
      return gateway_.purge();
    case 13:
      return fair_weather();
    default:
      return device_.operate();
  }
}

void Simulation::pass(std::int64_t ms) {
  device_.pass(ms);
  gateway_.pass(ms);
}

// A machine that is off comes back some time. A connection to one that went off breaks at once, or
// the device only notices that nobody answers.
void Simulation::look_after_power() {
  if (gateway_was_on_ && !gateway_.on() && run_.percent(50)) device_.break_connection();
  if (!device_.on() && run_.percent(25)) device_.power_on();
  if (!gateway_.on() && run_.percent(25)) gateway_.power_on();
  gateway_was_on_ = gateway_.on();
}

// --- the network ---------------------------------------------------------------------------------

void Simulation::deliver(std::vector<std::size_t> indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  std::vector<test::Packet> up, down;
  for (std::size_t i = indices.size(); i-- > 0;) {
    test::Packet packet = link_.take(indices[i]);
    auto& where = packet.up ? up : down;
    where.insert(where.begin(), std::move(packet));
  }
  if (!up.empty() && !gateway_.on()) run_.figures.dropped += static_cast<std::int64_t>(up.size());
  if (!up.empty()) gateway_.serve(up);
  for (const test::Packet& packet : down) device_.hear(packet);
}

void Simulation::deliver_some() {
  if (link_.empty() || !link_works_) return pass(run_.below(20));
  const auto reach =
      static_cast<int>(std::min<std::size_t>(link_.size(), run_.percent(80) ? 2 : 12));
  std::vector<std::size_t> indices = {static_cast<std::size_t>(run_.below(reach))};
  if (indices.front() > 0) ++run_.figures.late;
  while (indices.size() < 4 && run_.percent(30))
    indices.push_back(static_cast<std::size_t>(run_.below(static_cast<int>(link_.size()))));
  deliver(std::move(indices));
}

void Simulation::spoil_a_frame() {
  if (link_.empty()) return;
  const auto which = static_cast<std::size_t>(run_.below(static_cast<int>(link_.size())));
  if (run_.percent(50)) {
    run_.say("network", "a frame is lost");
    ++run_.figures.dropped;
    link_.lose(which);
  } else {
    run_.say("network", "a frame is copied");
    ++run_.figures.copied;
    link_.copy(which);
  }
}

void Simulation::partition() {
  link_works_ = !link_works_;
  run_.say("network", link_works_ ? "works again" : "is cut");
  if (link_works_) return;
  if (run_.percent(60)) device_.break_connection();
  for (std::size_t i = link_.size(); i-- > 0;) {
    if (run_.percent(50)) continue;
    ++run_.figures.dropped;
    link_.lose(i);
  }
}

// Whatever is under way arrives, in order, and is answered.
void Simulation::exchange() {
  device_.step_relay(route());
  for (int rounds = 0; !link_.empty() && run_.broken.empty(); ++rounds) {
    if (rounds == kExchangeMax) return run_.breach("stuck: frames without an end");
    std::vector<std::size_t> group;
    while (group.size() < std::min(kGroupMax, link_.size())) group.push_back(group.size());
    deliver(std::move(group));
    device_.step_relay(route());
  }
}

// A good network for a while; only the power may go.
void Simulation::fair_weather() {
  link_works_ = true;
  for (int rounds = 1 + run_.below(12); rounds > 0 && run_.broken.empty(); --rounds) {
    look_after_power();
    exchange();
    pass(std::min<std::int64_t>(device_.wait_ms(), 200));
  }
}

// --- the end -------------------------------------------------------------------------------------

bool Simulation::settle() {
  run_.say("world", "--- everything heals");
  link_works_ = true;
  device_.calm();
  gateway_.calm();
  gateway_.heal();
  device_.power_on();
  gateway_.power_on();
  device_.emit_last();
  for (int i = 0; i < kSettleStepsMax && run_.broken.empty(); ++i) {
    exchange();
    if (device_.quiet()) return true;
    pass(device_.wait_ms());
  }
  return !run_.broken.empty();
}

void Simulation::verdict() {
  const std::vector<Effect> effects = gateway_.effects();
  run_.figures.applied = static_cast<std::int64_t>(effects.size());
  run_.note(static_cast<std::uint64_t>(effects.size()));
  std::map<EventId, int> times;
  for (const Effect& effect : effects) ++times[effect.id];
  check_applied(times);
  check_order(effects);
  device_.check_end();
  gateway_.check_end();
}

void Simulation::check_applied(const std::map<EventId, int>& times) {
  const std::set<std::int64_t> dead = device_.dead();
  for (const auto& [id, fact] : run_.facts) {
    const auto found = times.find(id);
    const int applied = found == times.end() ? 0 : found->second;
    const std::string name = "event " + std::to_string(fact.seq);
    if (applied > 1)
      run_.breach("G4: " + name + " was applied " + std::to_string(applied) + " times");
    if (fact.fate == Fact::Fate::absent) {
      if (applied > 0) run_.breach("G1: " + name + " was applied and never committed");
      continue;
    }
    const bool is_dead = dead.count(fact.seq) != 0;
    if (is_dead) ++run_.figures.dead;
    if (is_dead && fact.rejections < run_.dead_after() && !fact.discarded)
      run_.breach("G6: " + name + " is dead without enough rejections");
    if (applied > 0) continue;
    if (fact.discarded) ++run_.figures.discarded;
    if (!is_dead && !fact.discarded)
      run_.breach("G3: " + name + " is lost");
    else if (!gateway_.told_gone(fact.seq, fact.lane))
      run_.breach("G9: " + name + " is given up, and the gateway was not told");
  }
}

// Within a lane and an aggregate, in order of commit; an event that was dead once has left it.
void Simulation::check_order(const std::vector<Effect>& effects) {
  std::map<std::pair<int, std::string>, std::int64_t> newest;
  for (const Effect& effect : effects) {
    const Fact& fact = run_.facts[effect.id];
    if (fact.rejections >= run_.dead_after()) continue;
    std::int64_t& before = newest[{fact.lane, fact.aggregate}];
    if (before > fact.seq)
      run_.breach("G5: event " + std::to_string(fact.seq) + " was applied after " +
                  std::to_string(before));
    before = std::max(before, fact.seq);
  }
}

}  // namespace holdfast::simulation
