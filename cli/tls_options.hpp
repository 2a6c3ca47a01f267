// The options that relay and gateway share for tls+tcp://.
#pragma once

#include "holdfast/tls.hpp"

namespace CLI {
class App;
}

namespace holdfast::cli {

enum class TlsSide { relay, gateway };
void add_tls_options(CLI::App& command, TlsOptions& tls, TlsSide side);

}  // namespace holdfast::cli
