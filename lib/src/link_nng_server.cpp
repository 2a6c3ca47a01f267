// LinkServer: one REP socket, a fixed number of contexts. Each context takes a request, waits for
// the owner's reply, sends it, and takes another one in its turn:
//
//   idle ──turn──▶ receiving ──request──▶ held ──reply()──▶ sending ──sent, failed, timed out──▶
//   idle
//                                           └────drop()──────────────────────────────────────▶┘
//
// Only one context receives at a time. With several, NNG hands requests of one connection to
// callbacks on several threads, and about one in a hundred overtakes its neighbour; a device that
// has several batches under way would hear `ahead_of_mark` and begin its session anew.
//
// One mutex guards all state. NNG is never called while it is held.
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "link_nng.hpp"
#include "link_nng_internal.hpp"
#include "nng_compat.hpp"
#include "platform.hpp"
#include "tls.hpp"
#include "wire.hpp"

namespace holdfast {
namespace {

using link::link_status;
using Lock = std::unique_lock<std::mutex>;

constexpr int kContextsMax = 4096;
// One connection may hold so many contexts; a device has at most kLinkWindowMax requests under way,
// and their replies may be read while NNG still reports them as being sent. More closes it, so that
// one peer that never reads cannot occupy all contexts.
constexpr int kContextsPerPipeMax = 2 * kLinkWindowMax;
// File descriptors left for everything else when connections are refused.
constexpr rlim_t kDescriptorsReserved = 64;
// A listener that does not complete a handshake with ourselves in so long is made anew.
constexpr nng_duration kProbeTimeoutMs = 2'000;
constexpr nng_duration kProbeStepMs = 1;
// The closed listener gives up its address in the background.
constexpr int kRelistenRounds = 50;
constexpr std::int64_t kRelistenStepUs = 10'000;

constexpr int kTokenIndexBits = 12;
static_assert(kContextsMax <= 1 << kTokenIndexBits);

class Server;

struct Slot {
  enum class State { idle, receiving, held, sending };
  Server* server = nullptr;
  nng_ctx ctx = NNG_CTX_INITIALIZER;
  nng_aio* aio = nullptr;
  State state = State::idle;
  std::uint64_t token = 0;  // of the request held
  nng_pipe pipe = NNG_PIPE_INITIALIZER;
};

struct Peer {
  std::string address;
  std::string certificate;  // "" without TLS
  std::string serial;
};

struct Listener {
  nng_listener id = NNG_LISTENER_INITIALIZER;
  bool open = false;
  LinkUrl url;       // with the real port
  std::string file;  // ipc: which file our socket is
  std::shared_ptr<tls::Tls> tls;
};

class Server {
 public:
  ~Server();
  Status open(int contexts, std::int64_t reply_timeout_ms, std::function<void()> wake);
  Status listen(const std::string& url, std::string& bound, std::shared_ptr<tls::Tls> tls);
  bool next(LinkRequest& request);
  void reply(std::uint64_t token, std::string_view frame);
  void drop(std::uint64_t token);
  Status check_listeners(int& healed);
  std::size_t connections();
  int cut_revoked(tls::Tls& tls);

 private:
  int open_socket(int contexts);
  Status start(Listener& listener);
  Status restart(Listener& listener);
  bool accepts(const Listener& listener);
  bool begins_handshake(const Listener& listener);
  std::uint64_t accepted(const Listener& listener);

  Slot* take(std::uint64_t token, Slot::State state);
  void give_back();
  void receive_next();
  void receive(Slot& slot);
  void on_sent(Slot& slot);
  void on_received(Slot& slot);
  bool hold(Slot& slot, nng_msg* message);
  void on_pipe(nng_pipe pipe, nng_pipe_ev event);

  static void slot_callback(void* slot);
  static void pipe_callback(nng_pipe pipe, nng_pipe_ev event, void* server);

