// Builds frames by hand, straight from lib/docs/WIRE.md and without the code under test.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "holdfast/event.hpp"

namespace holdfast::test {

class Bytes {
 public:
  Bytes& u8(std::uint64_t value) { return integer(value, 1); }
  Bytes& u16(std::uint64_t value) { return integer(value, 2); }
  Bytes& u32(std::uint64_t value) { return integer(value, 4); }
  Bytes& i64(std::int64_t value) { return integer(static_cast<std::uint64_t>(value), 8); }
  Bytes& u64(std::uint64_t value) { return integer(value, 8); }
  Bytes& id(const EventId& id) {
    for (const std::uint8_t byte : id.bytes) u8(byte);
    return *this;
  }
  Bytes& raw(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  Bytes& text(std::string_view text) { return u32(text.size()).raw(text); }
  Bytes& record(const Bytes& fields) { return text(fields.bytes_); }

  const std::string& str() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

 private:
  Bytes& integer(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
    return *this;
  }

  std::string bytes_;
};

// Bit by bit, as in IEEE 802.3.
inline std::uint32_t slow_crc32(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

inline std::string frame_of(std::uint8_t kind, std::string_view body, std::uint16_t version = 1,
                            std::uint8_t flags = 0) {
  Bytes frame;
  frame.raw("HFST").u16(version).u8(kind).u8(flags).u32(body.size()).u32(slow_crc32(body));
  return frame.raw(body).str();
}

}  // namespace holdfast::test
