// What the black-box tests of the command line share: run a command, look at what it printed, and
// write to a database the way a foreign program would.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.hpp"

namespace holdfast::test {

using Json = nlohmann::json;

constexpr int kCommandTimeoutMs = 60'000;

// `holdfast arguments…`, without HOLDFAST_DB and colours from this environment.
RunResult command(const std::vector<std::string>& arguments, SpawnOptions options = {});
Process start_command(const std::vector<std::string>& arguments, SpawnOptions options = {});

// Each line of a text as a JSON object; throws if one is not.
std::vector<Json> json_lines(const std::string& text);

// Empty if `err` is exactly one line that begins `holdfast: COMMAND: ` and has nothing that a
// terminal obeys; else what is wrong with it.
std::string error_line_problem(const std::string& err, const std::string& command);
// True if there is a byte or character in it that a terminal obeys, besides newlines.
bool drives_terminal(const std::string& text);

// A database that `holdfast init` made, in a directory of its own.
class Database {
 public:
  Database();
  // Without init: only the path.
  struct NoInit {};
  explicit Database(NoInit) {}

  std::string path() const { return directory_.file("app.db"); }
  std::string file(const std::string& name) const { return directory_.file(name); }

  // Emits with the command; returns the event's id.
  std::string emit(const std::string& aggregate = "sensor/boiler-1",
                   const std::string& payload = "{\"celsius\":71.5}",
                   const std::vector<std::string>& more = {}) const;
  // Plain SQL on a connection of its own, as any other program would do it.
  void sql(const std::string& text) const;
  std::int64_t number(const std::string& query) const;
  std::string text(const std::string& query) const;

  // Marks events as if a gateway had rejected them: what lies up to `acked` counts as answered.
  void reject(std::int64_t seq, const std::string& status, int attempts,
              const std::string& error) const;
  void set_acked(std::int64_t seq) const;

 private:
  TemporaryDirectory directory_;
};

// Holds the write lock of a database until its end.
class WriteLock {
 public:
  explicit WriteLock(const std::string& path);
  ~WriteLock();
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

 private:
  void* connection_ = nullptr;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);
bool running_as_root();

}  // namespace holdfast::test
