#include "device.hpp"

#include <algorithm>

#include "retention.hpp"
#include "support/frame_text.hpp"

namespace holdfast::simulation {

namespace {

constexpr int kFewFrames = 30;  // so that checkpoints happen often
constexpr std::int64_t kRequestTimeoutMs = 500;
constexpr std::int64_t kSlowPollMs = 5'000;  // the relay looks this often in any case
constexpr int kAnyLane = -1;

std::string blob(const EventId& id) {
  std::string hex = id.text();
  hex.erase(std::remove(hex.begin(), hex.end(), '-'), hex.end());
  return "X'" + hex + "'";
}

}  // namespace

DeviceMachine::DeviceMachine(Run& run, test::FrameLink& link)
    : Machine(run, "device"), link_(link) {
  aggregates_ = 1 + run.below(4);
}

void DeviceMachine::drop_processes() {
  seat_ = test::Seat();
  forged_.clear();
  delivery_.close();
  outbox_.detach();
  application_.reset();
}

// --- boot ----------------------------------------------------------------------------------------

Status DeviceMachine::boot() {
  InitOptions init;
  init.device = "device";
  init.page_size = run_.seed % 2 == 0 ? 1024 : 0;
  init.clock = &clock_;
  Status status = Store::init(disk_path(), init, nullptr);
  if (status.ok()) status = open_application();
  if (status.ok()) status = open_relay();
  return status;
}

Status DeviceMachine::open_application() {
  application_ = std::make_unique<test::Connection>(disk_path());
  const bool sabotaged = run_.control == Control::application_normal;
  if (sabotaged) application_->run("PRAGMA synchronous=NORMAL");
  application_->run("CREATE TABLE IF NOT EXISTS reading(n INTEGER PRIMARY KEY,event_id TEXT)");
  Status status = set_identity();
  OutboxOptions options;
  options.clock = &clock_;
  options.checkpoint_frames = run_.seed % 5 == 0 ? kCheckpointFrames : kFewFrames;
  if (sabotaged) options.durability = Durability::relaxed;
  if (status.ok()) status = Outbox::attach(*application_, options, outbox_);
  if (status.ok()) status = settle_open_facts();
  if (status.ok()) check_business_rows();
  return status;
}

// Store::init draws the stream's identity; ours is the seed's.
Status DeviceMachine::set_identity() {
  if (has_identity_) return Status();
  application_->run("UPDATE holdfast_meta SET value=" + blob(run_.fixed_id(0)) +
                    " WHERE key='stream_id'");
  has_identity_ = true;
  return Status();
}

Status DeviceMachine::open_relay() {
  Status status = delivery_.open(disk_path(), kDefaultDestination, false, clock_);
  if (!status.ok()) return status;
  seat_ = test::Seat();
  seat_.relay = ++relays_;
  RelayCoreConfig config;
  config.owner = "relay/" + std::to_string(seat_.relay);
  config.dead_after = run_.dead_after();
  config.retry_delay_min_ms = 20;
  config.retry_delay_max_ms = 200;
  config.link_delay_min_ms = 10;
  config.link_delay_max_ms = 100;
  config.lease_ms = 2'000;
  config.flush_interval_ms = 50;
  config.batch_events_max = 1 + static_cast<int>(run_.seed / 2 % 5);
  constexpr int kWindows[] = {1, 4, kWindowBatchesMax};
  config.window = kWindows[run_.seed % 3];
  config.paced = run_.seed % 7 == 0;
  config.seed = run_.random();
  if (run_.trace)
    config.log = [this](LogLevel, std::string_view text) { say("  " + std::string(text)); };
  seat_.core = std::make_unique<RelayCore>(delivery_, config);
  return Status();
}

// The COMMITs that had not returned when the power went: what resolve() says must be what the
// business rows say, and the same for the whole transaction.
Status DeviceMachine::settle_open_facts() {
  std::map<int, Fact::Fate> fates;
  for (auto& [id, fact] : run_.facts) {
    if (fact.fate != Fact::Fate::open) continue;
    const bool row = application_->number("SELECT count(*) FROM reading WHERE event_id='" +
                                          id.text() + "'") == 1;
    holdfast::Fate fate{};
    const Status status = outbox_.resolve({fact.seq, id}, fate);
    if (!status.ok()) return status;
    const bool event = fate == holdfast::Fate::committed;
    if (row != event) run_.breach("G1: business row and event of " + id.text() + " differ");
    fact.fate = row ? Fact::Fate::committed : Fact::Fate::absent;
    const auto [known, is_new] = fates.emplace(fact.transaction, fact.fate);
    if (!is_new && known->second != fact.fate)
      run_.breach("G1: transaction " + std::to_string(fact.transaction) + " is there in part");
    if (is_new && row) ++run_.figures.unknown_there;
    say("the COMMIT without an answer of " + std::to_string(fact.seq) +
        (row ? " is there" : " is not there"));
  }
  return Status();
}

// --- the application -----------------------------------------------------------------------------

void DeviceMachine::write_row(const std::string& aggregate, int lane, std::vector<EventId>& ids) {
  const EventId id = run_.id();
  application_->run("INSERT INTO reading(event_id) VALUES('" + id.text() + "')");
  const std::string payload(static_cast<std::size_t>(run_.percent(10) ? 1'500 : run_.below(100)),
                            static_cast<char>('a' + run_.below(26)));
  Event event = test::sensor_event(aggregate, payload);
  event.id = id;
  event.lane = lane;
  Emitted emitted;
  test::must(outbox_.emit(event, &emitted));
  Fact fact;
  fact.seq = emitted.seq;
  fact.aggregate = aggregate;
  fact.lane = lane;
  fact.transaction = transactions_;
  fact.fate = Fact::Fate::absent;  // until its COMMIT is asked for
  run_.facts[id] = fact;
  ids.push_back(id);
}

void DeviceMachine::transaction(int rows, int lane, bool gives_up) {
  ++transactions_;
  ++run_.figures.transactions;
  std::vector<EventId> ids;
  Fact::Fate fate = Fact::Fate::absent;
  doing("emits", [&] {
    application_->run("BEGIN IMMEDIATE");
    for (int i = 0; i < rows; ++i)
      write_row(std::string(1, static_cast<char>('a' + run_.below(aggregates_))),
                lane != kAnyLane   ? lane
                : run_.percent(25) ? kLaneUrgent
                                   : kLaneNormal,
                ids);
    if (!gives_up) fate = Fact::Fate::open;
    application_->run(gives_up ? "ROLLBACK" : "COMMIT");
    if (!gives_up) fate = Fact::Fate::committed;
    return Status();
  });
  std::string seqs;
  for (const EventId& id : ids) {
    Fact& fact = run_.facts[id];
    fact.fate = fate;
    seqs += " " + std::to_string(fact.seq) + fact.aggregate + (fact.lane == kLaneUrgent ? "!" : "");
  }
  if (fate == Fact::Fate::committed) run_.figures.events += static_cast<std::int64_t>(ids.size());
  if (fate == Fact::Fate::open) ++run_.figures.unknown;
  constexpr const char* kFates[] = {"COMMIT without an answer", "committed", "not committed"};
  say(std::string(kFates[static_cast<int>(fate)]) + ":" + seqs);
  if (seat_.core && run_.percent(80)) seat_.core->committed();  // else the slow poll finds it
}

void DeviceMachine::transact() {
  if (!on()) return;
  transaction(run_.percent(5) ? 15 : 1 + run_.below(3), kAnyLane, run_.percent(10));
}

void DeviceMachine::emit_last() {
  for (int lane = 0; lane < kLaneCount && on(); ++lane) transaction(1, lane, false);
}

// Killed, half of the time inside a transaction.
void DeviceMachine::restart_application() {
  doing("restarts its application", [this] {
    std::vector<EventId> ids;
    ++transactions_;
    if (run_.percent(50)) {
      application_->run("BEGIN IMMEDIATE");
      write_row("a", kLaneNormal, ids);
    }
    outbox_.detach();
    application_.reset();
    say("application killed");
    return open_application();
  });
}

// --- the relay -----------------------------------------------------------------------------------

void DeviceMachine::send(std::uint64_t token, const wire::Message& message) {
  test::Packet packet{true, 0, seat_.relay, token, {}};
  test::must(wire::encode(message, packet.bytes));
  link_.put(std::move(packet));
  ++run_.figures.frames;
  if (run_.trace) say("sends #" + std::to_string(token) + " " + test::frame_text(message));
  const auto* batch = std::get_if<wire::Batch>(&message);
  if (run_.control != Control::marked_before_ack || batch == nullptr) return;
  wire::Ack ack;
  ack.session = batch->session;
  ack.frame_no = batch->frame_no;
  ack.lane = batch->lane;
  ack.outcomes.resize(batch->events.size());
  for (Outcome& outcome : ack.outcomes) outcome.kind = Outcome::Kind::stored;
  forged_.emplace_back(token, std::move(ack));
}

Status DeviceMachine::hear_forged() {
  Status status;
  for (const auto& [token, message] : forged_) {
    seat_.deadline.erase(token);
    if (status.ok()) status = seat_.core->reply(now(), token, message);
  }
  forged_.clear();
  return status;
}

void DeviceMachine::step_relay(bool route) {
  if (!seat_.core) return;
  doing("relays", [&] {
    seat_.finish_connecting(now(), route);
    for (const std::uint64_t token : seat_.expire(now()))
      say("#" + std::to_string(token) + " times out");
    Status status = seat_.go_on(
        now(), kRequestTimeoutMs, [this] { return 1 + run_.below(5); },
        [this](std::uint64_t token, const wire::Message& message) { send(token, message); });
    if (status.ok()) status = hear_forged();
    if (status.ok() && delivery_.wal_frames() >= kFewFrames) status = delivery_.checkpoint();
    return status;
  });
}

void DeviceMachine::hear(const test::Packet& packet) {
  if (!seat_.core || seat_.relay != packet.relay || !seat_.up) return;
  doing("hears", [&] {
    wire::Message message;
    wire::RefusedCode code{};
    const Status decoded = wire::decode(packet.bytes, message, code);
    if (!decoded.ok()) return decoded;
    seat_.deadline.erase(packet.token);
    if (run_.trace) say("hears #" + std::to_string(packet.token) + " " + test::frame_text(message));
    return seat_.core->reply(now(), packet.token, message);
  });
}

void DeviceMachine::restart_relay() {
  doing("restarts its relay", [this] {
    const bool politely = run_.percent(30);
    say(politely ? "relay stops" : "relay killed");
    Status status = politely ? seat_.core->stop(now()) : Status();
    seat_ = test::Seat();
    delivery_.close();
    return status.ok() ? open_relay() : status;
  });
}

void DeviceMachine::break_connection() {
  doing("loses its connection", [this] {
    if (seat_.core) seat_.break_connection(now());
    return Status();
  });
}

void DeviceMachine::purge() {
  doing("purges", [this] {
    PurgeOptions options;
    options.outbox_older_than_ms = run_.percent(70) ? 0 : 3'600'000;
    options.inbox_older_than_ms = -1;
    PurgeResult result;
    const Status status = purge_step(delivery_.db(), clock_, options, result);
    if (result.outbox_rows > 0) say("purged " + std::to_string(result.outbox_rows) + " events");
    return status;
  });
}

std::int64_t DeviceMachine::wait_ms() const {
  if (!seat_.core) return 1;
  return std::max<std::int64_t>(1, std::min(kSlowPollMs, seat_.due_at() - now()));
}

bool DeviceMachine::quiet() {
  if (!seat_.core || !seat_.core->idle()) return false;
  seat_.core->committed();  // the slow poll
  bool quiet = false;
  doing("looks around", [&] {
    Store store;
    StoreOptions options;
    options.clock = &clock_;
    StoreStats stats;
    Status status = Store::open(disk_path(), Access::read_only, options, store);
    if (status.ok()) status = store.stats(stats);
    if (!status.ok()) return status;
    const DestinationStats& upstream = stats.destinations.front();
    quiet = upstream.pending == 0 && upstream.retry == 0 && upstream.held == 0 &&
            stats.gaps_unreported == 0 &&
            application_->number("SELECT count(*) FROM outbox_exception WHERE reported=0") == 0;
    return status;
  });
  return quiet;
}

// --- the operator --------------------------------------------------------------------------------

void DeviceMachine::operate() {
  doing("is operated", [this] {
    const std::vector<std::string> seqs =
        application_->column("SELECT seq FROM outbox_exception ORDER BY seq");
    if (seqs.empty()) return Status();
    const std::int64_t seq =
        std::stoll(seqs[static_cast<std::size_t>(run_.below(static_cast<int>(seqs.size())))]);
    const bool gives_up = run_.percent(40);
    say((gives_up ? "discard " : "retry ") + std::to_string(seq) + " by hand");
    if (gives_up) run_.facts[id_at(seq)].discarded = true;
    StoreOptions options;
    options.clock = &clock_;
    Store store;
    Status status = Store::open(disk_path(), Access::read_write, options, store);
    std::int64_t changed = 0;
    if (status.ok())
      status = gives_up ? store.discard(seq, "", "a test", changed) : store.retry(seq, "", changed);
    if (status.ok() && seat_.core) seat_.core->committed();
    return status;
  });
}

// --- look ----------------------------------------------------------------------------------------

EventId DeviceMachine::id_at(std::int64_t seq) const {
  for (const auto& [id, fact] : run_.facts)
    if (fact.seq == seq && fact.fate == Fact::Fate::committed) return id;
  return EventId();
}

void DeviceMachine::check_business_rows() {
  std::set<EventId> there;
  for (const std::string& text : application_->column("SELECT event_id FROM reading")) {
    EventId id;
    EventId::parse(text, id);
    if (!there.insert(id).second) run_.breach("G1: two business rows of " + text);
    const auto fact = run_.facts.find(id);
    if (fact == run_.facts.end() || fact->second.fate == Fact::Fate::absent)
      run_.breach("G1: the business row of " + text + " was never committed");
  }
  for (const auto& [id, fact] : run_.facts)
    if (fact.fate == Fact::Fate::committed && there.count(id) == 0)
      run_.breach("G2: committed, and its business row is gone: event " + std::to_string(fact.seq));
}

// Every event that was not purged is there, at its place.
void DeviceMachine::check_log() {
  std::int64_t seq = application_->number("SELECT min(seq) FROM outbox_event");
  for (const std::string& text : application_->column("SELECT event_id FROM outbox_event ORDER BY"
                                                      " seq")) {
    if (id_at(seq).text() != text) run_.breach("G1: event " + std::to_string(seq) + " is another");
    ++seq;
  }
  for (const auto& [id, fact] : run_.facts)
    if (fact.fate == Fact::Fate::committed && fact.seq >= seq)
      run_.breach("G2: committed, and not in the log: event " + std::to_string(fact.seq));
}

std::set<std::int64_t> DeviceMachine::dead() {
  std::set<std::int64_t> seqs;
  for (const std::string& seq :
       application_->column("SELECT seq FROM outbox_exception WHERE status='DEAD'"))
    seqs.insert(std::stoll(seq));
  return seqs;
}

void DeviceMachine::check_end() {
  check_business_rows();
  check_log();
  if (application_->text("PRAGMA integrity_check") != "ok")
    run_.breach("device: integrity_check: " + application_->text("PRAGMA integrity_check"));
  if (application_->number("SELECT value FROM holdfast_counter WHERE name='forks'") != 0)
    run_.breach("G11: the device took a new stream without a reason");
  if (application_->number("SELECT rewinds FROM outbox_destination") != 0)
    run_.breach("G3: the gateway had lost what it had acknowledged: the device went back");
}

}  // namespace holdfast::simulation
