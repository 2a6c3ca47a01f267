// What the tests know about memory: how much a piece of code holds at most, and what it does when
// there is none. Replaces the program's operator new; counts for each thread on its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast::test {

// The most that was allocated at once, since the meter was made, on top of what was there then.
class AllocationMeter {
 public:
  AllocationMeter();
  std::size_t peak_bytes() const;

 private:
  std::int64_t start_;
};

// While it lives, the n-th allocation from its making (counted from 0), and every later one, throws
// std::bad_alloc.
class AllocationFailure {
 public:
  explicit AllocationFailure(std::int64_t nth);
  ~AllocationFailure();
  AllocationFailure(const AllocationFailure&) = delete;
  AllocationFailure& operator=(const AllocationFailure&) = delete;
  bool happened() const;
};

}  // namespace holdfast::test
