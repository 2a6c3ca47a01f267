#include "holdfast/writer.hpp"

#include <algorithm>
#include <chrono>

#include "reserve.hpp"
#include "schema.hpp"
#include "writer_impl.hpp"

namespace holdfast {

Writer::Writer() = default;
Writer::~Writer() = default;
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;

namespace {

Status check_options(const WriterOptions& options) {
  if (options.members_max < 1 || options.members_max > kMaxGroupMembers)
    return Status::error(Code::invalid, "members_max: give 1 to %d", kMaxGroupMembers);
  if (options.wait_us < 0 || options.wait_us > kMaxGroupWaitUs)
    return Status::error(Code::invalid, "wait_us: give 0 to %lld",
                         static_cast<long long>(kMaxGroupWaitUs));
  if (options.busy_timeout_ms < 0)
    return Status::error(Code::invalid, "busy_timeout_ms: give 0 or more");
  return Status();
}

}  // namespace

Status Writer::open(const std::string& path, const WriterOptions& options, Writer& out) {
  Status status = check_options(options);
  if (!status.ok()) return status;
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  status = Db::open(path, OpenMode::read_write, options.busy_timeout_ms, impl->db);
  if (status.ok()) status = check_schema(impl->db.handle(), path);
  if (status.ok() && small_file_system(path))
    status = limit_wal_file(impl->db.handle(), wal_bytes_on(path));
  if (status.ok() && options.setup) status = options.setup(impl->db.handle());
  if (!status.ok()) return status;
  OutboxOptions outbox;
  outbox.busy_timeout_ms = 0;  // the connection's own
  outbox.checkpoint_frames = options.checkpoint_frames;
  outbox.on_commit = options.on_commit;
  outbox.clock = options.clock;
  status = Outbox::attach(impl->db.handle(), outbox, impl->outbox);
  if (!status.ok()) return status;
  guard_transactions(impl->db.handle(), &impl->guard);
  out.impl_ = std::move(impl);
  return Status();
}

Status Writer::run_work(const Work& work) {
  if (!impl_) return Status::error(Code::misuse, "run: the writer is not open");
  Impl::Member me;
  me.work = &work;
  me.deadline_ms = impl_->clock().boot_ms() + impl_->options.busy_timeout_ms;
  return impl_->take_part(me, -1);
}

Status Writer::Impl::take_part(Member& me, std::int64_t patience_ms) {
  std::unique_lock<std::mutex> lock(mutex);
  if (leader == std::this_thread::get_id())
    return Status::error(Code::misuse,
                         "run: called from inside a function that the same writer runs; do its "
                         "work there, through the connection that the function was given");
  waiting.push_back(&me);
  if (led) {
    if (gathering) joined.notify_one();
    const auto begun = [&] { return me.done || me.leads; };
    if (patience_ms < 0) {
      me.woken.wait(lock, begun);
    } else if (!me.woken.wait_for(lock, std::chrono::milliseconds(patience_ms), begun)) {
      const auto at = std::find(waiting.begin(), waiting.end(), &me);
      if (at != waiting.end()) {
        waiting.erase(at);
        return Status::error(Code::busy, "run: others of this process are writing");
      }
      me.woken.wait(lock, begun);  // a leader has taken it
    }
    if (me.done) return me.status;
  }
  lead(lock, me);
  return me.status;
}

// `me` is the first of those who wait.
void Writer::Impl::lead(std::unique_lock<std::mutex>& lock, Member& me) {
  led = true;
  leader = std::this_thread::get_id();
  if (me.alone == nullptr && options.wait_us > 0) gather(lock);
  if (me.alone != nullptr && (me.work == nullptr || waiting.size() == 1)) {
    waiting.pop_front();
    lock.unlock();
    me.status = (*me.alone)();
    lock.lock();
  } else {
    lock.unlock();
    commit_group(me);
    lock.lock();
  }
  hand_over();
}

void Writer::Impl::gather(std::unique_lock<std::mutex>& lock) {
  gathering = true;
  joined.wait_for(lock, std::chrono::microseconds(options.wait_us),
                  [&] { return waiting.size() >= static_cast<std::size_t>(options.members_max); });
  gathering = false;
}

void Writer::Impl::hand_over() {
  for (Member* each : group) {
    each->done = true;
    each->woken.notify_one();
  }
  group.clear();
  leader = std::thread::id();
  led = !waiting.empty();
  if (!led) return;
  waiting.front()->leads = true;
  waiting.front()->woken.notify_one();
}

}  // namespace holdfast
