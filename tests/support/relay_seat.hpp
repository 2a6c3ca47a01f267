// A relay process without a thread or a socket: the real RelayCore, and what a link would keep for
// it, the connection attempt under way and the deadlines of requests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "relay_core.hpp"

namespace holdfast::test {

struct Seat {
  using SendFrame = std::function<void(std::uint64_t token, const wire::Message& message)>;

  std::unique_ptr<RelayCore> core;
  std::uint64_t relay = 0;  // incarnation
  bool up = false;
  std::int64_t connect_at = -1;                    // when connecting ends; -1: it is not
  std::map<std::uint64_t, std::int64_t> deadline;  // of requests under way
  std::int64_t wake_at = 0;
  bool suspended = false;

  // Tells the core how a connection attempt that is over by now ended; `link_works`: well.
  void finish_connecting(std::int64_t now, bool link_works);
  // Tells the core of requests that waited too long; returns their tokens.
  std::vector<std::uint64_t> expire(std::int64_t now);
  // Lets the core go on. A connection takes `connect_ms`() from now.
  Status go_on(std::int64_t now, std::int64_t request_timeout_ms,
               const std::function<std::int64_t()>& connect_ms, const SendFrame& send);
  void break_connection(std::int64_t now);
  // When it has something to do next.
  std::int64_t due_at() const;
};

}  // namespace holdfast::test
