// Who a device is (G10): its certificate's name, its streams, `holdfast gateway list|allow|deny`,
// revocation. Real sockets, and real certificates of `holdfast certs`. Each refusal has its
// control: without the binding, or with the right certificate, the same write gets in.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway_core.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"
#include "support/running_gateway.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kSoonMs = 20'000;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool becomes_true(const std::function<bool()>& condition) {
  for (int waited_ms = 0; waited_ms < kSoonMs; waited_ms += 10) {
    if (condition()) return true;
    ::usleep(10'000);
  }
  return false;
}

// A CA, a gateway and devices, all set up with the command line.
struct Fleet {
  TemporaryDirectory directory;
  std::string ca = directory.file("ca");
  std::string gateway_db = directory.file("gateway.db");
  std::string revoked = directory.file("revoked");
  std::atomic<bool> cut{false}, list_refused{false};
  std::unique_ptr<RunningGateway> gateway;

  Fleet() {
    certs({"init"});
    certs({"gateway", "127.0.0.1", "localhost"});
    for (const char* name : {"pump7", "pump8"}) {
      certs({"device", name});
      make_database(db(name));
    }
  }

  RunResult certs(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "certs");
    arguments.insert(arguments.end(), {"--dir", ca});
    const RunResult result = command(arguments);
    INFO(result.err);
    REQUIRE(result.code() == 0);
    return result;
  }
  std::string db(const std::string& name) const { return directory.file(name + ".db"); }
  TlsOptions tls(const std::string& name) const {
    TlsOptions out;
    out.ca_file = ca + "/ca.crt";
    out.cert_file = ca + "/" + name + ".crt";
    out.key_file = ca + "/" + name + ".key";
    return out;
  }
  std::string serial(const std::string& name) const {
    CertificateFacts facts;
    REQUIRE(read_certificate(tls(name).cert_file, facts).ok());
    return facts.serial;
  }
  void listen(bool with_revoked = false) {
    gateway.reset();
    GatewayOptions options;
    options.database = gateway_db;
    options.listen = {"tls+tcp://127.0.0.1:0", "tcp://127.0.0.1:0"};
    options.tls = tls("127.0.0.1");
    if (with_revoked) options.tls.revoked_file = revoked;
    options.log = [this](LogLevel, std::string_view text) {
      if (has(std::string(text), "TLS: cut 1 connection(s): revoked")) cut = true;
      if (has(std::string(text), ", line 2: ")) list_refused = true;
    };
    gateway = std::make_unique<RunningGateway>(options);
  }
  RelayOptions relay(const std::string& database, const std::string& name) const {
    RelayOptions options;
    options.database = database;
    options.link_delay_min_ms = 5;
    options.link_delay_max_ms = 50;
    options.url = gateway->gateway().urls()[name.empty() ? 1 : 0];
    if (!name.empty()) options.tls = tls(name);
    return options;
  }
  static void emit(const std::string& database) {
    Connection(database).run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
        " VALUES('t','sensor','1','x')");
  }
  // Emits into `database` and sends with that certificate ("": plain tcp): "delivered", or why not.
  std::string deliver(const std::string& database, const std::string& name) const {
    emit(database);
    Relay relay;
    const Status started = Relay::start(this->relay(database, name), relay);
    if (!started.ok()) return started.text();
    const bool ended = relay.wait(
        kSoonMs, [](const RelayState& state) { return state.drained || !state.last_error.ok(); });
    const RelayState state = relay.state();
    must(relay.stop());
    if (!ended) return "nothing happened";
    return state.drained ? "delivered" : state.last_error.text();
  }
  std::int64_t stored() const {
    return Connection(gateway_db).number("SELECT count(*) FROM outbox_event");
  }
  std::string stream(const std::string& database) const {
    Store store;
    StoreStats stats;
    must(Store::open(database, Access::read_only, {}, store));
    must(store.stats(stats));
    return stats.stream.text();
  }
  RunResult gateway_command(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "gateway");
    return command(arguments);
  }
};

