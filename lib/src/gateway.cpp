#include "holdfast/gateway.hpp"

#include <algorithm>

#include "fair_queue.hpp"
#include "gateway_core.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "identity.hpp"
#include "link_nng.hpp"
#include "link_url.hpp"
#include "platform.hpp"
#include "reserve.hpp"
#include "retention.hpp"
#include "schema.hpp"
#include "tls_open.hpp"

namespace holdfast {

namespace {

constexpr std::int64_t kCheckListenersEveryMs = 5'000;
constexpr std::int64_t kPurgeEveryMs = 60'000;
constexpr std::int64_t kPurgeAgainMs = 1'000;
constexpr std::int64_t kUnavailableMs = 1'000;
constexpr std::int64_t kTlsFailureEveryMs = 10'000;
constexpr std::int64_t kReserveEveryMs = 10'000;

// Plain TCP that does not stay on this machine.
bool is_exposed(const std::string& url) {
  LinkUrl parsed;
  return parse_url(url, parsed).ok() && !parsed.tls && !is_local(parsed);
}

}  // namespace

struct Gateway::Impl {
  explicit Impl(const GatewayOptions& given)
      : options(given), clock(given.clock != nullptr ? *given.clock : system_clock()) {}

  GatewayOptions options;
  const Clock& clock;
  Db db;
  Db guard;
  std::unique_ptr<GatewayCore> core;
  platform::Waker waker;
  std::shared_ptr<tls::Tls> tls;  // null without tls+tcp
  bool unset_clock_told = false;
  std::int64_t tls_failure_at = 0;  // the next one is said then, with the number of those before
  LinkServer server;
  FairQueue waiting;  // to be served
  std::vector<std::string> urls;
  std::function<void()> committed;
  WalHookSlot hook;
  std::int64_t revoked_at = 0;  // when to look at the list again
  int wal_frames = 0;
  int checkpoint_frames = kCheckpointFrames;
  Reserve reserve;
  std::int64_t reserve_at = 0;
  std::int64_t check_at = 0;
  std::int64_t purge_at = 0;

