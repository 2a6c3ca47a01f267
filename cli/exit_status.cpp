#include "exit_status.hpp"

#include "output.hpp"

namespace holdfast::cli {
namespace {

// The text of a Status says what is wrong, and often what to do. This is for when it does not.
std::string usual_advice(Code code, const std::string& subject) {
  switch (code) {
    case Code::no_schema:
      return "run `holdfast init " + shell_quoted(subject) + "`";
    case Code::corrupt:
      return "run `holdfast doctor " + shell_quoted(subject) + "`";
    case Code::newer_schema:
      return "use the newer version of holdfast that made it";
    case Code::busy:
      return "another program is writing; try again";
    case Code::no_space:
      return "free some space";
    case Code::read_only:
      return "the file or its file system is read-only; remount it, or check the card";
    case Code::permission:
      return "check owner and mode of the file and of its directory";
    case Code::io:
      return "check the disk, then run `holdfast doctor`";
    case Code::internal:
      return "please report this";
    default:
      return {};
  }
}

void print_line(std::string_view text) { write_stderr(escaped(text) + "\n"); }

std::string prefix(const Where& where, std::string_view what) {
  std::string line = "holdfast: ";
  if (!where.command.empty()) line += where.command + ": ";
  // A library text often begins with the path already.
  if (!where.subject.empty() && what.find(where.subject) == std::string_view::npos) {
    line += where.subject + ": ";
  }
  return line;
}

}  // namespace

int exit_status_of(Code code) {
  switch (code) {
    case Code::ok:
      return kExitDone;
    case Code::invalid:
      return kExitUsage;
    case Code::not_found:
      return kExitNotFound;
    case Code::busy:
    case Code::unavailable:
    case Code::lease_lost:
    case Code::full:  // draining makes room
      return kExitTemporary;
    case Code::no_transaction:
    case Code::not_durable:
    case Code::unknown:
    case Code::newer_schema:
    case Code::no_schema:
    case Code::io:
    case Code::read_only:
    case Code::corrupt:
    case Code::no_space:
    case Code::misuse:
    case Code::permission:
    case Code::exists:
    case Code::refused:
    case Code::internal:
      return kExitFailed;
  }
  return kExitFailed;
}

int fail(const Where& where, const Status& status, std::string_view advice) {
  std::string what = status.text();
  if (what.empty()) what = code_name(status.code());
  std::string todo(advice);
  if (todo.empty() && what.find("; ") == std::string::npos &&
      what.find("holdfast ") == std::string::npos) {
    todo = usual_advice(status.code(), where.subject);
  }
  return fail(where, exit_status_of(status.code()), what, todo);
}

int fail(const Where& where, int exit_status, std::string_view what, std::string_view advice) {
  std::string line = prefix(where, what);
  line += what;
  if (!advice.empty()) {
    line += "; ";
    line += advice;
  }
  print_line(line);
  return exit_status;
}

void note(const Where& where, std::string_view text) { print_line(prefix(where, text) += text); }

}  // namespace holdfast::cli
