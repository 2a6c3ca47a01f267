// Notices writes to a write-ahead log with inotify(7).
//
// SQLite deletes the -wal file when the last connection closes and makes a new one later. While
// there is none, the directory is watched for its creation; while there is one, only the file is,
// so that other files in a busy directory wake nobody.
#include <limits.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "errno_status.hpp"
#include "paths.hpp"
#include "platform.hpp"
#include "poll_until.hpp"

namespace holdfast::platform {
namespace {

// IN_ATTRIB tells of an unlink while someone still has the file open, for IN_DELETE_SELF comes only
// after the last close; but also of the chown(2) that SQLite makes at each open as root, which is
// no write.
constexpr std::uint32_t kFileEvents = IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr std::uint32_t kFileGone =
    IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT;
constexpr int kReadsPerWait = 16;
constexpr std::uint32_t kDirectoryEvents = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;

// SQLite follows symbolic links before it names the -wal file, so this must, too.
std::string resolved_database(const std::string& path) {
  const std::string whole = resolved_path(path);
  if (!whole.empty()) return whole;
  const std::string parent = resolved_path(parent_directory(path));
  if (parent.empty()) return {};
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  return parent == "/" ? parent + name : parent + "/" + name;
}

}  // namespace

struct WriteWatcher::Impl {
  int fd = -1;
  int file_watch = -1;       // on the -wal file, or -1
  int directory_watch = -1;  // on its directory while there is no file, or -1
  std::string directory;
  std::string name;  // of the -wal file within the directory
  std::string path;

  ~Impl() {
    if (fd >= 0) ::close(fd);
  }

  // Watches the file if it is there, its directory if not. The directory comes first, so that a
  // file made in between is not missed.
  int arm();
  void unwatch(int& watch) {
    if (watch >= 0) inotify_rm_watch(fd, watch);
    watch = -1;
  }
  void drain(bool& written);
  void handle(const inotify_event& event, const char* event_name, bool& written, bool& stale);
};

int WriteWatcher::Impl::arm() {
  for (int round = 0; round < 2; ++round) {
    // For a file that is watched already this returns the same number again.
    const int watch = inotify_add_watch(fd, path.c_str(), kFileEvents);
    if (watch >= 0) {
      if (file_watch >= 0 && file_watch != watch) inotify_rm_watch(fd, file_watch);
      file_watch = watch;
      unwatch(directory_watch);
      return 0;
    }
    if (errno != ENOENT) return errno;
    unwatch(file_watch);
    if (directory_watch < 0) {
      directory_watch = inotify_add_watch(fd, directory.c_str(), kDirectoryEvents);
      if (directory_watch < 0) return errno;
    }
  }
  return 0;
}

void WriteWatcher::Impl::handle(const inotify_event& event, const char* event_name, bool& written,
                                bool& stale) {
  if ((event.mask & IN_Q_OVERFLOW) != 0) {
    written = stale = true;
    return;
  }
  if (event.wd == file_watch) {
    if ((event.mask & ~IN_ATTRIB) != 0) written = true;
    if ((event.mask & kFileGone) != 0) stale = true;
    if ((event.mask & IN_IGNORED) != 0) file_watch = -1;
    return;
  }
  if (event.wd == directory_watch) {
    if ((event.mask & IN_IGNORED) != 0) {
      directory_watch = -1;
      stale = true;
    } else if (event.len > 0 && name == event_name) {
      written = stale = true;
    }
  }
}

void WriteWatcher::Impl::drain(bool& written) {
  alignas(inotify_event) char buffer[16 * (sizeof(inotify_event) + NAME_MAX + 1)];
  bool stale = false;
  // Not for ever, if someone writes flat out: the rest is there at the next wait.
  for (int round = 0; round < kReadsPerWait; ++round) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    for (std::size_t at = 0; at < static_cast<std::size_t>(n);) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof event);
      handle(event, buffer + at + sizeof event, written, stale);
      at += sizeof event + event.len;
    }
  }
  if (!stale) return;
  const int before = file_watch;
  // If this fails (the directory is gone, or the limit of watches is reached), nothing will wake
  // the owner any more but its own slow poll, which is there for such cases.
  arm();
  if (file_watch != before) written = true;
}

WriteWatcher::WriteWatcher() : impl_(std::make_unique<Impl>()) {}
WriteWatcher::~WriteWatcher() = default;

Status WriteWatcher::open(const std::string& database) {
  impl_ = std::make_unique<Impl>();
  const std::string real = resolved_database(database);
  if (real.empty()) return errno_status(errno, "watch", database);
  impl_->path = real + "-wal";
  impl_->directory = parent_directory(impl_->path);
  impl_->name = impl_->path.substr(impl_->path.rfind('/') + 1);
  impl_->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (impl_->fd < 0) return errno_status(errno, "start inotify for", database);
  const int error = impl_->arm();
  if (error == 0) return {};
  impl_ = std::make_unique<Impl>();
  return errno_status(error, "watch", database);
}

WriteWatcher::Woken WriteWatcher::wait(Waker& waker, std::int64_t timeout_ms) {
  const std::int64_t deadline = deadline_after(timeout_ms);
  Woken woken;
  for (;;) {
    // A negative descriptor is ignored by poll(2).
    pollfd waited[2] = {{waker.descriptor(), POLLIN, 0}, {impl_->fd, POLLIN, 0}};
    if (waited[0].fd < 0 && waited[1].fd < 0 && deadline == kNoDeadline) return woken;
    if (poll_until(waited, 2, deadline) == 0) return woken;
    if (waited[0].revents != 0) woken.by_waker = waker.wait(0);
    if (waited[1].revents != 0) impl_->drain(woken.by_write);
    if (woken.by_waker || woken.by_write) return woken;
    // Only files that are none of ours changed: wait on.
  }
}

}  // namespace holdfast::platform
