// The process runner of the black-box tests, itself tested: a runner that loses output or exit
// statuses would make every other test worthless.
#include "support/process.hpp"

#include <doctest/doctest.h>
#include <signal.h>

using namespace holdfast::test;

TEST_CASE("run returns the exit status and all of both streams") {
  SpawnOptions options;
  options.stdin_text = "from stdin";
  options.env["GREETING"] = "hello";
  const RunResult result =
      run({"sh", "-c", "cat; echo \" $GREETING\"; echo problem >&2; exit 3"}, options);
  CHECK(result.code() == 3);
  CHECK(result.out == "from stdin hello\n");
  CHECK(result.err == "problem\n");
}

TEST_CASE("output far above a pipe's buffer is taken whole") {
  const RunResult result = run({"sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"});
  CHECK(result.code() == 0);
  CHECK(result.out.size() == 3000000);
}

TEST_CASE("wait_for finds a whole line, before and after it is written") {
  Process process =
      Process::spawn({"sh", "-c", "echo one; echo the port is 77 >&2; exec sleep 30"});
  CHECK(process.wait_for_stderr("port is", 5000) == "the port is 77");
  CHECK(process.wait_for_stdout("one", 5000) == "one");
  CHECK(process.wait_for_stdout("two", 50).empty());
  CHECK(process.running());
  process.kill(SIGTERM);
  const ExitStatus status = process.wait(5000);
  CHECK(status.signalled);
  CHECK(status.signal == SIGTERM);
}

TEST_CASE("a program that does not exist exits with 127") {
  CHECK(run({"/nonexistent/program"}).code() == 127);
}

TEST_CASE("a closed stdout kills a writer by SIGPIPE") {
  Process process = Process::spawn({"sh", "-c", "while echo line; do :; done"});
  REQUIRE(process.wait_for_stdout_lines(10, 5000));
  process.close_stdout();
  CHECK(!process.wait(5000).running);
}

TEST_CASE("run kills what exceeds its time") {
  SpawnOptions options;
  options.wait_timeout_ms = 100;
  const RunResult result = run({"sleep", "30"}, options);
  CHECK(result.status.running);
}

TEST_CASE("a terminal is seen as one") {
  SpawnOptions options;
  options.terminal = true;
  const RunResult result = run({"sh", "-c", "test -t 1 && test -t 2 && echo yes"}, options);
  CHECK(result.out == "yes\r\n");
}
