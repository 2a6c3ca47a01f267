// Words that the parts of TLS share.
#pragma once

#include <string>

namespace holdfast::tls {

enum class Side { device, gateway };

struct PemTexts {
  std::string ca, certificate, key;
};

}  // namespace holdfast::tls
