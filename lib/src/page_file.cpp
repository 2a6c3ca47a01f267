// The formats are those of https://sqlite.org/fileformat.html, sections 1.3 and 4.
#include "page_file.hpp"

#include <algorithm>
#include <cstring>

namespace holdfast {

namespace {

constexpr std::size_t kMinPageBytes = 512;
constexpr std::size_t kMaxPageBytes = 65536;
constexpr char kMagic[] = "SQLite format 3";  // with its NUL, 16 bytes
constexpr std::size_t kHeaderBytes = 100;
constexpr std::size_t kReservedMax = 32;
constexpr std::size_t kWalHeaderBytes = 32;
constexpr std::size_t kFrameHeaderBytes = 24;
constexpr std::uint32_t kWalMagic = 0x377f0682;        // plus 1: checksums over big-endian words
constexpr std::int64_t kGuessBytes = 4 * 1024 * 1024;  // of the file, to guess its page size

bool valid_page_bytes(std::size_t bytes) {
  return bytes >= kMinPageBytes && bytes <= kMaxPageBytes && (bytes & (bytes - 1)) == 0;
}

struct Checksum {
  std::uint32_t a = 0, b = 0;
  bool operator==(const Checksum& other) const { return a == other.a && b == other.b; }

  void add(const std::string& bytes, std::size_t from, std::size_t count, bool big_endian) {
    const auto word = [&](std::size_t at) {
      const std::uint32_t big = big_endian_32(bytes, at);
      return big_endian ? big : __builtin_bswap32(big);
    };
    for (std::size_t at = from; at + 8 <= from + count; at += 8) {
      a += word(at) + b;
      b += word(at + 4) + a;
    }
  }
};

Checksum stored_checksum(const std::string& bytes, std::size_t at) {
  return {big_endian_32(bytes, at), big_endian_32(bytes, at + 4)};
}

// What begins a -wal. `readable` is false if it is damaged: SQLite then ignores all of the file.
struct WalHeader {
  bool readable = false;
  bool big_endian = false;
  std::size_t page_bytes = 0;
  std::string salts;
  Checksum checksum;
};

WalHeader parse_wal_header(const std::string& bytes) {
  WalHeader header;
  if (bytes.size() < kWalHeaderBytes) return header;
  const std::uint32_t magic = big_endian_32(bytes, 0);
  header.big_endian = (magic & 1) != 0;
  header.page_bytes = big_endian_32(bytes, 8);
  header.salts = bytes.substr(16, 8);
  header.checksum = stored_checksum(bytes, 24);
  Checksum sum;
  sum.add(bytes, 0, 24, header.big_endian);
  header.readable =
      (magic & ~1U) == kWalMagic && valid_page_bytes(header.page_bytes) && sum == header.checksum;
  return header;
}

}  // namespace

std::uint32_t big_endian_16(const std::string& bytes, std::size_t at) {
  return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at])) << 8 |
         static_cast<unsigned char>(bytes[at + 1]);
}

std::uint32_t big_endian_32(const std::string& bytes, std::size_t at) {
  return big_endian_16(bytes, at) << 16 | big_endian_16(bytes, at + 2);
}

Status PageFile::open(const std::string& path) {
  Status status = RawFile::open(path, RawFile::Part::database, db_);
  if (status.ok()) status = db_.lock_out_others();
  if (!status.ok()) return status;
  file_bytes_ = db_.size();
  read_header();
  status = read_wal(path);
  if (!status.ok()) return status;
  if (page_bytes_ == 0) page_bytes_ = guess_page_bytes();
  if (page_bytes_ == 0)
    return Status::error(Code::corrupt, "%s: nothing in it looks like a page of a database",
                         path.c_str());
  const auto whole = static_cast<std::uint32_t>(
      std::min<std::int64_t>(file_bytes_ / static_cast<std::int64_t>(page_bytes_), UINT32_MAX));
  // The last commit of the -wal says how many there are; a damaged one says too little.
  if (pages_ == 0 || wal_damaged_) pages_ = std::max(pages_, whole);
  std::string first;
  if (read(1, first) && std::memcmp(first.data(), kMagic, sizeof(kMagic)) == 0) {
    header_ok_ = true;
    utf8_ = big_endian_32(first, 56) <= 1;
    const auto reserved = static_cast<unsigned char>(first[20]);
    if (reserved <= kReservedMax) reserved_bytes_ = reserved;
  }
  return Status();
}

void PageFile::read_header() {
  std::string header;
  if (!db_.read(0, kHeaderBytes, header).ok() || header.size() < kHeaderBytes) return;
  if (std::memcmp(header.data(), kMagic, sizeof(kMagic)) != 0) return;
  std::size_t bytes = big_endian_16(header, 16);
  if (bytes == 1) bytes = kMaxPageBytes;
  if (valid_page_bytes(bytes)) page_bytes_ = bytes;
}

