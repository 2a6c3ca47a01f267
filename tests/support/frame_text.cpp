#include "support/frame_text.hpp"

namespace holdfast::test {

namespace {

std::string batch_text(const wire::Batch& batch) {
  std::string text = batch.retry ? "retry" : batch.start ? "start" : "batch";
  text += " lane " + std::to_string(batch.lane) + " frame " + std::to_string(batch.frame_no) +
          " after " + std::to_string(batch.prev.seq) + ":";
  for (const EventRecord& event : batch.events) text += " " + std::to_string(event.seq);
  for (const std::int64_t seq : batch.skipped) text += " -" + std::to_string(seq);
  for (const wire::GapReport& report : batch.reports)
    text += " (" + std::to_string(report.first) + ".." + std::to_string(report.last) + " " +
            wire::reason_name(report.reason) + ")";
  return text;
}

std::string welcome_text(const wire::Welcome& welcome) {
  std::string text = "welcome";
  for (const wire::WelcomeLane& lane : welcome.lanes) {
    text += lane.known ? " mark " + std::to_string(lane.mark.seq) : " unknown";
    for (const wire::Gap& gap : lane.gaps)
      text += " -" + std::to_string(gap.first) + "(" + std::to_string(static_cast<int>(gap.state)) +
              ")";
  }
  return text;
}

std::string ack_text(const wire::Ack& ack) {
  std::string text = "ack:";
  for (const Outcome& outcome : ack.outcomes)
    text += " " + std::to_string(static_cast<int>(outcome.kind));
  return text;
}

}  // namespace

std::string frame_text(const wire::Message& message) {
  if (const auto* batch = std::get_if<wire::Batch>(&message)) return batch_text(*batch);
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) return welcome_text(*welcome);
  if (const auto* ack = std::get_if<wire::Ack>(&message)) return ack_text(*ack);
  if (const auto* refused = std::get_if<wire::Refused>(&message))
    return std::string("refused ") + wire::refused_name(refused->code);
  return std::holds_alternative<wire::Hello>(message) ? "hello" : "bye";
}

}  // namespace holdfast::test