// The stranger's database: a copy of pump7's, as of a stolen card or a bad clone.
std::string stolen_copy(const Fleet& fleet) {
  Connection(fleet.db("pump7")).run("PRAGMA wal_checkpoint(TRUNCATE)");
  write_file(fleet.directory.file("stolen.db"), read_file(fleet.db("pump7")));
  return fleet.directory.file("stolen.db");
}

}  // namespace

TEST_CASE("a stream is bound to the certificate that first wrote it; another is refused (G10)") {
  Fleet fleet;
  fleet.listen();
  REQUIRE(fleet.deliver(fleet.db("pump7"), "pump7") == "delivered");
  const std::string stolen = stolen_copy(fleet);
  const std::string why = fleet.deliver(stolen, "pump8");
  CHECK(has(why, "not_your_stream"));
  CHECK(has(why, "\"pump8\""));
  CHECK(has(why, "holdfast gateway allow DB \"pump8\" --stream " + fleet.stream(stolen)));
  CHECK(has(fleet.deliver(stolen, ""), "needs tls+tcp://"));
  CHECK(fleet.stored() == 1);
  // Kept, not DEAD, no attempt used up.
  Connection device(stolen);
  CHECK(device.number("SELECT count(*) FROM outbox_exception") == 0);
  CHECK(device.number("SELECT count(*) FROM outbox_status WHERE status='SENT'") == 1);
  CHECK(Connection(fleet.gateway_db)
            .number("SELECT value FROM holdfast_counter WHERE name='not_your_stream'") >= 2);
  const Json stats = json_lines(command({"inbox", "stats", fleet.gateway_db, "--json"}).out)[0];
  CHECK(stats.at("not_your_stream") >= 2);
  CHECK(has(command({"stats", fleet.gateway_db, "--prometheus"}).out,
            "holdfast_inbox_not_your_stream_total "));

  // The owner goes on, and the other has a stream of its own.
  CHECK(fleet.deliver(fleet.db("pump7"), "pump7") == "delivered");
  CHECK(fleet.deliver(fleet.db("pump8"), "pump8") == "delivered");
  CHECK(fleet.stored() == 3);
}

TEST_CASE("control: without the binding the foreign write gets in (G10)") {
  Fleet fleet;
  fleet.listen();
  REQUIRE(fleet.deliver(fleet.db("pump7"), "pump7") == "delivered");
  const std::string stolen = stolen_copy(fleet);
  Connection(fleet.gateway_db).run("DELETE FROM inbox_owner");
  CHECK(fleet.deliver(stolen, "pump8") == "delivered");
  CHECK(fleet.stored() == 2);
}

TEST_CASE("a stream first written over plain tcp is bound by the first TLS, then closed to tcp") {
  Fleet fleet;
  fleet.listen();
  CHECK(fleet.deliver(fleet.db("pump7"), "") == "delivered");
  CHECK(fleet.deliver(fleet.db("pump7"), "") == "delivered");
  CHECK(fleet.deliver(fleet.db("pump7"), "pump7") == "delivered");
  CHECK(has(fleet.deliver(fleet.db("pump7"), ""), "needs tls+tcp://"));
  CHECK(fleet.stored() == 3);
}

TEST_CASE("a device that takes a new stream goes on under its name (G10, G11)") {
  Fleet fleet;
  fleet.listen();
  REQUIRE(fleet.deliver(fleet.db("pump7"), "pump7") == "delivered");
  {
    Store store;
    must(Store::open(fleet.db("pump7"), Access::read_write, {}, store));
    must(store.new_stream());
  }
  CHECK(fleet.deliver(fleet.db("pump7"), "pump7") == "delivered");
  const std::vector<Json> rows =
      json_lines(fleet.gateway_command({"list", fleet.gateway_db, "--json"}).out);
  REQUIRE(rows.size() == 2);
  for (const Json& row : rows) {
    CHECK(row.at("name") == "pump7");
    CHECK(row.at("events") == 1);
    CHECK(row.at("denied") == false);
    CHECK(row.at("last_seen_at") >= row.at("first_seen_at"));
  }
  CHECK(
      has(fleet.gateway_command({"list", fleet.gateway_db}).out, fleet.stream(fleet.db("pump7"))));
}

