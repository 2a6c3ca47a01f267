#include "characters.hpp"

#include <cstdio>

namespace holdfast::cli {

std::size_t decode_utf8(std::string_view text, std::uint32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  std::size_t length = 0;
  std::uint32_t smallest = 0;
  if (first < 0x80) {
    code = first;
    return 1;
  }
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
    smallest = 0x80;
    code = first & 0x1fU;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    smallest = 0x800;
    code = first & 0x0fU;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    smallest = 0x10000;
    code = first & 0x07U;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    code = (code << 6) | (byte(i) & 0x3fU);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < smallest || code > 0x10ffff || surrogate ? 0 : length;
}

bool is_unsafe_to_show(std::uint32_t code) {
  const auto within = [code](std::uint32_t first, std::uint32_t last) {
    return code >= first && code <= last;
  };
  return code < 0x20 || within(0x7f, 0x9f) || code == 0x061c || within(0x200b, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2060, 0x206f) || code == 0xfeff ||
         within(0xfff9, 0xfffb) || within(0xe0000, 0xe007f);
}

void append_hex(std::string& out, const char* format, unsigned value) {
  char text[16];
  // The formats are literals of this program.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  std::snprintf(text, sizeof text, format, value);
#pragma GCC diagnostic pop
  out += text;
}

}  // namespace holdfast::cli
