// Many threads, one write connection: their transactions are committed in groups.
//
//   holdfast::Writer writer;                       // one for the process, shared by its threads
//   Status s = holdfast::Writer::open("/data/app.db", {}, writer);
//   …
//   s = writer.run([&](sqlite3* db, holdfast::Outbox& outbox) {   // from any thread
//     … your own rows, through db …
//     return outbox.emit(event);
//   });                                            // ok: both are durable
//
// SQLite has one writer at a time and a COMMIT waits for the disk, so K threads that each commit
// alone wait for each other and for K syncs. Here a thread that finds nobody at work leads: it runs
// its own function, then those of all threads that came meanwhile, one after the other in one
// transaction, and commits once. The others sleep until then. There is no further thread, nothing
// is handed over, and one thread alone does what it would have done by itself.
//
// What survives a crash: when run() returned ok, all that the function wrote; when it returned
// unknown, all of it or nothing (Outbox::resolve tells); with any other error nothing.
//
// Each function is a transaction of its own in all but the sync: it sees what those before it in
// the group wrote, as if they had committed, and is undone alone if it returns an error, throws, or
// leaves a deferred foreign key broken.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#if defined(__cpp_exceptions)
#include <exception>
#endif

#include "holdfast/clock.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/status.hpp"

struct sqlite3;

namespace holdfast {

constexpr int kMaxGroupMembers = 256;             // functions in one transaction
constexpr std::int64_t kMaxGroupWorkUs = 20'000;  // no further function begins after so long
constexpr std::int64_t kMaxGroupWaitUs = 1'000'000;

struct WriterOptions {
  // How long run() waits for the write lock while another process holds it; counted for each caller
  // from its own call. 0: not at all.
  int busy_timeout_ms = 5000;
  // A leader waits so long for others to join before it begins. 0: not at all, which is best unless
  // syncs are cheap and threads many; the time of a sync is when groups form.
  std::int64_t wait_us = 0;
  int members_max = kMaxGroupMembers;         // 1 to kMaxGroupMembers; 1: no groups
  int checkpoint_frames = kCheckpointFrames;  // as OutboxOptions
  // Called once by open() with the new connection: PRAGMA foreign_keys, SQL functions of your own.
  // Its error is open()'s.
  std::function<Status(sqlite3* db)> setup;
  // After each commit that emitted, on the thread that led: hand it Relay::waker(). It must not
  // use this Writer.
  std::function<void()> on_commit;
  const Clock* clock = nullptr;
};

class Writer {
 public:
  using Work = std::function<Status(sqlite3* db, Outbox& outbox)>;

  Writer();
  ~Writer();  // no thread may be in run() any more
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Opens a connection of its own (WAL, synchronous FULL). Errors: those of Store::open, and
  // invalid for an option out of its range.
  static Status open(const std::string& path, const WriterOptions& options, Writer& out);

  // Runs `work` in a transaction and returns once that is committed, or undone. Any thread, any
  // number at a time.
  //
  // `work` runs on the thread that leads, which may be another thread's call of run(): hold no lock
  // that any thread's work takes, and don't use thread-local state in it. It must not call run() of
  // this Writer (misuse). It may run more than once, each time from the same state, because another
  // one's error rolled everything back (a full disk, say): what it wrote to the database is undone
  // then, but nothing else. It writes through `db` and `outbox` only and returns soon, for others
  // wait. BEGIN, COMMIT, ROLLBACK, ATTACH and DETACH are refused in it ("not authorized") and make
  // it fail with misuse, whatever it returns; savepoints are its own affair, their names must not
  // begin with holdfast. Statements prepared on `db` may be kept and used in the next run; they are
  // reset at the end of each group.
  //
  // Returns the Status of `work` if that is not ok (nothing of it is there), and else what became
  // of the COMMIT: ok, no_space (nothing is there), unknown; busy if the lock was not got in time
  // (`work` was not run). An exception out of `work` undoes it and is thrown again here, on the
  // caller's thread.
  template <class Fn, bool kExceptions =
#if defined(__cpp_exceptions)
                          true
#else
                          false
#endif
            >
  Status run(Fn&& work);

  struct Impl;  // the relay's way in

 private:
  friend struct WriterAccess;
  Status run_work(const Work& work);
  std::shared_ptr<Impl> impl_;
};

// The exception is caught in the program's own code: Holdfast's is built without exceptions. The
// second parameter keeps the two forms apart where a program has both kinds of files.
template <class Fn, bool kExceptions>
Status Writer::run(Fn&& work) {
#if defined(__cpp_exceptions)
  std::exception_ptr thrown;
  const Status status = run_work([&](sqlite3* db, Outbox& outbox) {
    thrown = nullptr;
    try {
      return Status(work(db, outbox));
    } catch (...) {
      thrown = std::current_exception();
      return Status::error(Code::misuse, "run: the function threw an exception");
    }
  });
  if (thrown) std::rethrow_exception(thrown);
  return status;
#else
  return run_work(std::ref(work));
#endif
}

}  // namespace holdfast
