#include "holdfast/relay.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "holdfast/outbox.hpp"
#include "link_failover.hpp"
#include "platform.hpp"
#include "powered_time.hpp"
#include "relay_core.hpp"
#include "retention.hpp"
#include "schema.hpp"
#include "tls_open.hpp"
#include "writer_impl.hpp"

namespace holdfast {

namespace {

constexpr std::int64_t kSlowPollMs = 5'000;  // safety net for a notification that got lost
constexpr std::int64_t kProbeMaxMs = 2'000;  // the WAL write comes before the commit is visible
constexpr std::int64_t kPurgeEveryMs = 60'000;
constexpr std::int64_t kPurgeAgainMs = 1'000;  // more to remove: the next small step
constexpr std::int64_t kReserveEveryMs = 10'000;
constexpr std::int64_t kReserveSoonMs = 500;
constexpr std::int64_t kDateLookMs = 250;
constexpr std::int64_t kDateEveryMs = 60'000;  // how late an event of plain SQL may expire
constexpr std::int64_t kWalLookMs = 50;
constexpr std::int64_t kMakeRoomEveryMs = 250;
constexpr std::int64_t kStopWaitMs = 1'000;
constexpr std::int64_t kByeWaitMs = 200;
constexpr std::int64_t kCountEveryMs = 250;

}  // namespace

const char* phase_name(RelayState::Phase phase) {
  switch (phase) {
    case RelayState::Phase::starting:
      return "starting";
    case RelayState::Phase::standby:
      return "standby";
    case RelayState::Phase::offline:
      return "offline";
    case RelayState::Phase::idle:
      return "idle";
    case RelayState::Phase::sending:
      return "sending";
    case RelayState::Phase::stopped:
      return "stopped";
    case RelayState::Phase::failed:
      return "failed";
  }
  return "";
}

struct Relay::Impl {
  explicit Impl(const RelayOptions& given)
      : options(given), clock(given.clock != nullptr ? *given.clock : system_clock()) {}

  ~Impl() {
    if (tls) tls->close();
  }

  RelayOptions options;
  const Clock& clock;
  Reserve reserve;
  Delivery delivery;  // after the reserve it uses
  std::unique_ptr<RelayCore> core;
  std::shared_ptr<tls::Tls> tls;       // null without tls+tcp
  std::unique_ptr<FailoverLink> link;  // null with a sink
  platform::Waker waker;
  platform::WriteWatcher watcher;
  std::thread thread;
  std::atomic<bool> stopping{false};

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  RelayState state;  // guarded by mutex
  Status ended;      // guarded by mutex: why the thread ended by itself

  // The thread's own.
  bool unset_clock_told = false;
  std::string noted_url;  // in the database, for `stats`
  std::int64_t seen_version = -1;
  std::int64_t probe_ms = 0;  // next distance between looks; 0: not probing
  std::int64_t probe_at = 0;
  std::int64_t purge_at = 0;
  std::int64_t reserve_at = 0;
  std::int64_t room_at = 0;
  std::int64_t room_made_for = -1;  // events recorded as sent when room was last made
  int checkpoint_frames = kCheckpointFrames;
  std::int64_t checkpointed_version = -1;
  std::int64_t wal_look_at = 0;
  std::int64_t date_at = 0;
  int sampled_clock = -1;  // whether the clock was set at the last sample; -1: not known
  std::int64_t count_at = 0;
  std::int64_t pending = 0;

