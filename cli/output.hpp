// What a person sees: aligned tables, ages, sizes, colours on a terminal only, progress, and
// everything that came from data escaped, so that no payload can drive the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/status.hpp"

namespace holdfast::cli {

// Control characters (C0, DEL, C1), bidirectional overrides and bytes that are not UTF-8 become
// visible: \n, \x1b, \u{202e}. Never contains a newline.
std::string escaped(std::string_view text);
// escaped(), and cut to so many columns with "…" at the end.
std::string shortened(std::string_view text, std::size_t columns);
std::size_t columns_of(std::string_view escaped_text);
// As it can be pasted into a shell.
std::string shell_quoted(std::string_view text);

std::string format_age(std::int64_t ms);  // "3 min"; "-" when negative
std::string format_bytes(std::int64_t bytes);
std::string format_count(std::int64_t count);        // "12,345"
std::string format_wall_time(std::int64_t wall_ms);  // "2026-03-01 12:00:00.250 UTC"; "unknown"
std::string plural(std::int64_t count, std::string_view noun);  // "1 event", "2 events"

// Whole text in as few write(2) calls as possible; errors are ignored (there is nowhere to tell).
void write_stderr(std::string_view text);
bool is_terminal(int descriptor);
// A terminal that understands colours, and NO_COLOR is not set (no-color.org).
bool wants_colour(int descriptor);

// Standard output, buffered. Data goes here and nowhere else.
class Output {
 public:
  Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text);
  void line(std::string_view text) {
    write(text);
    write("\n");
  }
  // Writes what is buffered. A reader that went away (EPIPE) ends the program quietly, as SIGPIPE
  // does; any other failure is kept for finish().
  void flush();
  // flush(), and what went wrong since the start: a full disk must not look like success.
  Status finish();
  bool failed() const { return error_ != 0; }
  bool colour() const { return colour_; }

 private:
  std::string buffer_;
  int error_ = 0;
  bool colour_ = false;
};

enum class Colour { none, bold, dim, red, green, yellow };
std::string coloured(const Output& out, Colour colour, std::string_view text);

enum class Align { left, right };

// Rows are buffered up to a limit, then printed aligned: any number of rows in bounded memory, and
// the widths stay as they are unless a later row needs more.
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
    std::size_t columns_max = 0;  // longer texts are cut; 0 = never
  };
  struct Cell {
    std::string text;  // escaped by the table
    Colour colour = Colour::none;
    Cell(std::string t) : text(std::move(t)) {}  // NOLINT: cells are mostly plain text
    Cell(const char* t) : text(t) {}             // NOLINT
    Cell(std::string t, Colour c) : text(std::move(t)), colour(c) {}
  };

  Table(Output& out, std::vector<Column> columns);
  ~Table();  // prints what is left
  void row(std::vector<Cell> cells);
  void print();

 private:
  void print_row(const std::vector<Cell>& cells);

  Output& out_;
  std::vector<Column> columns_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<Cell>> rows_;
  bool title_printed_ = false;
};

// One line on stderr that is written over; nothing at all unless stderr is a terminal.
class Progress {
 public:
  Progress();
  ~Progress();  // removes the line
  bool enabled() const { return enabled_; }
  bool due();  // not more often than a person can read
  void show(std::string_view text);
  void clear();

 private:
  bool enabled_ = false;
  bool shown_ = false;
  std::int64_t last_ms_ = 0;
};

}  // namespace holdfast::cli
