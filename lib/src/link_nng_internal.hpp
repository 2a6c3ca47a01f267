// What both sides of the link share. Only link_nng_*.cpp include this.
#pragma once

#include <nng/nng.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "holdfast/status.hpp"
#include "link_url.hpp"

namespace holdfast::tls {
class Tls;
}

namespace holdfast::link {

// NNG puts one 32-bit request number before the frame; a little more is let through, so that a
// frame of exactly kMaxFrameBytes passes and the exact check is made on the frame itself.
constexpr std::size_t kHeaderBytesMax = 64;

// The owner's wake function. It can be taken away at any time: once clear() returned, it is not
// running and will not run again.
class OwnerWake {
 public:
  void set(std::function<void()> wake);
  void clear();
  void call();

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
};

// NULL if memory is short.
nng_msg* make_message(std::string_view frame);
std::string_view frame_of(nng_msg* message);

// Options that clients and servers have in common. 0 or an NNG error.
int set_options(nng_dialer dialer);
int set_options(nng_listener listener);
// For tls+tcp, which must have a `tls`; does nothing for other schemes.
int set_tls(nng_dialer dialer, const std::shared_ptr<tls::Tls>& tls, const LinkUrl& url);
int set_tls(nng_listener listener, const std::shared_ptr<tls::Tls>& tls, const LinkUrl& url);
// Who the peer is by its certificate; "" without TLS. False: TLS, but nobody can be made out.
bool identify(nng_pipe pipe, std::string& name, std::string& serial);

// What went wrong on the way to or at `url`.
Status link_status(int nng_error, const LinkUrl& url);

// "192.0.2.7:51515", "[2001:db8::1]:51515", "local process 4711", "this process".
std::string peer_name(nng_pipe pipe);

}  // namespace holdfast::link
