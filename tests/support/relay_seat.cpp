#include "support/relay_seat.hpp"

#include <algorithm>

namespace holdfast::test {

void Seat::finish_connecting(std::int64_t now, bool link_works) {
  if (connect_at < 0 || now < connect_at) return;
  connect_at = -1;
  up = link_works;
  if (link_works)
    core->link_up(now);
  else
    core->link_down(now, Status::error(Code::unavailable, "no route"));
}

std::vector<std::uint64_t> Seat::expire(std::int64_t now) {
  std::vector<std::uint64_t> expired;
  for (const auto& [token, at] : deadline)
    if (now >= at) expired.push_back(token);
  for (const std::uint64_t token : expired) {
    deadline.erase(token);
    core->request_failed(now, token, Status::error(Code::unavailable, "no answer"));
  }
  return expired;
}

Status Seat::go_on(std::int64_t now, std::int64_t request_timeout_ms,
                   const std::function<std::int64_t()>& connect_ms, const SendFrame& send) {
  std::vector<RelayAction> actions;
  const Status status = core->step(now, actions, wake_at);
  for (const RelayAction& action : actions) {
    if (action.kind == RelayAction::Kind::connect) {
      connect_at = now + connect_ms();
    } else if (action.kind == RelayAction::Kind::disconnect) {
      up = false;
      deadline.clear();
    } else {
      deadline[action.token] = now + request_timeout_ms;
      send(action.token, *action.message);
    }
  }
  return status;
}

void Seat::break_connection(std::int64_t now) {
  if (!up) return;
  up = false;
  deadline.clear();
  core->link_down(now, Status::error(Code::unavailable, "broken pipe"));
}

std::int64_t Seat::due_at() const {
  std::int64_t at = wake_at;
  if (connect_at >= 0) at = std::min(at, connect_at);
  for (const auto& [token, until] : deadline) at = std::min(at, until);
  return at;
}

}  // namespace holdfast::test
