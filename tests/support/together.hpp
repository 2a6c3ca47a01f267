// Several threads in Writer::run() whose work is surely one group.
#pragma once

#include <thread>
#include <vector>

#include "holdfast/writer.hpp"

namespace holdfast::test {

// The leader waits until so many have come.
inline WriterOptions groups_of(std::size_t members) {
  WriterOptions options;
  options.members_max = static_cast<int>(members);
  options.wait_us = members > 1 ? kMaxGroupWaitUs : 0;
  return options;
}

// Each on a thread of its own; what each was told. The writer is one of groups_of(works.size()).
inline std::vector<Status> run_together(Writer& writer, const std::vector<Writer::Work>& works) {
  std::vector<Status> told(works.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < works.size(); ++i)
    threads.emplace_back([&, i] { told[i] = writer.run(works[i]); });
  for (std::thread& each : threads) each.join();
  return told;
}

}  // namespace holdfast::test