  ~Impl() {
    if (tls) tls->close();
  }
  Status open();
  Status check_listen() const;
  Status listen();
  void tell_tls();
  bool looks_at_revoked() const { return tls && tls->has_revocations(); }
  void cut_revoked();
  void gather();
  Status serve(bool& fatal);
  Status upkeep(std::int64_t now);
  void say(LogLevel level, const std::string& text) const {
    if (options.log) options.log(level, text);
  }
};

Status Gateway::Impl::open() {
  InitOptions init;
  init.destination.clear();  // a gateway's log goes nowhere until somebody adds a destination
  init.clock = options.clock;
  if (options.reserve_bytes < 0)
    return Status::error(Code::invalid, "reserve_bytes: give 0 or more bytes");
  reserve = Reserve(options.database, options.reserve_bytes);
  checkpoint_frames = checkpoint_frames_on(options.database, kCheckpointFrames);
  Status status = check_listen();
  if (!status.ok()) return status;
  status = reserve.while_full([&] {
    const Status made = Store::init(options.database, init, nullptr);
    return made.ok() ? Db::open(options.database, OpenMode::read_write, kBusyTimeoutMs, db) : made;
  });
  if (status.ok() && options.reserve_bytes == 0)
    status = platform::resize_ballast(reserve_path(options.database), 0);
  if (status.ok()) status = honour_new_stream_mark(db.handle(), clock.wall_ms());
  if (status.ok()) status = waker.open_status();
  if (!status.ok()) return status;
  hook = {[](void* self, int frames) { static_cast<Impl*>(self)->wal_frames = frames; }, this};
  install_wal_hook(db.handle(), &hook);
  GatewayCoreConfig config;
  config.consumer = options.consumer;
  config.handler = options.handler;
  config.guard = options.guard;
  config.log = options.log;
  core = std::make_unique<GatewayCore>(db.handle(), clock, config);
  status = core->open();
  if (status.ok())
    status = server.open(kGatewayContexts, kReplyTimeoutMs, [this] { waker.wake(); });
  if (status.ok()) status = listen();
  return status;
}

Status Gateway::Impl::listen() {
  Status status =
      open_tls(tls::Side::gateway, options.tls, options.listen, db.handle(), clock, tls);
  if (tls) tls->watch([this] { waker.wake(); });
  for (const std::string& url : options.listen) {
    std::string bound;
    if (status.ok()) status = server.listen(url, bound, tls);
    if (!status.ok()) return status;
    urls.push_back(bound);
    if (is_exposed(url))
      say(LogLevel::warning,
          bound + ": insecure: whoever reaches this port can read and forge events");
  }
  return status;
}

// A port that others can reach needs TLS, unless somebody asked in so many words to do without.
Status Gateway::Impl::check_listen() const {
  for (const std::string& url : options.listen) {
    const Status status = check_url(url);
    if (!status.ok()) return status;
    if (is_exposed(url) && !options.insecure)
      return Status::error(Code::invalid,
                           "%s: others can reach this address, so it needs TLS: listen on "
                           "tls+tcp://, or ask for insecure by name",
                           url.c_str());
  }
  return Status();
}

void Gateway::Impl::tell_tls() {
  if (!tls) return;
  tell_unset_clock(tls.get(), unset_clock_told, options.log);
  tell_tls_news(tls.get(), db.handle(), options.log);
  if (clock.boot_ms() < tls_failure_at) return;
  std::uint64_t count = 0;
  const std::string last = tls->take_failure(count);
  if (count == 0) return;
  tls_failure_at = clock.boot_ms() + kTlsFailureEveryMs;
  const std::string more = count > 1 ? " (and " + std::to_string(count - 1) + " before it)" : "";
  say(LogLevel::warning, "TLS: no connection: " + last + more);
}

// Whose connection is open already, when the list changes.
void Gateway::Impl::cut_revoked() {
  const std::int64_t now = clock.boot_ms();
  if (!looks_at_revoked() || now < revoked_at) return;
  revoked_at = now + kRevokedLookMs / 2;
  const int cut = server.cut_revoked(*tls);
  if (cut > 0)
    say(LogLevel::warning, "TLS: cut " + std::to_string(cut) + " connection(s): revoked");
}

// What has arrived by now: at most kGatewayContexts requests.
void Gateway::Impl::gather() {
  LinkRequest request;
  while (server.next(request)) waiting.push(std::move(request));
}

// One transaction, one fsync, for all of the group; replies only after it. What is left of
// `waiting` when its bounds are reached begins the next one.
Status Gateway::Impl::serve(bool& fatal) {
  const std::int64_t until = clock.boot_ms() + kGroupMs;
  std::size_t bytes = 0;
  std::vector<std::pair<std::uint64_t, std::string>> replies;
  Status status = core->begin();
  for (std::int64_t now = clock.boot_ms(); !waiting.empty(); now = clock.boot_ms()) {
    const bool full =
        static_cast<int>(replies.size()) >= kGroupFramesMax || bytes >= kGroupBytesMax;
    if (!replies.empty() && (full || now >= until)) break;
    const LinkRequest request = waiting.pop();
    bytes += request.frame.size();
    replies.emplace_back(request.token, std::string());
    if (status.ok())
      status = core->accept(request.frame, now, replies.back().second, request.certificate);
  }
  if (status.ok()) status = core->commit();
  if (!status.ok()) {
    core->abandon();
    fatal = status.code() != Code::busy && status.code() != Code::no_space;
    say(LogLevel::error, status.text());
    const std::string sorry = GatewayCore::unavailable(kUnavailableMs, code_name(status.code()));
    for (auto& [token, reply] : replies) reply = sorry;
  }
  for (const auto& [token, reply] : replies) server.reply(token, reply);
  return status;
}

Status Gateway::Impl::upkeep(std::int64_t now) {
  Status status;
  if (now >= reserve_at) {
    const Status filled = reserve.fill();
    if (!filled.ok()) say(LogLevel::debug, filled.text());
    reserve_at = now + kReserveEveryMs;
  }
  if (wal_frames >= checkpoint_frames) {
    if (!guard.is_open()) status = Db::open(options.database, OpenMode::read_write, 0, guard);
    CheckpointResult result;
    if (status.ok())
      status = reserve.while_full([&] { return guarded_checkpoint(db.handle(), guard, result); });
    if (status.code() == Code::busy || status.code() == Code::no_space) status = Status();
    if (status.ok()) wal_frames = 0;
  }
  if (status.ok() && now >= check_at) {
    int healed = 0;
    status = server.check_listeners(healed);
    if (healed > 0) say(LogLevel::warning, "a listener had died and was renewed");
    check_at = now + kCheckListenersEveryMs;
  }
  const bool nothing_kept = options.outbox_retention_ms < 0 && options.inbox_retention_ms < 0;
  if (!status.ok() || now < purge_at || nothing_kept) return status;
  PurgeOptions purge;
  purge.outbox_older_than_ms = options.outbox_retention_ms;
  purge.inbox_older_than_ms = options.inbox_retention_ms;
  PurgeResult result;
  status = reserve.while_full([&] { return purge_step(db, clock, purge, result); });
  purge_at = now + (result.more ? kPurgeAgainMs : kPurgeEveryMs);
  if (status.code() == Code::busy || status.code() == Code::no_space) return Status();
  return status;
}

Gateway::Gateway() = default;
Gateway::~Gateway() { stop(); }
Gateway::Gateway(Gateway&&) noexcept = default;
Gateway& Gateway::operator=(Gateway&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Status Gateway::start(const GatewayOptions& options, Gateway& out) {
  if (options.listen.empty())
    return Status::error(Code::invalid,
                         "gateway: give a URL to listen on, e.g. tls+tcp://0.0.0.0:7447");
  if (options.consumer.empty() || options.consumer.size() > kMaxConsumerBytes ||
      !is_utf8(options.consumer))
    return Status::error(Code::invalid, "consumer: give 1 to %d bytes of UTF-8",
                         static_cast<int>(kMaxConsumerBytes));
  auto impl = std::make_unique<Impl>(options);
  const Status status = impl->open();
  if (status.ok()) out.impl_ = std::move(impl);
  return status;
}

Status Gateway::poll(int timeout_ms) {
  if (!impl_) return Status::error(Code::misuse, "poll: the gateway was not started");
  constexpr int kLookMs = static_cast<int>(kRevokedLookMs / 2);
  const bool unbounded = timeout_ms < 0 || timeout_ms > kLookMs;
  impl_->waker.wait(impl_->looks_at_revoked() && unbounded ? kLookMs : timeout_ms);
  impl_->cut_revoked();
  impl_->tell_tls();
  impl_->gather();
  if (!impl_->waiting.empty()) {
    bool fatal = false;
    const Status status = impl_->serve(fatal);
    if (fatal) return status;
    if (status.ok() && impl_->core->appended() && impl_->committed) impl_->committed();
    impl_->gather();
    if (!impl_->waiting.empty()) impl_->waker.wake();  // do not sleep on it
  }
  return impl_->upkeep(impl_->clock.boot_ms());
}

void Gateway::wake() {
  if (impl_) impl_->waker.wake();
}

std::vector<std::string> Gateway::urls() const {
  return impl_ ? impl_->urls : std::vector<std::string>();
}

void Gateway::on_commit(std::function<void()> callback) {
  if (impl_) impl_->committed = std::move(callback);
}

void Gateway::stop() { impl_.reset(); }

}  // namespace holdfast
