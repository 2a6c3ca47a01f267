// LinkClient: one thread makes the connection and takes it down again.
//
// Each attempt to connect has an NNG socket of its own, a Session, from the first SYN to the last
// byte. So nothing of an old connection - a queued request, a late reply, NNG's own reconnect timer
// - can reach the next one, and taking everything down is closing one socket.
//
//   owner                 link thread                        NNG's threads
//   connect()  ────────▶  Session: dial (blocking)
//                         wait until lost or dropped  ◀───── pipe added (up), removed
//   request()  ─────────────────────────────────────────▶    sent, then received: reply, failed
//   disconnect() ──────▶  close; what is left fails; down
//   next()     ◀────────  mailbox                     ◀─────
//
// One mutex guards all state. NNG is never called while it is held, but for calls that only look.
#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/util/platform.h>
#include <pthread.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>

#include "link_nng.hpp"
#include "link_nng_internal.hpp"
#include "nng_compat.hpp"
#include "tls.hpp"
#include "wire.hpp"

namespace holdfast {
namespace {

using link::link_status;
using Lock = std::unique_lock<std::mutex>;

// An attempt that has no connection by then ends with `down`: the kernel alone would send SYNs for
// two minutes.
constexpr std::int64_t kConnectTimeoutMs = 10'000;
// One over TCP to which not even the other side's kernel has answered by then: the pauses between
// its SYNs become ever longer, and those of a new attempt are short again.
constexpr std::int64_t kSynTimeoutMs = 5'000;
// How often an attempt under way looks whether it is still wanted. Also the earliest moment it can
// be aborted: nng_dialer_start() on NNG 1.5 never returns if the dialer is closed within its first
// microseconds.
constexpr nng_duration kDialTickMs = 100;
// NNG reconnects by itself. The dialer is closed long before, this is in depth.
constexpr nng_duration kNngReconnectMs = 24 * 3600 * 1000;
// ~LinkClient waits so long for the link thread. It leaves it behind, with all it uses, rather than
// hang: a stop must never depend on the network.
constexpr std::int64_t kStopTimeoutMs = 5'000;
constexpr std::size_t kThreadStackBytes = 256 * 1024;

class Client;

// One request under way: a context of the REQ protocol, and the operation on it.
struct Slot {
  Client* client = nullptr;
  nng_ctx ctx = NNG_CTX_INITIALIZER;
  nng_aio* aio = nullptr;
  std::uint64_t token = 0;
  nng_time deadline = 0;
  bool busy = false;     // the owner still waits for its end
  bool sending = false;  // else receiving
};

struct Session {
  nng_socket socket = NNG_SOCKET_INITIALIZER;
  nng_dialer dialer = NNG_DIALER_INITIALIZER;
  nng_aio* watchdog = nullptr;
  std::array<Slot, kLinkWindowMax> slots;
  nng_time dial_deadline = 0;
  nng_time syn_deadline = 0;
  std::uint64_t begun_before = 0;  // TCP connections of this process
  int pipe = 0;                    // id of the one connection, 0 before it is there
  int senders = 0;                 // threads inside request()
  bool dialing = false;            // the watchdog keeps ticking
  bool timed_out = false;
  bool up = false;
  bool lost = false;     // the connection is gone
  bool dropped = false;  // the owner does not want it any more
  bool ending = false;   // no new requests
};

class Client {
 public:
  Client(const LinkUrl& url, std::shared_ptr<tls::Tls> tls) : url_(url), tls_(std::move(tls)) {}

  void set_wake(std::function<void()> wake) { wake_.set(std::move(wake)); }
  void connect();
  void disconnect();
  void request(std::uint64_t token, std::string_view frame, std::int64_t timeout_ms);
  bool next(LinkEvent& event);
  void run();   // the link thread
  bool stop();  // false: the link thread hangs
  void abandon() { wake_.clear(); }

 private:
  struct Mail {
    LinkEvent event;
    bool of_request = false;
  };

  void run_session(Session& session);
  int open_session(Session& session);
  int open_slots(Session& session);
  int dial(Session& session);
  void wait_for_end(Session& session);
  void close_session(Session& session);
  bool no_tcp_since(std::uint64_t begun_before) const {
    return url_.scheme == LinkUrl::Scheme::tcp && tcp_connections_begun() == begun_before;
  }
  Status end_reason(const Session& session, int dial_error) const;
  Slot* take_slot(std::uint64_t token, std::int64_t timeout_ms);
  void give_back(Session& session);

