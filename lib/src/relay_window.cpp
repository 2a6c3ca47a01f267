#include "relay_window.hpp"

#include <algorithm>

#include "holdfast/relay.hpp"

namespace holdfast {

namespace {

// So that the measured rate can double from one to the next.
constexpr std::int64_t kRoundTrips = 2;
constexpr std::int64_t kForgetPart = 8;  // a lower rate counts by one part of so many

}  // namespace

RelayWindow::Sent RelayWindow::send(std::int64_t now, std::size_t bytes, bool full) {
  under_way_ += bytes;
  return {now, bytes, answered_, full};
}

void RelayWindow::answer(std::int64_t now, const Sent& sent) {
  under_way_ -= std::min(under_way_, sent.bytes);
  answered_ += sent.bytes;
  const std::int64_t took = std::max<std::int64_t>(now - sent.at, 0);
  round_trip_ = round_trip_ < 0 ? took : std::min(round_trip_, took);
  // Everything that was answered while this request was under way, over that time.
  const auto rate =
      static_cast<std::int64_t>(answered_ - sent.answered_before) / std::max<std::int64_t>(took, 1);
  if (rate >= bytes_per_ms_)
    bytes_per_ms_ = rate;
  else if (sent.full)
    bytes_per_ms_ -= (bytes_per_ms_ - rate) / kForgetPart;
}

std::size_t RelayWindow::bytes() const {
  const std::int64_t ms = std::max(kRoundTrips * std::max<std::int64_t>(round_trip_, 0), kWindowMs);
  return static_cast<std::size_t>(
      std::min(bytes_per_ms_ * ms, static_cast<std::int64_t>(kWindowBytesMax)));
}

bool RelayWindow::has_room() const { return under_way_ < bytes(); }

bool RelayWindow::holds(std::size_t bytes) const {
  return under_way_ == 0 || under_way_ + bytes <= kWindowBytesMax;
}

std::size_t RelayWindow::batch_bytes(std::size_t usual, int batches_max) const {
  return std::clamp(bytes() / static_cast<std::size_t>(batches_max), usual, 2 * usual);
}

}  // namespace holdfast
