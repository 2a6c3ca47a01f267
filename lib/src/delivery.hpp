// One destination's place in the log: lease, cursor, exceptions, gaps. What is here is durable
// state and its rules; when to do what is relay_core's business.
//
// Owns one connection with synchronous NORMAL: a lost "acked" only means a resend (G3), so the
// relay's bookkeeping pays for no fsync. A commit of the application, which syncs the same WAL,
// makes it durable on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "db.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/relay.hpp"
#include "holdfast/writer.hpp"
#include "identity.hpp"
#include "reserve.hpp"

namespace holdfast {

struct LaneCursor {
  std::int64_t acked_seq = 0;  // the last event that the other side answered, in order
  EventId acked_id{};
  std::int64_t claimed_seq = 0;  // sent or about to be, under the lease
  std::int64_t base_seq = 0;     // where this stream begins at this destination
};

struct DestinationRow {
  std::int64_t id = 0;
  std::string name;
  LaneCursor lanes[kLaneCount];
  EventId peer_store{};   // the gateway's store at the last session; nil: never
  EventId peer_stream{};  // our stream at the last session
  std::string lease_owner, lease_boot_id;
  std::int64_t lease_until_ms = 0, lease_epoch = 0;
  std::string times_boot_id;  // the boot that next_attempt_ms belongs to
  std::int64_t control = 0;   // rises when a person changed the exceptions
  std::int64_t link_failures = 0;
  std::string last_error;
  std::int64_t last_error_at_ms = 0;
  std::int64_t sent = 0, duplicates = 0, rejected = 0, retries = 0, rewinds = 0;
  std::int64_t capped = 0;  // events dropped at the cap; a change means new gaps
};

// Gives up the lease and the claims of relays that are gone: what they had under way may be
// dropped.
Status void_dead_leases(sqlite3* db, const Clock& clock);

Status find_destination(sqlite3* db, const std::string& name, bool& found, DestinationRow& row);
Status list_destinations(sqlite3* db, std::vector<DestinationRow>& rows);

// True while a relay may be working under this lease: same boot, not over, and its process not
// known to be gone (G7).
bool lease_live(const DestinationRow& row, const Clock& clock);

enum class ExceptionStatus { retry, held, dead };
const char* exception_name(ExceptionStatus status);

struct ExceptionRow {
  std::int64_t seq = 0;
  int lane = kLaneNormal;
  ExceptionStatus status = ExceptionStatus::retry;
  int attempts = 0;
  std::int64_t next_attempt_ms = 0;  // boot clock
  bool reported = false;             // DEAD: the gateway knows
  std::string last_error;
  std::string aggregate;  // aggregate_key()
};

// Identity of an aggregate within a destination: (origin stream, type, id); the lane is apart.
std::string aggregate_key(const EventRecord& event);

struct OutboxGap {
  int lane = kLaneNormal;
  std::int64_t first_seq = 0, last_seq = 0, count = 0;
  std::string reason, detail;
  bool reported = false;
  bool unwritten = false;  // in memory only, or grown since it was written
};

// The URL that a relay with several used last; "" if there is none.
Status read_relay_url(sqlite3* db, std::int64_t destination, std::string& url);

// What a flush writes, all of it or nothing.
struct CursorFlush {
  LaneCursor lanes[kLaneCount];
  std::int64_t lease_until_ms = 0;
  std::int64_t control = -1;  // as of which the exceptions are; -1: whatever a person did
  std::int64_t sent = 0, duplicates = 0, rejected = 0, retries = 0;  // to add
  std::vector<ExceptionRow> put;
  std::vector<std::int64_t> erase;
  std::vector<OutboxGap> reported;  // lane and range matter
  std::vector<OutboxGap> gaps;      // to write
  std::int64_t expired = 0;         // to count
};

// Counts of one lane at one destination.
struct LaneCounts {
  std::int64_t pending = 0;
  std::int64_t retry = 0, held = 0, dead = 0;
  std::int64_t beyond_cursor_max = 0;  // rows of the lane after its cursor: at most so many
};
// No scan of the log: seq has no holes, so arithmetic and small indexes are enough.
Status count_lane(sqlite3* db, const DestinationRow& row, int lane, LaneCounts& counts);

// A write that gets no turn is tried again later; the next batch must not wait for it.
constexpr std::int64_t kTurnWaitMs = 20;

class Delivery {
 public:
  // The destination is added if `create`, else it must exist.
  Status open(const std::string& path, const std::string& destination, bool create,
              const Clock& clock);
  // On an open connection (tests: in memory).
  Status open(Db db, const std::string& destination, bool create, const Clock& clock);
  void close();

