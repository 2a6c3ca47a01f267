// Addresses as they are given to --to and --listen.
#include "fuzz.hpp"
#include "link_url.hpp"

using namespace holdfast;
using namespace holdfast::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  LinkUrl url;
  const Status status = parse_url(text, url);
  if (!status.ok()) {
    require(status.code() == Code::invalid, "a bad address is invalid", status.text());
    require(is_plain_text(status.text()), "its error can be shown");
    return 0;
  }
  require(url.text == text, "the text is kept");
  require(is_plain_text(url.text), "an address can be shown");
  if (url.scheme != LinkUrl::Scheme::tcp) {
    require(!url.path.empty() && is_local(url), "other addresses are of this machine");
    require(url.path.find('\0') == std::string::npos, "a path ends where it ends");
    return 0;
  }
  require(url.port >= 0 && url.port <= 65535 && !url.host.empty(), "host and port");
  LinkUrl again;
  const std::string made = tcp_url(url, url.port);
  require_ok(parse_url(made, again), made.c_str());
  require(again.host == url.host && again.port == url.port && again.tls == url.tls &&
              again.host_is_address == url.host_is_address && is_local(again) == is_local(url),
          "an address that is made of its parts means the same", made);
  return 0;
}