  nng_socket socket_ = NNG_SOCKET_INITIALIZER;
  nng_duration reply_timeout_ms_ = 0;
  std::size_t connections_max_ = kLinkConnectionsMax;
  std::vector<Listener> listeners_;  // the owner's thread only
  std::deque<Slot> slots_;           // never moved: NNG holds pointers
  link::OwnerWake wake_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LinkRequest> mailbox_;
  std::unordered_map<int, Peer> peers_;              // by pipe
  std::unordered_map<int, std::uint64_t> accepted_;  // by listener
  std::uint64_t tokens_ = 0;
  bool receiving_ = false;  // a context does
  int busy_ = 0;            // threads that may start something on a context
  bool closing_ = false;    // nothing new is started
};

// -- opening and closing --------------------------------------------------------------------------

int Server::open_socket(int contexts) {
  int error = nng_rep0_open(&socket_);
  for (const nng_pipe_ev event : {NNG_PIPE_EV_ADD_PRE, NNG_PIPE_EV_REM_POST}) {
    if (error == 0) error = nng_pipe_notify(socket_, event, pipe_callback, this);
  }
  for (int i = 0; error == 0 && i < contexts; ++i) {
    Slot& slot = slots_.emplace_back();
    slot.server = this;
    error = nng_aio_alloc(&slot.aio, slot_callback, &slot);
    if (error == 0) error = nng_ctx_open(&slot.ctx, socket_);
  }
  return error;
}

Status Server::open(int contexts, std::int64_t reply_timeout_ms, std::function<void()> wake) {
  if (contexts < 1 || contexts > kContextsMax) {
    return Status::error(Code::invalid, "contexts: expected 1 to %d, got %d", kContextsMax,
                         contexts);
  }
  prepare_nng();
  wake_.set(std::move(wake));
  reply_timeout_ms_ =
      static_cast<nng_duration>(std::clamp<std::int64_t>(reply_timeout_ms, 1, INT32_MAX));
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
    const rlim_t usable = std::max<rlim_t>(files.rlim_cur, kDescriptorsReserved + 1);
    connections_max_ = static_cast<std::size_t>(
        std::min<rlim_t>(kLinkConnectionsMax, usable - kDescriptorsReserved));
  }
  if (const int error = open_socket(contexts); error != 0) {
    return Status::native_error(Code::internal, error, "cannot open the server's socket: %s",
                                nng_strerror(error));
  }
  receive_next();
  return {};
}

Server::~Server() {
  {
    Lock lock(mutex_);
    closing_ = true;
    changed_.wait(lock, [this] { return busy_ == 0; });
  }
  // To stop waits for a callback that runs, and none starts after it; to free also waits for a
  // timeout that is just being handled, which the contexts must outlive.
  for (Slot& slot : slots_) {
    if (slot.aio != nullptr) nng_aio_stop(slot.aio);
  }
  for (Slot& slot : slots_) {
    if (slot.aio != nullptr) nng_aio_free(slot.aio);
  }
  if (nng_socket_id(socket_) > 0) nng_close(socket_);
  wake_.clear();
}

// -- listeners ------------------------------------------------------------------------------------

// Which file lies at the path of a local socket, "" if none.
std::string socket_file(const LinkUrl& url) {
  struct stat info{};
  if (url.scheme != LinkUrl::Scheme::ipc || lstat(url.path.c_str(), &info) != 0) return {};
  return std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

// NNG removes the file of a dead process's socket before it listens. It must not get to see any
// other kind of file, for it would remove that, too.
Status check_socket_file(const LinkUrl& url) {
  struct stat info{};
  if (url.scheme != LinkUrl::Scheme::ipc || lstat(url.path.c_str(), &info) != 0) return {};
  if (S_ISSOCK(info.st_mode)) return {};
  return Status::error(Code::exists, "%s: the file is there and is no socket", url.text.c_str());
}

Status Server::start(Listener& listener) {
  if (Status status = check_socket_file(listener.url); !status.ok()) return status;
  int error = nng_listener_create(&listener.id, socket_, listener.url.text.c_str());
  if (error != 0) return link_status(error, listener.url);
  error = link::set_options(listener.id);
  if (error == 0) error = link::set_tls(listener.id, listener.tls, listener.url);
  if (error == 0) error = nng_listener_start(listener.id, 0);
  if (error != 0) {
    nng_listener_close(listener.id);
    return link_status(error, listener.url);
  }
  listener.open = true;
  listener.file = socket_file(listener.url);
  int port = 0;
  if (listener.url.scheme == LinkUrl::Scheme::tcp && listener.url.port == 0 &&
      nng_listener_get_int(listener.id, NNG_OPT_TCP_BOUND_PORT, &port) == 0) {
    listener.url.port = port;
    listener.url.text = tcp_url(listener.url, port);
  }
  return {};
}

Status Server::listen(const std::string& url, std::string& bound, std::shared_ptr<tls::Tls> tls) {
  Listener listener;
  if (Status status = parse_url(url, listener.url); !status.ok()) return status;
  if (listener.url.tls && tls == nullptr)
    return Status::error(Code::invalid, "%s: TLS needs a CA, a certificate and its key",
                         url.c_str());
  listener.tls = std::move(tls);
  if (Status status = start(listener); !status.ok()) return status;
  bound = listener.url.text;
  listeners_.push_back(std::move(listener));
  return {};
}

std::uint64_t Server::accepted(const Listener& listener) {
  const Lock lock(mutex_);
  return accepted_[nng_listener_id(listener.id)];
}

// A byte stream to our own listener, for check_listeners().
class Probe {
 public:
  Probe() { good_ = nng_aio_alloc(&aio_, nullptr, nullptr) == 0; }
  ~Probe() {
    if (stream_ != nullptr) nng_stream_free(stream_);
    if (dialer_ != nullptr) nng_stream_dialer_free(dialer_);
    if (aio_ != nullptr) nng_aio_free(aio_);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  bool connect(const std::string& url) {
    if (!good_ || nng_stream_dialer_alloc(&dialer_, url.c_str()) != 0) return false;
    nng_aio_set_timeout(aio_, kProbeTimeoutMs);
    nng_stream_dialer_dial(dialer_, aio_);
    nng_aio_wait(aio_);
    if (nng_aio_result(aio_) != 0) return false;
    stream_ = static_cast<nng_stream*>(nng_aio_get_output(aio_, 0));
    return true;
  }

  // Connects and introduces itself as a REQ peer, as every device does.
  bool greet(const std::string& url) {
    if (!connect(url)) return false;
    char hello[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};  // the SP header; 0x30 is REQ
    nng_iov part{hello, sizeof hello};
    nng_aio_set_iov(aio_, 1, &part);
    nng_stream_send(stream_, aio_);
    nng_aio_wait(aio_);
    return nng_aio_result(aio_) == 0 && nng_aio_count(aio_) == sizeof hello;
  }

 private:
  bool good_ = false;
  nng_aio* aio_ = nullptr;
  nng_stream_dialer* dialer_ = nullptr;
  nng_stream* stream_ = nullptr;
};

std::string probe_url(const LinkUrl& url) {
  if (url.scheme != LinkUrl::Scheme::tcp) return url.text;
  if (url.host == "0.0.0.0") return tcp_url("127.0.0.1", url.port);
  if (url.host == "::") return tcp_url("::1", url.port);
  return tcp_url(url.host, url.port);
}

// Our certificate is for one side only, so we cannot shake hands with ourselves; but NNG begins to,
// with each connection that it takes.
bool Server::begins_handshake(const Listener& listener) {
  const std::uint64_t before = listener.tls->handshakes();
  Probe probe;
  if (!probe.connect(probe_url(listener.url))) return listener.tls->handshakes() != before;
  for (int waited_ms = 0; waited_ms < kProbeTimeoutMs; waited_ms += kProbeStepMs) {
    if (listener.tls->handshakes() != before) return true;
    platform::sleep_us(kProbeStepMs * 1000);
  }
  return false;
}

// The kernel accepts connections even for a listener that NNG has forgotten, and NNG may complete
// the handshake on it: only a connection that arrives at our socket proves that it works.
bool Server::accepts(const Listener& listener) {
  if (!listener.open) return false;
  if (listener.url.scheme == LinkUrl::Scheme::inproc) return true;
  if (listener.url.tls) return begins_handshake(listener);
  const std::uint64_t before = accepted(listener);
  Probe probe;
  if (!probe.greet(probe_url(listener.url))) return accepted(listener) != before;
  Lock lock(mutex_);
  const std::uint64_t& count = accepted_[nng_listener_id(listener.id)];
  return changed_.wait_for(lock, std::chrono::milliseconds(kProbeTimeoutMs),
                           [&] { return count != before; });
}

Status Server::restart(Listener& listener) {
  if (listener.open) {
    // To close a listener is also to remove the file at its path, whoever made it.
    const std::string file = socket_file(listener.url);
    if (!file.empty() && file != listener.file) {
      return Status::error(Code::exists, "%s: another file has taken the place of our socket",
                           listener.url.text.c_str());
    }
    {
      const Lock lock(mutex_);
      accepted_.erase(nng_listener_id(listener.id));
    }
    nng_listener_close(listener.id);
    listener.open = false;
  }
  Status status;
  for (int round = 0; round < kRelistenRounds; ++round) {
    status = start(listener);
    if (status.native() != NNG_EADDRINUSE) break;
    platform::sleep_us(kRelistenStepUs);
  }
  return status;
}

Status Server::check_listeners(int& healed) {
  healed = 0;
  Status first;
  for (Listener& listener : listeners_) {
    if (accepts(listener)) continue;
    const Status status = restart(listener);
    if (status.ok()) {
      ++healed;
    } else if (first.ok()) {
      first = status;
    }
  }
  return first;
}

std::size_t Server::connections() {
  const Lock lock(mutex_);
  return peers_.size();
}

int Server::cut_revoked(tls::Tls& tls) {
  std::vector<int> revoked;
  {
    const Lock lock(mutex_);
    for (const auto& [pipe, peer] : peers_)
      if (!peer.serial.empty() && tls.is_revoked(peer.serial)) revoked.push_back(pipe);
  }
  for (const int id : revoked) {
    nng_pipe pipe = NNG_PIPE_INITIALIZER;
    pipe.id = static_cast<std::uint32_t>(id);
    nng_pipe_close(pipe);
  }
  return static_cast<int>(revoked.size());
}

// -- the owner's thread ---------------------------------------------------------------------------

bool Server::next(LinkRequest& request) {
  const Lock lock(mutex_);
  if (mailbox_.empty()) return false;
  request = std::move(mailbox_.front());
  mailbox_.pop_front();
  return true;
}

// The context that holds the request, now in `state`; nullptr if none does.
Slot* Server::take(std::uint64_t token, Slot::State state) {
  const Lock lock(mutex_);
  const std::size_t index = token & ((1U << kTokenIndexBits) - 1);
  if (closing_ || index >= slots_.size()) return nullptr;
  Slot& slot = slots_[index];
  if (slot.state != Slot::State::held || slot.token != token) return nullptr;
  slot.state = state;
  ++busy_;
  return &slot;
}

void Server::give_back() {
  const Lock lock(mutex_);
  if (--busy_ == 0) changed_.notify_all();
}

void Server::reply(std::uint64_t token, std::string_view frame) {
  if (frame.size() > wire::kMaxFrameBytes) return drop(token);
  nng_msg* const message = link::make_message(frame);
  if (message == nullptr) return drop(token);
  Slot* const slot = take(token, Slot::State::sending);
  if (slot == nullptr) {
    nng_msg_free(message);
    return;
  }
  nng_aio_set_msg(slot->aio, message);
  nng_aio_set_timeout(slot->aio, reply_timeout_ms_);
  nng_ctx_send(slot->ctx, slot->aio);
  give_back();
}

void Server::drop(std::uint64_t token) {
  if (take(token, Slot::State::idle) == nullptr) return;
  give_back();
  receive_next();
}

// -- NNG's threads --------------------------------------------------------------------------------

// The next context's turn, unless one is receiving or all of them are at work.
void Server::receive_next() {
  const auto is_idle = [](const Slot& slot) { return slot.state == Slot::State::idle; };
  Slot* next = nullptr;
  {
    const Lock lock(mutex_);
    const auto found = std::find_if(slots_.begin(), slots_.end(), is_idle);
    if (receiving_ || closing_ || found == slots_.end()) return;
    next = &*found;
    next->state = Slot::State::receiving;
    receiving_ = true;
    ++busy_;
  }
  receive(*next);
  give_back();
}

void Server::receive(Slot& slot) {
  nng_aio_set_timeout(slot.aio, NNG_DURATION_INFINITE);
  nng_ctx_recv(slot.ctx, slot.aio);
}

void Server::slot_callback(void* arg) {
  Slot& slot = *static_cast<Slot*>(arg);
  bool sent = false;
  {
    const Lock lock(slot.server->mutex_);
    sent = slot.state == Slot::State::sending;
    if (slot.server->closing_) {
      // Nothing more is started. A request received, or a reply not sent, is ours to free.
      const bool failed = nng_aio_result(slot.aio) != 0;
      if (sent == failed) nng_msg_free(nng_aio_get_msg(slot.aio));
      nng_aio_set_msg(slot.aio, nullptr);
      return;
    }
  }
  if (sent) {
    slot.server->on_sent(slot);
  } else {
    slot.server->on_received(slot);
  }
}

void Server::on_sent(Slot& slot) {
  const int error = nng_aio_result(slot.aio);
  if (error != 0) {
    nng_msg_free(nng_aio_get_msg(slot.aio));  // a message that was not sent is ours again
    nng_aio_set_msg(slot.aio, nullptr);
    if (error == NNG_ETIMEDOUT) nng_pipe_close(slot.pipe);  // a peer that does not read
  }
  {
    const Lock lock(mutex_);
    slot.state = Slot::State::idle;
  }
  receive_next();
}

void Server::on_received(Slot& slot) {
  const int error = nng_aio_result(slot.aio);
  if (error == NNG_ECLOSED || error == NNG_ECANCELED) return;
  if (error != 0) return receive(slot);
  nng_msg* const message = nng_aio_get_msg(slot.aio);
  nng_aio_set_msg(slot.aio, nullptr);
  const bool held = hold(slot, message);
  nng_msg_free(message);
  if (held) {
    receive_next();
    wake_.call();
  } else {
    nng_pipe_close(slot.pipe);
    receive(slot);
  }
}

// False: the peer breaks the rules, and is to be disconnected.
bool Server::hold(Slot& slot, nng_msg* message) {
  const std::string_view frame = link::frame_of(message);
  slot.pipe = nng_msg_get_pipe(message);
  const int pipe = nng_pipe_id(slot.pipe);
  if (frame.size() > wire::kMaxFrameBytes) return false;
  const Lock lock(mutex_);
  const auto occupied = std::count_if(slots_.begin(), slots_.end(), [pipe](const Slot& other) {
    const bool at_work = other.state == Slot::State::held || other.state == Slot::State::sending;
    return at_work && nng_pipe_id(other.pipe) == pipe;
  });
  if (occupied >= kContextsPerPipeMax) return false;
  LinkRequest request;
  const auto index = static_cast<std::uint64_t>(
      std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return &s == &slot; }) -
      slots_.begin());
  request.token = slot.token = (++tokens_ << kTokenIndexBits) | index;
  request.pipe = static_cast<std::uint64_t>(pipe);
  const auto peer = peers_.find(pipe);
  request.peer = peer == peers_.end() ? "unknown" : peer->second.address;
  if (peer != peers_.end()) request.certificate = peer->second.certificate;
  request.frame = std::string(frame);
  slot.state = Slot::State::held;
  receiving_ = false;
  mailbox_.push_back(std::move(request));
  return true;
}

void Server::pipe_callback(nng_pipe pipe, nng_pipe_ev event, void* server) {
  static_cast<Server*>(server)->on_pipe(pipe, event);
}

void Server::on_pipe(nng_pipe pipe, nng_pipe_ev event) {
  const int id = nng_pipe_id(pipe);
  if (event == NNG_PIPE_EV_REM_POST) {
    const Lock lock(mutex_);
    peers_.erase(id);
    return;
  }
  Peer peer;
  peer.address = link::peer_name(pipe);
  // A connection that has lost its name must not pass for one without TLS.
  bool refuse = !link::identify(pipe, peer.certificate, peer.serial);
  const int listener = nng_listener_id(nng_pipe_listener(pipe));
  {
    const Lock lock(mutex_);
    ++accepted_[listener];
    refuse = refuse || peers_.size() >= connections_max_;
    if (!refuse) peers_[id] = std::move(peer);
    changed_.notify_all();
  }
  if (refuse) nng_pipe_close(pipe);
}

}  // namespace

