// What a supervisor that started this program wants to hear: sd_notify(3), the protocol of
// systemd's Type=notify and WatchdogSec=, which others speak too. Without one ($NOTIFY_SOCKET)
// nothing is sent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::cli {

class LogLines;

class ServiceNotify {
 public:
  // Reads $NOTIFY_SOCKET, $WATCHDOG_USEC, $WATCHDOG_PID. A supervisor that can't be told, and so
  // will sooner or later end this program, is a warning in the log.
  explicit ServiceNotify(LogLines& log);

  // How often alive() is to be called, a third of the time after which the supervisor takes this
  // program for dead; -1: nobody waits for it.
  std::int64_t alive_every_ms() const { return alive_every_ms_; }

  void ready(std::string_view status);  // `status` is what `systemctl status` shows
  void alive();
  void stopping();

 private:
  void tell(const std::string& assignments);

  LogLines& log_;
  std::string address_;  // a path, or a name in the abstract namespace behind an '@'
  std::int64_t alive_every_ms_ = -1;
  bool warned_ = false;
};

}  // namespace holdfast::cli
