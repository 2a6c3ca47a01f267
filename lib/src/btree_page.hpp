// One page of a b-tree and the records on it, each read by itself, so that damage costs what lies
// on the damaged bytes and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "page_file.hpp"

namespace holdfast {

// A value as it is stored.
struct StoredValue {
  enum class Type { null, integer, real, text, blob };
  Type type = Type::null;
  std::int64_t integer = 0;
  double real = 0;
  std::string bytes;
};

struct StoredRecord {
  std::int64_t rowid = 0;  // of a table's leaf; else 0
  std::vector<StoredValue> values;
};

class BtreePage {
 public:
  static constexpr std::size_t kRecordBytesMax = 2 * 1024 * 1024;  // larger ones are not ours
  static constexpr std::size_t kRecordValuesMax = 64;

  // False if it cannot be read or is no b-tree page.
  bool load(PageFile& file, std::uint32_t page);

  bool of_table() const { return kind_ == kTableLeaf || kind_ == kTableInner; }
  bool leaf() const { return kind_ == kTableLeaf || kind_ == kIndexLeaf; }
  // Pages below this one; 0 where a cell cannot be read.
  std::vector<std::uint32_t> children() const;
  // Every record that is whole. Returns how many were not.
  int records(const std::function<void(StoredRecord&&)>& fn);

 private:
  std::size_t cell(int index) const;  // 0: outside of the page
  bool record(std::size_t at, StoredRecord& out) const;
  bool payload(std::size_t at, std::uint64_t size, std::string& out) const;

  PageFile* file_ = nullptr;
  std::string bytes_;
  std::size_t head_ = 0, pointers_ = 0, end_ = 0;
  int kind_ = 0, cells_ = 0;
};

}  // namespace holdfast
