// Choices of a random test, the same for the same seed.
#pragma once

#include <cstdint>
#include <random>

#include "holdfast/event.hpp"

namespace holdfast::test {

class Seeded {
 public:
  explicit Seeded(std::uint64_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  bool percent(int n) { return below(100) < n; }
  EventId id() {
    EventId id;
    for (auto& byte : id.bytes) byte = static_cast<std::uint8_t>(below(256));
    return id;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace holdfast::test
