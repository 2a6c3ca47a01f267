#include "refusals.hpp"

namespace holdfast::cli {

std::string aggregate_of(const EventRecord& event) {
  std::string key(reinterpret_cast<const char*>(event.source_stream.bytes.data()),
                  event.source_stream.bytes.size());
  key += static_cast<char>('0' + event.lane);
  key += event.aggregate_type;
  key += '\0';
  return key + event.aggregate_id;
}

void Refusals::refuse(const EventRecord& event, Outcome::Kind kind, const std::string& reason,
                      Outcome& outcome, std::int64_t later_ms) {
  outcome.kind = kind;
  outcome.reason = reason.substr(0, kMaxReasonBytes);
  outcome.later_ms = later_ms;
  aggregates_.insert(aggregate_of(event));
}

bool Refusals::holds(const EventRecord& event, Outcome& outcome) const {
  if (aggregates_.empty() || aggregates_.count(aggregate_of(event)) == 0) return false;
  outcome.kind = Outcome::Kind::held;
  return true;
}

}  // namespace holdfast::cli
