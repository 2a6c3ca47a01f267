// What crash_test cuts the power of: seeded runs of a device and of a gateway, each step of them a
// call of the library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "support/crash_run.hpp"

namespace holdfast::test {

constexpr const char* kCrashDatabase = "app.db";

struct DeviceOptions {
  std::uint64_t seed = 1;
  int steps = 40;
  int page_size = 1024;
  bool powersafe_overwrite = true;
  // What the application's connection runs instead of synchronous FULL: the controls.
  std::string instead;
};

// An application, a relay and an operator on one database, each with a connection of its own.
std::unique_ptr<CrashRun> run_device(const std::string& name, const DeviceOptions& options);

// A gateway, a second consumer and an operator on one database; `forwards`: to its own log, from
// which a relay reads, instead of a handler.
std::unique_ptr<CrashRun> run_gateway(const std::string& name, std::uint64_t seed, bool forwards);

// What a device does at its next boot, on what a cut left: opens, emits, asks, relays, checkpoints.
std::unique_ptr<CrashRun> run_boot(const std::string& name, const DiskImage& image);

}  // namespace holdfast::test
