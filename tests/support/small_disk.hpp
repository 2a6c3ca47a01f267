// A file system of a given size (tmpfs), mounted in a new directory for its lifetime; needs root.
#pragma once

#include <cstdint>
#include <string>

#include "support/process.hpp"

namespace holdfast::test {

class SmallDisk {
 public:
  // Whether this process may mount. Says that the case is skipped if not.
  static bool possible();

  explicit SmallDisk(std::int64_t bytes);  // throws if it cannot be mounted
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  std::string file(const std::string& name) const { return directory_.file("disk/" + name); }
  // A foreign file takes what is free, to the last byte; returns its size.
  std::int64_t fill();
  void remove_foreign();
  void resize(std::int64_t bytes);  // room comes back, with everything as it is

 private:
  TemporaryDirectory directory_;
};

}  // namespace holdfast::test
