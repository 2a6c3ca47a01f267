// The formats are those of https://sqlite.org/fileformat.html, sections 1.6 and 2.1.
#include "btree_page.hpp"

#include <algorithm>
#include <cstring>

namespace holdfast {

namespace {

constexpr std::size_t kFileHeaderBytes = 100;  // page 1 begins with it

// Up to 9 bytes, the last with 8 bits. False past the end.
bool read_varint(const std::string& bytes, std::size_t& at, std::size_t end, std::uint64_t& value) {
  value = 0;
  for (int i = 0; i < 9; ++i) {
    if (at >= end) return false;
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    if (i == 8) {
      value = value << 8 | byte;
      return true;
    }
    value = value << 7 | (byte & 0x7f);
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

std::int64_t read_integer(const std::string& bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = (static_cast<unsigned char>(bytes[at]) & 0x80) != 0 ? ~0ULL : 0;
  for (std::size_t i = 0; i < count; ++i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return static_cast<std::int64_t>(value);
}

// Bytes of a value with this serial type; false for the reserved ones.
bool value_bytes(std::uint64_t type, std::uint64_t& bytes) {
  constexpr std::uint64_t kFixed[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};
  if (type == 10 || type == 11) return false;
  bytes = type < 10 ? kFixed[type] : (type - 12) / 2;
  return true;
}

StoredValue read_value(std::uint64_t type, const std::string& bytes, std::size_t at,
                       std::size_t count) {
  using Type = StoredValue::Type;
  StoredValue value;
  if (type == 0) return value;
  if (type == 7) {
    const std::int64_t bits = read_integer(bytes, at, 8);
    value.type = Type::real;
    std::memcpy(&value.real, &bits, sizeof value.real);
  } else if (type < 10) {
    value.type = Type::integer;
    value.integer =
        type >= 8 ? static_cast<std::int64_t>(type - 8) : read_integer(bytes, at, count);
  } else {
    value.type = type % 2 == 0 ? Type::blob : Type::text;
    value.bytes = bytes.substr(at, count);
  }
  return value;
}

// A record's header says exactly how long the record is, which shows most damage.
bool parse_record(const std::string& bytes, std::vector<StoredValue>& values) {
  std::size_t at = 0;
  std::uint64_t header = 0;
  if (!read_varint(bytes, at, bytes.size(), header) || header > bytes.size()) return false;
  std::vector<std::uint64_t> types;
  std::uint64_t total = header;
  while (at < header) {
    std::uint64_t type = 0, size = 0;
    if (!read_varint(bytes, at, header, type) || !value_bytes(type, size)) return false;
    types.push_back(type);
    total += size;
    if (types.size() > BtreePage::kRecordValuesMax || total > bytes.size()) return false;
  }
  if (total != bytes.size()) return false;
  for (const std::uint64_t type : types) {
    std::uint64_t size = 0;
    if (!value_bytes(type, size)) return false;
    values.push_back(read_value(type, bytes, at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  return true;
}

}  // namespace

bool BtreePage::load(PageFile& file, std::uint32_t page) {
  file_ = &file;
  if (!file.read(page, bytes_)) return false;
  head_ = page == 1 ? kFileHeaderBytes : 0;
  end_ = file.usable_bytes();
  kind_ = static_cast<unsigned char>(bytes_[head_]);
  if (!is_btree_page_kind(kind_)) return false;
  cells_ = static_cast<int>(big_endian_16(bytes_, head_ + 3));
  pointers_ = head_ + (leaf() ? 8 : 12);
  return pointers_ + 2 * static_cast<std::size_t>(cells_) <= end_;
}

std::size_t BtreePage::cell(int index) const {
  const std::size_t at = big_endian_16(bytes_, pointers_ + 2 * static_cast<std::size_t>(index));
  const std::size_t first = pointers_ + 2 * static_cast<std::size_t>(cells_);
  return at >= first && at + 4 <= end_ ? at : 0;
}

std::vector<std::uint32_t> BtreePage::children() const {
  std::vector<std::uint32_t> pages;
  if (leaf()) return pages;
  for (int i = 0; i < cells_; ++i)
    pages.push_back(cell(i) == 0 ? 0 : big_endian_32(bytes_, cell(i)));
  pages.push_back(big_endian_32(bytes_, head_ + 8));
  return pages;
}

int BtreePage::records(const std::function<void(StoredRecord&&)>& fn) {
  if (kind_ == kTableInner) return 0;
  int bad = 0;
  std::int64_t before = INT64_MIN;
  for (int i = 0; i < cells_; ++i) {
    StoredRecord found;
    const std::size_t at = cell(i);
    // Rowids rise; one that does not is damaged.
    const bool whole =
        at != 0 && record(at, found) && (kind_ != kTableLeaf || i == 0 || found.rowid > before);
    if (!whole) {
      ++bad;
      continue;
    }
    before = found.rowid;
    fn(std::move(found));
  }
  return bad;
}

bool BtreePage::record(std::size_t at, StoredRecord& out) const {
  std::uint64_t size = 0, rowid = 0;
  if (kind_ == kIndexInner) at += 4;
  if (!read_varint(bytes_, at, end_, size) || size > kRecordBytesMax) return false;
  if (kind_ == kTableLeaf && !read_varint(bytes_, at, end_, rowid)) return false;
  out.rowid = static_cast<std::int64_t>(rowid);
  std::string whole;
  return payload(at, size, whole) && parse_record(whole, out.values);
}

// What lies on the page itself, and the chain of overflow pages behind it.
bool BtreePage::payload(std::size_t at, std::uint64_t size, std::string& out) const {
  const std::uint64_t usable = end_;
  const std::uint64_t most = kind_ == kTableLeaf ? usable - 35 : (usable - 12) * 64 / 255 - 23;
  std::uint64_t local = size;
  if (size > most) {
    const std::uint64_t least = (usable - 12) * 32 / 255 - 23;
    const std::uint64_t fits = least + (size - least) % (usable - 4);
    local = fits <= most ? fits : least;
  }
  if (at + local + (size > local ? 4 : 0) > end_) return false;
  out = bytes_.substr(at, static_cast<std::size_t>(local));
  if (size == local) return true;
  std::uint32_t next = big_endian_32(bytes_, at + static_cast<std::size_t>(local));
  std::string page;
  while (out.size() < size) {
    if (!file_->read(next, page)) return false;
    next = big_endian_32(page, 0);
    out.append(page, 4,
               std::min<std::size_t>(static_cast<std::size_t>(size) - out.size(),
                                     static_cast<std::size_t>(usable) - 4));
  }
  return next == 0;
}

}  // namespace holdfast
