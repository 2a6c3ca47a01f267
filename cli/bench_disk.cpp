// Where `holdfast bench` works, what that disk can do, and what was written to it.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "bench.hpp"
#include "platform.hpp"
#include "small_file.hpp"

namespace holdfast::cli::bench {
namespace {

constexpr int kSyncRounds = 100;  // 4 KiB each; seconds on a slow SD card
constexpr std::size_t kProcFileBytesMax = 4096;

std::int64_t field(const std::string& text, const char* name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? 0 : ::strtoll(text.c_str() + at + ::strlen(name), nullptr, 10);
}

}  // namespace

Status Scratch::create(const std::string& parent) {
  // Absolute, for the address of a socket in it is refused otherwise.
  const std::unique_ptr<char, void (*)(void*)> absolute(::realpath(parent.c_str(), nullptr),
                                                        ::free);
  std::string path = (absolute ? absolute.get() : parent) + "/holdfast-bench-XXXXXX";
  if (!absolute || ::mkdtemp(path.data()) == nullptr) {
    return Status::error(Code::io, "cannot make a directory in %s: %s", parent.c_str(),
                         ::strerror(errno));
  }
  path_ = path;
  return {};
}

void Scratch::empty() const {
  DIR* directory = path_.empty() ? nullptr : ::opendir(path_.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_type != DT_DIR) ::unlink(file(entry->d_name).c_str());
  }
  ::closedir(directory);
}

Scratch::~Scratch() {
  if (path_.empty()) return;
  empty();
  ::rmdir(path_.c_str());
}

double now_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

Status sync_limit(const Bench& bench, double& per_second) {
  std::vector<std::int64_t> us;
  const Status status = platform::probe_sync(bench.scratch.file("limit"), kSyncRounds, us);
  if (!status.ok()) return status;
  const auto sum = std::accumulate(us.begin(), us.end(), std::int64_t{1});
  per_second = kSyncRounds * 1e6 / static_cast<double>(sum);
  return status;
}

Written written() {
  std::string text;
  if (!platform::read_small_file("/proc/self/io", kProcFileBytesMax, text)) return {};
  return {field(text, "wchar: "), field(text, "\nwrite_bytes: ")};
}

double percentile(std::vector<double>& values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

}  // namespace holdfast::cli::bench
