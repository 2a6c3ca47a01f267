// What SQLite does for a call, in numbers that are the same each time: steps of its virtual
// machine, and pages asked for. Counts every connection that is opened while an SqlCost exists.
#pragma once

#include <cstdint>
#include <functional>

namespace holdfast::test {

struct Cost {
  std::int64_t steps = 0;  // of SQLite's virtual machine, triggers included
  std::int64_t pages = 0;  // asked of the page cache, whether it had them or not
  std::int64_t reads = 0;  // of those: it did not, and they were read from the file
};

class SqlCost {
 public:
  SqlCost();
  ~SqlCost();
  SqlCost(const SqlCost&) = delete;
  SqlCost& operator=(const SqlCost&) = delete;

  Cost of(const std::function<void()>& call);
};

}  // namespace holdfast::test
