// Runs programs for black-box tests: spawn with captured output, wait for a line, kill, wait.
//
//   auto gateway = Process::spawn({HOLDFAST_BIN, "gateway", db, "--listen", "tcp://127.0.0.1:0"});
//   std::string line = gateway.wait_for_stderr("listening on ", 5000);
//   gateway.kill(SIGTERM);
//   CHECK(gateway.wait(5000).code == 0);
//
// Output is read by a thread of each Process, so a child never blocks on a full pipe. A child dies
// with the test program, whatever happens to it (PR_SET_PDEATHSIG: with the *thread* that spawned
// it, so spawn from a thread that lives on).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::test {

struct SpawnOptions {
  std::map<std::string, std::string> env;  // added to this process's environment
  std::vector<std::string> unset_env;
  std::string directory;         // working directory; "" = this one
  std::string stdin_text;        // written to its stdin, which is then closed
  bool keep_stdin_open = false;  // after stdin_text: for write() and close_stdin()
  bool stdin_null = false;       // /dev/null instead of a pipe
  bool terminal = false;         // stdout and stderr are one pseudo terminal, seen as stdout
  bool raw_stdout = false;       // nobody reads stdout; see Process::stdout_descriptor
  int wait_timeout_ms = 60'000;  // for run() only
};

struct ExitStatus {
  bool exited = false;  // ended by exit(code)
  int code = -1;
  bool signalled = false;  // ended by a signal
  int signal = 0;
  bool running = false;  // did not end within the time
};

class Process {
 public:
  Process();
  ~Process();  // SIGKILL if it still runs
  Process(Process&&) noexcept;
  Process& operator=(Process&&) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // argv[0] is looked up in PATH unless it has a slash. Throws std::runtime_error if the process
  // could not be made; a program that cannot be executed exits with 127.
  static Process spawn(const std::vector<std::string>& argv, const SpawnOptions& options = {});

  pid_t pid() const;
  bool running();

  bool write(std::string_view text);  // to its stdin; false on EPIPE
  void close_stdin();
  void close_stdout();            // our end: its next write there meets EPIPE
  int stdout_descriptor() const;  // with raw_stdout: our end, for the test to read

  std::string stdout_text() const;  // so far
  std::string stderr_text() const;

  // Waits until a line that contains `text` is complete and returns it; "" after the timeout or
  // when the stream ended without it. `from` skips that many bytes of what was captured.
  std::string wait_for_stdout(std::string_view text, int timeout_ms, std::size_t from = 0);
  std::string wait_for_stderr(std::string_view text, int timeout_ms, std::size_t from = 0);
  // Waits until stdout has this many lines.
  bool wait_for_stdout_lines(std::size_t lines, int timeout_ms);

  void kill(int signal);
  // Waits for its end and for the end of its output. Does not kill at the timeout.
  ExitStatus wait(int timeout_ms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct RunResult {
  ExitStatus status;
  std::string out;
  std::string err;
  int code() const { return status.exited ? status.code : -1; }
};

// Spawns, waits, and kills at options.wait_timeout_ms.
RunResult run(const std::vector<std::string>& argv, const SpawnOptions& options = {});

// The lines of a text, without their newlines.
std::vector<std::string> lines_of(std::string_view text);

// A new empty directory, removed with everything in it at the end of its life.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// HOLDFAST_BIN: from the environment, else as compiled in.
std::string holdfast_program();

}  // namespace holdfast::test
