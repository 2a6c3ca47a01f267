// A group of frames in one transaction: each stands or falls alone.
#include "gateway_core.hpp"

#include <doctest/doctest.h>

#include "support/connection.hpp"
#include "support/process.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

EventId some_id(std::uint8_t number) {
  EventId id;
  id.bytes.fill(number);
  return id;
}

// A gateway's database and core, and frames as devices would send them.
struct Site {
  TemporaryDirectory directory;
  std::string path = directory.file("gateway.db");
  Db db;
  std::unique_ptr<GatewayCore> core;
  std::int64_t next_seq[8] = {};

  Site() {
    make_database(path, "");
    must(Db::open(path, OpenMode::read_write, 1000, db));
    core = std::make_unique<GatewayCore>(db.handle(), system_clock(), GatewayCoreConfig());
    must(core->open());
  }
  std::int64_t number(const std::string& query) {
    std::int64_t value = 0;
    must(db.query_int(query.c_str(), value, "test"));
    return value;
  }
  std::string encoded(const wire::Message& message) {
    std::string frame;
    must(wire::encode(message, frame));
    return frame;
  }
  std::string hello(std::uint8_t device, std::uint64_t session) {
    return encoded(wire::Hello{some_id(device), session, "device", "test", {}});
  }
  // One event for each type.
  std::string batch(std::uint8_t device, std::uint64_t session, std::uint64_t frame_no,
                    const std::vector<std::string>& types) {
    wire::Batch batch;
    batch.stream = some_id(device);
    batch.session = session;
    batch.frame_no = frame_no;
    batch.start = true;
    for (const std::string& type : types) {
      EventRecord event =
          sensor_record("boiler", static_cast<std::int64_t>(batch.events.size()) + 1);
      event.id = some_id(static_cast<std::uint8_t>(device * 16 + event.seq));
      event.event_type = type;
      batch.events.push_back(event);
    }
    return encoded(batch);
  }
  // The whole group in one transaction; its first error.
  Status serve(const std::vector<std::string>& frames, std::vector<wire::Message>& answers) {
    std::vector<std::string> replies(frames.size());
    Status status = core->begin();
    for (std::size_t i = 0; i < frames.size() && status.ok(); ++i)
      status = core->accept(frames[i], 1, replies[i]);
    if (status.ok()) status = core->commit();
    if (!status.ok()) core->abandon();
    answers.clear();
    for (const std::string& reply : replies) {
      wire::RefusedCode code{};
      answers.emplace_back();
      if (!reply.empty()) must(wire::decode(reply, answers.back(), code));
    }
    return status;
  }
  void must_serve(const std::vector<std::string>& frames, std::vector<wire::Message>& answers) {
    must(serve(frames, answers));
  }
};

bool stored(const wire::Message& answer, std::size_t events) {
  const auto* ack = std::get_if<wire::Ack>(&answer);
  if (ack == nullptr || ack->outcomes.size() != events) return false;
  for (const Outcome& outcome : ack->outcomes)
    if (outcome.kind != Outcome::Kind::stored) return false;
  return true;
}

wire::RefusedCode refused(const wire::Message& answer) {
  const auto* refused = std::get_if<wire::Refused>(&answer);
  return refused == nullptr ? wire::RefusedCode{} : refused->code;
}

// The log takes no event of type "poison": the whole statement fails, or with ROLLBACK all.
void poison(Site& site, const std::string& how) {
  must(site.db.exec(("CREATE TRIGGER poison BEFORE INSERT ON outbox_event WHEN"
                     " NEW.event_type='poison' BEGIN SELECT RAISE(" +
                     how + ",'poison'); END")
                        .c_str(),
                    "poison"));
}

}  // namespace

TEST_CASE("a frame that cannot be stored is undone alone, and the others of its group are stored") {
  Site site;
  std::vector<wire::Message> answers;
  site.must_serve({site.hello(1, 11), site.hello(2, 12), site.hello(3, 13)}, answers);
  poison(site, "ABORT");
  site.must_serve({site.batch(1, 11, 1, {"t", "t"}), site.batch(2, 12, 1, {"t", "poison"}),
                   site.batch(3, 13, 1, {"t"})},
                  answers);
  CHECK(stored(answers[0], 2));
  CHECK(refused(answers[1]) == wire::RefusedCode::unavailable);
  CHECK(stored(answers[2], 1));
  // Nothing is left of it: neither the event before the bad one, nor mark, nor inbox row, nor
  // count.
  CHECK(site.number("SELECT count(*) FROM outbox_event") == 3);
  CHECK(site.number("SELECT count(*) FROM inbox_event") == 3);
  CHECK(site.number("SELECT count(*) FROM inbox_stream") == 2);
  CHECK(site.number("SELECT value FROM holdfast_counter WHERE name='inbox_applied'") == 3);

  // Its device says HELLO again, as after any `unavailable`, and goes on when it can.
  must(site.db.exec("DROP TRIGGER poison", "poison"));
  site.must_serve({site.batch(2, 12, 1, {"t", "poison"})}, answers);
  CHECK(refused(answers[0]) == wire::RefusedCode::stale_session);
  site.must_serve({site.hello(2, 22), site.batch(2, 22, 1, {"t", "poison"})}, answers);
  CHECK(stored(answers[1], 2));
  CHECK(site.number("SELECT count(*) FROM outbox_event") == 5);
}

TEST_CASE(
    "control: an error that ends the transaction leaves nothing of the group, nor an answer") {
  Site site;
  std::vector<wire::Message> answers;
  site.must_serve({site.hello(1, 11), site.hello(2, 12)}, answers);
  poison(site, "ROLLBACK");
  CHECK_FALSE(
      site.serve({site.batch(1, 11, 1, {"t"}), site.batch(2, 12, 1, {"poison"})}, answers).ok());
  CHECK(site.number("SELECT count(*) FROM outbox_event") == 0);
  CHECK(site.number("SELECT count(*) FROM inbox_stream") == 0);
}

TEST_CASE(
    "several batches of one device in one group continue each other; one too many is refused") {
  Site site;
  std::vector<wire::Message> answers;
  const auto next = [&site](std::uint64_t frame_no, std::int64_t prev) {
    wire::Batch batch;
    batch.stream = some_id(1);
    batch.session = 11;
    batch.frame_no = frame_no;
    batch.start = prev == 0;
    batch.prev.seq = prev;
    if (prev > 0) batch.prev.id = some_id(static_cast<std::uint8_t>(16 + prev));
    EventRecord event = sensor_record("boiler", prev + 1);
    event.id = some_id(static_cast<std::uint8_t>(16 + prev + 1));
    batch.events.push_back(event);
    return site.encoded(batch);
  };
  site.must_serve({site.hello(1, 11), next(1, 0), next(2, 1), next(4, 3), next(3, 2)}, answers);
  CHECK(stored(answers[1], 1));
  CHECK(stored(answers[2], 1));
  CHECK(refused(answers[3]) == wire::RefusedCode::ahead_of_mark);  // the third is missing
  CHECK(stored(answers[4], 1));
  CHECK(site.number("SELECT count(*) FROM outbox_event") == 3);
}
