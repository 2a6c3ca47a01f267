#include "support/protocol_world.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "event_row.hpp"
#include "identity.hpp"
#include "retention.hpp"
#include "schema.hpp"
#include "support/frame_text.hpp"

namespace holdfast::test {

namespace {

constexpr int kPercentPoison = 4;

Db memory_database() {
  Db db;
  check_ok(Db::open(":memory:", OpenMode::create, 0, db), "open");
  return db;
}

void exec(sqlite3* db, const std::string& sql) {
  Statement statement;
  check_ok(statement.prepare(db, sql.c_str()), sql.c_str());
  check_ok(statement.run(sql.c_str()), sql.c_str());
}

Event view_of(const EventRecord& record) {
  Event event;
  event.event_type = record.event_type;
  event.aggregate_type = record.aggregate_type;
  event.aggregate_id = record.aggregate_id;
  event.payload = record.payload;
  event.payload_is_text = true;
  event.lane = record.lane;
  return event;
}

// "a", lane 1 → the aggregate as the oracle knows it.
std::string lane_key(const Fact& fact) { return fact.aggregate + "/" + std::to_string(fact.lane); }

}  // namespace

void check_ok(const Status& status, const char* what) {
  if (!status.ok()) throw std::runtime_error(std::string(what) + ": " + status.text());
}

ProtocolWorld::ProtocolWorld(const WorldOptions& given)
    : trace(std::getenv("HOLDFAST_TRACE") != nullptr) {
  SchemaFacts before;
  device_template_ = memory_database();
  check_ok(migrate_schema(device_template_, "device", before), "migrate");
  exec(device_template_.handle(), "INSERT INTO outbox_destination(id,name) VALUES(1,'upstream')");
  gateway_template_ = memory_database();
  check_ok(migrate_schema(gateway_template_, "gateway", before), "migrate");
  exec(gateway_template_.handle(),
       "CREATE TABLE effect(id INTEGER PRIMARY KEY,event_id BLOB,stream BLOB,seq INTEGER,"
       "lane INTEGER)");
  // So that reset() can empty a log; the product never deletes the newest row.
  exec(device_template_.handle(), "DROP TRIGGER outbox_event_guard_newest");
  exec(gateway_template_.handle(), "DROP TRIGGER outbox_event_guard_newest");
  gateway_db = memory_database();
  check_ok(copy_database(gateway_template_.handle(), gateway_db.handle()), "copy");
  device_backup_.db = memory_database();
  flush_point_.db = memory_database();
  gateway_backup_.db = memory_database();
  reset(given);
}

void ProtocolWorld::reset(const WorldOptions& given) {
  options = given;
  random.seed(given.seed);
  relays_ = 0;
  link.clear();
  link_works = true;
  lines.clear();
  calls.clear();
  rejections.clear();
  gateway_lost_state = may_fork = false;
  device_backup_.valid = gateway_backup_.valid = false;
  flush_point_of_ = -1;
  between_steps = nullptr;
  on_wire = nullptr;
  answer = nullptr;
  for (auto& device : devices) {
    for (Seat& seat : device->seats) seat.core.reset();
    spare_.push_back(std::move(device));
  }
  devices.clear();
  empty_gateway();
  add_device(nullptr);
  start_relay(0, 0);
}

// By DELETE where it can be: after copying a database SQLite reads the schema and prepares every
// statement again, which takes longer than a schedule.
void ProtocolWorld::empty_gateway() {
  check_ok(gateway_db.exec("DELETE FROM outbox_event;DELETE FROM inbox_event;"
                           "DELETE FROM inbox_stream;DELETE FROM inbox_gap;"
                           "DELETE FROM inbox_aggregate;DELETE FROM holdfast_time;"
                           "DELETE FROM holdfast_counter;DELETE FROM holdfast_audit;"
                           "DELETE FROM effect;"
                           "DELETE FROM holdfast_meta WHERE key='inbox_purge_position'",
                           "reset"),
           "reset");
  set_id(gateway_db.handle(), "store_id");
  gateway.reset();
  open_gateway();
}

void ProtocolWorld::empty_device(Device& device) {
  check_ok(device.delivery.db().exec(
               "DELETE FROM outbox_destination;DELETE FROM outbox_exception;"
               "DELETE FROM outbox_gap;DELETE FROM outbox_event;DELETE FROM holdfast_time;"
               "DELETE FROM holdfast_counter;DELETE FROM holdfast_audit;"
               "INSERT INTO outbox_destination(id,name) VALUES(1,'upstream')",
               "reset"),
           "reset");
  set_id(device.db(), "stream_id");
}

void ProtocolWorld::set_id(sqlite3* db, const char* key) {
  Statement set;
  check_ok(set.prepare(db, sql::kMetaSet), key);
  const EventId id = next_id();
  check_ok(set.bind_text(1, key).bind_id(2, id).run(key), key);
}

EventId ProtocolWorld::next_id() {
  EventId id;
  const std::uint64_t a = random(), b = random();
  for (std::size_t i = 0; i < 8; ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(a >> (8 * i));
    id.bytes[8 + i] = static_cast<std::uint8_t>(b >> (8 * i));
  }
  return id;
}

// --- devices -------------------------------------------------------------------------------------

Device& ProtocolWorld::add_device(sqlite3* from) {
  std::unique_ptr<Device> fresh;
  if (!spare_.empty()) {
    fresh = std::move(spare_.back());
    spare_.pop_back();
  } else {
    fresh = std::make_unique<Device>();
    Db db = memory_database();
    check_ok(copy_database(device_template_.handle(), db.handle()), "copy");
    check_ok(fresh->delivery.open(std::move(db), "upstream", false, fresh->clock), "delivery");
  }
  Device& device = *fresh;
  device.seats.clear();
  device.seats.resize(1);
  device.log.clear();
  device.discarded.clear();
  device.purged.clear();
  device.streams.clear();
  device.clock.reboot(1'000, false);
  device.clock.set_wall(ManualClock::kStartWallMs);
  device.clock.advance(1'000);
  if (from == nullptr)
    empty_device(device);
  else
    check_ok(copy_database(from, device.db()), "copy");
  devices.push_back(std::move(fresh));
  return device;
}

void ProtocolWorld::start_relay(int index, int number) {
  Device& where = device(index);
  if (where.seats.size() <= static_cast<std::size_t>(number))
    where.seats.resize(static_cast<std::size_t>(number) + 1);
  Seat& seat = where.seats[static_cast<std::size_t>(number)];
  seat = Seat();
  seat.relay = ++relays_;
  RelayCoreConfig config;
  config.owner = "relay/" + std::to_string(seat.relay);
  config.dead_after = options.dead_after;
  config.retry_delay_min_ms = 20;
  config.retry_delay_max_ms = 200;
  config.link_delay_min_ms = 10;
  config.link_delay_max_ms = 100;
  config.lease_ms = options.lease_ms;
  config.flush_interval_ms = 50;
  config.batch_events_max = options.batch_events_max;
  config.window = options.window;
  config.paced = options.paced;
  config.seed = random();
  if (trace)
    config.log = [this, index](LogLevel, std::string_view text) {
      say("  device " + std::to_string(index) + ": " + std::string(text));
    };
  seat.core = std::make_unique<RelayCore>(where.delivery, config);
  say("device " + std::to_string(index) + ": relay " + std::to_string(seat.relay) + " starts");
}

void ProtocolWorld::kill_relay(int index, int number) {
  Seat& seat = device(index).seats[static_cast<std::size_t>(number)];
  if (!seat.core) return;
  say("device " + std::to_string(index) + ": relay " + std::to_string(seat.relay) + " is killed");
  seat = Seat();
}

void ProtocolWorld::stop_relay(int index, int number) {
  Seat& seat = device(index).seats[static_cast<std::size_t>(number)];
  if (!seat.core) return;
  say("device " + std::to_string(index) + ": relay " + std::to_string(seat.relay) + " stops");
  wire::Message bye;
  if (seat.core->goodbye(bye)) {
    Packet packet{true, index, seat.relay, 0, {}};
    check_ok(wire::encode(bye, packet.bytes), "bye");
    link.put(std::move(packet));
  }
  check_ok(seat.core->stop(device(index).clock.boot_ms()), "stop");
  seat = Seat();
}

void ProtocolWorld::committed(Device& where) {
  for (Seat& seat : where.seats)
    if (seat.core) seat.core->committed();
}

std::int64_t ProtocolWorld::emit(int index, const std::string& aggregate, int lane) {
  Device& where = device(index);
  EventRecord record;
  record.id = next_id();
  record.event_type = "test.v1";
  record.aggregate_type = "sensor";
  record.aggregate_id = aggregate;
  record.payload = "{}";
  record.lane = lane;
  const std::string id_text = record.id.text();
  check_ok(where.insert.prepare(where.db(), sql::kEventInsert), "emit");
  bind_event(where.insert, view_of(record), id_text,
             std::max<std::int64_t>(0, where.clock.wall_ms()), 0);
  check_ok(where.insert.run("emit"), "emit");
  where.insert.reset();
  const std::int64_t seq = last_insert_rowid(where.db());
  where.log.push_back({record.id, lane, aggregate, false});
  if (seq != static_cast<std::int64_t>(where.log.size()))
    throw std::runtime_error("emit: seq " + std::to_string(seq) + " is not the next one");
  if (flush_point_of_ == index) flush_point_of_ = -1;  // this commit synced what came before it
  committed(where);
  if (trace)
    say("device " + std::to_string(index) + ": emits " + std::to_string(seq) + " " + aggregate +
        "/" + std::to_string(lane) + " " + id_text.substr(0, 8));
  return seq;
}

std::int64_t ProtocolWorld::emit_bad_row(int index) {
  Device& where = device(index);
  exec(where.db(), "PRAGMA ignore_check_constraints=ON");
  exec(where.db(),
       "INSERT INTO outbox_event(event_id,event_type,aggregate_type,aggregate_id,payload)"
       " VALUES('not a uuid','','sensor','bad','x')");
  exec(where.db(), "PRAGMA ignore_check_constraints=OFF");
  where.log.push_back({EventId(), kLaneNormal, "bad", true});
  if (flush_point_of_ == index) flush_point_of_ = -1;
  committed(where);
  say("device " + std::to_string(index) + ": bad row " + std::to_string(where.log.size()));
  return static_cast<std::int64_t>(where.log.size());
}

void ProtocolWorld::keep_flush_point(int index) {
  check_ok(copy_database(device(index).db(), flush_point_.db.handle()), "copy");
  flush_point_of_ = index;
}

void ProtocolWorld::power_cut(int index, bool lose_unsynced, bool wall_known) {
  Device& where = device(index);
  const bool lost = lose_unsynced && flush_point_of_ == index;
  say("device " + std::to_string(index) + ": power cut" +
      (lost ? ", unsynced commits are gone" : ""));
  for (Seat& seat : where.seats) seat = Seat();
  if (lost) check_ok(copy_database(flush_point_.db.handle(), where.db()), "copy");
  flush_point_of_ = -1;
  where.clock.reboot(5'000, wall_known);
  start_relay(index, 0);
}

// As Store::retry and Store::discard do it, on a connection that is already open.
void ProtocolWorld::retry(int index, std::int64_t seq) {
  Device& where = device(index);
  exec(where.db(),
       "UPDATE outbox_exception SET status='RETRY',attempts=0,next_attempt_ms=0,reported=0"
       " WHERE seq=" +
           std::to_string(seq));
  if (changed_rows(where.db()) == 0) return;
  exec(where.db(), "UPDATE outbox_destination SET control=control+1");
  if (flush_point_of_ == index) flush_point_of_ = -1;
  say("device " + std::to_string(index) + ": retry " + std::to_string(seq) + " by hand");
  committed(where);
}

void ProtocolWorld::discard(int index, std::int64_t seq) {
  Device& where = device(index);
  const std::string at = std::to_string(seq);
  exec(where.db(),
       "INSERT INTO outbox_gap(destination_id,lane,first_seq,last_seq,count,reason,created_at)"
       " SELECT destination_id,lane,seq,seq,1,'discarded',0 FROM outbox_exception WHERE seq=" +
           at +
           " ON CONFLICT(destination_id,lane,first_seq) DO UPDATE SET"
           " last_seq=max(last_seq,excluded.last_seq),count=max(count,excluded.count),reported=0");
  if (changed_rows(where.db()) == 0) return;
  exec(where.db(), "DELETE FROM outbox_exception WHERE seq=" + at);
  exec(where.db(), "UPDATE outbox_destination SET control=control+1");
  if (flush_point_of_ == index) flush_point_of_ = -1;
  where.discarded.insert(seq);
  say("device " + std::to_string(index) + ": discard " + at + " by hand");
  committed(where);
}

void ProtocolWorld::purge_outbox(int index) {
  Device& where = device(index);
  const std::int64_t before = number(where.db(), "SELECT min(seq) FROM outbox_event");
  PurgeOptions purge;
  purge.outbox_older_than_ms = 0;
  purge.inbox_older_than_ms = -1;
  PurgeResult result;
  check_ok(purge_step(where.delivery.db(), where.clock, purge, result), "purge");
  const std::int64_t after = number(where.db(), "SELECT min(seq) FROM outbox_event");
  for (std::int64_t seq = before; seq < after; ++seq) where.purged.insert(seq);
  if (after > before)
    say("device " + std::to_string(index) + ": purged up to " + std::to_string(after - 1));
}

EventId ProtocolWorld::stream(int index) {
  Identity identity;
  check_ok(device(index).delivery.identity(identity), "identity");
  return identity.stream;
}

void ProtocolWorld::keep_device_backup(int index) {
  Device& where = device(index);
  check_ok(copy_database(where.db(), device_backup_.db.handle()), "copy");
  device_backup_.valid = true;
  device_backup_.log = where.log;
  device_backup_.discarded = where.discarded;
  device_backup_.purged = where.purged;
  say("device " + std::to_string(index) + ": backup at " + std::to_string(where.log.size()));
}

void ProtocolWorld::restore_device(int index) {
  if (!device_backup_.valid) return;
  Device& where = device(index);
  for (Seat& seat : where.seats) seat = Seat();
  check_ok(copy_database(device_backup_.db.handle(), where.db()), "copy");
  where.log = device_backup_.log;
  where.discarded = device_backup_.discarded;
  where.purged = device_backup_.purged;
  where.clock.reboot(60'000, true);
  if (flush_point_of_ == index) flush_point_of_ = -1;
  may_fork = true;
  say("device " + std::to_string(index) + ": restored to " + std::to_string(where.log.size()));
  start_relay(index, 0);
}

int ProtocolWorld::clone_device(int index) {
  Device& copy = add_device(device(index).db());
  const Device& from = device(index);
  copy.log = from.log;
  copy.streams = from.streams;
  copy.discarded = from.discarded;
  copy.purged = from.purged;
  for (int reboots = 0; reboots < 3; ++reboots) copy.clock.reboot(1'000);
  copy.clock.advance(1'000);
  may_fork = true;
  const int number = static_cast<int>(devices.size()) - 1;
  say("device " + std::to_string(index) + " is cloned: " + std::to_string(number));
  start_relay(number, 0);
  return number;
}

// --- gateway -------------------------------------------------------------------------------------

void ProtocolWorld::open_gateway() {
  GatewayCoreConfig config;
  if (options.with_handler)
    config.handler = [this](const EventRecord& event, sqlite3* db) { return handle(event, db); };
  if (trace)
    config.log = [this](LogLevel, std::string_view text) {
      say("  gateway: " + std::string(text));
    };
  gateway = std::make_unique<GatewayCore>(gateway_db.handle(), gateway_clock, config);
  check_ok(gateway->open(), "gateway");
}

HandlerResult ProtocolWorld::handle(const EventRecord& event, sqlite3* db) {
  // The effect comes first, so that "not now" and "no" have something to undo.
  check_ok(effect_.prepare(db, "INSERT INTO effect(event_id,stream,seq,lane) VALUES(?1,?2,?3,?4)"),
           "effect");
  effect_.bind_id(1, event.id)
      .bind_id(2, event.source_stream)
      .bind(3, event.source_seq)
      .bind(4, std::int64_t{event.lane});
  check_ok(effect_.run("effect"), "effect");
  const int nth = calls[event.id]++;
  HandlerResult result = answer ? answer(event, nth) : HandlerResult::done();
  if (result.kind == HandlerResult::Kind::reject) ++rejections[event.id];
  return result;
}

void ProtocolWorld::restart_gateway() {
  say("gateway restarts");
  gateway.reset();
  open_gateway();
}

void ProtocolWorld::replace_gateway() {
  say("gateway is replaced by a new one");
  gateway_lost_state = true;
  gateway_backup_.valid = false;
  link.clear();  // no connection outlives a machine
  empty_gateway();
}

void ProtocolWorld::keep_gateway_backup() {
  say("gateway: backup");
  check_ok(copy_database(gateway_db.handle(), gateway_backup_.db.handle()), "copy");
  gateway_backup_.valid = true;
}

void ProtocolWorld::restore_gateway() {
  if (!gateway_backup_.valid) return;
  say("gateway is restored from its backup");
  gateway.reset();
  check_ok(copy_database(gateway_backup_.db.handle(), gateway_db.handle()), "copy");
  gateway_lost_state = true;
  open_gateway();
}

// --- time and frames -----------------------------------------------------------------------------

void ProtocolWorld::advance(std::int64_t ms) {
  for (auto& each : devices) each->clock.advance(ms);
  gateway_clock.advance(ms);
}

void ProtocolWorld::send(int index, const Seat& seat, std::uint64_t token,
                         const wire::Message& message) {
  Packet packet{true, index, seat.relay, token, {}};
  check_ok(wire::encode(message, packet.bytes), "encode");
  if (const auto* hello = std::get_if<wire::Hello>(&message))
    device(index).streams.insert(hello->stream);
  if (trace)
    say("device " + std::to_string(index) + ": sends #" + std::to_string(token) + " " +
        frame_text(message));
  link.put(std::move(packet));
}

void ProtocolWorld::step(int index) {
  Device& where = device(index);
  for (Seat& seat : where.seats) {
    if (!seat.core || seat.suspended) continue;
    const std::int64_t now = where.clock.boot_ms();
    seat.finish_connecting(now, link_works);
    for (const std::uint64_t token : seat.expire(now))
      say("device " + std::to_string(index) + ": #" + std::to_string(token) + " times out");
    const auto send_frame = [&](std::uint64_t token, const wire::Message& message) {
      send(index, seat, token, message);
    };
    check_ok(seat.go_on(
                 now, options.request_timeout_ms, [this] { return 1 + below(5); }, send_frame),
             "step");
    if (where.seats.size() > 1)  // its writes are another connection's commits to the others
      for (Seat& other : where.seats)
        if (other.core && &other != &seat) other.core->committed();
  }
}

void ProtocolWorld::step_all() {
  for (int index = 0; index < static_cast<int>(devices.size()); ++index) step(index);
}

void ProtocolWorld::link_cut() {
  say("the link breaks");
  for (auto& each : devices)
    for (Seat& seat : each->seats) {
      if (seat.core) seat.break_connection(each->clock.boot_ms());
    }
}

void ProtocolWorld::deliver(std::vector<std::size_t> indices, Group group) {
  std::vector<Packet> packets;
  std::sort(indices.rbegin(), indices.rend());
  for (const std::size_t index : indices) packets.push_back(link.take(index));
  std::reverse(packets.begin(), packets.end());
  std::vector<Packet> replies;
  bool begun = false;
  for (Packet& packet : packets) {
    if (on_wire) on_wire(packet);
    if (packet.up) {
      if (!begun) check_ok(gateway->begin(), "begin");
      begun = true;
      Packet reply{false, packet.device, packet.relay, packet.token, {}};
      check_ok(gateway->accept(packet.bytes, gateway_clock.boot_ms(), reply.bytes), "accept");
      replies.push_back(std::move(reply));
      continue;
    }
    if (packet.device >= static_cast<int>(devices.size())) continue;
    for (Seat& seat : device(packet.device).seats) {
      if (!seat.core || seat.relay != packet.relay || seat.suspended) continue;
      wire::Message message;
      wire::RefusedCode code{};
      check_ok(wire::decode(packet.bytes, message, code), "decode");
      seat.deadline.erase(packet.token);
      if (trace)
        say("device " + std::to_string(packet.device) + ": hears #" + std::to_string(packet.token) +
            " " + frame_text(message));
      check_ok(seat.core->reply(device(packet.device).clock.boot_ms(), packet.token, message),
               "reply");
    }
  }
  if (begun) {
    if (group == Group::commit) {
      check_ok(gateway->commit(), "commit");
    } else {
      if (group == Group::commit_unknown) check_ok(gateway->commit(), "commit");
      gateway->abandon();
      say(group == Group::abandon ? "gateway: the group is rolled back"
                                  : "gateway: the group's fate is unknown (it is there)");
      for (Packet& reply : replies) reply.bytes = GatewayCore::unavailable(10, "disk");
    }
  }
  for (Packet& reply : replies)
    if (reply.token != 0) link.put(std::move(reply));
}

void ProtocolWorld::deliver_all() {
  while (!link.empty()) {
    std::vector<std::size_t> group;
    const bool up = link.at(0).up;
    for (std::size_t i = 0; i < link.size() && group.size() < 8 && link.at(i).up == up; ++i)
      group.push_back(i);
    deliver(group);
    step_all();
  }
}

void ProtocolWorld::run(std::int64_t ms) {
  for (std::int64_t passed = 0; passed < ms; passed += 10) {
    advance(10);
    step_all();
    deliver_all();
  }
}

bool ProtocolWorld::quiet(std::string* why) {
  const auto no = [&](const std::string& reason) {
    if (why != nullptr) *why = reason;
    return false;
  };
  if (!link.empty()) return no("frames are under way");
  for (auto& each : devices) {
    for (Seat& seat : each->seats)
      if (seat.core && !seat.suspended && !seat.core->idle()) return no("requests are under way");
    const std::int64_t open =
        number(each->quiet_exceptions, each->db(),
               "SELECT (SELECT count(*) FROM outbox_exception WHERE status<>'DEAD' OR reported=0)"
               "+(SELECT count(*) FROM outbox_gap WHERE reported=0)");
    if (open > 0) return no("exceptions or reports wait");
    const std::int64_t behind = number(
        each->quiet_events, each->db(),
        "SELECT count(*) FROM outbox_event e,outbox_destination d WHERE e.seq>CASE e.lane WHEN 1"
        " THEN d.urgent_acked_seq ELSE d.acked_seq END AND NOT EXISTS(SELECT 1 FROM"
        " outbox_exception x WHERE x.destination_id=d.id AND x.seq=e.seq) AND NOT EXISTS(SELECT 1"
        " FROM outbox_gap g WHERE g.destination_id=d.id AND g.lane=e.lane AND g.first_seq<=e.seq"
        " AND g.last_seq>=e.seq)");
    if (behind > 0) return no("events wait");
  }
  return true;
}

bool ProtocolWorld::settle(int steps_max) {
  link_works = true;
  constexpr std::int64_t kSlowPollMs = 5'000;  // the driver looks this often in any case
  for (int i = 0; i < steps_max; ++i) {
    step_all();
    deliver_all();
    if (quiet()) return true;
    std::int64_t wait = kSlowPollMs;
    for (auto& each : devices) {
      const std::int64_t now = each->clock.boot_ms();
      for (Seat& seat : each->seats) {
        if (!seat.core || seat.suspended) continue;
        wait = std::min(wait, seat.due_at() - now);
      }
    }
    advance(std::max<std::int64_t>(wait, 1));
  }
  return false;
}

// --- look ----------------------------------------------------------------------------------------

std::int64_t ProtocolWorld::number(sqlite3* db, const std::string& query) {
  Statement statement;
  return number(statement, db, query.c_str());
}

std::int64_t ProtocolWorld::number(Statement& statement, sqlite3* db, const char* query) {
  check_ok(statement.prepare(db, query), query);
  Status status;
  const std::int64_t value = statement.step(status, "number") ? statement.column_int(0) : 0;
  check_ok(status, query);
  statement.reset();
  return value;
}

std::vector<std::string> ProtocolWorld::column(sqlite3* db, const std::string& query) {
  Statement statement;
  check_ok(statement.prepare(db, query.c_str()), query.c_str());
  std::vector<std::string> rows;
  Status status;
  while (statement.step(status, "column")) rows.emplace_back(statement.column_text(0));
  check_ok(status, query.c_str());
  return rows;
}

std::int64_t ProtocolWorld::counter(sqlite3* db, const std::string& name) {
  return number(db, "SELECT ifnull(sum(value),0) FROM holdfast_counter WHERE name='" + name + "'");
}

std::vector<Effect> ProtocolWorld::effects() {
  Statement statement;
  check_ok(statement.prepare(gateway_db.handle(),
                             options.with_handler
                                 ? "SELECT event_id,stream,seq,lane FROM effect ORDER BY id"
                                 : "SELECT event_id,source_stream,source_seq,lane FROM outbox_event"
                                   " ORDER BY seq"),
           "effects");
  std::vector<Effect> rows;
  Status status;
  while (statement.step(status, "effects")) {
    Effect effect;
    if (options.with_handler)
      statement.column_id(0, effect.id);
    else
      EventId::parse(statement.column_text(0), effect.id);
    statement.column_id(1, effect.stream);
    effect.seq = statement.column_int(2);
    effect.lane = static_cast<int>(statement.column_int(3));
    rows.push_back(effect);
  }
  check_ok(status, "effects");
  return rows;
}

std::vector<std::int64_t> ProtocolWorld::applied(int index) {
  std::map<EventId, std::int64_t> seqs;
  const std::vector<Fact>& log = device(index).log;
  for (std::size_t i = 0; i < log.size(); ++i) seqs[log[i].id] = static_cast<std::int64_t>(i) + 1;
  std::vector<std::int64_t> out;
  for (const Effect& effect : effects())
    if (seqs.count(effect.id) != 0) out.push_back(seqs[effect.id]);
  return out;
}

std::vector<std::string> ProtocolWorld::verdict() {
  std::vector<std::string> broken;
  const std::vector<Effect> all = effects();
  std::map<EventId, int> times;
  for (const Effect& effect : all)
    if (++times[effect.id] == 2)
      broken.push_back("G4: event " + effect.id.text().substr(0, 8) + " (seq " +
                       std::to_string(effect.seq) + ") was applied twice");

  struct GapView {
    EventId stream{};
    std::int64_t lane = 0, first = 0, last = 0;
    std::string state;
  };
  std::vector<GapView> gaps;
  Statement gap;
  check_ok(gap.prepare(gateway_db.handle(),
                       "SELECT stream,lane,first_seq,last_seq,state FROM inbox_gap"),
           "gaps");
  Status status;
  while (gap.step(status, "gaps")) {
    GapView view;
    gap.column_id(0, view.stream);
    view.lane = gap.column_int(1);
    view.first = gap.column_int(2);
    view.last = gap.column_int(3);
    view.state = std::string(gap.column_text(4));
    gaps.push_back(view);
  }
  gap.finalize();

  for (std::size_t d = 0; d < devices.size(); ++d) {
    Device& where = *devices[d];
    const std::string who = "device " + std::to_string(d) + ": ";
    const EventId now = stream(static_cast<int>(d));
    where.streams.insert(now);
    std::set<std::int64_t> dead;
    Statement exception;
    check_ok(exception.prepare(where.db(), "SELECT seq FROM outbox_exception WHERE status='DEAD'"),
             "dead");
    while (exception.step(status, "dead")) dead.insert(exception.column_int(0));
    exception.finalize();
    std::map<EventId, std::int64_t> mine;
    for (std::size_t i = 0; i < where.log.size(); ++i) {
      const Fact& fact = where.log[i];
      const auto seq = static_cast<std::int64_t>(i) + 1;
      const std::string name = "event " + std::to_string(seq);
      if (!fact.bad) mine[fact.id] = seq;
      const auto reported = [&](const char* state) {
        return std::any_of(gaps.begin(), gaps.end(), [&](const GapView& view) {
          return where.streams.count(view.stream) != 0 && view.lane == fact.lane &&
                 view.first <= seq && seq <= view.last && view.state == state;
        });
      };
      const bool told = reported("GONE") || reported("DEAD");
      // A clone may have reported it gone: then the gateway says so, and it is dead at once.
      if (dead.count(seq) != 0 && !fact.bad && !reported("GONE") &&
          rejections[fact.id] < options.dead_after)
        broken.push_back("G6: " + who + name + " is dead without enough rejections");
      if (!fact.bad && times.count(fact.id) != 0) continue;
      const bool known = dead.count(seq) != 0 || where.discarded.count(seq) != 0 ||
                         (gateway_lost_state && where.purged.count(seq) != 0);
      if (!known)
        broken.push_back("G3: " + who + name + " is lost" + (told ? " (and reported gone)" : ""));
      else if (!told)
        broken.push_back("G9: " + who + name + " is given up, and the gateway was not told");
    }
    // Nothing of another database came in under this device's name.
    for (const Effect& effect : all)
      if (effect.stream == now && mine.count(effect.id) == 0)
        broken.push_back("G11: " + who + "seq " + std::to_string(effect.seq) +
                         " of its stream is another database's, and it did not notice");
    if (!may_fork && counter(where.db(), "forks") != 0)
      broken.push_back("G11: " + who + "took a new stream without a reason");
    // Order of each aggregate within each stream.
    std::map<std::pair<EventId, std::string>, std::vector<std::int64_t>> order;
    for (const Effect& effect : all) {
      const auto known = mine.find(effect.id);
      if (known == mine.end()) continue;
      const Fact& fact = where.log[static_cast<std::size_t>(known->second - 1)];
      auto& before = order[{effect.stream, lane_key(fact)}];
      for (const std::int64_t other : before)
        // An event that was dead once has left the order: its followers did not wait for it.
        if (other > known->second && rejections[fact.id] < options.dead_after)
          broken.push_back("G5: " + who + "event " + std::to_string(known->second) +
                           " was applied after " + std::to_string(other));
      before.push_back(known->second);
    }
  }
  return broken;
}

// --- schedules -----------------------------------------------------------------------------------

ProtocolWorld::Features ProtocolWorld::draw_features() {
  Features features;
  features.two_relays = chance(15);
  features.power_cuts = chance(50);
  features.operators = chance(40);
  features.purges = chance(50);
  const int kind = below(100);
  features.gateway_restore = kind < 30;
  features.device_copies = kind >= 30 && kind < 55;
  features.bad_rows = chance(25);
  features.poison = chance(60);
  features.steps = 30 + below(70);
  features.aggregates = 1 + below(3);
  return features;
}

// What happens to devices and gateway, not to frames.
void ProtocolWorld::fate(const Features& features) {
  const int d = below(static_cast<int>(devices.size()));
  Device& where = device(d);
  const int seat = below(static_cast<int>(where.seats.size()));
  switch (below(12)) {
    case 0:
      kill_relay(d, seat);
      start_relay(d, seat);
      return;
    case 1:
      stop_relay(d, seat);
      start_relay(d, seat);
      return;
    case 2:
      restart_gateway();
      return;
    case 3:
      where.seats[static_cast<std::size_t>(seat)].suspended ^= features.two_relays;
      return;
    case 4:
    case 5:
      if (features.power_cuts) {
        if (flush_point_of_ != d && chance(60))
          keep_flush_point(d);
        else
          power_cut(d, chance(80), chance(70));
      }
      return;
    case 6:
    case 7:
      if (features.operators && !where.log.empty()) {
        const auto count = number(where.db(), "SELECT count(*) FROM outbox_exception");
        if (count == 0) return;
        const std::int64_t seq =
            number(where.db(), "SELECT seq FROM outbox_exception ORDER BY seq LIMIT 1 OFFSET " +
                                   std::to_string(below(static_cast<int>(count))));
        if (chance(70))
          retry(d, seq);
        else
          discard(d, seq);
      }
      return;
    case 8:
      if (features.purges) {
        if (chance(50)) purge_outbox(d);
        if (!features.device_copies && chance(50)) purge_inbox();
      }
      return;
    case 9:
      where.clock.set_wall(chance(50) ? 0
                                      : ManualClock::kStartWallMs + (random() % 157'788'000'000));
      return;
    default:
      if (features.gateway_restore) {
        if (!gateway_backup_.valid && chance(70))
          keep_gateway_backup();
        else if (chance(60))
          restore_gateway();
        else if (chance(30))
          replace_gateway();
      } else if (features.device_copies) {
        if (!device_backup_.valid)
          keep_device_backup(d);
        else if (devices.size() < 2 && chance(50))
          clone_device(d);
        else if (devices.size() < 2)
          restore_device(d);
      }
  }
}

void ProtocolWorld::purge_inbox() {
  say("gateway: inbox purged");
  PurgeOptions purge;
  purge.outbox_older_than_ms = -1;
  purge.inbox_older_than_ms = 0;
  PurgeResult result;
  check_ok(purge_step(gateway_db, gateway_clock, purge, result), "purge");
}

void ProtocolWorld::chaos_step(const Features& features) {
  const int what = below(100);
  if (what < 28) {
    advance(chance(90) ? below(60) : below(3'000));
    step_all();
  } else if (what < 66) {
    if (link.empty()) {
      advance(below(20));
      step_all();
      return;
    }
    const auto reach = static_cast<int>(std::min<std::size_t>(link.size(), chance(80) ? 2 : 12));
    std::vector<std::size_t> group{static_cast<std::size_t>(below(reach))};
    while (group.size() < 4 && chance(30)) {
      const auto more = static_cast<std::size_t>(below(static_cast<int>(link.size())));
      if (std::find(group.begin(), group.end(), more) == group.end()) group.push_back(more);
    }
    deliver(group, chance(93)   ? Group::commit
                   : chance(60) ? Group::abandon
                                : Group::commit_unknown);
    step_all();
  } else if (what < 80) {
    const int d = below(static_cast<int>(devices.size()));
    if (features.bad_rows && chance(8)) emit_bad_row(d);
    for (int more = 1 + below(3); more > 0; --more)
      emit(d, std::string(1, static_cast<char>('a' + below(features.aggregates))),
           chance(25) ? kLaneUrgent : kLaneNormal);
  } else if (what < 84) {
    if (!link.empty()) {
      say("a frame is lost");
      link.lose(static_cast<std::size_t>(below(static_cast<int>(link.size()))));
    }
  } else if (what < 88) {
    if (!link.empty()) {
      say("a frame is copied");
      link.copy(static_cast<std::size_t>(below(static_cast<int>(link.size()))));
    }
  } else if (what < 91) {
    link_works = !link_works;
    if (!link_works) link_cut();
  } else if (what < 92) {
    link_cut();
  } else {
    fate(features);
  }
}

std::vector<std::string> ProtocolWorld::run_schedule(const Features& features) {
  const std::uint64_t salt = random();
  const auto poisoned = [salt, &features](const EventRecord& event) {
    return features.poison && (event.id.bytes[0] ^ (salt & 0xff)) % 100 < kPercentPoison;
  };
  answer = [&](const EventRecord& event, int nth) {
    if (poisoned(event)) return HandlerResult::reject("poison");
    const auto draw = static_cast<int>(
        (event.id.bytes[1] * 31u + static_cast<unsigned>(nth) * 7u + (salt >> 8 & 0xff)) % 100);
    if (draw < 10) return HandlerResult::reject("not like this");
    if (draw < 25) return HandlerResult::retry_later(draw, "not now");
    return HandlerResult::done();
  };
  if (features.two_relays) start_relay(0, 1);
  for (int i = 0; i < features.steps; ++i) {
    chaos_step(features);
    if (between_steps) between_steps();
  }
  say("--- everything heals");
  answer = [&](const EventRecord& event, int) {
    return poisoned(event) ? HandlerResult::reject("poison") : HandlerResult::done();
  };
  for (auto& each : devices)
    for (Seat& seat : each->seats) seat.suspended = false;
  // Something to say, so that each device meets the gateway once more.
  for (int d = 0; d < static_cast<int>(devices.size()); ++d)
    for (int lane = 0; lane < kLaneCount; ++lane) emit(d, "last", lane);
  const bool settled = settle();
  std::vector<std::string> broken = verdict();
  std::string why;
  if (!settled && !quiet(&why)) broken.insert(broken.begin(), "stuck: " + why);
  answer = nullptr;
  return broken;
}

}  // namespace holdfast::test
