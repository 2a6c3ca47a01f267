// The other side of a link as raw sockets: peers that speak the SP header and framing of NNG byte
// by byte, or not.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace holdfast::test {

constexpr std::int64_t kPeerWaitMs = 20'000;

using Steady = std::chrono::steady_clock;

inline std::int64_t ms_since(Steady::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now() - start).count();
}

inline int port_of(const std::string& url) { return std::stoi(url.substr(url.rfind(':') + 1)); }

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline const std::string kReqHello("\0SP\0\0\x30\0\0", 8);
inline const std::string kRepHello("\0SP\0\0\x31\0\0", 8);

class RawPeer {
 public:
  explicit RawPeer(int fd) : fd_(fd) { REQUIRE(fd_ >= 0); }
  explicit RawPeer(const std::string& url) : ipc_(url.compare(0, 6, "ipc://") == 0) {
    fd_ = socket(ipc_ ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd_ >= 0);
    int result = -1;
    if (ipc_) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      url.copy(address.sun_path, sizeof address.sun_path - 1, 6);
      result = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    } else {
      const sockaddr_in address = loopback(port_of(url));
      result = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
    REQUIRE(result == 0);
  }
  RawPeer(RawPeer&& other) noexcept : fd_(other.fd_), ipc_(other.ipc_) { other.fd_ = -1; }
  RawPeer& operator=(RawPeer&&) = delete;
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() {
    if (fd_ >= 0) ::close(fd_);
  }

  // False if the other side has closed.
  bool send(const std::string& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }
  // As much as fits without waiting.
  std::size_t send_some(const std::string& bytes) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  // Exactly so many bytes, fewer if the other side closes first.
  std::string receive(std::size_t bytes) {
    std::string out(bytes, '\0');
    std::size_t done = 0;
    while (done < bytes && readable(kPeerWaitMs)) {
      const ssize_t n = ::recv(fd_, &out[done], bytes - done, 0);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    out.resize(done);
    return out;
  }
  bool readable(std::int64_t timeout_ms) {
    pollfd waited{fd_, POLLIN, 0};
    return poll(&waited, 1, static_cast<int>(timeout_ms)) == 1;
  }
  // Reads on until the other side closes; false if it does not.
  bool closed_by_peer(std::int64_t timeout_ms = kPeerWaitMs) {
    const auto start = Steady::now();
    char sink[65536];
    while (ms_since(start) < timeout_ms) {
      if (!readable(timeout_ms - ms_since(start))) continue;
      if (::recv(fd_, sink, sizeof sink, 0) <= 0) return true;
    }
    return false;
  }
  // The other side closed, without reading what is there (so that a full window stays full).
  bool hung_up(std::int64_t timeout_ms = kPeerWaitMs) {
    pollfd waited{fd_, POLLRDHUP, 0};
    return poll(&waited, 1, static_cast<int>(timeout_ms)) == 1;
  }
  void reset() {  // RST instead of FIN
    const linger hard{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    ::close(fd_);
    fd_ = -1;
  }
  // Header and length as the SP mappings for TCP and IPC have them.
  bool send_message(const std::string& body, std::uint64_t claimed_bytes) {
    std::string out = ipc_ ? std::string("\x01", 1) : std::string();
    for (int shift = 56; shift >= 0; shift -= 8) {
      out += static_cast<char>((claimed_bytes >> shift) & 0xff);
    }
    return send(out + body);
  }
  bool send_request(std::uint32_t number, const std::string& frame) {
    std::string body = "\x80";
    for (int shift = 16; shift >= 0; shift -= 8) {
      body += static_cast<char>((number >> shift) & 0xff);
    }
    return send_message(body + frame, body.size() + frame.size());
  }
  bool handshake() { return send(kReqHello) && receive(8) == kRepHello; }
  int descriptor() const { return fd_; }

 private:
  int fd_ = -1;
  bool ipc_ = false;
};

class RawListener {
 public:
  RawListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    REQUIRE(fd_ >= 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(fd_, 64) == 0);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~RawListener() { ::close(fd_); }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;
  bool waiting(std::int64_t timeout_ms) {
    pollfd waited{fd_, POLLIN, 0};
    return poll(&waited, 1, static_cast<int>(timeout_ms)) == 1;
  }
  RawPeer accept() {
    REQUIRE(waiting(kPeerWaitMs));
    return RawPeer(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
  }
  std::string url;

 private:
  int fd_;
};

}  // namespace holdfast::test
