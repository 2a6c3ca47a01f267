// A temporary directory in memory, where there is /dev/shm: for tests of times that a disk which
// stands still for seconds would spoil.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace holdfast::test {

class MemoryDirectory {
 public:
  MemoryDirectory() {
    path_ = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/holdfast-test-XXXXXX"
                                            : "/tmp/holdfast-test-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
  }
  ~MemoryDirectory() {
    std::error_code gone;
    std::filesystem::remove_all(path_, gone);
  }
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace holdfast::test