  // With the mutex held.
  void post(LinkEvent::Kind kind, Status status = {});
  void post_failed(std::uint64_t token, Status status);
  bool is_up() const { return session_ != nullptr && session_->up && !session_->dropped; }

  void finish(Slot& slot, Status status, std::string_view frame);
  void on_sent(Slot& slot);
  void on_received(Slot& slot);
  void on_tick();
  void on_pipe(nng_pipe pipe, nng_pipe_ev event);

  static void slot_callback(void* slot);
  static void tick_callback(void* client);
  static void pipe_callback(nng_pipe pipe, nng_pipe_ev event, void* client);

  const LinkUrl url_;
  const std::shared_ptr<tls::Tls> tls_;
  link::OwnerWake wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Mail> mailbox_;
  Session* session_ = nullptr;  // while one exists
  int under_way_ = 0;           // requests whose end next() has not handed out yet
  bool wanted_ = false;         // connect() was called
  bool quit_ = false;
  bool exited_ = false;
};

// -- the owner's thread ---------------------------------------------------------------------------

void Client::connect() {
  const Lock lock(mutex_);
  if (session_ != nullptr && !session_->dropped) return;  // under way, or up
  wanted_ = true;
  changed_.notify_all();
}

void Client::disconnect() {
  Lock lock(mutex_);
  wanted_ = false;
  if (session_ != nullptr && !session_->dropped) {
    session_->dropped = true;
    for (Slot& slot : session_->slots) {
      if (!slot.busy) continue;
      slot.busy = false;
      post_failed(slot.token, Status::error(Code::unavailable, "%s: disconnected before the reply",
                                            url_.text.c_str()));
    }
    changed_.notify_all();
  }
  // What was said of the old connection is not true any more.
  for (auto mail = mailbox_.begin(); mail != mailbox_.end();) {
    mail = mail->of_request ? mail + 1 : mailbox_.erase(mail);
  }
  lock.unlock();
  wake_.call();
}

// NULL, with the end of the request posted, if it cannot be sent.
Slot* Client::take_slot(std::uint64_t token, std::int64_t timeout_ms) {
  const Lock lock(mutex_);
  ++under_way_;
  if (under_way_ > kLinkWindowMax) {
    post_failed(token,
                Status::error(Code::misuse, "more than %d requests under way", kLinkWindowMax));
    return nullptr;
  }
  if (!is_up() || session_->lost || session_->ending) {
    post_failed(token, Status::error(Code::unavailable, "%s: not connected", url_.text.c_str()));
    return nullptr;
  }
  for (Slot& slot : session_->slots) {
    if (slot.busy) continue;
    slot.busy = slot.sending = true;
    slot.token = token;
    slot.deadline = nng_clock() + static_cast<nng_time>(timeout_ms);
    ++session_->senders;
    return &slot;
  }
  post_failed(token, Status::error(Code::internal, "no free request context"));
  return nullptr;
}

void Client::give_back(Session& session) {
  const Lock lock(mutex_);
  if (--session.senders == 0) changed_.notify_all();
}

void Client::request(std::uint64_t token, std::string_view frame, std::int64_t timeout_ms) {
  if (timeout_ms < 1) timeout_ms = 1;
  if (timeout_ms > INT32_MAX) timeout_ms = INT32_MAX;
  Slot* const slot = take_slot(token, timeout_ms);
  if (slot == nullptr) {
    wake_.call();
    return;
  }
  // Stays valid until give_back(): the link thread waits for the senders before it takes it down.
  Session& session = *session_;
  nng_msg* const message =
      frame.size() > wire::kMaxFrameBytes ? nullptr : link::make_message(frame);
  if (message == nullptr) {
    finish(*slot, Status::error(Code::invalid, "a frame of %zu bytes cannot be sent", frame.size()),
           {});
  } else {
    nng_aio_set_msg(slot->aio, message);
    nng_aio_set_timeout(slot->aio, static_cast<nng_duration>(timeout_ms));
    nng_ctx_send(slot->ctx, slot->aio);
  }
  give_back(session);
}

bool Client::next(LinkEvent& event) {
  const Lock lock(mutex_);
  if (mailbox_.empty()) return false;
  if (mailbox_.front().of_request) --under_way_;
  event = std::move(mailbox_.front().event);
  mailbox_.pop_front();
  return true;
}

bool Client::stop() {
  Lock lock(mutex_);
  quit_ = true;
  wanted_ = false;
  if (session_ != nullptr) session_->dropped = true;
  changed_.notify_all();
  return changed_.wait_for(lock, std::chrono::milliseconds(kStopTimeoutMs),
                           [this] { return exited_; });
}

void Client::post(LinkEvent::Kind kind, Status status) {
  Mail mail;
  mail.event.kind = kind;
  mail.event.status = status;
  mailbox_.push_back(std::move(mail));
}

void Client::post_failed(std::uint64_t token, Status status) {
  Mail mail;
  mail.event.kind = LinkEvent::Kind::failed;
  mail.event.token = token;
  mail.event.status = status;
  mail.of_request = true;
  mailbox_.push_back(std::move(mail));
}

// -- the link thread ------------------------------------------------------------------------------

void Client::run() {
  for (;;) {
    Session session;
    {
      Lock lock(mutex_);
      changed_.wait(lock, [this] { return quit_ || wanted_; });
      if (quit_) {
        exited_ = true;
        changed_.notify_all();
        return;
      }
      wanted_ = false;
      session_ = &session;
    }
    run_session(session);
  }
}

void Client::run_session(Session& session) {
  int error = open_session(session);
  if (error == 0) error = dial(session);
  if (error == 0) wait_for_end(session);
  close_session(session);
  {
    const Lock lock(mutex_);
    // Whatever NNG did not bring to an end, because it was stopped between two steps.
    for (Slot& slot : session.slots) {
      if (!slot.busy) continue;
      slot.busy = false;
      post_failed(slot.token, link_status(NNG_ECONNRESET, url_));
    }
    if (!session.dropped) post(LinkEvent::Kind::down, end_reason(session, error));
    session_ = nullptr;
  }
  wake_.call();
}

int Client::open_slots(Session& session) {
  for (Slot& slot : session.slots) {
    slot.client = this;
    int error = nng_aio_alloc(&slot.aio, slot_callback, &slot);
    if (error == 0) error = nng_ctx_open(&slot.ctx, session.socket);
    if (error != 0) return error;
  }
  return nng_aio_alloc(&session.watchdog, tick_callback, this);
}

int Client::open_session(Session& session) {
  int error = nng_req0_open(&session.socket);
  if (error == 0) {
    error = nng_socket_set_ms(session.socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
  }
  for (const nng_pipe_ev event :
       {NNG_PIPE_EV_ADD_PRE, NNG_PIPE_EV_ADD_POST, NNG_PIPE_EV_REM_POST}) {
    if (error == 0) error = nng_pipe_notify(session.socket, event, pipe_callback, this);
  }
  if (error == 0) error = open_slots(session);
  if (error == 0) error = nng_dialer_create(&session.dialer, session.socket, url_.text.c_str());
  if (error == 0) error = link::set_options(session.dialer);
  if (error == 0) error = link::set_tls(session.dialer, tls_, url_);
  if (error == 0) error = nng_dialer_set_ms(session.dialer, NNG_OPT_RECONNMINT, kNngReconnectMs);
  return error;
}

int Client::dial(Session& session) {
  {
    const Lock lock(mutex_);
    if (session.dropped) return NNG_ECANCELED;
    session.dialing = true;
    std::uint64_t old_failures = 0;
    if (tls_ != nullptr) (void)tls_->take_failure(old_failures);
    session.dial_deadline = nng_clock() + kConnectTimeoutMs;
    session.syn_deadline = nng_clock() + kSynTimeoutMs;
    session.begun_before = tcp_connections_begun();
  }
  nng_sleep_aio(kDialTickMs, session.watchdog);
  // Blocking, so that it is one attempt and says why it failed; the watchdog bounds it.
  const int error = nng_dialer_start(session.dialer, 0);
  const Lock lock(mutex_);
  session.dialing = false;
  return error;
}

void Client::wait_for_end(Session& session) {
  Lock lock(mutex_);
  const auto ended = [&session] { return session.lost || session.dropped || session.timed_out; };
  // NNG has added the connection before it says that the dialer started. Should it have failed to,
  // it tells nobody.
  const bool added = changed_.wait_for(lock, std::chrono::milliseconds(kConnectTimeoutMs),
                                       [&] { return session.pipe != 0 || ended(); });
  if (added) changed_.wait(lock, ended);
}

void Client::close_session(Session& session) {
  {
    Lock lock(mutex_);
    session.ending = true;
    changed_.wait(lock, [&session] { return session.senders == 0; });
  }
  // From here on nothing is started on these any more. To stop waits for a callback that runs; to
  // free also waits for a timeout that is just being handled, which the contexts must outlive.
  const auto for_each_aio = [&session](void (*end)(nng_aio*)) {
    if (session.watchdog != nullptr) end(session.watchdog);
    for (Slot& slot : session.slots) {
      if (slot.aio != nullptr) end(slot.aio);
    }
  };
  for_each_aio(nng_aio_stop);
  for_each_aio(nng_aio_free);
  nng_close(session.socket);
}

Status Client::end_reason(const Session& session, int dial_error) const {
  if (session.timed_out) {
    return Status::native_error(Code::unavailable, NNG_ETIMEDOUT, "%s: no connection in time",
                                url_.text.c_str());
  }
  std::uint64_t failures = 0;
  const std::string tls_reason = tls_ != nullptr ? tls_->take_failure(failures) : std::string();
  if (failures > 0)
    return Status::native_error(Code::unavailable, dial_error, "%s: TLS: %s", url_.text.c_str(),
                                tls_reason.c_str());
  return link_status(dial_error != 0 ? dial_error : NNG_ECONNSHUT, url_);
}

// -- NNG's threads --------------------------------------------------------------------------------

void Client::finish(Slot& slot, Status status, std::string_view frame) {
  {
    const Lock lock(mutex_);
    if (!slot.busy) return;  // disconnect() has told the owner
    slot.busy = false;
    if (status.ok()) {
      Mail mail;
      mail.event.kind = LinkEvent::Kind::reply;
      mail.event.token = slot.token;
      mail.event.frame = std::string(frame);
      mail.of_request = true;
      mailbox_.push_back(std::move(mail));
    } else {
      post_failed(slot.token, status);
    }
  }
  wake_.call();
}

void Client::slot_callback(void* arg) {
  Slot& slot = *static_cast<Slot*>(arg);
  bool sending = false;
  {
    const Lock lock(slot.client->mutex_);
    sending = slot.sending;
    slot.sending = false;
  }
  if (sending) {
    slot.client->on_sent(slot);
  } else {
    slot.client->on_received(slot);
  }
}

void Client::on_sent(Slot& slot) {
  const int error = nng_aio_result(slot.aio);
  if (error != 0) {
    nng_msg_free(nng_aio_get_msg(slot.aio));  // a message that was not sent is ours again
    nng_aio_set_msg(slot.aio, nullptr);
    finish(slot, link_status(error, url_), {});
    return;
  }
  const nng_time now = nng_clock();
  const nng_time left = slot.deadline > now ? slot.deadline - now : 1;
  nng_aio_set_timeout(slot.aio, static_cast<nng_duration>(left));
  nng_ctx_recv(slot.ctx, slot.aio);
}

void Client::on_received(Slot& slot) {
  const int error = nng_aio_result(slot.aio);
  if (error != 0) {
    finish(slot, link_status(error, url_), {});
    return;
  }
  nng_msg* const message = nng_aio_get_msg(slot.aio);
  nng_aio_set_msg(slot.aio, nullptr);
  const std::string_view frame = link::frame_of(message);
  if (frame.size() > wire::kMaxFrameBytes) {
    finish(
        slot,
        Status::error(Code::refused, "%s: a reply of %zu bytes", url_.text.c_str(), frame.size()),
        {});
  } else {
    finish(slot, {}, frame);
  }
  nng_msg_free(message);
}

void Client::tick_callback(void* client) { static_cast<Client*>(client)->on_tick(); }

// Ends an attempt that takes too long or is not wanted any more. The session lives: it is taken
// down only after its watchdog was stopped, which waits for this.
void Client::on_tick() {
  nng_aio* watchdog = nullptr;
  nng_dialer dialer = NNG_DIALER_INITIALIZER;
  bool give_up = false;
  {
    const Lock lock(mutex_);
    if (session_ == nullptr || !session_->dialing) return;
    const nng_time now = nng_clock();
    session_->timed_out = now >= session_->dial_deadline ||
                          (now >= session_->syn_deadline && no_tcp_since(session_->begun_before));
    give_up = session_->timed_out || session_->dropped;
    watchdog = session_->watchdog;
    dialer = session_->dialer;
  }
  if (nng_aio_result(watchdog) != 0) return;  // stopped
  if (give_up) {
    nng_dialer_close(dialer);
  } else {
    nng_sleep_aio(kDialTickMs, watchdog);
  }
}

void Client::pipe_callback(nng_pipe pipe, nng_pipe_ev event, void* client) {
  static_cast<Client*>(client)->on_pipe(pipe, event);
}

void Client::on_pipe(nng_pipe pipe, nng_pipe_ev event) {
  const int id = nng_pipe_id(pipe);
  bool refuse = false;
  {
    const Lock lock(mutex_);
    if (session_ == nullptr) return;
    Session& session = *session_;
    if (event == NNG_PIPE_EV_ADD_PRE) {
      refuse = session.pipe != 0 || session.dropped;  // one connection for each attempt
      if (!refuse) session.pipe = id;
    } else if (id == session.pipe && event == NNG_PIPE_EV_ADD_POST && !session.lost) {
      session.up = true;
      if (!session.dropped) post(LinkEvent::Kind::up);
    } else if (id == session.pipe && event == NNG_PIPE_EV_REM_POST) {
      session.up = false;
      session.lost = true;
    }
    changed_.notify_all();
  }
  if (refuse) nng_pipe_close(pipe);
  wake_.call();
}

void* thread_main(void* arg) {
  auto* const held = static_cast<std::shared_ptr<Client>*>(arg);
  const std::shared_ptr<Client> client = std::move(*held);
  delete held;
  client->run();
  return nullptr;
}

}  // namespace

struct LinkClient::Impl {
  std::shared_ptr<Client> client;
  pthread_t thread{};