struct LinkServer::Impl {
  Server server;
};

LinkServer::LinkServer() = default;
LinkServer::~LinkServer() = default;

Status LinkServer::open(int contexts, std::int64_t reply_timeout_ms, std::function<void()> wake) {
  if (impl_ != nullptr) return Status::error(Code::misuse, "the server is open already");
  auto impl = std::make_unique<Impl>();
  Status status = impl->server.open(contexts, reply_timeout_ms, std::move(wake));
  if (status.ok()) impl_ = std::move(impl);
  return status;
}

Status LinkServer::listen(const std::string& url, std::string& bound,
                          std::shared_ptr<tls::Tls> tls) {
  if (impl_ == nullptr) return Status::error(Code::misuse, "the server is not open");
  return impl_->server.listen(url, bound, std::move(tls));
}

bool LinkServer::next(LinkRequest& request) {
  return impl_ != nullptr && impl_->server.next(request);
}

void LinkServer::reply(std::uint64_t token, std::string_view frame) {
  if (impl_ != nullptr) impl_->server.reply(token, frame);
}

void LinkServer::drop(std::uint64_t token) {
  if (impl_ != nullptr) impl_->server.drop(token);
}

Status LinkServer::check_listeners(int& healed) {
  healed = 0;
  return impl_ == nullptr ? Status() : impl_->server.check_listeners(healed);
}

int LinkServer::cut_revoked(tls::Tls& tls) {
  return impl_ == nullptr ? 0 : impl_->server.cut_revoked(tls);
}

std::size_t LinkServer::connections() const {
  return impl_ == nullptr ? 0 : impl_->server.connections();
}

}  // namespace holdfast
