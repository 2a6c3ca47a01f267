#include "service_notify.hpp"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "log_lines.hpp"

namespace holdfast::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// 0 if it is not a positive number.
std::int64_t number(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  return text.empty() || *end != '\0' || value < 0 ? 0 : value;
}

// Without control characters: a line end would be another assignment.
std::string one_line(std::string_view text) {
  std::string out(text);
  std::replace_if(out.begin(), out.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return out;
}

// Why it was not sent; nullptr if it was.
const char* send_datagram(const std::string& address, const std::string& text) {
  struct sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (address.size() >= sizeof name.sun_path) return "the name is too long";
  ::memcpy(name.sun_path, address.data(), address.size());
  if (address[0] == '@') name.sun_path[0] = '\0';
  const auto bytes =
      static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + address.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return ::strerror(errno);
  const ssize_t sent = ::sendto(fd, text.data(), text.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const struct sockaddr*>(&name), bytes);
  const int error = sent < 0 ? errno : 0;
  ::close(fd);
  return error == 0 ? nullptr : ::strerror(error);
}

}  // namespace

ServiceNotify::ServiceNotify(LogLines& log) : log_(log), address_(variable("NOTIFY_SOCKET")) {
  const std::string pid = variable("WATCHDOG_PID");
  const std::int64_t dead_after_us = number(variable("WATCHDOG_USEC"));
  if (address_.empty() || dead_after_us == 0) return;
  if (!pid.empty() && number(pid) != ::getpid()) return;  // meant for another process
  alive_every_ms_ = std::max<std::int64_t>(1, dead_after_us / 3'000);
}

void ServiceNotify::ready(std::string_view status) { tell("READY=1\nSTATUS=" + one_line(status)); }

void ServiceNotify::alive() { tell("WATCHDOG=1"); }

void ServiceNotify::stopping() { tell("STOPPING=1"); }

void ServiceNotify::tell(const std::string& assignments) {
  if (address_.empty()) return;
  const char* problem = send_datagram(address_, assignments);
  if (problem == nullptr || warned_) return;
  warned_ = true;
  log_.write(LogLevel::warning,
             "the supervisor at $NOTIFY_SOCKET, " + address_ + ", can't be told: " + problem);
}

}  // namespace holdfast::cli