  ~Impl() {
    if (client == nullptr) return;
    if (client->stop()) {
      pthread_join(thread, nullptr);
    } else {
      pthread_detach(thread);
    }
    client->abandon();
  }
};

LinkClient::LinkClient() = default;
LinkClient::~LinkClient() = default;

Status LinkClient::open(const std::string& url, std::function<void()> wake,
                        std::shared_ptr<tls::Tls> tls) {
  if (impl_ != nullptr) return Status::error(Code::misuse, "the link is open already");
  LinkUrl parsed;
  if (Status status = parse_url(url, parsed); !status.ok()) return status;
  if (parsed.tls && tls == nullptr)
    return Status::error(Code::invalid, "%s: TLS needs a CA, a certificate and its key",
                         url.c_str());
  prepare_nng();
  auto client = std::make_shared<Client>(parsed, std::move(tls));
  client->set_wake(std::move(wake));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kThreadStackBytes);
  pthread_t thread{};
  auto* const held = new std::shared_ptr<Client>(client);
  const int error = pthread_create(&thread, &attributes, thread_main, held);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    delete held;
    return Status::error(Code::io, "cannot start the link thread (error %d)", error);
  }
  impl_ = std::make_unique<Impl>();
  impl_->client = std::move(client);
  impl_->thread = thread;
  return {};
}

void LinkClient::connect() {
  if (impl_ != nullptr) impl_->client->connect();
}

void LinkClient::disconnect() {
  if (impl_ != nullptr) impl_->client->disconnect();
}

void LinkClient::request(std::uint64_t token, std::string_view frame, std::int64_t timeout_ms) {
  if (impl_ != nullptr) impl_->client->request(token, frame, timeout_ms);
}

bool LinkClient::next(LinkEvent& event) { return impl_ != nullptr && impl_->client->next(event); }

}  // namespace holdfast
