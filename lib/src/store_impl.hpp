// What the parts of Store share: store.cpp (open, act), store_look.cpp (events), store_stats.cpp.
#pragma once

#include "db.hpp"
#include "delivery.hpp"
#include "holdfast/store.hpp"

namespace holdfast {

struct Store::Impl {
  Db db;
  StoreOptions options;
  Access access = Access::read_only;
  std::unique_ptr<Transaction> transaction;

  const Clock& clock() const { return options.clock != nullptr ? *options.clock : system_clock(); }
};

Status not_open(const char* call);

// How an event stands at a destination, as its exception row (empty status: none), the gaps and
// the cursor say.
Status derive_state(sqlite3* db, const DestinationRow& row, bool lease_is_live,
                    std::string_view exception_status, EventView& view);

// One integer of a query with up to one bound value.
Status query_bound(sqlite3* db, const char* sql, std::int64_t bound, std::int64_t& value);

}  // namespace holdfast
