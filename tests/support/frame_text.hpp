// A message of the wire as one line, for the traces of the simulated worlds.
#pragma once

#include <string>

#include "wire.hpp"

namespace holdfast::test {

std::string frame_text(const wire::Message& message);

}  // namespace holdfast::test
