// The gateway's side: frames of devices into the real core on a real database. Input: steps
// (frames.hpp); a frame is accepted, other kinds are what a driver does in between.
#include <map>

#include "frames.hpp"
#include "fuzz.hpp"
#include "gateway_core.hpp"
#include "support/manual_clock.hpp"

using namespace holdfast;
using namespace holdfast::fuzz;

namespace {

enum : std::uint8_t {
  kCommit = 0x80,       // ends the group
  kCertificate = 0x81,  // the bytes are the name that the next frames come with
  kWait = 0x82,         // as many seconds as bytes
};

// One database for all inputs, as it was at the beginning of each.
class Site {
 public:
  Site() : db_(empty_database("gateway")), rows_(db_) {}
  void restore() { rows_.restore(); }
  Db& db() { return db_; }

 private:
  Db db_;
  Rows rows_;
};

class Conversation {
 public:
  explicit Conversation(Site& site) : site_(site), core_(site.db().handle(), clock_, {}) {
    require_ok(core_.open(), "open");
    require_ok(core_.begin(), "begin");
  }

  void take(const Step& step) {
    if (is_frame(step.kind)) {
      accept(frame_of(step.kind, step.bytes));
    } else if (step.kind == kCertificate) {
      certificate_ = step.bytes;
    } else if (step.kind == kWait) {
      clock_.advance(static_cast<std::int64_t>(step.bytes.size()) * 1'000);
    } else if (step.kind == kCommit) {
      commit();
      require_ok(core_.begin(), "begin");
    } else {
      accept(frame_of(step.kind, step.bytes));  // a kind that nobody knows
    }
  }

  void finish() {
    check_log();
    core_.abandon();
    if (committed_) site_.restore();
  }

 private:
  void commit() {
    require_ok(core_.commit(), "commit");
    committed_ = true;
    check_log();
  }

  void accept(const std::string& frame) {
    wire::Message asked;
    wire::RefusedCode code{};
    const bool understood = decode_checked(frame, asked, code);
    std::string reply;
    require_ok(core_.accept(frame, clock_.boot_ms(), reply, certificate_),
               "a frame is no error of the gateway");
    const wire::Message answer = decode_own(reply);
    if (const auto* refused = std::get_if<wire::Refused>(&answer)) {
      if (!understood) require(refused->code == code, "refused as the decoder says");
      require(refused->code != wire::RefusedCode::unavailable,
              "a healthy database stores what a frame may hold", refused->text);
      return;
    }
    require(understood, "what does not decode is refused");
    if (const auto* hello = std::get_if<wire::Hello>(&asked)) {
      const auto* welcome = std::get_if<wire::Welcome>(&answer);
      require(welcome != nullptr && welcome->session == hello->session, "HELLO: WELCOME");
    } else if (const auto* batch = std::get_if<wire::Batch>(&asked)) {
      const auto* ack = std::get_if<wire::Ack>(&answer);
      require(ack != nullptr, "BATCH: ACK");
      check_ack(*batch, *ack);
    } else {
      require(std::get_if<wire::Bye>(&asked) != nullptr, "a gateway's own kinds are refused");
    }
  }

  void check_ack(const wire::Batch& batch, const wire::Ack& ack) {
    require(ack.outcomes.size() == batch.events.size(), "an outcome for each event");
    require(
        ack.session == batch.session && ack.frame_no == batch.frame_no && ack.lane == batch.lane,
        "an ACK is of its batch");
    std::int64_t& mark = marks_[{batch.stream, batch.lane}];
    require(ack.mark.seq >= mark, "a mark never goes back");
    mark = ack.mark.seq;
    const std::string where =
        " WHERE stream=x'" + hex(batch.stream) + "' AND lane=" + std::to_string(batch.lane);
    require(
        mark == number(site_.db(), "SELECT coalesce(max(mark_seq),0) FROM inbox_stream" + where),
        "the mark that is told is the one in the database");
    for (std::size_t i = 0; i < ack.outcomes.size(); ++i)
      if (ack.outcomes[i].kind == Outcome::Kind::stored) check_stored(batch.events[i]);
  }

  void check_stored(const EventRecord& event) {
#ifdef HOLDFAST_FUZZ_CONTROL  // a gateway that answers `stored` and loses the event
    run_sql(site_.db(), "DELETE FROM inbox_event WHERE event_id=x'" + hex(event.id) + "'");
#endif
    require_ok(validate(event), "what is stored is a valid event");
    require(number(site_.db(),
                   "SELECT count(*) FROM inbox_event WHERE event_id=x'" + hex(event.id) + "'") == 1,
            "what was answered `stored` is in the inbox");
    require(number(site_.db(), "SELECT count(*) FROM outbox_event WHERE event_id='" +
                                   event.id.text() + "'") == 1,
            "what was answered `stored` is in the log, once");
  }

  void check_log() {
    require(number(site_.db(), "SELECT count(*)-count(DISTINCT event_id) FROM outbox_event") == 0,
            "each event is in the log once");
  }

  static std::string hex(const EventId& id) {
    std::string digits;
    for (const char c : id.text())
      if (c != '-') digits += c;
    return digits;
  }

  Site& site_;
  test::ManualClock clock_;
  GatewayCore core_;
  std::string certificate_;
  std::map<std::pair<EventId, int>, std::int64_t> marks_;
  bool committed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Site site;
  return converse<Conversation>(site, data, size);
}
