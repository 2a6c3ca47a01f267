// What a device writes while its power is cut, and what must be there afterwards. Every byte
// follows from the seed and the number of the transaction, so that the judge knows what each row
// must hold.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace holdfast::power {

struct Workload {
  std::string database;
  std::uint64_t seed = 1;
  std::int64_t count = INT64_MAX;  // transactions of this run
  int checkpoint_frames = 0;       // 0: the product's own
  bool relaxed = false;            // the control: synchronous NORMAL, which may lose the newest
};

// Nothing is promised yet; 0: the database and its tables are promised; N: transactions 1…N are.
constexpr std::int64_t kNothing = -1;

// Creates the database if need be and goes on where it ends: a business row and its event in one
// transaction each, through the library. `acknowledge` is called once COMMIT returned. Throws.
void write(const Workload& workload, const std::function<void(std::int64_t)>& acknowledge);

struct Verdict {
  std::int64_t rows = kNothing;  // transactions found: 1…rows, each whole
  std::string problem;           // "" or what no legal history can leave
};

// Opens what a cut left, recovering it as a restarted device would.
Verdict judge(const std::string& database, std::uint64_t seed);

}  // namespace holdfast::power
