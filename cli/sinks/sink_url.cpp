#include "sink_url.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>

namespace holdfast::cli {
namespace {

constexpr std::size_t kSecretBytesMax = 4 * 1024;  // first line of a file with a password
constexpr std::size_t kNameBytesMax = 64;          // of the name in NAME=URL

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool percent_decode(std::string_view text, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

Status bad_url(const SinkUrl& url, const char* what) {
  return Status::error(Code::invalid, "sink %s: %s", url.name.c_str(), what);
}

Status parse_options(std::string_view text, SinkUrl& url) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('&'), text.size());
    const std::string_view pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = pair.find('=');
    std::string value;
    if (equals == std::string_view::npos || equals == 0 ||
        !percent_decode(pair.substr(equals + 1), value)) {
      return bad_url(url, "what follows `?` is OPTION=VALUE, several joined by `&`");
    }
    url.options.emplace_back(pair.substr(0, equals), value);
  }
  return {};
}

Status parse_host(std::string_view text, SinkUrl& url) {
  std::size_t end = text.size();
  if (!text.empty() && text.front() == '[') {
    end = text.find(']');
    if (end == std::string_view::npos) return bad_url(url, "the address has a [ without a ]");
    url.host = text.substr(1, end - 1);
    ++end;
  } else {
    end = std::min(text.find(':'), text.size());
    if (!percent_decode(text.substr(0, end), url.host)) return bad_url(url, "bad % in the host");
  }
  const std::string_view port = text.substr(end);
  if (port.empty()) return {};
  const char* const last = port.data() + port.size();
  const auto parsed = std::from_chars(port.data() + 1, last, url.port);
  if (port.front() != ':' || parsed.ec != std::errc() || parsed.ptr != last || url.port < 1 ||
      url.port > 65535) {
    return bad_url(url, "the port is a number from 1 to 65535");
  }
  return {};
}

}  // namespace

std::string percent_encode(std::string_view text, const std::function<bool(char)>& kept) {
  std::string out;
  for (const char c : text) {
    if (kept(c)) {
      out += c;
      continue;
    }
    char hex[4];
    std::snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned char>(c));
    out += hex;
  }
  return out;
}

bool SinkUrl::take(std::string_view option, std::string& value) {
  const auto found = std::find_if(options.begin(), options.end(),
                                  [&](const auto& each) { return each.first == option; });
  if (found == options.end()) return false;
  value = found->second;
  options.erase(found);
  return true;
}

Status SinkUrl::none_left() const {
  if (options.empty()) return {};
  return Status::error(Code::invalid, "sink %s: there is no option %s, or it is given twice",
                       name.c_str(), options.front().first.c_str());
}

Status parse_sink_url(std::string_view given, SinkUrl& url) {
  url = SinkUrl();
  const std::size_t equals = given.find('=');
  if (equals != std::string_view::npos && is_name(given.substr(0, equals))) {
    url.name = given.substr(0, equals);
    given.remove_prefix(equals + 1);
  }
  const std::size_t colon = given.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    return Status::error(Code::invalid,
                         "a sink is [NAME=]URL, and the URL begins with nats://, postgres://, "
                         "mqtt:// or exec:");
  }
  url.text = given;
  url.scheme = given.substr(0, colon);
  std::transform(url.scheme.begin(), url.scheme.end(), url.scheme.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  url.rest = given.substr(colon + 1);
  if (url.name.empty()) url.name = url.scheme;
  if (url.rest.compare(0, 2, "//") != 0) return {};
  std::string_view text = std::string_view(url.rest).substr(2);
  const std::size_t question = std::min(text.find('?'), text.size());
  Status status = parse_options(text.substr(std::min(question + 1, text.size())), url);
  text = text.substr(0, question);
  const std::size_t slash = std::min(text.find('/'), text.size());
  if (status.ok() && !percent_decode(text.substr(std::min(slash + 1, text.size())), url.path)) {
    status = bad_url(url, "bad % in the path");
  }
  text = text.substr(0, slash);
  const std::size_t at = text.rfind('@');
  if (at != std::string_view::npos) {
    if (text.substr(0, at).find(':') != std::string_view::npos) {
      return bad_url(url,
                     "a password on the command line is seen by all users (ps); put it into a "
                     "file that only you can read and say ?password_file=FILE");
    }
    if (status.ok() && !percent_decode(text.substr(0, at), url.user)) {
      status = bad_url(url, "bad % in the user");
    }
    text.remove_prefix(at + 1);
  }
  std::string secret;
  for (const char* option : {"password", "token", "sslpassword"}) {
    if (!url.take(option, secret)) continue;
    return Status::error(Code::invalid,
                         "sink %s: a secret on the command line is seen by all users (ps); put it "
                         "into a file that only you can read and say ?%s_file=FILE",
                         url.name.c_str(), option);
  }
  // Several hosts are PostgreSQL's own business.
  if (status.ok() && text.find(',') == std::string_view::npos) status = parse_host(text, url);
  return status;
}

Status take_secret(SinkUrl& url, const std::string& name, std::string& secret) {
  secret.clear();
  std::string variable;
  if (url.take(name + "_env", variable)) {
    const char* const value = ::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') {
      return Status::error(Code::invalid, "sink %s: the environment has no %s", url.name.c_str(),
                           variable.c_str());
    }
    secret = value;
    return {};
  }
  std::string path;
  if (!url.take(name + "_file", path)) return {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  struct stat stat_of{};
  if (fd < 0 || ::fstat(fd, &stat_of) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return Status::native_error(error == ENOENT ? Code::not_found : Code::io, error, "%s: %s",
                                path.c_str(), ::strerror(error));
  }
  if (S_ISREG(stat_of.st_mode) && (stat_of.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    ::close(fd);
    return Status::error(Code::permission,
                         "%s: everybody can read or write it; `chmod 600` it, or 640",
                         path.c_str());
  }
  char text[kSecretBytesMax];
  const ssize_t length = ::read(fd, text, sizeof text);
  ::close(fd);
  if (length > 0) secret.assign(text, static_cast<std::size_t>(length));
  secret.resize(std::min(secret.find_first_of("\r\n"), secret.size()));
  if (secret.empty() || length == static_cast<ssize_t>(sizeof text)) {
    return Status::error(Code::invalid, "%s: its first line is not a password", path.c_str());
  }
  return {};
}

Status take_number(SinkUrl& url, std::string_view option, long min, long max, long& value) {
  std::string text;
  if (!url.take(option, text)) return {};
  const char* const last = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), last, value);
  if (parsed.ec == std::errc() && parsed.ptr == last && value >= min && value <= max) return {};
  return Status::error(Code::invalid, "sink %s: %s is a number from %ld to %ld", url.name.c_str(),
                       std::string(option).c_str(), min, max);
}

}  // namespace holdfast::cli
