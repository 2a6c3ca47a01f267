#include "support/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace holdfast::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kReapPollMs = 2;

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + ::strerror(errno));
}

void close_if_open(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

void make_pipe(int& read_end, int& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
  read_end = ends[0];
  write_end = ends[1];
}

void make_terminal(int& master, int& slave) {
  master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0) fail("posix_openpt");
  char name[128];
  if (::grantpt(master) != 0 || ::unlockpt(master) != 0 ||
      ::ptsname_r(master, name, sizeof name) != 0) {
    fail("ptsname_r");
  }
  slave = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) fail("open of the pseudo terminal");
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = ::getenv("PATH");
  std::string folders = path != nullptr ? path : "/usr/bin:/bin";
  for (std::size_t start = 0; start <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', start), folders.size());
    const std::string candidate = folders.substr(start, end - start) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    start = end + 1;
  }
  return name;
}

std::vector<std::string> make_environment(const SpawnOptions& options) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const std::string& name : options.unset_env) variables.erase(name);
  for (const auto& [name, value] : options.env) variables[name] = value;
  std::vector<std::string> out;
  out.reserve(variables.size());
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

struct Process::Impl {
  pid_t pid = -1;
  int in = -1;   // our write end of its stdin
  int out = -1;  // our read end of its stdout
  int err = -1;  // our read end of its stderr
  int wake_read = -1;
  int wake_write = -1;
  bool raw_stdout = false;
  std::thread reader;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::string out_text, err_text;  // under mutex
  bool out_open = false, err_open = false, close_out = false;
  bool reaped = false;
  ExitStatus status;

  ~Impl() {
    if (pid > 0 && !reaped) {
      ::kill(pid, SIGKILL);
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    close_if_open(in);
    close_if_open(wake_write);  // ends the reader
    if (reader.joinable()) reader.join();
    close_if_open(out);
    close_if_open(err);
    close_if_open(wake_read);
  }

  // Returns false at the end of the stream.
  bool take(int fd, std::string& text) {
    char buffer[16 * 1024];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0) return errno == EINTR || errno == EAGAIN;  // EIO: a pseudo terminal's end
    if (n == 0) return false;
    const std::lock_guard<std::mutex> lock(mutex);
    text.append(buffer, static_cast<std::size_t>(n));
    changed.notify_all();
    return true;
  }

  void read_all() {
    while (true) {
      pollfd polls[3] = {{wake_read, POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (close_out && out >= 0) {
          close_if_open(out);
          out_open = false;
          changed.notify_all();
        }
        if (out_open) polls[1].fd = out;
        if (err_open) polls[2].fd = err;
        if (!out_open && !err_open) return;
      }
      if (::poll(polls, 3, -1) < 0 && errno != EINTR) return;
      if (polls[0].revents & (POLLHUP | POLLERR)) return;
      if (polls[0].revents & POLLIN) {
        char byte;
        if (::read(wake_read, &byte, 1) == 0) return;
      }
      if (polls[1].fd >= 0 && polls[1].revents != 0 && !take(out, out_text)) ended(out_open);
      if (polls[2].fd >= 0 && polls[2].revents != 0 && !take(err, err_text)) ended(err_open);
    }
  }

  void ended(bool& open) {
    const std::lock_guard<std::mutex> lock(mutex);
    open = false;
    changed.notify_all();
  }

  // Takes the exit status if the process has ended.
  bool reap() {
    if (reaped) return true;
    int raw = 0;
    const pid_t got = ::waitpid(pid, &raw, WNOHANG);
    if (got != pid) return false;
    reaped = true;
    if (WIFEXITED(raw)) {
      status.exited = true;
      status.code = WEXITSTATUS(raw);
    } else if (WIFSIGNALED(raw)) {
      status.signalled = true;
      status.signal = WTERMSIG(raw);
    }
    return true;
  }

  std::string wait_for(const std::string& captured, const bool& open, std::string_view text,
                       int timeout_ms, std::size_t from) {
    const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      const std::size_t at = captured.find(text, std::min(from, captured.size()));
      if (at != std::string::npos) {
        const std::size_t end = captured.find('\n', at);
        if (end != std::string::npos) {
          const std::size_t before = at == 0 ? std::string::npos : captured.rfind('\n', at - 1);
          const std::size_t start = before == std::string::npos ? 0 : before + 1;
          return captured.substr(start, end - start);
        }
      }
      if (!open) return {};
      if (changed.wait_until(lock, deadline) == std::cv_status::timeout) return {};
    }
  }
};

Process::Process() = default;
Process::~Process() = default;
Process::Process(Process&&) noexcept = default;
Process& Process::operator=(Process&&) noexcept = default;

