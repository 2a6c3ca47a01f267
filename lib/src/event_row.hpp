// An event as columns: the one place that knows their order.
#pragma once

#include "db.hpp"
#include "holdfast/event.hpp"

namespace holdfast {

// Binds 1–11 of sql::kEventInsert. `id_text` must outlive the step.
void bind_event(Statement& statement, const Event& event, const std::string& id_text,
                std::int64_t created_at_ms, std::int64_t emitted_ms);
// Binds 1–14 of sql::kEventForward.
void bind_record(Statement& statement, const EventRecord& event, const std::string& id_text);

// Reads HOLDFAST_EVENT_COLUMNS from column 0 on. A row that cannot be an event (damage, or checks
// switched off by whoever wrote it) gives Code::invalid with the reason; seq and lane are set as
// far as they can be read, and the row must be treated alone (G10).
constexpr int kEventColumns = 17;
Status read_event(const Statement& statement, EventRecord& event);

}  // namespace holdfast
