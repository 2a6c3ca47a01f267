// Messages of the wire for tests: random ones, the golden ones, and whether two are the same.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "wire.hpp"

namespace holdfast::test {

// A valid message of that kind; lists have at most `size` items and texts `size` bytes.
wire::Message random_message(wire::Kind kind, std::size_t size, std::mt19937_64& random);

const std::vector<wire::Kind>& all_kinds();

// Compares every field.
bool same(const wire::Message& a, const wire::Message& b);
bool same(const EventRecord& a, const EventRecord& b);

struct GoldenMessage {
  std::string name;  // tests/golden/frames/v<version>/<name>.bin
  wire::Message message;
};
// What the golden frames say. Never change one: a new version of the format adds its own.
std::vector<GoldenMessage> golden_messages_v1();

}  // namespace holdfast::test
