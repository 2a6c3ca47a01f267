// Removing what nobody needs any more, in small steps, so that a producer beside it hardly waits.
#pragma once

#include "db.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/store.hpp"

namespace holdfast {

// The newest seq that every destination is past: the lowest of (first pending normal event,
// first pending urgent event) − 1 over all destinations, and below every exception.
Status purge_floor(sqlite3* db, std::int64_t& seq);

// One step of each kind, each in a transaction of its own. The newest event always stays, so that
// SQLite never hands out its seq again below a cursor.
Status purge_step(Db& db, const Clock& clock, const PurgeOptions& options, PurgeResult& result);

}  // namespace holdfast
