#include "output.hpp"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "characters.hpp"
#include "holdfast/clock.hpp"

namespace holdfast::cli {
namespace {

constexpr std::size_t kOutputBufferBytes = 64 * 1024;
constexpr std::size_t kTableRowsBuffered = 200;
constexpr std::int64_t kProgressIntervalMs = 100;
constexpr std::size_t kColumnGap = 2;

std::int64_t monotonic_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

void append_escaped(std::string& out, std::string_view character, std::uint32_t code) {
  if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code == '\t') {
    out += "\\t";
  } else if (is_unsafe_to_show(code)) {
    append_hex(out, code < 0xa0 ? "\\x%02x" : "\\u{%x}", code);
  } else {
    out += character;
  }
}

const char* colour_code(Colour colour) {
  switch (colour) {
    case Colour::bold:
      return "\x1b[1m";
    case Colour::dim:
      return "\x1b[2m";
    case Colour::red:
      return "\x1b[31m";
    case Colour::green:
      return "\x1b[32m";
    case Colour::yellow:
      return "\x1b[33m";
    case Colour::none:
      break;
  }
  return "";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t length = decode_utf8(text, code);
    if (length == 0) {
      append_hex(out, "\\x%02x", static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
      continue;
    }
    append_escaped(out, text.substr(0, length), code);
    text.remove_prefix(length);
  }
  return out;
}

std::size_t columns_of(std::string_view escaped_text) {
  return static_cast<std::size_t>(
      std::count_if(escaped_text.begin(), escaped_text.end(),
                    [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

std::string shortened(std::string_view text, std::size_t columns) {
  // Escaping never makes a text shorter, so its end beyond this need not be looked at.
  constexpr std::size_t kBytesPerColumnMax = 4;
  std::string out = escaped(text.substr(0, (columns + 1) * kBytesPerColumnMax));
  if (columns_of(out) <= columns) return out;
  std::size_t end = 0;
  for (std::size_t seen = 0; end < out.size(); ++end) {
    if ((static_cast<unsigned char>(out[end]) & 0xc0U) != 0x80 && ++seen == columns) break;
  }
  out.resize(end);
  return out + "…";
}

std::string shell_quoted(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+:,@%=").find(c) != std::string_view::npos;
  };
  if (!text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), plain)) {
    return std::string(text);
  }
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string format_age(std::int64_t ms) {
  if (ms < 0) return "-";
  constexpr std::int64_t kSecond = 1000, kMinute = 60 * kSecond, kHour = 60 * kMinute,
                         kDay = 24 * kHour;
  if (ms < kSecond) return std::to_string(ms) + " ms";
  if (ms < 2 * kMinute) return std::to_string(ms / kSecond) + " s";
  if (ms < 2 * kHour) return std::to_string(ms / kMinute) + " min";
  if (ms < 2 * kDay) return std::to_string(ms / kHour) + " h";
  return std::to_string(ms / kDay) + " d";
}

std::string format_bytes(std::int64_t bytes) {
  if (bytes < 0) return "-";
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  constexpr std::size_t kUnitCount = sizeof kUnits / sizeof kUnits[0];
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnitCount) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string format_wall_time(std::int64_t wall_ms) {
  if (!wall_known(wall_ms)) return "unknown (clock was not set)";
  const time_t seconds = static_cast<time_t>(wall_ms / 1000);
  tm parts{};
  char date[64];
  if (::gmtime_r(&seconds, &parts) == nullptr ||
      ::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts) == 0) {
    return std::to_string(wall_ms) + " ms";
  }
  char text[96];
  std::snprintf(text, sizeof text, "%s.%03d UTC", date, static_cast<int>(wall_ms % 1000));
  return text;
}

std::string plural(std::int64_t count, std::string_view noun) {
  return format_count(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

bool wants_colour(int descriptor) {
  const char* no_colour = ::getenv("NO_COLOR");
  const char* term = ::getenv("TERM");
  return is_terminal(descriptor) && (no_colour == nullptr || *no_colour == '\0') &&
         term != nullptr && ::strcmp(term, "dumb") != 0;
}

Output::Output() : colour_(wants_colour(STDOUT_FILENO)) {}

void Output::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kOutputBufferBytes) flush();
}

void Output::flush() {
  std::string_view left = buffer_;
  while (!left.empty() && error_ == 0) {
    const ssize_t n = ::write(STDOUT_FILENO, left.data(), left.size());
    if (n >= 0) {
      left.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EPIPE) {
      // Only reached if SIGPIPE is ignored; end as it would have ended us.
      ::signal(SIGPIPE, SIG_DFL);
      ::raise(SIGPIPE);
      ::_exit(128 + SIGPIPE);
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  buffer_.clear();
}

Status Output::finish() {
  flush();
  if (error_ == 0) return {};
  return Status::native_error(error_ == ENOSPC ? Code::no_space : Code::io, error_,
                              "writing standard output: %s", ::strerror(error_));
}

std::string coloured(const Output& out, Colour colour, std::string_view text) {
  if (!out.colour() || colour == Colour::none) return std::string(text);
  return colour_code(colour) + std::string(text) + "\x1b[0m";
}

Table::Table(Output& out, std::vector<Column> columns) : out_(out), columns_(std::move(columns)) {
  widths_.reserve(columns_.size());
  for (const Column& column : columns_) widths_.push_back(columns_of(column.title));
}

Table::~Table() { print(); }

void Table::row(std::vector<Cell> cells) {
  cells.resize(columns_.size(), Cell(""));
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::size_t limit = columns_[i].columns_max;
    cells[i].text = limit == 0 ? escaped(cells[i].text) : shortened(cells[i].text, limit);
    widths_[i] = std::max(widths_[i], columns_of(cells[i].text));
  }
  rows_.push_back(std::move(cells));
  if (rows_.size() >= kTableRowsBuffered) print();
}

void Table::print() {
  if (rows_.empty()) return;
  if (!title_printed_) {
    title_printed_ = true;
    std::vector<Cell> titles;
    titles.reserve(columns_.size());
    for (const Column& column : columns_) titles.emplace_back(column.title, Colour::bold);
    print_row(titles);
  }
  for (const std::vector<Cell>& cells : rows_) print_row(cells);
  rows_.clear();
}

void Table::print_row(const std::vector<Cell>& cells) {
  std::string line;
  std::size_t owed = 0;  // blanks that are only written if something follows
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t used = columns_of(cells[i].text);
    const std::size_t blanks = widths_[i] > used ? widths_[i] - used : 0;
    if (columns_[i].align == Align::right) owed += blanks;
    if (!cells[i].text.empty()) {
      line.append(owed, ' ');
      owed = 0;
      line += coloured(out_, cells[i].colour, cells[i].text);
    }
    if (columns_[i].align == Align::left) owed += blanks;
    owed += kColumnGap;
  }
  out_.line(line);
}

Progress::Progress() : enabled_(is_terminal(STDERR_FILENO)) {}

Progress::~Progress() { clear(); }

bool Progress::due() {
  if (!enabled_) return false;
  const std::int64_t now = monotonic_ms();
  if (last_ms_ != 0 && now - last_ms_ < kProgressIntervalMs) return false;
  last_ms_ = now;
  return true;
}

void Progress::show(std::string_view text) {
  if (!enabled_) return;
  winsize size{};
  std::size_t columns = 80;
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns = size.ws_col;
  write_stderr("\r" + shortened(text, columns - 1) + "\x1b[K");
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  write_stderr("\r\x1b[K");
  shown_ = false;
}

}  // namespace holdfast::cli
