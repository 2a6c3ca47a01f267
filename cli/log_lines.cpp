#include "log_lines.hpp"

#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <map>
#include <mutex>

#include "holdfast/clock.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

struct LevelNames {
  const char* name;
  const char* padded;
  const char* journal;  // sd-daemon(3)
};

const LevelNames& names_of(LogLevel level) {
  static constexpr LevelNames kNames[] = {{"debug", "debug  ", "<7>"},
                                          {"info", "info   ", "<6>"},
                                          {"warning", "warning", "<4>"},
                                          {"error", "error  ", "<3>"}};
  return kNames[static_cast<int>(level)];
}

}  // namespace

struct LogLines::Impl {
  std::string component;
  LogSettings settings;
  Progress* progress = nullptr;
  bool journal = false;
  std::mutex mutex;

  std::string format(LogLevel level, std::string_view text) const {
    const LevelNames& names = names_of(level);
    if (settings.json) {
      JsonLine line;
      line.number("time", system_clock().wall_ms())
          .text("level", names.name)
          .text("component", component)
          .text("text", text);
      return line.finish() + "\n";
    }
    const std::string message = component + ": " + escaped(text) + "\n";
    if (journal) return names.journal + message;
    return format_wall_time(system_clock().wall_ms()) + " " + names.padded + " " + message;
  }

  void write(LogLevel level, std::string_view text) {
    if (level < settings.level) return;
    const std::string line = format(level, text);
    const std::lock_guard<std::mutex> lock(mutex);
    if (progress != nullptr) progress->clear();
    write_stderr(line);
  }
};

LogLines::LogLines(std::string component, const LogSettings& settings, Progress* progress)
    : impl_(std::make_shared<Impl>()) {
  impl_->component = std::move(component);
  impl_->settings = settings;
  impl_->progress = progress;
  impl_->journal = ::getenv("JOURNAL_STREAM") != nullptr && !is_terminal(2);
}

LogLines::~LogLines() {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->progress = nullptr;  // who still logs may do so longer than the progress line lives
}

void LogLines::write(LogLevel level, std::string_view text) { impl_->write(level, text); }

void LogLines::show_progress(std::string_view text) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  if (impl_->progress != nullptr) impl_->progress->show(text);
}

void LogLines::clear_progress() {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  if (impl_->progress != nullptr) impl_->progress->clear();
}

LogFunction LogLines::function() {
  return [impl = impl_](LogLevel level, std::string_view text) { impl->write(level, text); };
}

void add_log_options(CLI::App& command, LogSettings& settings) {
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::debug},
                                                  {"info", LogLevel::info},
                                                  {"warning", LogLevel::warning},
                                                  {"error", LogLevel::error}};
  command.add_option("--log-level", settings.level, "Least serious messages to show")
      ->transform(CLI::Transformer(levels))
      ->option_text("debug|info|warning|error [info]");
  command.add_flag("--log-json", settings.json, "Log one JSON object per line");
}

}  // namespace holdfast::cli
