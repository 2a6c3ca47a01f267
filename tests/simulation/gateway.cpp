#include "gateway.hpp"

#include <algorithm>

#include "holdfast/store.hpp"
#include "retention.hpp"
#include "schema.hpp"

namespace holdfast::simulation {

namespace {

constexpr int kFewFrames = 40;  // so that checkpoints happen often
constexpr int kPoisonPercent = 4;
constexpr const char* kEffectTable =
    "CREATE TABLE IF NOT EXISTS effect(id INTEGER PRIMARY KEY,event_id TEXT,seq INTEGER,"
    "lane INTEGER)";

}  // namespace

GatewayMachine::GatewayMachine(Run& run, test::FrameLink& link)
    : Machine(run, "gateway"), link_(link), salt_(run.random()) {}

void GatewayMachine::drop_processes() {
  core_.reset();
  outside_.reset();
  guard_.close();
  db_.close();
}

// --- boot ----------------------------------------------------------------------------------------

Status GatewayMachine::boot() {
  InitOptions init;
  init.destination.clear();
  init.device = "gateway";
  init.page_size = run_.seed % 2 == 0 ? 1024 : 0;
  init.clock = &clock_;
  Status status = Store::init(disk_path(), init, nullptr);
  if (status.ok()) status = open();
  return status;
}

Status GatewayMachine::open() {
  Status status = Db::open(disk_path(), OpenMode::read_write, kBusyTimeoutMs, db_);
  if (status.ok()) status = db_.exec(kEffectTable, "effect");
  if (status.ok() && run_.control == Control::gateway_unsynced)
    status = db_.exec("PRAGMA synchronous=OFF", "control");
  if (run_.control == Control::effect_outside) {
    outside_ = std::make_unique<test::Connection>(disk_.path("effects.db"));
    outside_->run(kEffectTable);
  }
  if (status.ok() && run_.control == Control::marks_forgotten)
    status = db_.exec("DELETE FROM inbox_stream;DELETE FROM inbox_gap;DELETE FROM inbox_event",
                      "control");
  if (status.ok() && !has_identity_) {  // Store::init draws one; ours is the seed's
    Statement set;
    status = set.prepare(db_.handle(), sql::kMetaSet);
    if (status.ok())
      status = set.bind_text(1, "store_id").bind_id(2, run_.fixed_id(1)).run("store_id");
    has_identity_ = status.ok();
  }
  if (!status.ok()) return status;
  wal_frames_ = 0;
  hook_ = {[](void* frames, int count) { *static_cast<int*>(frames) = count; }, &wal_frames_};
  install_wal_hook(db_.handle(), &hook_);
  GatewayCoreConfig config;
  config.handler = [this](const EventRecord& event, sqlite3* db) { return handle(event, db); };
  if (run_.trace)
    config.log = [this](LogLevel, std::string_view text) { say("  " + std::string(text)); };
  core_ = std::make_unique<GatewayCore>(db_.handle(), clock_, config);
  return core_->open();
}

void GatewayMachine::restart() {
  doing("restarts", [this] {
    say("process killed");
    drop_processes();
    return open();
  });
}

// --- serving -------------------------------------------------------------------------------------

void GatewayMachine::serve(const std::vector<test::Packet>& group) {
  if (!on()) return;
  std::vector<std::string> answers(group.size());
  if (!doing("serves", [&] { return accept(group, answers); })) return;
  if (run_.control != Control::answer_first) answer(group, answers);
  doing("looks after its database", [this] { return upkeep(); });
}

Status GatewayMachine::accept(const std::vector<test::Packet>& group,
                              std::vector<std::string>& answers) {
  Status status = core_->begin();
  for (std::size_t i = 0; i < group.size() && status.ok(); ++i)
    status = core_->accept(group[i].bytes, now(), answers[i]);
  if (status.ok() && run_.control == Control::answer_first) answer(group, answers);
  if (status.ok()) status = core_->commit();
  if (!status.ok()) core_->abandon();
  return status;
}

void GatewayMachine::answer(const std::vector<test::Packet>& group,
                            const std::vector<std::string>& answers) {
  for (std::size_t i = 0; i < group.size(); ++i) {
    ++run_.figures.frames;
    link_.put({false, group[i].device, group[i].relay, group[i].token, answers[i]});
  }
}

Status GatewayMachine::upkeep() {
  if (wal_frames_ < kFewFrames) return Status();
  Status status;
  if (!guard_.is_open()) status = Db::open(disk_path(), OpenMode::read_write, 0, guard_);
  CheckpointResult result;
  if (status.ok()) status = guarded_checkpoint(db_.handle(), guard_, result);
  if (status.ok()) wal_frames_ = 0;
  return status;
}

void GatewayMachine::purge() {
  doing("purges", [this] {
    PurgeOptions options;
    options.outbox_older_than_ms = -1;
    options.inbox_older_than_ms = run_.percent(70) ? 0 : 3'600'000;
    PurgeResult result;
    const Status status = purge_step(db_, clock_, options, result);
    if (result.inbox_rows > 0) say("purged " + std::to_string(result.inbox_rows) + " inbox rows");
    return status;
  });
}

// --- the consumer --------------------------------------------------------------------------------

bool GatewayMachine::poisoned(const EventId& id) const {
  return run_.seed % 3 != 1 && (id.bytes[0] ^ (salt_ & 0xff)) % 100 < kPoisonPercent;
}

HandlerResult GatewayMachine::handle(const EventRecord& event, sqlite3* db) {
  Fact& fact = run_.facts[event.id];  // a stranger becomes one that was never committed
  if (fact.seq != event.source_seq || fact.lane != event.lane ||
      fact.aggregate != event.aggregate_id)
    run_.breach("G1: the gateway got another event than was emitted at " +
                std::to_string(event.source_seq));
  // The effect comes first, so that "not now" and "no" have something to undo.
  Status written = outside_ ? Status() : apply(event, db);
  const HandlerResult result = opinion(event);
  if (result.kind == HandlerResult::Kind::reject) ++fact.rejections;
  if (outside_ && result.kind == HandlerResult::Kind::done) written = apply(event, *outside_);
  if (!written.ok()) return HandlerResult::retry_later(1'000, written.text());
  constexpr const char* kSaid[] = {"applies ", "not now: ", "rejects "};
  say(kSaid[static_cast<int>(result.kind)] + std::to_string(event.source_seq));
  return result;
}

HandlerResult GatewayMachine::opinion(const EventRecord& event) {
  const int call = run_.facts[event.id].calls++;
  if (poisoned(event.id)) return HandlerResult::reject("poison");
  if (healed_) return HandlerResult::done();
  const auto draw = static_cast<int>(
      (event.id.bytes[1] * 31u + static_cast<unsigned>(call) * 7u + (salt_ >> 8 & 0xff)) % 100);
  if (draw < 6) return HandlerResult::reject("not like this");
  if (draw < 14) return HandlerResult::retry_later(draw, "not now");
  return HandlerResult::done();
}

// No exception, for it would pass through the library.
Status GatewayMachine::apply(const EventRecord& event, sqlite3* db) {
  Statement effect;
  Status status = effect.prepare(db, "INSERT INTO effect(event_id,seq,lane) VALUES(?1,?2,?3)");
  if (!status.ok()) return status;
  const std::string id = event.id.text();
  effect.bind_text(1, id).bind(2, event.source_seq).bind(3, std::int64_t{event.lane});
  return effect.run("effect");
}

// --- look ----------------------------------------------------------------------------------------

std::vector<Effect> GatewayMachine::effects() {
  std::vector<Effect> effects;
  Statement read;
  test::must(read.prepare(outside_ ? outside_->handle() : db_.handle(),
                          "SELECT event_id,seq,lane FROM effect ORDER BY id"));
  Status status;
  while (read.step(status, "effects")) {
    Effect effect;
    EventId::parse(read.column_text(0), effect.id);
    effect.seq = read.column_int(1);
    effect.lane = static_cast<int>(read.column_int(2));
    effects.push_back(effect);
  }
  test::must(status);
  return effects;
}

bool GatewayMachine::told_gone(std::int64_t seq, int lane) {
  std::int64_t count = 0;
  const std::string at = std::to_string(seq);
  test::must(db_.query_int(("SELECT count(*) FROM inbox_gap WHERE state IN ('GONE','DEAD') AND"
                            " first_seq<=" +
                            at + " AND last_seq>=" + at + " AND lane=" + std::to_string(lane))
                               .c_str(),
                           count, "gaps"));
  return count > 0;
}

void GatewayMachine::check_end() {
  std::string sound;
  test::must(db_.query_text("PRAGMA integrity_check", sound, "check"));
  if (sound != "ok") run_.breach("gateway: integrity_check: " + sound);
  std::int64_t streams = 0, open = 0;
  test::must(db_.query_int("SELECT count(DISTINCT stream) FROM inbox_stream", streams, "check"));
  if (streams > 1) run_.breach("G11: one device, " + std::to_string(streams) + " streams");
  test::must(db_.query_int("SELECT count(*) FROM inbox_gap WHERE state NOT IN ('GONE','DEAD')",
                           open, "check"));
  if (open > 0)
    run_.breach("G9: " + std::to_string(open) + " gaps are open, and nothing is under way");
  test::must(
      db_.query_int("SELECT ifnull(sum(value),0) FROM holdfast_counter WHERE"
                    " name='inbox_duplicates'",
                    run_.figures.duplicates, "check"));
}

}  // namespace holdfast::simulation