  // What gives room on a full disk to the writes made through write(); must outlive this.
  void use_reserve(Reserve* reserve) { reserve_ = reserve; }
  // The process's producers: with it what is written here takes turns with them instead of fighting
  // for the lock. Must outlive this, and be of the same database.
  void use_writer(std::shared_ptr<Writer::Impl> writer) { writer_ = std::move(writer); }
  // Busy, besides `writing`'s own reasons, when the producers left no turn for kTurnWaitMs.
  Status write(const std::function<Status()>& writing);
  Status turn(const std::function<Status()>& writing);  // the same without the reserve

  Db& db() { return db_; }
  const Clock& clock() const { return *clock_; }

  Status load(DestinationRow& row);
  Status identity(Identity& identity) { return read_identity(db_.handle(), identity); }

  // Takes the lease for `owner` if it is free, void or already ours; `row` is the state under it.
  // With `epoch` equal to the row's and still ours, nothing happened in between.
  Status acquire(const std::string& owner, std::int64_t lease_ms, bool& acquired,
                 DestinationRow& row);
  // Fenced: lease_lost, and nothing written, if owner and epoch are not the row's any more. With
  // producers under way in this process it is one more part of their transaction, and durable with
  // it; else, like all that is written here, a transaction of its own without a sync.
  Status flush(const std::string& owner, std::int64_t epoch, const CursorFlush& flush);
  Status release(const std::string& owner, std::int64_t epoch);
  Status record_link(std::int64_t failures, const std::string& error, std::int64_t wall_ms);
  // Which of several URLs is in use; "": there is only one.
  Status note_url(const std::string& url);
  Status noted_url(std::string& url);

  Status load_exceptions(std::vector<ExceptionRow>& rows);
  Status load_gaps(std::vector<OutboxGap>& gaps);
  Status control(std::int64_t& value, std::int64_t& capped);
  // Whether events may be dropped at the cap, so that what is sent must be claimed before.
  Status drops_oldest(bool& drops);

  // Rows of a lane after `after`, in order, until fn returns false. `bad` is not ok for a row that
  // is no valid event.
  Status read(int lane, std::int64_t after, std::int64_t rows_max,
              const std::function<bool(EventRecord&& event, const Status& bad)>& fn);
  // Whether its time to live is over for certain.
  Status expired(const EventRecord& event, bool& over);
  Status read_one(std::int64_t seq, bool& found, EventRecord& event, Status& bad);
  // Whether the row at seq is there, and is this event in this lane.
  Status event_at(std::int64_t seq, bool& found, EventId& id, int& lane);
  Status newest_seq(std::int64_t& seq);
  Status oldest_seq(std::int64_t& seq);
  Status first_after(int lane, std::int64_t after, std::int64_t& seq);  // 0 = none
  Status data_version(std::int64_t& version);

  // What a WELCOME told us, fenced like a flush: identity of the other side, cursors moved back,
  // gaps to report (again).
  struct PeerUpdate {
    EventId store{}, stream{};
    LaneCursor lanes[kLaneCount];
    bool rewound = false;
    std::vector<OutboxGap> new_gaps;
    std::int64_t unreport_above[kLaneCount] = {-1, -1};  // -1: leave
    std::vector<ExceptionRow> put;
  };
  Status record_peer(const std::string& owner, std::int64_t epoch, const PeerUpdate& update);
  // A fork was found: this database takes a new stream (G11).
  Status fork(const std::string& owner, std::int64_t epoch, const std::string& why);

  // Not yet accepted beyond these cursors, exceptions and gone ones excluded.
  Status count_pending(const LaneCursor (&lanes)[kLaneCount], std::int64_t& count);

  // Frames in the WAL as of our last commit; with kCheckpointFrames or more, checkpoint() is due.
  int wal_frames() const { return wal_->frames; }
  Status checkpoint();
  bool wal_moved() const { return wal_moved_; }  // the last checkpoint left nothing behind

 private:
  Status fenced(sqlite3* db, const std::string& owner, std::int64_t epoch, const char* what);
  Status put_exception(sqlite3* db, Statement& put, const ExceptionRow& row, bool only_new = false);
  Status add_gap(sqlite3* db, const OutboxGap& gap);
  Status write_cursor(sqlite3* db, const std::string& owner, std::int64_t epoch,
                      const CursorFlush& flush);
  Status write_flush(sqlite3* db, const std::string& owner, std::int64_t epoch,
                     const CursorFlush& flush);

  struct WalState {  // at a fixed address: the WAL hook points here
    WalHookSlot slot;
    int frames = 0;
  };

  Db db_;
  Db guard_;
  Reserve* reserve_ = nullptr;
  std::shared_ptr<Writer::Impl> writer_;
  bool wal_moved_ = true;
  std::unique_ptr<WalState> wal_;
  const Clock* clock_ = nullptr;
  std::string name_;
  std::int64_t id_ = 0;
  Statement read_[kLaneCount], first_[kLaneCount], read_one_, event_at_, newest_, oldest_, version_,
      by_name_, control_;
};

}  // namespace holdfast
