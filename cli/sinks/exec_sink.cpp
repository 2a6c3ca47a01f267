#include "exec_sink.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "holdfast/clock.hpp"
#include "json.hpp"

extern char** environ;

namespace holdfast::cli {
namespace {

constexpr std::int64_t kExecTimeoutMs = 60'000;  // of a command, for one batch; then it is killed
constexpr std::int64_t kLookMs = 20;             // for its end, and for stop()
constexpr std::size_t kLineBytesMax = 1024;      // of what it says on stderr; longer ones are cut

struct Pipe {
  int read = -1;
  int write = -1;
  ~Pipe() {
    close_read();
    close_write();
  }
  bool open() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return false;
    read = fds[0];
    write = fds[1];
    return true;
  }
  void close_read() { close_one(read); }
  void close_write() { close_one(write); }

 private:
  static void close_one(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

// In a process group of its own, with the signals of a fresh program; what it prints is said on
// stderr, for standard output may be that of --print.
int start(const std::string& command, const Pipe& input, const Pipe& said, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, input.read, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, said.write, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, said.write, STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string shell = "/bin/sh";
  std::string option = "-c";
  std::string text = command;
  char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  const int error = ::posix_spawn(&pid, shell.c_str(), &files, &attributes, arguments, environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return error;
}

// The lines a command says: each to the log, the last one kept.
class Said {
 public:
  explicit Said(const LogFunction& log) : log_(log) {}
  void take(std::string_view bytes) {
    for (const char c : bytes) {
      if (c == '\n') {
        end_line();
      } else if (line_.size() < kLineBytesMax) {
        line_ += c;
      }
    }
  }
  void end_line() {
    if (line_.empty()) return;
    if (log_) log_(LogLevel::info, line_);
    last_ = std::move(line_);
    line_.clear();
  }
  const std::string& last() const { return last_; }

 private:
  const LogFunction& log_;
  std::string line_;
  std::string last_;
};

// Reads what is there. False at the end.
bool read_some(int fd, Said& said) {
  char bytes[4096];
  const ssize_t n = ::read(fd, bytes, sizeof bytes);
  if (n > 0) said.take({bytes, static_cast<std::size_t>(n)});
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

Status ExecSink::open(SinkUrl url, LogFunction log, std::unique_ptr<StoppableSink>& out) {
  if (url.rest.empty()) {
    return Status::error(Code::invalid, "sink %s: exec: is followed by a command",
                         url.name.c_str());
  }
  out.reset(new ExecSink(std::move(url), std::move(log)));
  return {};
}

Status ExecSink::deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) {
  Refusals refusals;
  return offer(events, 0, events.size(), refusals, outcomes);
}

// From left to right, so that what waits for a refused event is known when its turn comes.
Status ExecSink::offer(const std::vector<EventRecord>& events, std::size_t from, std::size_t to,
                       Refusals& refusals, std::vector<Outcome>& outcomes) {
  std::string input;
  for (std::size_t i = from; i < to; ++i) {
    if (!refusals.holds(events[i], outcomes[i])) input += event_line(events[i]) + "\n";
  }
  if (input.empty()) return {};
  bool bad = false;
  std::string last_words;
  Status status = run(input, bad, last_words);
  if (!status.ok() || !bad) return status;
  if (to - from == 1) {
    refusals.refuse(events[from], Outcome::Kind::rejected, last_words, outcomes[from]);
    return {};
  }
  const std::size_t middle = from + (to - from) / 2;
  status = offer(events, from, middle, refusals, outcomes);
  return status.ok() ? offer(events, middle, to, refusals, outcomes) : status;
}

Status ExecSink::run(std::string_view input, bool& bad, std::string& last_words) {
  if (stopping()) return Status::error(Code::unavailable, "stopping");
  Pipe in;
  Pipe out;
  pid_t pid = 0;
  if (!in.open() || !out.open()) return Status::native_error(Code::io, errno, "pipe failed");
  const int error = start(url_.rest, in, out, pid);
  if (error != 0) {
    return Status::native_error(Code::unavailable, error, "/bin/sh: %s", ::strerror(error));
  }
  in.close_read();
  out.close_write();
  ::fcntl(in.write, F_SETFL, O_NONBLOCK);
  ::fcntl(out.read, F_SETFL, O_NONBLOCK);

  const Clock& clock = system_clock();
  std::int64_t until = clock.boot_ms() + kExecTimeoutMs;
  bool stop_seen = false;
  bool killed = false;
  Said said(log_);
  int exit_status = 0;
  std::string_view left = input;
  for (pid_t done = 0; done == 0;) {
    if (left.empty()) in.close_write();
    pollfd polls[] = {{out.read, POLLIN, 0}, {in.write, POLLOUT, 0}};
    ::poll(polls, 2, out.read < 0 ? 1 : static_cast<int>(kLookMs));
    if (polls[0].revents != 0 && !read_some(out.read, said)) out.close_read();
    if (polls[1].revents != 0) {
      const ssize_t n = ::write(in.write, left.data(), left.size());
      if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
      if (n < 0 && errno == EPIPE) in.close_write();  // it may know all it wants to
    }
    done = ::waitpid(pid, &exit_status, WNOHANG);
    if (done < 0) return Status::native_error(Code::io, errno, "waitpid failed");
    if (stopping() && !stop_seen) {
      stop_seen = true;
      until = std::min(until, clock.boot_ms() + kSinkStopMs / 2);
    }
    if (done == 0 && !killed && clock.boot_ms() >= until) {
      ::kill(-pid, SIGKILL);
      killed = true;
    }
  }
  do errno = 0;
  while (out.read >= 0 && read_some(out.read, said) && errno != EAGAIN);
  said.end_line();
  last_words = said.last().empty() ? "the command exited 65" : said.last();
  if (killed) {
    return Status::error(Code::unavailable, stop_seen ? "stopping" : "no end within %d s; killed",
                         static_cast<int>(kExecTimeoutMs / 1000));
  }
  if (WIFSIGNALED(exit_status)) {
    return Status::error(Code::unavailable, "the command died of signal %d", WTERMSIG(exit_status));
  }
  bad = WEXITSTATUS(exit_status) == EX_DATAERR;
  if (bad || WEXITSTATUS(exit_status) == 0) return {};
  return Status::error(Code::unavailable, "the command exited %d: %s", WEXITSTATUS(exit_status),
                       said.last().c_str());
}

Status ExecSink::check() { return {}; }

Status ExecSink::init(bool, std::string&) {
  return Status::error(Code::invalid, "sink %s: there is nothing to make for a command",
                       url_.name.c_str());
}

}  // namespace holdfast::cli