TEST_CASE("allow --stream gives a stream to a new certificate name, on a running gateway") {
  Fleet fleet;
  fleet.listen();
  const std::string database = fleet.db("pump7");
  REQUIRE(fleet.deliver(database, "pump7") == "delivered");
  Fleet::emit(database);
  Relay relay;  // the device's certificate now says pump8
  must(Relay::start(fleet.relay(database, "pump8"), relay));
  REQUIRE(relay.wait(kSoonMs, [](const RelayState& state) { return !state.last_error.ok(); }));
  const RunResult allowed = fleet.gateway_command(
      {"allow", fleet.gateway_db, "pump8", "--stream", fleet.stream(database)});
  CHECK(allowed.code() == 0);
  CHECK(allowed.out == "allowed pump8 for stream " + fleet.stream(database) + "\n");
  CHECK(relay.wait(kSoonMs, [](const RelayState& state) { return state.drained; }));
  must(relay.stop());
  CHECK(has(fleet.deliver(database, "pump7"), "not_your_stream"));
  CHECK(fleet.stored() == 2);
  CHECK(Connection(fleet.gateway_db)
            .number("SELECT count(*) FROM holdfast_audit WHERE action='certificate_bind'") == 1);

  CHECK(fleet.gateway_command({"allow", fleet.gateway_db, "pump8", "--stream", "x"}).code() == 2);
  CHECK(fleet.gateway_command({"allow", fleet.gateway_db}).code() == 2);
  CHECK(fleet.gateway_command({"allow", fleet.gateway_db, "a\nb"}).code() == 2);
  CHECK(fleet
            .gateway_command({"allow", fleet.gateway_db, "pump8", "--stream",
                              "5b1e6c1e-8c2c-4b8a-9d5e-0c3f5a7d9b11"})
            .code() == 3);
}

TEST_CASE("deny bars a name on a running gateway, allow takes it back (G10)") {
  Fleet fleet;
  fleet.listen();
  const std::string database = fleet.db("pump7");
  Relay relay;
  must(Relay::start(fleet.relay(database, "pump7"), relay));
  const auto send = [&] {
    Fleet::emit(database);
    relay.wake();
  };
  send();
  REQUIRE(becomes_true([&] { return fleet.stored() == 1; }));
  CHECK(fleet.gateway_command({"deny", fleet.gateway_db, "pump7"}).out == "denied pump7\n");
  send();
  CHECK(relay.wait(kSoonMs, [](const RelayState& state) {
    return has(state.last_error.text(), "denied: certificate name \"pump7\"");
  }));
  CHECK(fleet.stored() == 1);
  CHECK(has(fleet.gateway_command({"list", fleet.gateway_db}).out, "denied"));
  CHECK(fleet.deliver(fleet.db("pump8"), "pump8") == "delivered");  // control: only that name
  CHECK(fleet.gateway_command({"allow", fleet.gateway_db, "pump7"}).code() == 0);
  CHECK(relay.wait(kSoonMs, [](const RelayState& state) { return state.drained; }));
  must(relay.stop());
  CHECK(fleet.stored() == 3);
  CHECK(Connection(database).number("SELECT count(*) FROM outbox_exception") == 0);

  CHECK(fleet.gateway_command({"deny", fleet.gateway_db, "unseen"}).code() == 0);
  const std::vector<Json> rows =
      json_lines(fleet.gateway_command({"list", fleet.gateway_db, "--json"}).out);
  CHECK(rows.back().at("name") == "unseen");
  CHECK(rows.back().at("denied") == true);
}

