// A network that loses, copies, delays and reorders: frames lie in a bag until the test takes one
// out, in any order, as often as it likes.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace holdfast::test {

struct Packet {
  bool up = true;           // device → gateway
  int device = 0;           // whose
  std::uint64_t relay = 0;  // which incarnation of a relay asked
  std::uint64_t token = 0;  // its request
  std::string bytes;
};

class FrameLink {
 public:
  void put(Packet packet) { packets_.push_back(std::move(packet)); }
  bool empty() const { return packets_.empty(); }
  std::size_t size() const { return packets_.size(); }
  const Packet& at(std::size_t index) const { return packets_[index]; }
  Packet take(std::size_t index) {
    Packet packet = std::move(packets_[index]);
    packets_.erase(packets_.begin() + static_cast<std::ptrdiff_t>(index));
    return packet;
  }
  void lose(std::size_t index) { take(index); }
  void copy(std::size_t index) {
    Packet packet = packets_[index];
    packets_.push_back(std::move(packet));
  }
  void clear() { packets_.clear(); }

 private:
  std::deque<Packet> packets_;
};

}  // namespace holdfast::test
