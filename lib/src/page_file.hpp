// A database file as pages, without any trust in it: what a salvage reads. The newest version of
// each page is taken from the -wal, past frames that are damaged.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "db.hpp"

namespace holdfast {

class PageFile {
 public:
  // Fails only if the file cannot be opened (not_found, permission), is in use (busy), or is no
  // database in any part (corrupt).
  Status open(const std::string& path);

  std::uint32_t pages() const { return pages_; }
  std::size_t page_bytes() const { return page_bytes_; }
  std::size_t usable_bytes() const { return page_bytes_ - reserved_bytes_; }
  std::int64_t file_bytes() const { return file_bytes_; }
  bool wal_damaged() const { return wal_damaged_; }  // frames in its middle are unreadable
  bool header_readable() const {
    return header_ok_;
  }  // of the database: page 1 begins as it should
  bool utf8() const { return utf8_; }

  // False if it is not there or the medium cannot read it.
  bool read(std::uint32_t page, std::string& bytes);

 private:
  Status read_wal(const std::string& path);
  void read_header();
  std::size_t guess_page_bytes();

  RawFile db_, wal_;
  std::unordered_map<std::uint32_t, std::int64_t> in_wal_;  // page → offset in the -wal
  std::uint32_t pages_ = 0;
  std::size_t page_bytes_ = 0, reserved_bytes_ = 0;
  std::int64_t file_bytes_ = 0;
  bool wal_damaged_ = false, header_ok_ = false, utf8_ = true;
};

// The first byte of a page of a b-tree.
constexpr int kIndexInner = 2, kTableInner = 5, kIndexLeaf = 10, kTableLeaf = 13;
constexpr bool is_btree_page_kind(int kind) {
  return kind == kIndexInner || kind == kTableInner || kind == kIndexLeaf || kind == kTableLeaf;
}
std::uint32_t big_endian_32(const std::string& bytes, std::size_t at);
std::uint32_t big_endian_16(const std::string& bytes, std::size_t at);

}  // namespace holdfast