TEST_CASE("a revoked certificate is refused, and its connection cut, within seconds (G10)") {
  Fleet fleet;
  const std::string sevens = fleet.serial("pump7");
  write_file(fleet.revoked, "# nobody yet\n");
  fleet.listen(true);
  Relay relay;
  must(Relay::start(fleet.relay(fleet.db("pump7"), "pump7"), relay));
  Fleet::emit(fleet.db("pump7"));
  relay.wake();
  REQUIRE(becomes_true([&] { return fleet.stored() == 1; }));
  // Not silently nothing: with a line that is no serial number the list before stays.
  write_file(fleet.revoked, sevens + "\nnot a serial\n");
  REQUIRE(becomes_true([&] { return fleet.list_refused.load(); }));
  Fleet::emit(fleet.db("pump7"));
  relay.wake();
  REQUIRE(becomes_true([&] { return fleet.stored() == 2; }));
  // Idle, and cut all the same; also while a certificate that was renewed badly is not taken.
  write_file(fleet.tls("127.0.0.1").cert_file, "no certificate\n");
  write_file(fleet.revoked,
             "# stolen\n00:" + sevens.substr(0, 2) + ":" + sevens.substr(2) + "  # pump7\n");
  const std::int64_t from = system_clock().boot_ms();
  CHECK(becomes_true([&] { return fleet.cut.load(); }));
  const std::int64_t took = system_clock().boot_ms() - from;
  CHECK(took < 3 * kRevokedLookMs);
  MESSAGE("cut after " << took << " ms");
  Fleet::emit(fleet.db("pump7"));
  relay.wake();
  CHECK(relay.wait(kSoonMs, [](const RelayState& state) {
    return has(state.last_error.text(), "refused our certificate");
  }));
  must(relay.stop());
  CHECK(fleet.deliver(fleet.db("pump8"), "pump8") == "delivered");  // control
  fleet.certs({"device", "pump7", "--force"});                      // a new one of the same name
  CHECK(fleet.deliver(fleet.db("pump7"), "pump7") == "delivered");
}

TEST_CASE("a revocation list that is missing or malformed is an error at the start (G10)") {
  Fleet fleet;
  GatewayOptions options;
  options.database = fleet.gateway_db;
  options.listen = {"tls+tcp://127.0.0.1:0"};
  options.tls = fleet.tls("127.0.0.1");
  options.tls.revoked_file = fleet.revoked;
  const auto start = [&] {
    Gateway gateway;
    return std::string(Gateway::start(options, gateway).text());
  };
  CHECK(has(start(), "cannot read the TLS revocation list " + fleet.revoked));
  for (const char* bad : {"xyz\n", "AB CD\n", "0\n", "-----BEGIN X509 CRL-----\n",
                          "AB\n1123456789012345678901234567890123456789A\n"}) {
    CAPTURE(bad);
    write_file(fleet.revoked, bad);
    CHECK(has(start(), "line " + std::string(bad[0] == 'A' && bad[2] == '\n' ? "2" : "1") + ": "));
  }
  for (const char* good : {"", "\n\n", "# none\n", "ab\r\n", "0A:bc # x"}) {
    CAPTURE(good);
    write_file(fleet.revoked, good);
    CHECK(start() == "");
  }
}

namespace {

// A gateway without sockets, to compare answers byte for byte.
struct Core {
  TemporaryDirectory directory;
  ManualClock clock;
  Db db;
  std::unique_ptr<GatewayCore> core;
  std::uint64_t frame = 0;

