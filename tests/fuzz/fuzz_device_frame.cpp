// The device's side: a hostile gateway's answers into the real relay core, on a database with
// events in every state. Input: steps (frames.hpp); a frame answers the request that has waited
// longest.
#include <deque>
#include <memory>
#include <optional>

#include "delivery.hpp"
#include "frames.hpp"
#include "fuzz.hpp"
#include "gateway_core.hpp"
#include "relay_core.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"
#include "support/process.hpp"

using namespace holdfast;
using namespace holdfast::fuzz;

namespace {

enum : std::uint8_t {
  kWait = 0x80,        // so many ms as the first two bytes say
  kFail = 0x81,        // no answer in time
  kLinkDown = 0x82,    // the connection breaks
  kEmit = 0x83,        // one more event; an urgent one if there are bytes
  kHonest = 0x84,      // a real gateway answers
  kRestart = 0x85,     // the relay stops and starts again
  kOtherFirst = 0x86,  // the next answers are to the newest request
  kFitting = 0xC0,     // added to a kind: session, frame and lane are those of the request
};
constexpr int kTurnsMax = 8;  // of the core after one step: it must come to rest by then

// The golden database, in memory: of a WAL its copy there could not be opened.
Db golden_in_memory() {
  std::string file = golden_database(kSchemaVersion);
  file[18] = file[19] = 1;
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("golden.db");
  write_bytes(path, file);
  const test::Connection from(path, test::Connection::Kind::bare);
  Db db = memory_database();
  require_ok(copy_database(from.handle(), db.handle()), "copy");
  return db;
}

struct SteppedClock : Clock {
  static constexpr std::int64_t kStartMs = 1'000'000;
  std::int64_t now = kStartMs;
  std::int64_t boot_ms() const override { return now; }
  std::int64_t wall_ms() const override { return test::ManualClock::kStartWallMs + now; }
  std::string boot_id() const override { return "boot"; }
};

// One database of each side for all inputs, as it was at the beginning of each.
struct Site {
  Db gateway = empty_database("gateway");
  Rows gateway_rows{gateway};
  SteppedClock clock;
  Delivery delivery;
  std::optional<Rows> device_rows;

  Site() {
    require_ok(delivery.open(golden_in_memory(), "upstream", false, clock), "delivery");
    device_rows.emplace(delivery.db());
  }
};

class Conversation {
 public:
  explicit Conversation(Site& site) : site_(site) {
    site.device_rows->restore();
    site.clock.now = SteppedClock::kStartMs;
    events_ = number(db(), "SELECT count(*) FROM outbox_event");
    start();
    go_on();
  }

  void take(const Step& step) {
    const std::uint8_t plain = step.kind & static_cast<std::uint8_t>(~kFitting);
    switch (step.kind) {
      case kWait:
        site_.clock.now += Input(step.bytes).u16();
        break;
      case kFail:
        if (const std::optional<Request> request = next())
          core_->request_failed(site_.clock.now, request->token,
                                Status::error(Code::unavailable, "late"));
        break;
      case kLinkDown:
        core_->link_down(site_.clock.now, Status::error(Code::unavailable, "broken pipe"));
        break;
      case kEmit:
        emit(step.bytes.empty() ? kLaneNormal : kLaneUrgent);
        break;
      case kHonest:
        answer_honestly();
        break;
      case kRestart:
        require_ok(core_->stop(site_.clock.now), "the relay stops");
        start();
        break;
      case kOtherFirst:
        newest_first_ = !newest_first_;
        break;
      default:
        if ((step.kind & kFitting) == kFitting && is_frame(plain | 0x40))
          answer(frame_of(plain | 0x40, step.bytes), true);
        else
          answer(frame_of(step.kind, step.bytes), false);
    }
    go_on();
  }

  void finish() {
    require_ok(core_->stop(site_.clock.now), "the relay stops");
    require(number(db(), "SELECT count(*) FROM outbox_event") == events_,
            "no answer removes an event");
    require(number(db(),
                   "SELECT count(*) FROM outbox_destination WHERE acked_seq>"
                   "(SELECT max(seq) FROM outbox_event) OR urgent_acked_seq>"
                   "(SELECT max(seq) FROM outbox_event) OR acked_seq<0 OR"
                   " urgent_acked_seq<0") == 0,
            "a cursor stays within the log");
    require(number(db(), "SELECT count(*) FROM outbox_exception") <= kMaxExceptionsPerDestination,
            "exceptions are bounded");
    require(number(db(),
                   "SELECT count(*) FROM outbox_gap WHERE first_seq<1 OR last_seq<first_seq"
                   " OR count<0") == 0,
            "a gap record is a range of events");
  }

