#include "errno_status.hpp"

#include <cerrno>
#include <cstring>

namespace holdfast::platform {
namespace {

// strerror_r comes in two shapes: GNU returns the text, POSIX (musl) fills the buffer.
[[maybe_unused]] const char* text_of(const char* returned, const char* /*buffer*/) {
  return returned;
}
[[maybe_unused]] const char* text_of(int /*returned*/, const char* buffer) { return buffer; }

Code code_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return Code::no_space;
    case EROFS:
      return Code::read_only;
    case EACCES:
    case EPERM:
      return Code::permission;
    case ENOENT:
    case ENOTDIR:
      return Code::not_found;
    case EEXIST:
      return Code::exists;
    case EINVAL:
    case ENAMETOOLONG:
      return Code::invalid;
    default:
      return Code::io;
  }
}

}  // namespace

std::string errno_text(int error) {
  char buffer[128] = {0};
  return text_of(strerror_r(error, buffer, sizeof buffer), buffer);
}

Status errno_status(int error, const char* what, const std::string& path) {
  return Status::error(code_of(error), "cannot %s %s: %s", what, path.c_str(),
                       errno_text(error).c_str());
}

}  // namespace holdfast::platform