  Core() {
    const std::string path = directory.file("gateway.db");
    make_database(path);
    must(Db::open(path, OpenMode::read_write, 1000, db));
    core = std::make_unique<GatewayCore>(db.handle(), clock, GatewayCoreConfig{});
    must(core->open());
  }
  std::string bytes(const wire::Message& message, const std::string& name) {
    std::string frame_bytes, reply;
    must(wire::encode(message, frame_bytes));
    must(core->begin());
    must(core->accept(frame_bytes, clock.boot_ms(), reply, name));
    must(core->commit());
    return reply;
  }
  wire::Message answer(const wire::Message& message, const std::string& name) {
    wire::Message out;
    wire::RefusedCode code{};
    must(wire::decode(bytes(message, name), out, code));
    return out;
  }
  static wire::Hello hello(const EventId& stream, std::uint64_t session) {
    wire::Hello out;
    out.stream = stream;
    out.session = session;
    out.device = "d";
    for (std::uint8_t lane = 0; lane < kLaneCount; ++lane) {
      out.lanes.emplace_back();
      out.lanes.back().lane = lane;
    }
    return out;
  }
  wire::Batch batch(const EventId& stream, std::uint64_t session, std::int64_t seq,
                    const EventId& id) {
    wire::Batch out;
    out.stream = stream;
    out.session = session;
    out.frame_no = ++frame;
    out.start = seq == 1;
    out.prev.seq = seq - 1;
    EventRecord event;
    event.seq = seq;
    event.id = id;
    event.event_type = "t";
    event.aggregate_type = "a";
    event.aggregate_id = "1";
    event.payload = "x";
    out.events.push_back(event);
    return out;
  }
  Outcome::Kind outcome(const wire::Batch& batch, const std::string& name) {
    const wire::Message reply = answer(batch, name);
    REQUIRE(std::holds_alternative<wire::Ack>(reply));
    return std::get<wire::Ack>(reply).outcomes.at(0).kind;
  }
};

}  // namespace

TEST_CASE("what a stranger is told of a stream does not depend on what is in it (G10)") {
  Core gateway;
  const EventId stream = EventId::make_random(), known = EventId::make_random();
  (void)gateway.answer(Core::hello(stream, 7), "a");
  REQUIRE(gateway.outcome(gateway.batch(stream, 7, 1, known), "a") == Outcome::Kind::stored);
  // The owner's session is not disturbed by any of this, and even a stolen session id is no use.
  gateway.frame = 100;
  const auto probe = [&](std::int64_t seq, const EventId& id) {
    wire::Batch batch = gateway.batch(stream, 7, seq, id);
    batch.frame_no = 50;
    return gateway.bytes(batch, "b");
  };
  const std::string first = probe(1, known);
  CHECK(probe(1, EventId::make_random()) == first);
  CHECK(probe(2, EventId::make_random()) == first);
  CHECK(probe(1000, known) == first);
  const std::string hello = gateway.bytes(Core::hello(stream, 9), "b");
  gateway.frame = 1;
  CHECK(gateway.outcome(gateway.batch(stream, 7, 2, EventId::make_random()), "a") ==
        Outcome::Kind::stored);
  CHECK(gateway.bytes(Core::hello(stream, 9), "b") == hello);
  // Control: the owner is told.
  wire::Batch again = gateway.batch(stream, 7, 1, known);
  CHECK(gateway.outcome(again, "a") == Outcome::Kind::duplicate);
}

TEST_CASE("an event id of another device is not told from a new one (G10)") {
  Core gateway;
  const EventId one = EventId::make_random(), two = EventId::make_random();
  const EventId known = EventId::make_random();
  (void)gateway.answer(Core::hello(one, 7), "a");
  (void)gateway.answer(Core::hello(two, 8), "b");
  REQUIRE(gateway.outcome(gateway.batch(one, 7, 1, known), "a") == Outcome::Kind::stored);
  CHECK(gateway.outcome(gateway.batch(two, 8, 1, known), "b") == Outcome::Kind::stored);
  CHECK(gateway.outcome(gateway.batch(two, 8, 2, EventId::make_random()), "b") ==
        Outcome::Kind::stored);
  Connection db(gateway.directory.file("gateway.db"));
  CHECK(db.number("SELECT count(*) FROM outbox_event") == 2);
  CHECK(db.number("SELECT value FROM holdfast_counter WHERE name='inbox_duplicates'") == 1);
  // Control: without certificates it is told.
  const EventId three = EventId::make_random();
  (void)gateway.answer(Core::hello(three, 9), "");
  CHECK(gateway.outcome(gateway.batch(three, 9, 1, known), "") == Outcome::Kind::duplicate);
}

