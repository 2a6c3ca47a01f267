// Which versions are at work.
#pragma once

#include <string>

namespace holdfast {

constexpr const char* kVersion = "0.1.0";  // of these headers

struct Versions {
  std::string holdfast;  // of the library that was linked
  std::string sqlite;
  std::string nng;
  std::string tls;  // "mbed TLS 2.28.3"; "" if NNG was built without
};

// As linked, not as compiled against. In libholdfast.a only, for it has the network side. Asking
// NNG for its TLS starts NNG's threads: a program that blocks signals in every thread does that
// before.
Versions library_versions();

}  // namespace holdfast
