// Statistics for people, and as one JSON object.
#pragma once

#include <cstdint>
#include <string>

#include "holdfast/store.hpp"

namespace holdfast::cli {

class Output;

void print_stats(const StoreStats& stats, std::int64_t wall_now_ms, Output& out);
void print_inbox_stats(const InboxStats& inbox, Output& out);
std::string stats_line(const StoreStats& stats);
// {"applied":…, …, "handler_seconds":{"count":…,"sum":…,"buckets":[{"le":…,"count":…},…]}}
std::string inbox_stats_json(const InboxStats& inbox);

}  // namespace holdfast::cli
