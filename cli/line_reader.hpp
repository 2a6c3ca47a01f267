// Reads a file or stdin line by line, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "holdfast/status.hpp"

namespace holdfast::cli {

// "-" is stdin. At most bytes_max bytes; a longer one is Code::invalid.
Status read_whole(const std::string& path, std::size_t bytes_max, std::string& out);

class LineReader {
 public:
  explicit LineReader(std::size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  Status open(const std::string& path);  // "-" is stdin
  // The next line without its newline; the view is valid until the next call. False at the end, on
  // a read error, and for a line that is too long (Code::invalid).
  bool next(std::string_view& line, Status& status);
  std::int64_t line_number() const { return line_number_; }  // of the last one, from 1

 private:
  Status fill();

  std::size_t line_bytes_max_;
  std::string path_;
  int fd_ = -1;
  bool at_end_ = false;
  std::string buffer_;
  std::size_t start_ = 0;    // of the next line
  std::size_t scanned_ = 0;  // no newline before this
  std::int64_t line_number_ = 0;
};

}  // namespace holdfast::cli
