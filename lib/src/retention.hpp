// Removing what nobody needs any more, in small steps, so that a producer beside it hardly waits.
#pragma once

#include <functional>

#include "db.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/store.hpp"
#include "reserve.hpp"

namespace holdfast {

// The newest seq that every destination is past, as far as it matters up to `upto`: the lowest of
// (first pending normal event, first pending urgent event) − 1 over all destinations, and below
// every exception; `upto` or more if that is beyond it.
Status purge_floor(sqlite3* db, std::int64_t upto, std::int64_t& seq);

// One step of each kind, each in a transaction of its own. The newest event always stays, so that
// SQLite never hands out its seq again below a cursor.
Status purge_step(Db& db, const Clock& clock, const PurgeOptions& options, PurgeResult& result);

// The same on a full disk, so small that the reserve lasts: moves the WAL, removes a few rows,
// gives back a few pages, and moves the WAL again, so that the next step has all of its file.
Status purge_step_on_full_disk(Db& db, const Clock& clock, PurgeOptions options, Reserve& reserve,
                               const std::function<Status()>& checkpoint, PurgeResult& result);

}  // namespace holdfast
