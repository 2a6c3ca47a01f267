// Which sinks there are, by the scheme of their URL.
#include "sinks.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "exec_sink.hpp"
#include "mqtt_sink.hpp"
#include "nats_sink.hpp"
#include "postgres_sink.hpp"
#include "sink_url.hpp"

namespace holdfast::cli {
namespace {

struct Scheme {
  const char* scheme;
  const char* name;  // of the destination, unless one is given
  Status (*open)(SinkUrl, LogFunction, std::unique_ptr<StoppableSink>&);
};

constexpr Scheme kSchemes[] = {
    {"nats", "nats", NatsSink::open},
    {"nats+tls", "nats", NatsSink::open},
    {"postgres", "postgres", PostgresSink::open},
    {"postgresql", "postgres", PostgresSink::open},
    {"mqtt", "mqtt", MqttSink::open},
    {"mqtts", "mqtt", MqttSink::open},
    {"exec", "exec", ExecSink::open},
};

Status open_sink(const std::string& given, const LogOf& log_of, NamedSink& out) {
  SinkUrl url;
  Status status = parse_sink_url(given, url);
  if (!status.ok()) return status;
  for (const Scheme& each : kSchemes) {
    if (url.scheme != each.scheme) continue;
    if (url.name == url.scheme) url.name = each.name;
    out.name = url.name;
    out.url = url.text;
    return each.open(url, log_of(url.name), out.sink);
  }
  return Status::error(
      Code::invalid,
      "%s: there is no sink of this kind; nats://, postgres://, mqtt://, exec:", url.text.c_str());
}

}  // namespace

void add_sink_option(CLI::App& command, std::vector<std::string>& given) {
  command
      .add_option("--sink", given,
                  "nats://, postgres://, mqtt:// or exec:, a destination of that NAME; may be\n"
                  "repeated; see `holdfast sink --help`")
      ->allow_extra_args(false)
      ->option_text("[NAME=]URL");
}

Status open_sinks(const std::vector<std::string>& given, const LogOf& log_of,
                  std::vector<NamedSink>& out) {
  for (const std::string& each : given) {
    NamedSink sink;
    const Status status = open_sink(each, log_of, sink);
    if (!status.ok()) return status;
    const bool twice = std::any_of(out.begin(), out.end(),
                                   [&](const NamedSink& other) { return other.name == sink.name; });
    if (twice) {
      return Status::error(Code::invalid,
                           "two sinks are named %s; give each a name of its own, which stays: "
                           "--sink NAME=URL",
                           sink.name.c_str());
    }
    out.push_back(std::move(sink));
  }
  return {};
}

int hand_over_to_sinks(int, char**) { return -1; }

}  // namespace holdfast::cli
