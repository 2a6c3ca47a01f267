// One transaction of many members, and what becomes of each when it fails as a whole.
#include <algorithm>
#include <chrono>

#include "schema.hpp"
#include "writer_impl.hpp"

namespace holdfast {

// Moves those who wait into the group, up to the limit. False: nobody came since `from`. One that
// has no part in a group ends it, and leads next.
bool Writer::Impl::next_members(std::size_t from) {
  const std::lock_guard<std::mutex> lock(mutex);
  while (!waiting.empty() && waiting.front()->work != nullptr &&
         group.size() < static_cast<std::size_t>(options.members_max)) {
    group.push_back(waiting.front());
    waiting.pop_front();
  }
  return group.size() > from;
}

void Writer::Impl::commit_group(Member& me) {
  db.set_busy_timeout(
      static_cast<int>(std::max<std::int64_t>(0, me.deadline_ms - clock().boot_ms())));
  Transaction transaction(db.handle());
  Status status = transaction.begin();
  if (!status.ok()) return fail_waiting(status, me);
  if (!run_all()) {
    transaction.rollback();
    return run_alone();
  }
  reset_statements(db.handle());
  const bool any =
      std::any_of(group.begin(), group.end(), [](const Member* each) { return each->status.ok(); });
  if (!any) return;  // nothing to sync; it is rolled back
  status = transaction.commit();
  // Somebody's constraint that is looked at only now. Who that was will show.
  if (status.code() == Code::invalid && group.size() > 1) return run_alone();
  tell(status);
}

// The lock was not got: those whose time is over hear so, the others try again. With any other
// error there is no reason to try once for each.
void Writer::Impl::fail_waiting(const Status& status, Member& me) {
  const std::lock_guard<std::mutex> lock(mutex);
  const std::int64_t now = clock().boot_ms();
  const auto waits_on = [&](Member* each) {
    return each != &me &&
           (each->work == nullptr || (status.code() == Code::busy && each->deadline_ms > now));
  };
  const auto over = std::stable_partition(waiting.begin(), waiting.end(), waits_on);
  for (auto each = over; each != waiting.end(); ++each) {
    (*each)->status = status;
    group.push_back(*each);
  }
  waiting.erase(over, waiting.end());
}

// False: the transaction is gone, and with it what all of them wrote.
bool Writer::Impl::run_all() {
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + std::chrono::microseconds(kMaxGroupWorkUs);
  for (std::size_t next = 0; next_members(next);) {
    for (; next < group.size(); ++next) {
      bool rolled_back = false;
      group[next]->status = run_member(*group[next]->work, rolled_back);
      if (rolled_back) return false;
    }
    if (steady_clock::now() >= until) break;
  }
  return true;
}

// Each in a transaction of its own, but those that failed by themselves.
void Writer::Impl::run_alone() {
  for (Member* each : group) {
    if (!each->status.ok()) continue;
    Transaction transaction(db.handle());
    each->status = transaction.begin();
    bool rolled_back = false;
    if (each->status.ok()) each->status = run_member(*each->work, rolled_back);
    reset_statements(db.handle());
    if (each->status.ok()) each->status = transaction.commit();
  }
}

void Writer::Impl::tell(const Status& status) {
  for (Member* each : group)
    if (each->status.ok()) each->status = status;
}

Status Writer::Impl::run_member(const Work& work, bool& rolled_back) {
  Status status = savepoint.prepare(db.handle(), sql::kMember);
  if (status.ok()) status = savepoint.run("run");
  if (status.ok()) {
    guard = {true, false};
    status = work(db.handle(), outbox);
    guard.closed = false;
  }
  rolled_back = !in_transaction(db.handle());
  if (guard.tried)
    status = Status::error(Code::misuse,
                           "run: the function began or ended a transaction, or attached a file, "
                           "which the writer does for it; what it wrote is undone");
  else if (rolled_back && status.ok())
    status = Status::error(Code::misuse,
                           "run: an error in the function rolled back the transaction (a full "
                           "disk, say), and it returned ok; what it wrote is undone");
  if (rolled_back) return status;
  if (status.ok() && foreign_keys_broken(db.handle()))
    status = Status::error(Code::invalid,
                           "run: a deferred foreign key does not hold at the end of the function");
  return end_member(status, rolled_back);
}

Status Writer::Impl::end_member(Status status, bool& rolled_back) {
  Status ended = release.prepare(db.handle(), sql::kMemberRelease);
  if (ended.ok() && status.ok()) ended = release.run("run");
  if (ended.code() == Code::busy) {  // a statement that writes was left in the middle
    reset_statements(db.handle());
    status = Status::native_error(Code::misuse, ended.native(),
                                  "run: the function left a statement that writes unfinished; step "
                                  "it to its end, or reset it");
    ended = Status();
  }
  if (!status.ok()) {
    if (ended.ok()) ended = rollback.prepare(db.handle(), sql::kMemberRollback);
    if (ended.ok()) ended = rollback.run("run");
    if (ended.ok()) ended = release.run("run");
  }
  // The savepoint is lost, or cannot be undone: nothing of this transaction can be relied on.
  rolled_back = !ended.ok();
  return status.ok() ? ended : status;
}

}  // namespace holdfast
