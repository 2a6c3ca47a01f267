#include "holdfast/status.hpp"

#include <cstdio>
#include <cstring>

namespace holdfast {
namespace {

// Texts end up in logs, one line each, and may quote bytes that came from a stranger.
void make_one_line(char* text) {
  for (; *text != '\0'; ++text) {
    const unsigned char byte = static_cast<unsigned char>(*text);
    if (byte < 0x20 || byte == 0x7F) *text = ' ';
  }
}

// A text that was cut may end within a UTF-8 character; drops what is there of it.
void drop_partial_character(char* text, std::size_t length) {
  std::size_t start = length;
  while (start > 0 && length - start < 4) {
    const unsigned char byte = static_cast<unsigned char>(text[--start]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t wanted = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    if (length - start < wanted) text[start] = '\0';
    return;
  }
}

}  // namespace

const char* code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::no_transaction:
      return "no_transaction";
    case Code::not_durable:
      return "not_durable";
    case Code::invalid:
      return "invalid";
    case Code::full:
      return "full";
    case Code::busy:
      return "busy";
    case Code::unknown:
      return "unknown";
    case Code::not_found:
      return "not_found";
    case Code::newer_schema:
      return "newer_schema";
    case Code::no_schema:
      return "no_schema";
    case Code::io:
      return "io";
    case Code::read_only:
      return "read_only";
    case Code::corrupt:
      return "corrupt";
    case Code::no_space:
      return "no_space";
    case Code::misuse:
      return "misuse";
    case Code::unavailable:
      return "unavailable";
    case Code::lease_lost:
      return "lease_lost";
    case Code::permission:
      return "permission";
    case Code::exists:
      return "exists";
    case Code::refused:
      return "refused";
    case Code::internal:
      return "internal";
  }
  return "unnamed";
}

void Status::set(Code code, int native, const char* format, std::va_list args) {
  code_ = code;
  native_ = native;
  const int length = std::vsnprintf(text_, kTextBytes, format, args);
  if (length < 0) {  // a conversion error inside vsnprintf
    std::snprintf(text_, kTextBytes, "%s", code_name(code));
  } else if (static_cast<std::size_t>(length) >= kTextBytes) {
    drop_partial_character(text_, kTextBytes - 1);
  }
  make_one_line(text_);
}

Status Status::error(Code code, const char* format, ...) {
  Status status;
  std::va_list args;
  va_start(args, format);
  status.set(code, 0, format, args);
  va_end(args);
  return status;
}

Status Status::native_error(Code code, int native, const char* format, ...) {
  Status status;
  std::va_list args;
  va_start(args, format);
  status.set(code, native, format, args);
  va_end(args);
  return status;
}

}  // namespace holdfast
