// Destinations other than a Holdfast gateway: `--sink URL` of relay and gateway, and the command
// `sink`. Which a program has is decided when it is linked: holdfast-gateway has those of
// cli/sinks, the device's program has cli/no_sinks.cpp, which hands over to holdfast-gateway.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "holdfast/log.hpp"
#include "holdfast/sink.hpp"

namespace holdfast::cli {

class StoppableSink : public Sink {
 public:
  // From any thread: a deliver() under way ends within kSinkStopMs, and later ones fail at once.
  void stop() { stopping_ = true; }

  // Connects, and looks whether what is delivered will be accepted.
  virtual Status check() = 0;
  // Makes there what is missing; done already is no error. `did` says what is there now.
  // Partitioned is for tables alone.
  virtual Status init(bool partitioned, std::string& did) = 0;

 protected:
  bool stopping() const { return stopping_; }

 private:
  std::atomic<bool> stopping_{false};
};

constexpr std::int64_t kSinkStopMs = 1'000;

struct NamedSink {
  std::string name;  // of the destination
  std::string url;   // without any secret
  std::unique_ptr<StoppableSink> sink;
};

using LogOf = std::function<LogFunction(const std::string& name)>;

// Adds --sink, which may come several times.
void add_sink_option(CLI::App& command, std::vector<std::string>& given);
// Reads [NAME=]URL of each, without connecting. Refuses two of one name.
Status open_sinks(const std::vector<std::string>& given, const LogOf& log_of,
                  std::vector<NamedSink>& out);

void add_sink(CLI::App& program, Run& run);

// At the start of main: in a program without sinks, a command line that asks for one is run by
// holdfast-gateway if that is installed, and refused otherwise. Returns -1 to go on here, else the
// exit status.
int hand_over_to_sinks(int argc, char** argv);

}  // namespace holdfast::cli