TEST_CASE("events are not taken in the name of a stream of another certificate (G10)") {
  Core gateway;
  const EventId one = EventId::make_random(), two = EventId::make_random();
  (void)gateway.answer(Core::hello(one, 7), "a");
  (void)gateway.answer(Core::hello(two, 8), "b");
  REQUIRE(gateway.outcome(gateway.batch(one, 7, 1, EventId::make_random()), "a") ==
          Outcome::Kind::stored);
  const auto forwarded = [&](std::int64_t seq, const EventId& source) {
    wire::Batch batch = gateway.batch(two, 8, seq, EventId::make_random());
    batch.events[0].source = "d";
    batch.events[0].source_stream = source;
    batch.events[0].source_seq = 5;
    return gateway.outcome(batch, "b");
  };
  CHECK(forwarded(1, one) == Outcome::Kind::later);  // kept at the device, never DEAD
  // Control: of a stream that is nobody's here, as a site's gateway forwards it.
  CHECK(forwarded(2, EventId::make_random()) == Outcome::Kind::stored);
}

TEST_CASE("holdfast certs: keys for their owner alone, the right usage, nothing overwritten") {
  TemporaryDirectory directory;
  const std::string dir = directory.file("ca");
  const auto certs = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "certs");
    arguments.insert(arguments.end(), {"--dir", dir});
    return command(arguments);
  };
  CHECK(certs({"device", "pump7"}).code() == 3);  // no CA yet
  CHECK(certs({"init"}).code() == 0);
  const std::string made = certs({"device", "pump7", "--days", "10"}).out;
  CertificateFacts facts;
  REQUIRE(read_certificate(dir + "/pump7.crt", facts).ok());
  CHECK(facts.name == "pump7");
  CHECK(has(made, "serial " + facts.serial));
  CHECK(facts.not_after_ms - facts.not_before_ms == 10LL * 24 * 3600 * 1000);
  REQUIRE(certs({"gateway", "gw.example", "192.0.2.1", "::1"}).code() == 0);
  for (const char* key : {"ca", "pump7", "gw.example"}) {
    struct stat info{};
    REQUIRE(::stat((dir + "/" + key + ".key").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
  }
  const auto text = [&](const std::string& name) {
    return run({"openssl", "x509", "-noout", "-text", "-in", dir + "/" + name + ".crt"}).out;
  };
  CHECK(has(text("pump7"), "TLS Web Client Authentication"));
  CHECK_FALSE(has(text("pump7"), "TLS Web Server"));
  CHECK(has(text("gw.example"), "TLS Web Server Authentication"));
  CHECK_FALSE(has(text("gw.example"), "TLS Web Client"));
  CHECK(
      has(text("gw.example"), "DNS:gw.example, IP Address:192.0.2.1, IP Address:0:0:0:0:0:0:0:1"));
  CHECK(has(text("gw.example"), "NIST CURVE: P-256"));
  CHECK(run({"openssl", "verify", "-CAfile", dir + "/ca.crt", dir + "/pump7.crt"}).code() == 0);

  const std::string key = read_file(dir + "/pump7.key");
  const RunResult again = certs({"device", "pump7"});
  CHECK(again.code() == 1);
  CHECK(has(again.err, "exists already; --force replaces it"));
  CHECK(certs({"init"}).code() == 1);
  CHECK(read_file(dir + "/pump7.key") == key);
  CHECK(certs({"device", "pump7", "--force"}).code() == 0);
  CHECK(read_file(dir + "/pump7.key") != key);

  // None outlives its CA.
  CertificateFacts ca;
  REQUIRE(certs({"init", "--days", "5", "--force"}).code() == 0);
  REQUIRE(certs({"device", "pump8"}).code() == 0);
  REQUIRE(read_certificate(dir + "/ca.crt", ca).ok());
  REQUIRE(read_certificate(dir + "/pump8.crt", facts).ok());
  CHECK(facts.not_after_ms <= ca.not_after_ms);
  REQUIRE(certs({"init", "--days", "1", "--force"}).code() == 0);
  const RunResult too_late = certs({"device", "pump9"});
  CHECK(too_late.code() == 1);
  CHECK(has(too_late.err, "make a new one"));
  CHECK(::access((dir + "/pump9.key").c_str(), F_OK) != 0);
}

TEST_CASE("doctor and metrics tell when the certificates end; a renewal is noted by itself") {
  Fleet fleet;
  constexpr std::int64_t kDayMs = 24LL * 3600 * 1000;
  fleet.certs({"device", "pump7", "--days", "20", "--force"});
  fleet.listen();
  const std::string database = fleet.db("pump7");
  REQUIRE(fleet.deliver(database, "pump7") == "delivered");
  const auto finding = [&](const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"doctor", path, "--json", "--sync-rounds", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Json last;
    for (const Json& line : json_lines(command(arguments).out))
      if (line.at("check") == "certificate") last = line;
    REQUIRE(last.is_object());
    return last;
  };
  CHECK(finding(database).at("level") == "warn");
  CHECK(finding(database).contains("advice"));
  CHECK(finding(fleet.gateway_db).at("level") == "ok");  // control: 730 days
  CHECK(finding(database, {"--tls-cert", fleet.tls("pump8").cert_file}).at("level") == "ok");
  CHECK(finding(database, {"--tls-cert", "/nonexistent"}).at("level") == "fail");
  CertificateFacts facts;
  REQUIRE(read_certificate(fleet.tls("pump7").cert_file, facts).ok());
  CHECK(has(command({"stats", database, "--prometheus"}).out,
            "holdfast_relay_certificate_expiry_seconds " +
                std::to_string(facts.not_after_ms / 1000) + "\n"));
  CHECK_FALSE(has(command({"stats", database, "--prometheus"}).out,
                  "holdfast_gateway_certificate_expiry_seconds"));
  CHECK(has(command({"stats", fleet.gateway_db, "--prometheus"}).out,
            "holdfast_gateway_certificate_expiry_seconds "));
  // The gateway runs on and reads its renewed files at the next connection.
  fleet.certs({"gateway", "127.0.0.1", "--days", "5", "--force"});
  CHECK(fleet.deliver(database, "pump7") == "delivered");
  CHECK(becomes_true([&] { return finding(fleet.gateway_db).at("level") == "warn"; }));
  Connection(database).run("UPDATE holdfast_meta SET value=value-" + std::to_string(21 * kDayMs) +
                           " WHERE key='relay_certificate_ends_at'");
  CHECK(finding(database).at("level") == "fail");
}

TEST_CASE("holdfast certs: a name that means something to openssl or a path is refused") {
  TemporaryDirectory directory;
  const std::string dir = directory.file("ca");
  REQUIRE(command({"certs", "init", "--dir", dir}).code() == 0);
  for (const char* name :
       {"/CN=x", "a/CN=x", "../x", "a\nCN=y", "$ENV::HOME", "a,DNS:b", "a b", "", ".x", "ca", "a=b",
        "\xc3\xa4", "0123456789012345678901234567890123456789012345678901234567890123x"}) {
    CAPTURE(name);
    CHECK(command({"certs", "device", "--dir", dir, name}).code() == 2);
    CHECK(command({"certs", "gateway", "--dir", dir, name}).code() == 2);
  }
  CHECK(command({"certs", "device", "--dir", dir, "--", "-x"}).code() == 2);
  CHECK(command({"certs", "device", "--dir", dir, "a-1_b.c"}).code() == 0);  // control
}

TEST_CASE("holdfast certs: without openssl the error says so, and nothing is left behind") {
  TemporaryDirectory directory;
  SpawnOptions options;
  options.env = {{"PATH", "/nonexistent"}};
  const RunResult result = command({"certs", "init", "--dir", directory.file("ca")}, options);
  CHECK(result.code() == 3);
  CHECK(has(result.err, "the openssl program is not there"));
  CHECK(error_line_problem(result.err, "certs init") == "");
  CHECK(::access(directory.file("ca/ca.key").c_str(), F_OK) != 0);
}
