#include "tls_revoked.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "holdfast/tls.hpp"
#include "tls_credentials.hpp"

namespace holdfast::tls {
namespace {

// "00:a1 # pump7, stolen" → "A1"; "": nothing on this line. False: no serial number.
bool parse_serial(std::string_view line, std::string& serial) {
  serial.clear();
  line = line.substr(0, line.find('#'));
  const std::size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return true;
  line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
  for (const char c : line) {
    if (c == ':') continue;
    if (!std::isxdigit(static_cast<unsigned char>(c))) return false;
    if (c != '0' || !serial.empty())
      serial += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return !serial.empty() && serial.size() <= kSerialDigitsMax;
}

}  // namespace

Status read_revoked(const std::string& file, Serials& out) {
  std::string text;
  Status status = read_file("revocation list", file, false, text);
  if (!status.ok()) return status;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string serial;
    ++number;
    if (!parse_serial(std::string_view(text).substr(at, end - at), serial))
      return Status::error(Code::invalid,
                           "TLS revocation list %s, line %d: give one serial number a line, "
                           "hexadecimal, at most %d digits; # begins a comment",
                           file.c_str(), number, static_cast<int>(kSerialDigitsMax));
    // As CertificateFacts has it: whole bytes.
    if (!serial.empty()) out.insert(serial.size() % 2 != 0 ? "0" + serial : serial);
    at = end + 1;
  }
  return status;
}

}  // namespace holdfast::tls