 private:
  struct Request {
    std::uint64_t token = 0;
    wire::Message message;
  };

  Db& db() { return site_.delivery.db(); }

  void start() {
    RelayCoreConfig config;
    config.owner = "fuzz";
    config.seed = 1;
    config.batch_events_max = 4;
    core_ = std::make_unique<RelayCore>(site_.delivery, config);
    requests_.clear();
  }

  // Lets the core do what it wants, as a driver with a perfect link would.
  void go_on() {
    for (int turn = 0; turn < kTurnsMax; ++turn) {
      std::vector<RelayAction> actions;
      std::int64_t wake_at = 0;
      require_ok(core_->step(site_.clock.now, actions, wake_at), "no answer ends the relay");
      for (const RelayAction& action : actions) perform(action);
      if (actions.empty()) return;
    }
    require(false, "the relay comes to rest");
  }

  void perform(const RelayAction& action) {
    if (action.kind == RelayAction::Kind::connect) {
      core_->link_up(site_.clock.now);
    } else if (action.kind == RelayAction::Kind::disconnect) {
      requests_.clear();
    } else {
      std::string frame;
      require_ok(wire::encode(*action.message, frame), "what is sent can be encoded");
      requests_.push_back({action.token, decode_own(frame)});
    }
  }

  std::optional<Request> next() {
    if (requests_.empty()) return std::nullopt;
    const Request request = newest_first_ ? requests_.back() : requests_.front();
    newest_first_ ? requests_.pop_back() : requests_.pop_front();
    return request;
  }

  // As the relay does with what came in.
  void answer(const std::string& frame, bool fitting) {
    wire::Message message;
    wire::RefusedCode code{};
    const bool understood = decode_checked(frame, message, code);
    const std::optional<Request> request = next();
    if (!request) {
      if (understood)
        require_ok(core_->reply(site_.clock.now, UINT64_MAX, message), "a late answer");
    } else if (!understood) {
      core_->request_failed(site_.clock.now, request->token,
                            Status::error(Code::invalid, "not a frame"));
    } else {
      if (fitting) fit(message, request->message);
      require_ok(core_->reply(site_.clock.now, request->token, message),
                 "no answer ends the relay");
    }
  }

  static void fit(wire::Message& answer, const wire::Message& request) {
    std::uint64_t session = 0, frame_no = 0;
    std::uint8_t lane = 0;
    if (const auto* hello = std::get_if<wire::Hello>(&request)) session = hello->session;
    if (const auto* batch = std::get_if<wire::Batch>(&request)) {
      session = batch->session;
      frame_no = batch->frame_no;
      lane = batch->lane;
    }
    if (auto* welcome = std::get_if<wire::Welcome>(&answer)) welcome->session = session;
    if (auto* ack = std::get_if<wire::Ack>(&answer)) {
      ack->session = session;
      ack->frame_no = frame_no;
      ack->lane = lane;
      if (const auto* batch = std::get_if<wire::Batch>(&request))
        ack->outcomes.resize(batch->events.size());
    }
    if (auto* refused = std::get_if<wire::Refused>(&answer)) {
      refused->session = session;
      refused->frame_no = frame_no;
      refused->lane = lane;
    }
  }

  void answer_honestly() {
    const std::optional<Request> request = next();
    if (!request) return;
    if (!gateway_) {
      site_.gateway_rows.restore();
      gateway_ =
          std::make_unique<GatewayCore>(site_.gateway.handle(), site_.clock, GatewayCoreConfig());
      require_ok(gateway_->open(), "open");
    }
    std::string frame, reply;
    require_ok(wire::encode(request->message, frame), "what is sent can be encoded");
    require_ok(gateway_->begin(), "begin");
    require_ok(gateway_->accept(frame, site_.clock.now, reply), "accept");
    require_ok(gateway_->commit(), "commit");
    require_ok(core_->reply(site_.clock.now, request->token, decode_own(reply)), "a real answer");
  }

  void emit(int lane) {
    const std::string text = std::to_string(++events_);
    run_sql(db(),
            "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,lane,payload)"
            " VALUES('t','sensor','" +
                std::string(1, static_cast<char>('a' + events_ % 3)) + "'," + std::to_string(lane) +
                ",'" + text + "')");
    core_->committed();
  }

  Site& site_;
  std::unique_ptr<RelayCore> core_;
  std::unique_ptr<GatewayCore> gateway_;
  std::deque<Request> requests_;
  std::int64_t events_ = 0;
  bool newest_first_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Site site;
  return converse<Conversation>(site, data, size);
}
