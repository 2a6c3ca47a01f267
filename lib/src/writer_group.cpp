// One transaction of many members, and what becomes of each when it fails as a whole.
#include <algorithm>
#include <chrono>

#include "schema.hpp"
#include "writer_impl.hpp"

namespace holdfast {

// Moves those who wait into the group, until it has `most`. False: nobody came. One that has no
// part in a group ends it, and leads next.
bool Writer::Impl::next_members(std::size_t most) {
  const std::lock_guard<std::mutex> lock(mutex);
  const std::size_t before = group.size();
  while (!waiting.empty() && waiting.front()->work != nullptr && group.size() < most) {
    group.push_back(waiting.front());
    waiting.pop_front();
  }
  return group.size() > before;
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

// False: the transaction is gone, and with it what all of them wrote. The leader's own function
// needs no savepoint: if it fails, there is nothing else to keep yet, and the group ends with it.
bool Writer::Impl::run_all() {
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + std::chrono::microseconds(kMaxGroupWorkUs);
  bool rolled_back = false;
  next_members(1);
  group.front()->status = run_function(*group.front()->work, rolled_back);
  if (!group.front()->status.ok()) return true;
  for (std::size_t next = 1; next_members(static_cast<std::size_t>(options.members_max));) {
    for (; next < group.size(); ++next) {
      group[next]->status = run_in_savepoint(*group[next]->work, rolled_back);
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
    if (each->status.ok()) each->status = run_function(*each->work, rolled_back);
    reset_statements(db.handle());
    if (each->status.ok()) each->status = transaction.commit();
  }
}

void Writer::Impl::tell(const Status& status) {
  for (Member* each : group)
    if (each->status.ok()) each->status = status;
}

Status Writer::Impl::run_function(const Work& work, bool& rolled_back) {
  guard = {true, false};
  const Status status = work(db.handle(), outbox);
  guard.closed = false;
  rolled_back = !in_transaction(db.handle());
  if (guard.tried)
    return Status::error(Code::misuse,
                         "run: the function began or ended a transaction, or attached a file, "
                         "which the writer does for it; what it wrote is undone");
  if (!status.ok()) return status;
  if (rolled_back)
    return Status::error(Code::misuse,
                         "run: an error in the function rolled back the transaction (a full disk, "
                         "say), and it returned ok; what it wrote is undone");
  if (foreign_keys_broken(db.handle()))
    return Status::error(Code::invalid,
                         "run: a deferred foreign key does not hold at the end of the function");
  if (writes_unfinished(db.handle()))
    return Status::error(Code::misuse,
                         "run: the function left a statement that writes unfinished; step it to "
                         "its end, or reset it");
  return status;
}

Status Writer::Impl::run_in_savepoint(const Work& work, bool& rolled_back) {
  Status begun = savepoint.prepare(db.handle(), sql::kMember);
  if (begun.ok()) begun = savepoint.run("run");
  if (!begun.ok()) {
    rolled_back = !in_transaction(db.handle());
    return begun;
  }
  const Status status = run_function(work, rolled_back);
  if (rolled_back) return status;
  Status ended;
  if (!status.ok()) {
    reset_statements(db.handle());
    ended = rollback.prepare(db.handle(), sql::kMemberRollback);
    if (ended.ok()) ended = rollback.run("run");
  }
  if (ended.ok()) ended = release.prepare(db.handle(), sql::kMemberRelease);
  if (ended.ok()) ended = release.run("run");
  // The savepoint is lost, or cannot be undone: nothing of this transaction can be relied on.
  rolled_back = !ended.ok();
  return status.ok() ? ended : status;
}

}  // namespace holdfast
