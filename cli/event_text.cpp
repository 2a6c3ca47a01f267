#include "event_text.hpp"

#include <algorithm>

#include "holdfast/clock.hpp"

namespace holdfast::cli {
namespace {

constexpr std::size_t kPayloadPreviewBytes = 400;

}  // namespace

Colour state_colour(EventState state) {
  switch (state) {
    case EventState::dead:
    case EventState::gone:
      return Colour::red;
    case EventState::retry:
    case EventState::held:
      return Colour::yellow;
    case EventState::sent:
      return Colour::green;
    case EventState::pending:
    case EventState::processing:
      break;
  }
  return Colour::none;
}

std::string event_age(const EventRecord& event, std::int64_t wall_now_ms) {
  if (!wall_known(event.created_at_ms) || !wall_known(wall_now_ms)) return "-";
  return format_age(std::max<std::int64_t>(0, wall_now_ms - event.created_at_ms));
}

std::string attempt_text(const EventView& view) {
  std::string out;
  if (view.attempts > 0) out = "attempt " + std::to_string(view.attempts);
  if (view.next_attempt_in_ms >= 0) {
    out += std::string(out.empty() ? "" : ", ") + "next in " + format_age(view.next_attempt_in_ms);
  }
  const std::string& reason = view.last_error.empty() ? view.gone_reason : view.last_error;
  if (!reason.empty()) out += (out.empty() ? "" : ": ") + reason;
  return out;
}

std::string event_detail(const EventView& view) {
  std::string out = view.event.lane == kLaneUrgent ? "urgent " : "";
  const std::string attempts = attempt_text(view);
  if (!attempts.empty()) return out + attempts;
  if (is_utf8(view.event.payload)) return out + view.event.payload.substr(0, kPayloadPreviewBytes);
  return out + "(" + format_bytes(static_cast<std::int64_t>(view.event.payload.size())) +
         " of binary)";
}

std::string lane_text(int lane) {
  if (lane == kLaneNormal) return "normal";
  if (lane == kLaneUrgent) return "urgent";
  return std::to_string(lane);
}

std::string age_since(std::int64_t wall_ms) {
  EventRecord at;
  at.created_at_ms = wall_ms;
  return event_age(at, system_clock().wall_ms());
}

}  // namespace holdfast::cli