Process Process::spawn(const std::vector<std::string>& argv, const SpawnOptions& options) {
  if (argv.empty()) throw std::runtime_error("spawn: no program");
  auto impl = std::make_unique<Impl>();
  int child_in = -1, child_out = -1, child_err = -1;
  if (options.stdin_null) {
    child_in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  } else {
    make_pipe(child_in, impl->in);
  }
  if (options.terminal) {
    make_terminal(impl->out, child_out);
    child_err = ::dup(child_out);
  } else {
    make_pipe(impl->out, child_out);
    make_pipe(impl->err, child_err);
    impl->err_open = true;
  }
  impl->raw_stdout = options.raw_stdout;
  impl->out_open = !options.raw_stdout;
  make_pipe(impl->wake_read, impl->wake_write);

  const std::string program = find_program(argv.front());
  std::vector<std::string> arguments = argv;
  std::vector<std::string> variables = make_environment(options);
  std::vector<char*> argument_pointers = pointers(arguments);
  std::vector<char*> variable_pointers = pointers(variables);
  const char* directory = options.directory.empty() ? nullptr : options.directory.c_str();
  const pid_t parent = ::getpid();

  // Between fork and exec only async-signal-safe calls: this process may have threads.
  const pid_t pid = ::fork();
  if (pid < 0) fail("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::dup2(child_in, 0);
    ::dup2(child_out, 1);
    ::dup2(child_err, 2);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    if (directory != nullptr && ::chdir(directory) != 0) ::_exit(127);
    ::execve(program.c_str(), argument_pointers.data(), variable_pointers.data());
    ::_exit(127);
  }
  impl->pid = pid;
  ::close(child_in);
  ::close(child_out);
  ::close(child_err);
  Impl* const raw = impl.get();
  impl->reader = std::thread([raw] { raw->read_all(); });

  Process process;
  process.impl_ = std::move(impl);
  if (!options.stdin_text.empty()) process.write(options.stdin_text);
  if (!options.keep_stdin_open) process.close_stdin();
  return process;
}

pid_t Process::pid() const { return impl_->pid; }

bool Process::running() { return !impl_->reap(); }

bool Process::write(std::string_view text) {
  // SIGPIPE is turned into EPIPE for this thread only.
  sigset_t pipe_signal, before;
  ::sigemptyset(&pipe_signal);
  ::sigaddset(&pipe_signal, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  bool ok = impl_->in >= 0;
  while (ok && !text.empty()) {
    const ssize_t n = ::write(impl_->in, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      ok = false;
      const timespec now{0, 0};
      if (errno == EPIPE) ::sigtimedwait(&pipe_signal, nullptr, &now);
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ok;
}

void Process::close_stdin() { close_if_open(impl_->in); }

void Process::close_stdout() {
  if (impl_->raw_stdout) {
    close_if_open(impl_->out);
    return;
  }
  std::unique_lock<std::mutex> lock(impl_->mutex);
  if (!impl_->out_open) return;
  impl_->close_out = true;
  if (::write(impl_->wake_write, "x", 1) != 1) return;
  impl_->changed.wait(lock, [this] { return !impl_->out_open; });
}

int Process::stdout_descriptor() const { return impl_->out; }

std::string Process::stdout_text() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->out_text;
}

std::string Process::stderr_text() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->err_text;
}

std::string Process::wait_for_stdout(std::string_view text, int timeout_ms, std::size_t from) {
  return impl_->wait_for(impl_->out_text, impl_->out_open, text, timeout_ms, from);
}

std::string Process::wait_for_stderr(std::string_view text, int timeout_ms, std::size_t from) {
  return impl_->wait_for(impl_->err_text, impl_->err_open, text, timeout_ms, from);
}

bool Process::wait_for_stdout_lines(std::size_t lines, int timeout_ms) {
  const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
  std::unique_lock<std::mutex> lock(impl_->mutex);
  const auto enough = [&] {
    const std::string& text = impl_->out_text;
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= lines;
  };
  while (!enough()) {
    if (!impl_->out_open) return false;
    if (impl_->changed.wait_until(lock, deadline) == std::cv_status::timeout) return enough();
  }
  return true;
}

void Process::kill(int signal) {
  if (!impl_->reap()) ::kill(impl_->pid, signal);
}

ExitStatus Process::wait(int timeout_ms) {
  const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
  while (!impl_->reap()) {
    if (SteadyClock::now() >= deadline) {
      ExitStatus status;
      status.running = true;
      return status;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kReapPollMs));
  }
  // A grandchild may keep the pipes open: the deadline holds for them as well.
  std::unique_lock<std::mutex> lock(impl_->mutex);
  impl_->changed.wait_until(lock, deadline,
                            [this] { return !impl_->out_open && !impl_->err_open; });
  return impl_->status;
}

RunResult run(const std::vector<std::string>& argv, const SpawnOptions& options) {
  Process process = Process::spawn(argv, options);
  RunResult result;
  result.status = process.wait(options.wait_timeout_ms);
  if (result.status.running) {
    process.kill(SIGKILL);
    process.wait(options.wait_timeout_ms);
  }
  result.out = process.stdout_text();
  result.err = process.stderr_text();
  return result;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

TemporaryDirectory::TemporaryDirectory() {
  const char* base = ::getenv("TMPDIR");
  path_ = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/holdfast-test-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) fail("mkdtemp");
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string holdfast_program() {
  const char* from_environment = ::getenv("HOLDFAST_BIN");
  if (from_environment != nullptr && *from_environment != '\0') return from_environment;
#ifdef HOLDFAST_BIN
  return HOLDFAST_BIN;
#else
  return "holdfast";
#endif
}

}  // namespace holdfast::test
