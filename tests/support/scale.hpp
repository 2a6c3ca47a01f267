// How much a long test does, and from which seed.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace holdfast::test {

// The count, or HOLDFAST_TEST_SCALE percent of it.
inline int scaled(int count) {
  const char* const percent = std::getenv("HOLDFAST_TEST_SCALE");
  if (percent == nullptr) return count;
  const std::int64_t scaled_count = std::int64_t{count} * std::atoi(percent) / 100;
  return scaled_count < 1 ? 1 : static_cast<int>(scaled_count);
}

// Where a random test starts: HOLDFAST_TEST_SEED, as printed by a failure, or the test's own.
inline std::uint64_t seed(std::uint64_t otherwise) {
  const char* const text = std::getenv("HOLDFAST_TEST_SEED");
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace holdfast::test