namespace {

bool looks_like_btree_page(const std::string& bytes, std::size_t page_bytes) {
  if (bytes.size() < 8 || !is_btree_page_kind(bytes[0])) return false;
  const std::size_t cells = big_endian_16(bytes, 3);
  const std::size_t content = big_endian_16(bytes, 5);
  return 12 + 2 * cells <= page_bytes && content <= page_bytes;
}

}  // namespace

// Page 1 is gone: the size at which most pages begin as those of a b-tree do. A multiple of the
// true size sees fewer of them, and with a part of it their cells lie outside of the page.
std::size_t PageFile::guess_page_bytes() {
  std::size_t best = 0;
  int best_hits = 0;
  const std::int64_t end = std::min(file_bytes_, kGuessBytes);
  for (std::size_t bytes = kMinPageBytes; bytes <= kMaxPageBytes; bytes *= 2) {
    const auto step = static_cast<std::int64_t>(bytes);
    int hits = 0;
    std::string head;
    for (std::int64_t at = step; at + step <= end; at += step)
      if (db_.read(at, bytes, head).ok() && looks_like_btree_page(head, bytes)) ++hits;
    if (hits > 0 && hits >= best_hits) {
      best_hits = hits;
      best = bytes;
    }
  }
  return best;
}

// SQLite reads frames up to the first that does not check. Each frame's checksum goes on from the
// one stored before it, so the frames behind a damaged one can still be told from garbage.
Status PageFile::read_wal(const std::string& path) {
  const Status opened = RawFile::open(path, RawFile::Part::wal, wal_);
  if (opened.code() == Code::not_found) return Status();
  if (!opened.ok()) return opened;
  std::string bytes;
  if (wal_.size() < static_cast<std::int64_t>(kWalHeaderBytes + kFrameHeaderBytes)) return Status();
  if (!wal_.read(0, kWalHeaderBytes, bytes).ok() || bytes.size() < kWalHeaderBytes) bytes.clear();
  WalHeader header = parse_wal_header(bytes);
  if (!header.readable) {
    // The first frame has the salts as well.
    std::string frame;
    if (!wal_.read(kWalHeaderBytes, kFrameHeaderBytes, frame).ok() ||
        frame.size() < kFrameHeaderBytes)
      return Status();
    header.salts = frame.substr(8, 8);
    header.big_endian = false;
    header.page_bytes = page_bytes_;
  }
  if (header.page_bytes == 0) return Status();
  if (page_bytes_ == 0) page_bytes_ = header.page_bytes;
  if (header.page_bytes != page_bytes_) return Status();
  const auto frame_bytes = static_cast<std::int64_t>(kFrameHeaderBytes + page_bytes_);
  const std::int64_t pages_max =
      (file_bytes_ + wal_.size()) / static_cast<std::int64_t>(page_bytes_) + 1;
  std::unordered_map<std::uint32_t, std::int64_t> open;  // of the transaction being read
  Checksum before = header.checksum;
  bool bad_behind = !header.readable;  // a frame that does not check, or the header
  for (std::int64_t at = kWalHeaderBytes; at + frame_bytes <= wal_.size(); at += frame_bytes) {
    std::string frame;
    const bool there = wal_.read(at, static_cast<std::size_t>(frame_bytes), frame).ok() &&
                       static_cast<std::int64_t>(frame.size()) == frame_bytes;
    if (!there) frame.assign(static_cast<std::size_t>(frame_bytes), '\0');
    Checksum sum = before;
    sum.add(frame, 0, 8, header.big_endian);
    sum.add(frame, kFrameHeaderBytes, page_bytes_, header.big_endian);
    before = stored_checksum(frame, 16);
    const std::uint32_t page = big_endian_32(frame, 0);
    if (!(sum == before) || frame.compare(8, 8, header.salts) != 0 || page == 0 ||
        page > pages_max) {
      bad_behind = true;
      continue;
    }
    open[page] = at + static_cast<std::int64_t>(kFrameHeaderBytes);
    const std::uint32_t commit = big_endian_32(frame, 4);
    if (commit == 0) continue;
    for (const auto& [number, offset] : open) in_wal_[number] = offset;
    open.clear();
    if (commit <= pages_max) pages_ = commit;
    // A bad frame with none behind it is the torn end that a power cut leaves.
    if (bad_behind) wal_damaged_ = true;
  }
  return Status();
}

bool PageFile::read(std::uint32_t page, std::string& bytes) {
  if (page == 0 || page > pages_) return false;
  const auto newer = in_wal_.find(page);
  Status status;
  if (newer != in_wal_.end())
    status = wal_.read(newer->second, page_bytes_, bytes);
  else
    status = db_.read(static_cast<std::int64_t>(page - 1) * static_cast<std::int64_t>(page_bytes_),
                      page_bytes_, bytes);
  return status.ok() && bytes.size() == page_bytes_;
}

}  // namespace holdfast
