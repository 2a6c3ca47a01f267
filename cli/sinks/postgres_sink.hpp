// postgres://: rows of a table, each event_id once.
#pragma once

#include <string>

#include "holdfast/log.hpp"
#include "refusals.hpp"
#include "sink_url.hpp"
#include "sinks.hpp"

struct pg_conn;
struct pg_result;

namespace holdfast::cli {

// A batch is one INSERT … ON CONFLICT (event_id) DO NOTHING, committed when it returns. If the
// server refuses the data (classes 22, 23, 54 and P0 of SQLSTATE), halves are tried in savepoints
// of one transaction until the event is found that it means; that one alone is rejected.
class PostgresSink : public StoppableSink {
 public:
  static Status open(SinkUrl url, LogFunction log, std::unique_ptr<StoppableSink>& out);
  ~PostgresSink() override;

  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) override;
  Status check() override;
  Status init(bool partitioned, std::string& did) override;

 private:
  using Result = std::unique_ptr<pg_result, void (*)(pg_result*)>;
  using Refused = bool;  // by the server, for the data: `why_` says it

  PostgresSink() = default;
  Status connect();
  void disconnect();
  Status lost(const char* what);
  Status wait(bool write, std::int64_t until);
  Status run(const std::string& sql, const std::vector<std::string>& values, Result& result);
  Status run(const std::string& sql);
  Status insert(const std::vector<const EventRecord*>& rows, const std::vector<Outcome*>& outcomes,
                Refused& refused);
  Status insert_parts(const std::vector<const EventRecord*>& rows,
                      const std::vector<Outcome*>& outcomes, Refusals& refusals);
  Status add_partitions();

  std::string conninfo_;
  std::string table_;  // quoted for SQL
  std::string plain_;  // as given
  std::string why_;
  pg_conn* connection_ = nullptr;
};

}  // namespace holdfast::cli
