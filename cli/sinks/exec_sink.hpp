// exec:COMMAND: a command that reads events as JSON lines and exits 0 once it has them.
#pragma once

#include <string>

#include "holdfast/log.hpp"
#include "refusals.hpp"
#include "sink_url.hpp"
#include "sinks.hpp"

namespace holdfast::cli {

// Runs `/bin/sh -c COMMAND` for each batch, one line an event on its standard input, as
// `holdfast ls --json` has them. Exit status 0: it has them all. 65 (EX_DATAERR): one of them is
// bad; fewer are offered then, until it is found, and that one alone is rejected. Anything else, or
// no end within kExecTimeoutMs: it cannot be reached; the same events come again.
class ExecSink : public StoppableSink {
 public:
  static Status open(SinkUrl url, LogFunction log, std::unique_ptr<StoppableSink>& out);

  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) override;
  Status check() override;
  Status init(bool partitioned, std::string& did) override;

 private:
  ExecSink(SinkUrl url, LogFunction log) : url_(std::move(url)), log_(std::move(log)) {}

  Status offer(const std::vector<EventRecord>& events, std::size_t from, std::size_t to,
               Refusals& refusals, std::vector<Outcome>& outcomes);
  Status run(std::string_view input, bool& bad, std::string& last_words);

  SinkUrl url_;
  LogFunction log_;
};

}  // namespace holdfast::cli
