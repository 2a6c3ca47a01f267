// Statistics in Prometheus' text exposition format, version 0.0.4.
#pragma once

#include <string>

#include "holdfast/store.hpp"

namespace holdfast::cli {

std::string prometheus_text(const StoreStats& stats);

}  // namespace holdfast::cli
