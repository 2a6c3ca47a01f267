// Identifies a process so that another one can tell whether it still runs. A pid alone is reused;
// pid and start time together are not, within one boot and one pid namespace.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "holdfast/clock.hpp"
#include "platform.hpp"
#include "small_file.hpp"

namespace holdfast::platform {
namespace {

// What /proc/<pid>/stat tells (proc(5)).
struct ProcStat {
  char state = '?';
  std::int64_t threads = 0;
  std::int64_t start_ticks = 0;
};

// Field 2 is the program's name in parentheses, and the name may hold blanks and parentheses
// itself: the fields after it start behind the last ')'.
bool parse_stat(const std::string& text, ProcStat& stat) {
  constexpr int kStateField = 3;
  constexpr int kThreadsField = 20;
  constexpr int kStartField = 22;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::size_t at = name_end + 1;
  for (int field = kStateField; field <= kStartField; ++field) {
    at = text.find_first_not_of(' ', at);
    if (at == std::string::npos) return false;
    const std::size_t end = text.find_first_of(" \n", at);
    const std::string value = text.substr(at, end == std::string::npos ? end : end - at);
    if (field == kStateField) stat.state = value[0];
    if (field == kThreadsField) stat.threads = std::strtoll(value.c_str(), nullptr, 10);
    if (field == kStartField) stat.start_ticks = std::strtoll(value.c_str(), nullptr, 10);
    at = end == std::string::npos ? text.size() : end;
  }
  return stat.start_ticks > 0;
}

// By way of the main thread's file, which says the same as /proc/<pid>/stat: of that, the emulator
// qemu-user shows its program one of its own making, with another start time than others see.
bool read_stat(std::int64_t process, ProcStat& stat) {
  const std::string pid = std::to_string(process);
  std::string text;
  return read_small_file("/proc/" + pid + "/task/" + pid + "/stat", 4096, text) &&
         parse_stat(text, stat);
}

// The inode number of the pid namespace, 0 if the kernel does not tell.
std::uint64_t pid_namespace() {
  struct stat info{};
  if (::stat("/proc/self/ns/pid", &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.st_ino);
}

struct Token {
  std::uint64_t name_space = 0;
  std::int64_t pid = 0;
  std::int64_t start_ticks = 0;
  std::string boot_id;
};

// Reads decimal digits up to `end`; false if there are none, too many, or anything else.
bool take_number(const std::string& text, std::size_t& at, char end, std::uint64_t& value) {
  const std::size_t stop = text.find(end, at);
  if (stop == std::string::npos || stop == at || stop - at > 19) return false;
  value = 0;
  for (; at < stop; ++at) {
    if (text[at] < '0' || text[at] > '9') return false;
    value = value * 10 + static_cast<std::uint64_t>(text[at] - '0');
  }
  ++at;
  return true;
}

bool parse_token(const std::string& text, Token& token) {
  std::size_t at = 0;
  std::uint64_t pid = 0;
  std::uint64_t start = 0;
  if (!take_number(text, at, ':', token.name_space) || !take_number(text, at, ':', pid) ||
      !take_number(text, at, ':', start)) {
    return false;
  }
  if (pid == 0 || pid > INT32_MAX || start == 0) return false;
  token.pid = static_cast<std::int64_t>(pid);
  token.start_ticks = static_cast<std::int64_t>(start);
  token.boot_id = text.substr(at);
  return !token.boot_id.empty();
}

// A zombie whose threads are all gone runs nothing any more. The main thread of a living process
// looks like one if it ended before the others.
bool runs(const ProcStat& stat) {
  const bool ended = stat.state == 'Z' || stat.state == 'X' || stat.state == 'x';
  return !ended || stat.threads > 1;
}

}  // namespace

std::string process_token() {
  ProcStat stat;
  read_stat(getpid(), stat);  // start time 0 if it failed: others then cannot tell
  return std::to_string(pid_namespace()) + ":" + std::to_string(getpid()) + ":" +
         std::to_string(stat.start_ticks) + ":" + system_clock().boot_id();
}

ProcessLife process_life(const std::string& text) {
  Token token;
  if (!parse_token(text, token)) return ProcessLife::cannot_tell;
  if (token.name_space == 0 || token.name_space != pid_namespace()) return ProcessLife::cannot_tell;
  if (token.boot_id != system_clock().boot_id()) return ProcessLife::cannot_tell;
  ProcStat stat;
  if (!read_stat(token.pid, stat)) {
    // /proc may be mounted with hidepid, which hides other users' processes: only kill(2) knows.
    const bool no_such = ::kill(static_cast<pid_t>(token.pid), 0) != 0 && errno == ESRCH;
    return no_such ? ProcessLife::gone : ProcessLife::cannot_tell;
  }
  const bool same = stat.start_ticks == token.start_ticks;
  return same && runs(stat) ? ProcessLife::alive : ProcessLife::gone;
}

}  // namespace holdfast::platform
