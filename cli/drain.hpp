// relay --drain: forward until nothing is pending.
#pragma once

#include <cstdint>
#include <string>

#include "exit_status.hpp"
#include "holdfast/relay.hpp"

namespace holdfast::cli {

class LogLines;
class StoppableSink;
class StopSignals;

constexpr std::int64_t kDrainTimeoutMs = 60'000;

struct DrainSettings {
  std::string destination;
  std::string url;
  std::int64_t timeout_ms = kDrainTimeoutMs;  // without progress
  StoppableSink* sink = nullptr;              // what the relay delivers to, if no gateway
};

// Waits for the end, shows progress on a terminal, stops the relay and says how it ended. Exit
// status 0: all delivered; 4: rejected events remain, and are listed on stdout; 75: no progress.
int drain(const Where& where, const DrainSettings& settings, Relay& relay, StopSignals& signals,
          LogLines& log);

}  // namespace holdfast::cli
