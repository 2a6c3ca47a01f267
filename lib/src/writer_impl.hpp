// A Writer's inside: whose turn it is (writer.cpp), and one transaction of many (writer_group.cpp).
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "db.hpp"
#include "holdfast/writer.hpp"

namespace holdfast {

struct Writer::Impl {
  virtual ~Impl() = default;

  // A thread in run(); lives on its stack.
  struct Member {
    const Work* work = nullptr;
    // Instead of `work` when nobody else is there to commit with; must be given if `work` is not.
    const std::function<Status()>* alone = nullptr;
    std::int64_t deadline_ms = 0;  // boot clock: the write lock must be got by then
    Status status;
    bool done = false, leads = false;  // guarded by mutex
    std::condition_variable woken;
  };

  Db db;
  WriterOptions options;
  TransactionGuard guard;
  Outbox outbox;  // after db and guard
  Statement savepoint, rollback, release;
  std::vector<Member*> group;  // the leader's

  std::mutex mutex;
  std::deque<Member*> waiting;  // guarded by mutex, as is all below
  bool led = false;
  bool gathering = false;  // the leader sleeps until others have joined
  std::thread::id leader;  // nobody between two leaders
  std::condition_variable joined;

  const Clock& clock() const { return options.clock != nullptr ? *options.clock : system_clock(); }

  // Waits for a turn, or for another thread that does `me` with its own; ends with me.status.
  // `patience_ms` < 0: as long as it takes; else busy if nobody has begun by then.
  // Virtual, so that a program with a relay and without a Writer does not link all of this.
  virtual Status take_part(Member& me, std::int64_t patience_ms);

  // The leader's, without the mutex.
  void lead(std::unique_lock<std::mutex>& lock, Member& me);
  void gather(std::unique_lock<std::mutex>& lock);
  bool next_members(std::size_t most);
  void hand_over();
  // One transaction of all that are there, each with its Status.
  void commit_group(Member& me);
  void fail_waiting(const Status& status, Member& me);
  bool run_all();
  void run_alone();
  Status run_function(const Work& work, bool& rolled_back);
  Status run_in_savepoint(const Work& work, bool& rolled_back);
  void tell(const Status& status);
};

struct WriterAccess {
  static std::shared_ptr<Writer::Impl> of(const Writer& writer) { return writer.impl_; }
};

}  // namespace holdfast
