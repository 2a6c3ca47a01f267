#include "support/sql_cost.hpp"

#include <sqlite3.h>

namespace holdfast::test {

namespace {

Cost total;

// Called when a statement has ended; then its counters are whole.
int count(unsigned, void*, void* statement, void*) {
  auto* const ended = static_cast<sqlite3_stmt*>(statement);
  sqlite3* const db = sqlite3_db_handle(ended);
  total.steps += sqlite3_stmt_status(ended, SQLITE_STMTSTATUS_VM_STEP, 1);
  for (const int kind : {SQLITE_DBSTATUS_CACHE_HIT, SQLITE_DBSTATUS_CACHE_MISS}) {
    int pages = 0, highest = 0;
    if (sqlite3_db_status(db, kind, &pages, &highest, 1) != SQLITE_OK) continue;
    total.pages += pages;
    if (kind == SQLITE_DBSTATUS_CACHE_MISS) total.reads += pages;
  }
  return 0;
}

int watch(sqlite3* db, char**, const void*) {
  return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, count, nullptr);
}

auto* const kEntry = reinterpret_cast<void (*)()>(watch);

}  // namespace

SqlCost::SqlCost() { sqlite3_auto_extension(kEntry); }
SqlCost::~SqlCost() { sqlite3_cancel_auto_extension(kEntry); }

Cost SqlCost::of(const std::function<void()>& call) {
  total = Cost();
  call();
  return total;
}

}  // namespace holdfast::test
