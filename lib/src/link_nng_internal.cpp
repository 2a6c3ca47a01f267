#include "link_nng_internal.hpp"

#include <arpa/inet.h>

#include <cstring>

#include "link_nng.hpp"
#include "wire.hpp"

namespace holdfast {

Status check_url(std::string_view url) {
  LinkUrl parsed;
  return parse_url(url, parsed);
}

bool is_timeout(const Status& status) { return status.native() == NNG_ETIMEDOUT; }

}  // namespace holdfast

namespace holdfast::link {

void OwnerWake::set(std::function<void()> wake) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wake_ = std::move(wake);
}

void OwnerWake::clear() { set(nullptr); }

void OwnerWake::call() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (wake_) wake_();
}

nng_msg* make_message(std::string_view frame) {
  nng_msg* message = nullptr;
  if (nng_msg_alloc(&message, frame.size()) != 0) return nullptr;
  if (!frame.empty()) std::memcpy(nng_msg_body(message), frame.data(), frame.size());
  return message;
}

std::string_view frame_of(nng_msg* message) {
  return {static_cast<const char*>(nng_msg_body(message)), nng_msg_len(message)};
}

namespace {

constexpr std::size_t kReceiveBytesMax = wire::kMaxFrameBytes + kHeaderBytesMax;

// Not all transports know all options.
int unless_unknown(int error) { return error == NNG_ENOTSUP ? 0 : error; }

}  // namespace

// Keepalive is also what sets its times and TCP_USER_TIMEOUT: see nng_compat.cpp.
int set_options(nng_dialer dialer) {
  int error = unless_unknown(nng_dialer_set_size(dialer, NNG_OPT_RECVMAXSZ, kReceiveBytesMax));
  if (error == 0) error = unless_unknown(nng_dialer_set_bool(dialer, NNG_OPT_TCP_NODELAY, true));
  if (error == 0) error = unless_unknown(nng_dialer_set_bool(dialer, NNG_OPT_TCP_KEEPALIVE, true));
  return error;
}

int set_options(nng_listener listener) {
  int error = unless_unknown(nng_listener_set_size(listener, NNG_OPT_RECVMAXSZ, kReceiveBytesMax));
  if (error == 0) {
    error = unless_unknown(nng_listener_set_bool(listener, NNG_OPT_TCP_NODELAY, true));
  }
  if (error == 0) {
    error = unless_unknown(nng_listener_set_bool(listener, NNG_OPT_TCP_KEEPALIVE, true));
  }
  return error;
}

namespace {

Code code_of(int nng_error) {
  switch (nng_error) {
    case NNG_EADDRINUSE:
    case NNG_EEXIST:
      return Code::exists;
    case NNG_EPERM:
      return Code::permission;
    case NNG_ENOMEM:
    case NNG_EINTERNAL:
      return Code::internal;
    case NNG_ENOSPC:
      return Code::no_space;
    default:
      return Code::unavailable;
  }
}

// Errors that NNG reports when the resolver finds no address for a name. An address that needs no
// look-up gets the same code when the machine does not have it.
bool is_resolver_error(int nng_error) {
  return nng_error == NNG_EADDRINVAL || nng_error == NNG_EINVAL || nng_error == NNG_EAGAIN ||
         nng_error == NNG_ENOTSUP || nng_error >= NNG_ESYSERR - 64;
}

std::string reason_of(int nng_error, const LinkUrl& url) {
  const bool by_name = url.scheme == LinkUrl::Scheme::tcp && !url.host_is_address;
  if (by_name && is_resolver_error(nng_error)) return "cannot resolve host " + url.host;
  switch (nng_error) {
    case NNG_ECONNREFUSED:
      return "connection refused: nobody listens there";
    case NNG_EADDRINUSE:
      return "address in use: another process listens there";
    case NNG_EADDRINVAL:
      return "this machine has no such address";
    case NNG_ECONNSHUT:
    case NNG_ECONNRESET:
    case NNG_ECLOSED:
      return "the other side closed the connection";
    case NNG_ETIMEDOUT:
      return "no answer in time";
    case NNG_ENOENT:
      return "no such file or directory";
    case NNG_EPROTO:
      return "the other side does not speak this protocol";
    case NNG_EUNREACHABLE:
      return "network unreachable";
    default:
      return nng_strerror(nng_error);
  }
}

}  // namespace

Status link_status(int nng_error, const LinkUrl& url) {
  return Status::native_error(code_of(nng_error), nng_error, "%s: %s", url.text.c_str(),
                              reason_of(nng_error, url).c_str());
}

std::string peer_name(nng_pipe pipe) {
  nng_sockaddr address{};
  if (nng_pipe_get_addr(pipe, NNG_OPT_REMADDR, &address) != 0) return "unknown";
  char text[INET6_ADDRSTRLEN] = {0};
  switch (address.s_family) {
    case NNG_AF_INET:
      inet_ntop(AF_INET, &address.s_in.sa_addr, text, sizeof text);
      return std::string(text) + ":" + std::to_string(ntohs(address.s_in.sa_port));
    case NNG_AF_INET6:
      inet_ntop(AF_INET6, address.s_in6.sa_addr, text, sizeof text);
      return "[" + std::string(text) + "]:" + std::to_string(ntohs(address.s_in6.sa_port));
    case NNG_AF_INPROC:
      return "this process";
    default:
      break;
  }
  std::uint64_t pid = 0;
  if (nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_PID, &pid) != 0) return "local process";
  return "local process " + std::to_string(pid);
}

}  // namespace holdfast::link
