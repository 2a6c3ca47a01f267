// The lines the drivers read; each is one write(2), so that it is there whole or not at all.
//   acked N        transactions 1…N are committed
//   found N        of the judge: transactions 1…N are there, each whole; -1: not even the tables
//   bad TEXT       of the judge: what is there cannot be
//   failed TEXT    the program itself failed
#pragma once

#include <unistd.h>

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "workload.hpp"

namespace holdfast::power {

inline int& report_fd() {
  static int fd = STDOUT_FILENO;
  return fd;
}

__attribute__((format(printf, 1, 2))) inline void say(const char* format, ...) {
  char line[512];
  std::va_list args;
  va_start(args, format);
  const int size = std::vsnprintf(line, sizeof line - 1, format, args);
  va_end(args);
  const std::size_t end = size < static_cast<int>(sizeof line) - 1 ? size : sizeof line - 2;
  line[end] = '\n';
  // Without its report a run proves nothing.
  if (::write(report_fd(), line, end + 1) != static_cast<ssize_t>(end + 1)) std::abort();
}

inline void say_acked(std::int64_t number) { say("acked %" PRId64, number); }

inline void say_verdict(const Verdict& verdict) {
  if (verdict.problem.empty()) {
    say("found %" PRId64, verdict.rows);
  } else {
    say("bad %s", verdict.problem.c_str());
  }
}

}  // namespace holdfast::power
