// The addresses a link can have, taken apart. Knows nothing of sockets.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/status.hpp"

namespace holdfast {

struct LinkUrl {
  enum class Scheme { tcp, ipc, inproc };
  Scheme scheme = Scheme::tcp;
  bool tls = false;  // tls+tcp
  std::string text;  // as given
  std::string host;  // tcp: a name or an address, without brackets
  bool host_is_address = false;
  int port = 0;      // tcp; 0 when listening: the system chooses
  std::string path;  // ipc: absolute; inproc: the name
};

// Takes a URL apart. Errors are `invalid`, say what is wrong and show a correct example.
Status parse_url(std::string_view url, LinkUrl& out);

// "tcp://host:port", with brackets round an IPv6 address.
std::string tcp_url(std::string_view host, int port);
// The same with the scheme of `url`.
std::string tcp_url(const LinkUrl& url, int port);

// Whether what is sent there cannot leave this machine: 127.0.0.0/8, [::1], localhost, and all
// that is not TCP.
bool is_local(const LinkUrl& url);

}  // namespace holdfast