  void run();
  Status loop();
  Status turn(std::int64_t now, std::int64_t& wake_at);
  Status take_link_events(std::int64_t now);
  Status perform(std::int64_t now, const std::vector<RelayAction>& actions);
  void deliver_to_sink(std::int64_t now, const RelayAction& action, Status& status);
  Status notice_commits(std::int64_t now);
  Status upkeep(std::int64_t now);
  bool wal_grew(std::int64_t now);
  Status note_clock();
  Status note_url();
  Status date_events(std::int64_t now);
  Status purge(std::int64_t now);
  Status make_room(std::int64_t now);
  Status publish(std::int64_t now);
  Status finish();
  Status join_writer();
  void say(LogLevel level, const std::string& text) const {
    if (options.log) options.log(level, text);
  }
};

Status Relay::Impl::join_writer() {
  if (options.writer == nullptr) return Status();
  const std::shared_ptr<Writer::Impl> writer = WriterAccess::of(*options.writer);
  if (!writer) return Status::error(Code::misuse, "relay: its writer is not open");
  if (main_file(writer->db.handle()) != main_file(delivery.db().handle()))
    return Status::error(Code::invalid, "relay: its writer is of another database, %s",
                         writer->db.path().c_str());
  delivery.use_writer(writer);
  return Status();
}

void Relay::Impl::run() {
  Status status = loop();
  const Status last = finish();
  if (status.ok()) status = last;
  delivery.close();
  const std::lock_guard<std::mutex> lock(mutex);
  ended = status;
  state.phase = status.ok() ? RelayState::Phase::stopped : RelayState::Phase::failed;
  if (!status.ok()) state.last_error = status;
  changed.notify_all();
}

Status Relay::Impl::loop() {
  while (!stopping) {
    const std::int64_t now = clock.boot_ms();
    std::int64_t wake_at = now + kSlowPollMs;
    Status status = turn(now, wake_at);
    if (!status.ok()) {
      say(LogLevel::error, status.text());
      return status;
    }
    if (probe_ms > 0) wake_at = std::min(wake_at, probe_at);
    const std::int64_t wait_ms = std::max<std::int64_t>(0, wake_at - clock.boot_ms());
    const platform::WriteWatcher::Woken woken = watcher.wait(waker, wait_ms);
    if (woken.by_write || woken.by_waker) {
      probe_ms = 1;
      probe_at = clock.boot_ms();
    }
  }
  return Status();
}

// PRAGMA data_version tells whether another connection's commit has become visible. After a write
// to the WAL it is read again after 1, 2, 4 … ms: the fsync of a slow card comes in between.
Status Relay::Impl::notice_commits(std::int64_t now) {
  std::int64_t version = 0;
  const Status status = delivery.data_version(version);
  if (!status.ok()) return status.code() == Code::busy ? Status() : status;
  if (version != seen_version) {
    seen_version = version;
    core->committed();
    probe_ms = 0;
    return Status();
  }
  if (probe_ms > 0 && now >= probe_at) {
    probe_at = now + probe_ms;
    probe_ms = probe_ms >= kProbeMaxMs ? 0 : probe_ms * 2;
  }
  return Status();
}

Status Relay::Impl::turn(std::int64_t now, std::int64_t& wake_at) {
  Status status = take_link_events(now);
  if (status.ok()) status = notice_commits(now);
  for (bool again = true; again && status.ok() && !stopping;) {
    std::vector<RelayAction> actions;
    std::int64_t core_wake_at = wake_at;
    status = core->step(now, actions, core_wake_at);
    if (status.ok()) status = perform(now, actions);
    again = options.sink != nullptr && !actions.empty();
    wake_at = std::min(wake_at, core_wake_at);
    if (again) now = clock.boot_ms();
  }
  if (status.ok()) status = upkeep(now);
  if (link) wake_at = std::min(wake_at, link->wake_at());
  if (reserve.used()) wake_at = std::min({wake_at, reserve_at, std::max(room_at, now + 1)});
  if (status.ok()) status = publish(now);
  return status;
}

Status Relay::Impl::take_link_events(std::int64_t now) {
  if (!link) return Status();
  tell_tls_news(tls.get(), delivery.db().handle(), options.log);
  LinkEvent event;
  while (link->next(now, event)) {
    switch (event.kind) {
      case LinkEvent::Kind::up:
        say(LogLevel::info, "connected to " + link->url());
        core->link_up(now);
        break;
      case LinkEvent::Kind::down:
        core->link_down(now, event.status);
        break;
      case LinkEvent::Kind::failed:
        core->request_failed(now, event.token, event.status);
        break;
      case LinkEvent::Kind::reply: {
        wire::Message message;
        wire::RefusedCode code;
        const Status decoded = wire::decode(event.frame, message, code);
        if (!decoded.ok()) {
          core->request_failed(now, event.token, decoded);
          break;
        }
        const Status status = core->reply(now, event.token, message);
        if (!status.ok()) return status;
        break;
      }
    }
  }
  return Status();
}

Status Relay::Impl::perform(std::int64_t now, const std::vector<RelayAction>& actions) {
  Status status;
  for (const RelayAction& action : actions) {
    if (!status.ok()) break;
    if (action.kind == RelayAction::Kind::send && options.sink != nullptr) {
      deliver_to_sink(now, action, status);
    } else if (action.kind == RelayAction::Kind::send) {
      std::string frame;
      status = wire::encode(*action.message, frame);
      if (status.ok()) link->request(now, action.token, frame, options.request_timeout_ms);
    } else if (action.kind == RelayAction::Kind::connect) {
      tell_unset_clock(tls.get(), unset_clock_told, options.log);
      link->connect(now);
    } else {
      link->disconnect();
    }
  }
  return status;
}

void Relay::Impl::deliver_to_sink(std::int64_t now, const RelayAction& action, Status& status) {
  const auto* batch = std::get_if<wire::Batch>(action.message);
  if (batch == nullptr) return;
  wire::Ack ack;
  ack.session = batch->session;
  ack.frame_no = batch->frame_no;
  ack.lane = batch->lane;
  ack.outcomes.resize(batch->events.size());
  const Status delivered = options.sink->deliver(batch->events, ack.outcomes);
  if (!delivered.ok())
    core->request_failed(now, action.token, delivered);
  else
    status = core->reply(now, action.token, ack);
}

namespace {

// These pass by themselves: the next turn tries again.
Status unless_passing(const Status& status) {
  return status.code() == Code::busy || status.code() == Code::no_space ? Status() : status;
}

}  // namespace

Status Relay::Impl::upkeep(std::int64_t now) {
  Status status;
  if (delivery.wal_frames() >= checkpoint_frames || wal_grew(now))
    status = unless_passing(delivery.checkpoint());
  if (now >= reserve_at) {
    const Status filled = reserve.fill();
    if (!filled.ok()) say(LogLevel::debug, filled.text());
    reserve_at = now + (reserve.used() ? kReserveSoonMs : kReserveEveryMs);
  }
  if (status.ok() && reserve.used()) status = make_room(now);
  if (status.ok()) status = note_clock();
  if (status.ok()) status = note_url();
  if (status.ok() && now >= date_at) status = date_events(now);
  if (status.ok() && now >= purge_at) status = purge(now);
  return status;
}

// Once the clock is set, that is known of this boot for good: events from before then get their
// time also when the power fails next.
Status Relay::Impl::note_clock() {
  const int set = wall_known(clock.wall_ms()) ? 1 : 0;
  if (set == sampled_clock) return Status();
  const Status status =
      delivery.write([&] { return sample_time(delivery.db().handle(), clock, false); });
  if (status.ok()) sampled_clock = set;
  return unless_passing(status);
}

// With several URLs only, and then no more often than the link moves.
Status Relay::Impl::note_url() {
  if (!link) return Status();
  const bool several = !options.more_urls.empty();
  const std::string url = several ? link->url() : "";
  if (url == noted_url || (several && url.empty())) return Status();
  const Status status = delivery.turn([&] { return delivery.note_url(url); });
  if (status.ok()) noted_url = url;
  return unless_passing(status);
}

// What plain SQL emitted with a time to live is as old as the next sample says.
Status Relay::Impl::date_events(std::int64_t now) {
  date_at = now + kDateLookMs;
  bool undated = false;
  Status status = undated_ttl(delivery.db().handle(), undated);
  if (status.ok() && undated) {
    status = delivery.turn([&] { return sample_time(delivery.db().handle(), clock, true); });
    if (status.ok()) date_at = now + kDateEveryMs;
  }
  return unless_passing(status);
}

// On a small file system the WAL must not become larger than the reserve, for then it could not be
// moved any more once the disk is full. A producer without Holdfast's own checkpoints lets it grow,
// and an offline relay, which commits nothing itself, sees that only by the file's size.
bool Relay::Impl::wal_grew(std::int64_t now) {
  if (checkpoint_frames == kCheckpointFrames || now < wal_look_at) return false;
  if (seen_version == checkpointed_version) return false;
  if (wal_file_bytes(options.database) < wal_bytes_on(options.database)) return false;
  checkpointed_version = seen_version;
  wal_look_at = now + kWalLookMs;
  return true;
}

Status Relay::Impl::purge(std::int64_t now) {
  if (options.outbox_retention_ms < 0 && options.inbox_retention_ms < 0) return Status();
  PurgeOptions purge;
  purge.outbox_older_than_ms = options.outbox_retention_ms;
  purge.inbox_older_than_ms = options.inbox_retention_ms;
  PurgeResult result;
  const Status status =
      delivery.write([&] { return purge_step(delivery.db(), clock, purge, result); });
  purge_at = now + (result.more ? kPurgeAgainMs : kPurgeEveryMs);
  if (result.outbox_rows + result.inbox_rows > 0)
    say(LogLevel::debug, "purged " + std::to_string(result.outbox_rows) + " events and " +
                             std::to_string(result.inbox_rows) + " inbox rows");
  return unless_passing(status);
}

// The disk was full. What is recorded as sent goes now, before its retention is over; the pages
// that it leaves are given back, and the WAL is moved: then there is room to emit again, and in the
// end for the reserve.
Status Relay::Impl::make_room(std::int64_t now) {
  const std::int64_t recorded = core->recorded_events();
  if (now < room_at || recorded == room_made_for) return Status();
  if (room_made_for < 0) say(LogLevel::warning, "the disk is full; working from the reserve");
  room_at = now + kMakeRoomEveryMs;
  PurgeOptions sent;
  sent.outbox_older_than_ms = options.outbox_retention_ms < 0 ? -1 : 0;
  sent.inbox_older_than_ms = -1;
  PurgeResult result;
  Status status;
  do {
    status = delivery.turn([&] {
      return purge_step_on_full_disk(
          delivery.db(), clock, sent, reserve, [this] { return delivery.checkpoint(); }, result);
    });
  } while (status.ok() && result.more && !stopping);
  // Any write: the first one to a WAL that was moved cuts its file.
  if (status.ok())
    status = delivery.write([&] { return sample_time(delivery.db().handle(), clock, true); });
  if (status.ok() && delivery.wal_moved()) room_made_for = recorded;
  return unless_passing(status);
}

Status Relay::Impl::publish(std::int64_t now) {
  RelayState latest = core->state();
  if (now >= count_at || latest.drained) {
    const Status status = core->count_pending(pending);
    if (!status.ok() && status.code() != Code::busy) return status;
    count_at = now + kCountEveryMs;
  }
  latest.pending_events = pending;
  if (link) latest.url = link->url();
  const std::lock_guard<std::mutex> lock(mutex);
  latest.turns = state.turns + 1;
  state = latest;
  changed.notify_all();
  return Status();
}

// Lets the request under way finish, says goodbye, writes the cursor, gives up the lease.
Status Relay::Impl::finish() {
  const std::int64_t until = clock.boot_ms() + kStopWaitMs;
  Status status;
  while (link && status.ok() && !core->idle() && clock.boot_ms() < until) {
    status = take_link_events(clock.boot_ms());
    if (!core->idle()) waker.wait(20);
  }
  wire::Message bye;
  std::string frame;
  if (link && core->goodbye(bye) && wire::encode(bye, frame).ok()) {
    link->request(clock.boot_ms(), 0, frame, kByeWaitMs);
    LinkEvent event;
    const std::int64_t bye_until = clock.boot_ms() + kByeWaitMs;
    for (bool done = false; !done && clock.boot_ms() < bye_until;) {
      while (!done && link->next(clock.boot_ms(), event))
        done = event.kind != LinkEvent::Kind::up && event.token == 0;
      if (!done) waker.wait(10);
    }
  }
  Status stopped = core->stop(clock.boot_ms());
  while (stopped.code() == Code::busy && clock.boot_ms() < until) {
    platform::sleep_us(5'000);
    stopped = core->stop(clock.boot_ms());
  }
  // A cursor that could not be written only means that the gateway is asked again.
  if (!stopped.ok()) say(LogLevel::warning, stopped.text());
  link.reset();
  return status;
}

// --- the public class --------------------------------------------------------------------------

Relay::Relay() = default;
Relay::Relay(Relay&&) noexcept = default;

Relay::~Relay() {
  const Status status = stop();
  (void)status;  // it was logged; a destructor has nobody to tell
}

Relay& Relay::operator=(Relay&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Status Relay::start(const RelayOptions& options, Relay& out) {
  if ((options.sink == nullptr) == options.url.empty())
    return Status::error(Code::invalid, "relay: give either a url or a sink");
  if (options.dead_after < 1 || options.lease_ms < 100 || options.flush_interval_ms < 1 ||
      options.batch_events_max < 1 || options.batch_events_max > kMaxBatchEvents ||
      options.window_batches_max < 1 || options.window_batches_max > kWindowBatchesMax ||
      options.retry_delay_min_ms < 1 || options.retry_delay_max_ms < options.retry_delay_min_ms ||
      options.link_delay_min_ms < 1 || options.link_delay_max_ms < options.link_delay_min_ms ||
      options.request_timeout_ms < 100 || options.return_delay_ms < 100 ||
      options.reserve_bytes < 0)
    return Status::error(Code::invalid, "relay: an option is out of its range; see relay.hpp");
  if (options.more_urls.size() >= (options.url.empty() ? 1 : kRelayUrlsMax))
    return Status::error(Code::invalid, "relay: give one url, and at most %d more",
                         kRelayUrlsMax - 1);
  std::vector<std::string> urls = {options.url};
  urls.insert(urls.end(), options.more_urls.begin(), options.more_urls.end());
  Status status;
  for (const std::string& url : urls)
    if (status.ok() && options.sink == nullptr) status = check_url(url);
  if (!status.ok()) return status;
  if (options.sink != nullptr && !options.tls.empty())
    return Status::error(Code::invalid, "relay: TLS is of no use with a sink");
  auto impl = std::make_shared<Impl>(options);
  status = impl->waker.open_status();
  if (status.ok() && options.reserve_bytes == 0)
    status = platform::resize_ballast(reserve_path(options.database), 0);
  if (!status.ok()) return status;
  impl->reserve = Reserve(options.database, options.reserve_bytes);
  impl->delivery.use_reserve(&impl->reserve);
  impl->checkpoint_frames = checkpoint_frames_on(options.database, kCheckpointFrames);
  // On a full disk even the memory that SQLite shares between processes may lack its file.
  status = impl->reserve.while_full([&] {
    return impl->delivery.open(options.database, options.destination, options.create_destination,
                               impl->clock);
  });
  if (status.ok()) status = impl->join_writer();
  if (status.ok()) status = impl->watcher.open(options.database);
  if (!status.ok()) return status;
  // A flush must not keep the next batch waiting behind another writer.
  impl->delivery.db().set_busy_timeout(20);
  RelayCoreConfig config;
  config.owner = platform::process_token() + "/" + std::to_string(platform::random_u64() >> 16);
  config.local = options.sink != nullptr;
  config.dead_after = options.dead_after;
  config.retry_delay_min_ms = options.retry_delay_min_ms;
  config.retry_delay_max_ms = options.retry_delay_max_ms;
  config.link_delay_min_ms = options.link_delay_min_ms;
  config.link_delay_max_ms = options.link_delay_max_ms;
  config.lease_ms = options.lease_ms;
  config.flush_interval_ms = options.flush_interval_ms;
  config.batch_events_max = options.batch_events_max;
  config.batch_bytes_max = options.batch_bytes_max;
  config.window = options.window_batches_max;
  config.seed = platform::random_u64();
  config.log = options.log;
  impl->core = std::make_unique<RelayCore>(impl->delivery, config);
  if (options.sink == nullptr) {
    impl->link = std::make_unique<FailoverLink>();
    Impl* raw = impl.get();
    status = open_tls(tls::Side::device, options.tls, urls, impl->delivery.db().handle(),
                      impl->clock, impl->tls);
    if (status.ok())
      status = impl->link->open(
          urls, options.return_delay_ms, platform::random_u64(), [raw] { raw->waker.wake(); },
          impl->tls);
    if (status.ok()) status = impl->delivery.noted_url(impl->noted_url);
    if (!status.ok()) return status;
  }
  status = out.stop();
  if (!status.ok()) return status;
  impl->thread = std::thread([raw = impl.get()] { raw->run(); });
  out.impl_ = std::move(impl);
  return Status();
}

void Relay::wake() {
  if (impl_) impl_->waker.wake();
}

std::function<void()> Relay::waker() const {
  std::weak_ptr<Impl> weak = impl_;
  return [weak] {
    if (const std::shared_ptr<Impl> impl = weak.lock()) impl->waker.wake();
  };
}

RelayState Relay::state() const {
  if (!impl_) return RelayState();
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->state;
}

bool Relay::wait(std::int64_t timeout_ms,
                 const std::function<bool(const RelayState&)>& done) const {
  if (!impl_) return false;
  std::unique_lock<std::mutex> lock(impl_->mutex);
  return impl_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                 [&] { return done(impl_->state); });
}

Status Relay::stop() {
  if (!impl_) return Status();
  // impl_ stays: another thread may be in wait(), and state() is good after the end as well.
  impl_->stopping = true;
  impl_->waker.wake();
  if (impl_->thread.joinable()) impl_->thread.join();
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->ended;
}

}  // namespace holdfast
