// The log of a running relay or gateway: one line each, on stderr.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "holdfast/log.hpp"

namespace CLI {
class App;
}

namespace holdfast::cli {

class Progress;

struct LogSettings {
  LogLevel level = LogLevel::info;
  bool json = false;
};
void add_log_options(CLI::App& command, LogSettings& settings);

// Lines look like `2026-03-01 12:00:00.250 UTC info  relay: text`; under systemd, which adds the
// time itself, like `<6>relay: text`; with --log-json like
// {"time":…,"level":"info","component":"relay","text":"…"}.
class LogLines {
 public:
  // `progress`, if given, is taken off the terminal before each line.
  LogLines(std::string component, const LogSettings& settings, Progress* progress = nullptr);
  ~LogLines();

  void write(LogLevel level, std::string_view text);  // any thread
  // Shows progress without a log line coming in between; any thread.
  void show_progress(std::string_view text);
  void clear_progress();
  LogFunction function();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace holdfast::cli
