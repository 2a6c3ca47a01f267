#include "guest.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "report.hpp"
#include "workload.hpp"

namespace holdfast::power {
namespace {

constexpr int kDeviceWaitMs = 20'000;
constexpr int kDevicePollMs = 10;
constexpr const char* kDisk = "/disk";
constexpr const char* kDatabase = "/disk/app.db";

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

void mount_at(const char* source, const char* target, const char* type, unsigned long flags) {
  mkdir(target, 0755);  // it may be there
  if (mount(source, target, type, flags, nullptr) != 0) fail(std::string("mount ") + target);
}

// In the order of their names, which is the order they need each other in.
void load_modules() {
  std::vector<std::filesystem::path> modules;
  for (const auto& entry : std::filesystem::directory_iterator("/modules")) {
    modules.push_back(entry.path());
  }
  std::sort(modules.begin(), modules.end());
  for (const auto& path : modules) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) != 0) fail(path);
    close(fd);
  }
}

std::string parameter(const std::string& name, const std::string& fallback) {
  std::ifstream file("/proc/cmdline");
  const std::string key = "power." + name + "=";
  for (std::string word; file >> word;) {
    if (word.compare(0, key.size(), key) == 0) return word.substr(key.size());
  }
  return fallback;
}

// Its name appears before it can be opened: ENXIO, seen with an SD card.
void wait_for(const std::string& device) {
  int fd = -1;
  for (int waited = 0; (fd = open(device.c_str(), O_RDONLY | O_CLOEXEC)) < 0;
       waited += kDevicePollMs) {
    if (waited > kDeviceWaitMs) fail(device);
    usleep(kDevicePollMs * 1000);
  }
  close(fd);
}

// The shipped program opens the database as well: "command stats 0" is its exit status.
void run_holdfast(const char* command) {
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execl("/holdfast", "holdfast", command, kDatabase, nullptr);
    _exit(127);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) fail("waitpid");
  say("command %s %d", command, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

void serve() {
  mount_at("proc", "/proc", "proc", 0);
  mount_at("sys", "/sys", "sysfs", 0);
  mount_at("dev", "/dev", "devtmpfs", 0);
  load_modules();
  const std::string device = parameter("device", "/dev/vda");
  wait_for(device);
  mount_at(device.c_str(), kDisk, "ext4", MS_NOATIME);
  say("booted");
  Workload workload;
  workload.database = kDatabase;
  workload.seed = std::stoull(parameter("seed", "1"));
  workload.relaxed = parameter("relaxed", "0") == "1";
  const Verdict verdict = judge(workload.database, workload.seed);
  say_verdict(verdict);
  if (verdict.rows >= 0) {
    for (const char* command : {"ls", "stats", "doctor"}) run_holdfast(command);
  }
  say("ready");
  write(workload, [](std::int64_t number) { say_acked(number); });
}

}  // namespace

void run_guest() {
  try {
    serve();
  } catch (const std::exception& error) {
    say("failed %s", error.what());
  }
  sync();
  reboot(RB_POWER_OFF);
  for (;;) pause();  // a board that cannot switch itself off
}

}  // namespace holdfast::power
