// SIGINT and SIGTERM as something to wait for: nothing at all happens in a signal handler.
#pragma once

#include <cstdint>

#include "holdfast/status.hpp"

namespace holdfast::cli {

// From its construction on, SIGINT, SIGTERM and SIGHUP of this process are blocked (in threads made
// later too, so make it before a relay or gateway) and arrive at a signalfd(2) instead. More of
// them while stopping change nothing: a stop takes a second at most. A signal that was ignored when
// the program started (nohup) stays ignored.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  Status open_status() const;

  // Waits for a signal, for notify(), or for `watched` (a descriptor, -1 = none) to be hung up:
  // a pipe whose reader is gone. timeout_ms -1: for ever. One thread at a time.
  enum class Woken { timeout, signal, notified, hung_up };
  Woken wait(std::int64_t timeout_ms, int watched = -1);
  // True once a signal came; also looks for one, without waiting.
  bool stop_asked();

  void notify();  // from any thread; makes one wait() return

 private:
  bool take_signal();

  int signal_fd_ = -1;
  int event_fd_ = -1;
  bool asked_ = false;
};

// A reader or terminal that goes away must not kill a relay or gateway: writes get EPIPE instead.
void ignore_broken_pipes();
// The usual effect, whatever the parent process left behind: `holdfast ls | head` ends quietly.
void end_quietly_on_broken_pipes();

}  // namespace holdfast::cli
