#include "link_url.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "holdfast/event.hpp"

namespace holdfast {
namespace {

constexpr std::size_t kUrlShownBytesMax = 80;
constexpr std::size_t kHostBytesMax = 253;  // RFC 1035, without the final dot
constexpr std::size_t kLabelBytesMax = 63;
constexpr std::size_t kIpcPathBytesMax = 107;  // sockaddr_un.sun_path, with its NUL
constexpr std::size_t kInprocNameBytesMax = 100;

constexpr const char* kTcpExample =
    "expected tcp://host:port, e.g. tcp://gateway.example:7447 or tcp://[::1]:7447";
constexpr const char* kIpcExample = "expected ipc:///absolute/path, e.g. ipc:///run/holdfast.sock";

// For messages: printable and short.
std::string shown(std::string_view url) {
  std::string out;
  for (const char c : url.substr(0, kUrlShownBytesMax)) {
    out += c >= 0x20 && c < 0x7f ? c : '?';
  }
  if (url.size() > kUrlShownBytesMax) out += "...";
  return out;
}

Status bad_url(std::string_view url, const char* why) {
  return Status::error(Code::invalid, "url \"%s\": %s", shown(url).c_str(), why);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '_';
}

// Labels of letters, digits, hyphens and (as many home networks have them) underscores.
bool is_host_name(std::string_view host) {
  if (!host.empty() && host.back() == '.') host.remove_suffix(1);
  if (host.empty() || host.size() > kHostBytesMax) return false;
  std::size_t label_bytes = 0;
  for (const char c : host) {
    if (c == '.') {
      if (label_bytes == 0) return false;
      label_bytes = 0;
    } else if (!is_name_character(c) || ++label_bytes > kLabelBytesMax) {
      return false;
    }
  }
  return label_bytes > 0 && host.front() != '-';
}

bool is_ipv4(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool is_ipv6(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// A name whose last label is a number can only be meant as an address (RFC 1123, section 2.1).
bool ends_in_number(std::string_view host) {
  const std::size_t dot = host.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? host : host.substr(dot + 1);
  for (const char c : last) {
    if (!is_digit(c)) return false;
  }
  return !last.empty();
}

bool parse_port(std::string_view text, int& port) {
  if (text.empty() || text.size() > 5) return false;
  port = 0;
  for (const char c : text) {
    if (!is_digit(c)) return false;
    port = port * 10 + (c - '0');
  }
  return port <= 65535;
}

Status parse_host(std::string_view url, std::string_view host, bool bracketed, LinkUrl& out) {
  out.host = std::string(host);
  if (bracketed) {
    out.host_is_address = is_ipv6(out.host);
    return out.host_is_address ? Status() : bad_url(url, "no IPv6 address between the brackets");
  }
  out.host_is_address = is_ipv4(out.host);
  if (out.host_is_address) return {};
  if (host == "*") return bad_url(url, "to listen on every address write 0.0.0.0 or [::]");
  if (!is_host_name(host) || ends_in_number(host)) return bad_url(url, kTcpExample);
  return {};
}

Status parse_tcp(std::string_view url, std::string_view rest, LinkUrl& out) {
  out.scheme = LinkUrl::Scheme::tcp;
  const bool bracketed = !rest.empty() && rest.front() == '[';
  std::string_view host;
  if (bracketed) {
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos) return bad_url(url, kTcpExample);
    host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
  } else {
    const std::size_t colon = rest.find(':');
    host = rest.substr(0, colon);
    rest.remove_prefix(host.size());
  }
  if (host.empty() || rest.empty() || rest.front() != ':') return bad_url(url, kTcpExample);
  rest.remove_prefix(1);
  if (!parse_port(rest, out.port)) return bad_url(url, kTcpExample);
  return parse_host(url, host, bracketed, out);
}

Status parse_ipc(std::string_view url, std::string_view rest, LinkUrl& out) {
  out.scheme = LinkUrl::Scheme::ipc;
  if (rest.size() < 2 || rest.front() != '/' || rest.back() == '/') {
    return bad_url(url, kIpcExample);
  }
  if (rest.size() > kIpcPathBytesMax) {
    return bad_url(url, "the path of a local socket may have at most 107 bytes");
  }
  // They mean something in a URL to some versions of NNG and nothing to others.
  if (rest.find_first_of("?#%") != std::string_view::npos) {
    return bad_url(url, "no '?', '#' or '%' in the path of a local socket");
  }
  out.path = std::string(rest);
  return {};
}

Status parse_inproc(std::string_view url, std::string_view rest, LinkUrl& out) {
  out.scheme = LinkUrl::Scheme::inproc;
  if (rest.empty() || rest.size() > kInprocNameBytesMax) {
    return bad_url(url, "expected inproc://name");
  }
  for (const char c : rest) {
    if (!is_name_character(c) && c != '.') return bad_url(url, "expected inproc://name");
  }
  out.path = std::string(rest);
  return {};
}

}  // namespace

Status parse_url(std::string_view url, LinkUrl& out) {
  out = LinkUrl();
  out.text = std::string(url);
  // A NUL ends the text for the system's calls, and the rest would be no part of what they see.
  if (!is_plain_text(url)) {
    return bad_url(url, "an address is UTF-8 without control characters");
  }
  std::string_view rest = url;
  if (take_prefix(rest, "tcp://")) return parse_tcp(url, rest, out);
  if (take_prefix(rest, "ipc://")) return parse_ipc(url, rest, out);
  if (take_prefix(rest, "inproc://")) return parse_inproc(url, rest, out);
  if (take_prefix(rest, "tls+tcp://")) {
    out.tls = true;
    return parse_tcp(url, rest, out);
  }
  return bad_url(url, kTcpExample);
}

std::string tcp_url(std::string_view host, int port) {
  const bool ipv6 = host.find(':') != std::string_view::npos;
  std::string out = ipv6 ? "tcp://[" : "tcp://";
  out += host;
  out += ipv6 ? "]:" : ":";
  return out + std::to_string(port);
}

std::string tcp_url(const LinkUrl& url, int port) {
  return (url.tls ? "tls+" : "") + tcp_url(url.host, port);
}

bool is_local(const LinkUrl& url) {
  if (url.scheme != LinkUrl::Scheme::tcp) return true;
  in_addr ipv4{};
  in6_addr ipv6{};
  if (inet_pton(AF_INET, url.host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, url.host.c_str(), &ipv6) == 1) return IN6_IS_ADDR_LOOPBACK(&ipv6) != 0;
  return url.host == "localhost";
}

}  // namespace holdfast
