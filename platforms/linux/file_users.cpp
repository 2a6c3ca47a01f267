// Who has a database open, and who could: for `holdfast doctor`. Nothing here opens a database file
// (see WriteWatcher in platform.hpp).
#include <dirent.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "paths.hpp"
#include "platform.hpp"
#include "small_file.hpp"

namespace holdfast::platform {
namespace {

constexpr std::size_t kFileUsersMax = 64;

struct Directory {
  explicit Directory(const std::string& path) : handle(::opendir(path.c_str())) {}
  ~Directory() {
    if (handle != nullptr) ::closedir(handle);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  // The next name that is not hidden; "" at the end.
  std::string next() {
    for (;;) {
      const dirent* const entry = handle == nullptr ? nullptr : ::readdir(handle);
      if (entry == nullptr) return {};
      if (entry->d_name[0] != '.') return entry->d_name;
    }
  }
  DIR* handle;
};

bool is_pid(const std::string& name) {
  return name.find_first_not_of("0123456789") == std::string::npos;
}

// By device and inode, for the same file may have other names (a container's, a bind mount's).
bool has_open(const std::string& pid, const struct stat& wanted, bool& permitted) {
  const std::string path = "/proc/" + pid + "/fd";
  Directory descriptors(path);
  if (descriptors.handle == nullptr) {
    permitted = errno != EACCES && errno != EPERM;
    return false;
  }
  for (std::string fd = descriptors.next(); !fd.empty(); fd = descriptors.next()) {
    struct stat facts{};
    if (::stat((path + "/" + fd).c_str(), &facts) == 0 && facts.st_dev == wanted.st_dev &&
        facts.st_ino == wanted.st_ino)
      return true;
  }
  return false;
}

struct User {
  uid_t id = 0;
  std::vector<gid_t> groups;
};

// From /etc/passwd and /etc/group themselves: getpwnam(3) loads libraries, which a static program
// should not. Service users are local.
bool find_user(const std::string& name, User& found) {
  const auto close = [](std::FILE* file) {
    if (file != nullptr) std::fclose(file);
  };
  const std::unique_ptr<std::FILE, decltype(close)> users(std::fopen("/etc/passwd", "re"), close);
  const passwd* user = nullptr;
  while (users && (user = ::fgetpwent(users.get())) != nullptr && name != user->pw_name) {
  }
  if (user == nullptr) return false;
  found.id = user->pw_uid;
  found.groups = {user->pw_gid};
  const std::unique_ptr<std::FILE, decltype(close)> groups(std::fopen("/etc/group", "re"), close);
  while (const group* const each = groups ? ::fgetgrent(groups.get()) : nullptr) {
    for (char** member = each->gr_mem; *member != nullptr; ++member)
      if (name == *member) found.groups.push_back(each->gr_gid);
  }
  return true;
}

// path_resolution(7): the first class that the user is in decides. `wanted` is rwx as in 07.
bool may(const User& user, const struct stat& facts, unsigned wanted) {
  if (user.id == 0) return true;
  unsigned bits = facts.st_mode & 07U;
  if (facts.st_uid == user.id) {
    bits = facts.st_mode >> 6 & 07U;
  } else if (std::find(user.groups.begin(), user.groups.end(), facts.st_gid) != user.groups.end()) {
    bits = facts.st_mode >> 3 & 07U;
  }
  return (bits & wanted) == wanted;
}

constexpr unsigned kReadWrite = 06;
constexpr unsigned kSearch = 01;
constexpr unsigned kMakeFiles = 07;

}  // namespace

FileUsers file_users(const std::string& path) {
  FileUsers users;
  struct stat wanted{};
  if (::stat(path.c_str(), &wanted) != 0) return users;
  Directory processes("/proc");
  const std::string self = std::to_string(::getpid());
  for (std::string pid = processes.next(); !pid.empty(); pid = processes.next()) {
    if (!is_pid(pid) || pid == self) continue;
    bool permitted = true;
    const bool open = has_open(pid, wanted, permitted);
    if (!permitted) users.complete = false;
    if (!open || users.list.size() >= kFileUsersMax) continue;
    users.list.push_back(
        {std::strtoll(pid.c_str(), nullptr, 10), read_first_line("/proc/" + pid + "/comm"),
         resolved_path("/proc/" + pid + "/exe") == resolved_path("/proc/self/exe")});
  }
  return users;
}

Status files_barred_to(const std::string& path, const std::string& user_name, bool& known,
                       std::vector<std::string>& barred) {
  known = false;
  User user;
  if (!find_user(user_name, user)) return Status();
  known = true;
  const std::string real = resolved_path(path);
  if (real.empty()) return Status::error(Code::not_found, "%s: no such file", path.c_str());
  struct stat facts{};
  const std::string folder = parent_directory(real);
  for (std::string at = parent_directory(folder); folder != "/"; at = parent_directory(at)) {
    if (::stat(at.c_str(), &facts) == 0 && !may(user, facts, kSearch)) barred.push_back(at);
    if (at == "/") break;
  }
  // SQLite makes and removes -wal and -shm there.
  if (::stat(folder.c_str(), &facts) == 0 && !may(user, facts, kMakeFiles))
    barred.push_back(folder);
  for (const char* suffix : {"", "-wal", "-shm", "-reserve"}) {
    const std::string file = real + suffix;
    if (::stat(file.c_str(), &facts) == 0 && !may(user, facts, kReadWrite)) barred.push_back(file);
  }
  return Status();
}

}  // namespace holdfast::platform
