#include "support/tcp_proxy.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace holdfast::test {
namespace {

// NNG's TCP transport: 8 bytes of greeting each way, then each message after its length, big-endian
// in 8 bytes. A message of REQ or REP begins with 4 bytes of request id, then comes our frame:
// magic in 4 bytes, version in 2, kind in 1.
constexpr std::size_t kGreetingBytes = 8, kLengthBytes = 8, kRequestIdBytes = 4, kKindAt = 6;
constexpr int kLookMs = 50;

sockaddr_in local_address(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace

struct TcpProxy::Impl {
  int listener = -1;
  int port = 0;
  std::atomic<bool> stopping{false};
  std::atomic<int> backend{0};
  std::atomic<int> counts[2] = {{0}, {0}};
  std::mutex mutex;
  Judge judge;                       // guarded by mutex
  std::vector<std::thread> threads;  // of the accepting thread, until it ended
  std::thread acceptor;

  void accept_all();
  void serve(int device);
  // Passes on the whole messages in `pending`; false: cut.
  bool forward(std::string& pending, bool& greeted, int to, bool up);
};

bool TcpProxy::Impl::forward(std::string& pending, bool& greeted, int to, bool up) {
  if (!greeted) {
    if (pending.size() < kGreetingBytes) return true;
    greeted = true;
    if (!send_all(to, std::string_view(pending).substr(0, kGreetingBytes))) return false;
    pending.erase(0, kGreetingBytes);
  }
  while (pending.size() >= kLengthBytes) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i)
      length = length << 8 | static_cast<unsigned char>(pending[i]);
    const std::size_t whole = kLengthBytes + length;
    if (pending.size() < whole) return true;
    const std::size_t kind_at = kLengthBytes + kRequestIdBytes + kKindAt;
    const int kind = whole > kind_at ? static_cast<unsigned char>(pending[kind_at]) : 0;
    Judge judging;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      judging = judge;
    }
    ++counts[up ? 1 : 0];
    const Verdict verdict = judging ? judging(up, kind) : Verdict::pass;
    if (verdict == Verdict::cut) return false;
    const int copies = verdict == Verdict::drop ? 0 : verdict == Verdict::twice ? 2 : 1;
    for (int i = 0; i < copies; ++i)
      if (!send_all(to, std::string_view(pending).substr(0, whole))) return false;
    pending.erase(0, whole);
  }
  return true;
}

void TcpProxy::Impl::serve(int device) {
  const int gateway = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = local_address(backend);
  const int ends[2] = {gateway, device};
  const int on = 1;
  for (const int fd : ends) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  bool open = backend != 0 &&
              ::connect(gateway, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  std::string pending[2];
  bool greeted[2] = {false, false};
  while (open && !stopping) {
    pollfd watched[2] = {{gateway, POLLIN, 0}, {device, POLLIN, 0}};
    ::poll(watched, 2, kLookMs);
    for (int from = 0; from < 2 && open; ++from) {  // 1: up
      if (watched[from].revents == 0) continue;
      char bytes[65536];
      const ssize_t got = ::recv(ends[from], bytes, sizeof(bytes), 0);
      open = got > 0;
      if (!open) break;
      pending[from].append(bytes, static_cast<std::size_t>(got));
      open = forward(pending[from], greeted[from], ends[1 - from], from == 1);
    }
  }
  for (const int fd : ends) ::close(fd);
}

void TcpProxy::Impl::accept_all() {
  while (!stopping) {
    pollfd watched = {listener, POLLIN, 0};
    if (::poll(&watched, 1, kLookMs) <= 0) continue;
    const int device = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (device >= 0) threads.emplace_back([this, device] { serve(device); });
  }
}

TcpProxy::TcpProxy() : impl_(std::make_unique<Impl>()) {
  impl_->listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = local_address(0);
  socklen_t size = sizeof(address);
  auto* general = reinterpret_cast<sockaddr*>(&address);
  if (::bind(impl_->listener, general, size) != 0 || ::listen(impl_->listener, 64) != 0 ||
      ::getsockname(impl_->listener, general, &size) != 0)
    throw std::runtime_error("the proxy cannot listen");
  impl_->port = ntohs(address.sin_port);
  impl_->acceptor = std::thread([this] { impl_->accept_all(); });
}

TcpProxy::~TcpProxy() {
  impl_->stopping = true;
  impl_->acceptor.join();
  for (std::thread& thread : impl_->threads) thread.join();
  ::close(impl_->listener);
}

std::string TcpProxy::url() const { return "tcp://127.0.0.1:" + std::to_string(impl_->port); }

void TcpProxy::set_backend(const std::string& url) {
  impl_->backend = std::stoi(url.substr(url.rfind(':') + 1));
}

void TcpProxy::set_judge(Judge judge) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->judge = std::move(judge);
}

int TcpProxy::messages(bool up) const { return impl_->counts[up ? 1 : 0]; }

}  // namespace holdfast::test
