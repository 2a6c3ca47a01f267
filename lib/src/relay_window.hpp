// How much a relay may have under way at once: what the link carries in two round trips, or in
// kWindowMs if that is more, as measured by the answers that come back.
//
// So a link with a long round trip is kept full, a slow one is not given more than it can carry in
// about a second (an urgent event has to get past it, and requests time out), and nothing needs to
// be configured. After a failure it begins again with one batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast {

class RelayWindow {
 public:
  // One request under way, as of when it was sent.
  struct Sent {
    std::int64_t at = 0;
    std::size_t bytes = 0;
    std::uint64_t answered_before = 0;  // bytes
    bool full = false;                  // more was waiting to be sent: it says what the link can do
  };

  void reset() { *this = RelayWindow(); }
  Sent send(std::int64_t now, std::size_t bytes, bool full);
  void answer(std::int64_t now, const Sent& sent);

  std::int64_t round_trip_ms() const { return round_trip_; }  // the shortest seen; -1: none yet
  std::size_t bytes_under_way() const { return under_way_; }
  // May one more batch be sent beside those under way?
  bool has_room() const;
  // Has kWindowBytesMax room for so much more? What goes alone always has.
  bool holds(std::size_t bytes) const;
  // How large a batch should be: `usual`, or up to twice that if the window is wider than so many
  // usual ones.
  std::size_t batch_bytes(std::size_t usual, int batches_max) const;

 private:
  std::size_t bytes() const;

  std::size_t under_way_ = 0;
  std::uint64_t answered_ = 0;     // bytes, of all requests so far
  std::int64_t round_trip_ = -1;   // ms, the shortest seen; -1: none yet
  std::int64_t bytes_per_ms_ = 0;  // what came back; falls slowly, rises at once
};

}  // namespace holdfast
