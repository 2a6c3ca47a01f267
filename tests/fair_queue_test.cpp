#include "fair_queue.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace holdfast;

namespace {

LinkRequest request(std::uint64_t pipe, std::size_t bytes, std::uint64_t token,
                    const std::string& certificate = "") {
  LinkRequest out;
  out.pipe = pipe;
  out.token = token;
  out.certificate = certificate;
  out.frame.assign(bytes, 'x');
  return out;
}

}  // namespace

TEST_CASE("a device that sends much waits behind itself, in its order (G8)") {
  FairQueue queue;
  for (std::uint64_t i = 0; i < 30; ++i) queue.push(request(1, 64 * 1024, i));
  CHECK(queue.pop().token == 0);
  CHECK(queue.pop().token == 1);
  queue.push(request(2, 100, 1000));
  queue.push(request(3, 100, 1001));
  CHECK(queue.pop().token == 1000);
  CHECK(queue.pop().token == 1001);
  for (std::uint64_t i = 2; i < 30; ++i) CHECK(queue.pop().token == i);
  CHECK(queue.empty());
}

TEST_CASE("several connections of one certificate have one share") {
  FairQueue queue;
  for (std::uint64_t i = 0; i < 20; ++i) queue.push(request(i, 1000, i, "flood"));
  queue.push(request(100, 1000, 100, "honest"));
  queue.push(request(101, 1000, 101, "honest, too"));
  std::vector<std::uint64_t> order;
  while (!queue.empty()) order.push_back(queue.pop().token);
  CHECK(order[1] == 100);
  CHECK(order[2] == 101);
}

TEST_CASE("two that always have something waiting get as many bytes each") {
  FairQueue queue;
  std::size_t served[2] = {0, 0};
  queue.push(request(0, 100'000, 0));
  queue.push(request(1, 5'000, 1));
  for (int i = 0; i < 4'000; ++i) {
    const LinkRequest next = queue.pop();
    served[next.pipe] += next.frame.size() + kFairRequestBytes;
    queue.push(request(next.pipe, next.frame.size(), next.token));
  }
  CHECK(static_cast<double>(served[0]) / static_cast<double>(served[1]) ==
        doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("devices that come and go are forgotten, and the order of those that wait stays (G8)") {
  FairQueue queue;
  constexpr std::uint64_t kWaiting = 30, kOfOne = 1'000'000;
  for (std::uint64_t i = 0; i < kWaiting; ++i) queue.push(request(kOfOne, 64 * 1024, kOfOne + i));
  CHECK(queue.pop().token == kOfOne);
  std::size_t most = 0;
  for (std::uint64_t i = 0; i < 10 * kFairDevicesMax; ++i) {
    queue.push(request(i, 10, i));  // each a connection of its own, with one request
    most = std::max(most, queue.devices());
    REQUIRE(queue.pop().token == i);
  }
  CHECK(most == kFairDevicesMax);
  for (std::uint64_t i = 1; i < kWaiting; ++i) {
    if (i == kWaiting / 2) queue.push(request(kOfOne, 10, kOfOne + kWaiting));
    CHECK(queue.pop().token == kOfOne + i);
  }
  CHECK(queue.pop().token == kOfOne + kWaiting);
  CHECK(queue.empty());
}
