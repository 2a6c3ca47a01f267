// Characters in text that came from somebody else: what may be shown as it is, and what may not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::cli {

// Decodes the first character of a UTF-8 text that is not empty (RFC 3629). Returns its length in
// bytes, 0 if the bytes there are not UTF-8.
std::size_t decode_utf8(std::string_view text, std::uint32_t& code);

// Controls (C0, DEL, C1), which a terminal obeys, and characters that reorder or hide the text
// around them (Unicode bidirectional controls, zero width, tags).
bool is_unsafe_to_show(std::uint32_t code);

// Appends printf(format, value).
void append_hex(std::string& out, const char* format, unsigned value);

}  // namespace holdfast::cli
