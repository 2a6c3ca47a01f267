#include "support/command_line.hpp"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace holdfast::test {
namespace {

constexpr int kBusyTimeoutMs = 10'000;

class Connection {
 public:
  explicit Connection(const std::string& path) {
    if (sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK) {
      const std::string what = sqlite3_errmsg(db_);
      sqlite3_close(db_);
      throw std::runtime_error(path + ": " + what);
    }
    sqlite3_busy_timeout(db_, kBusyTimeoutMs);
    exec("PRAGMA wal_autocheckpoint=0");
  }
  ~Connection() { sqlite3_close(db_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void exec(const std::string& sql) {
    char* error = nullptr;
    if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &error) == SQLITE_OK) return;
    const std::string what = error != nullptr ? error : "error";
    sqlite3_free(error);
    throw std::runtime_error(sql + ": " + what);
  }

  std::string value(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
      throw std::runtime_error(sql + ": " + sqlite3_errmsg(db_));
    }
    std::string out;
    if (sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_blob(statement, 0) != nullptr) {
      out.assign(static_cast<const char*>(sqlite3_column_blob(statement, 0)),
                 static_cast<std::size_t>(sqlite3_column_bytes(statement, 0)));
    }
    sqlite3_finalize(statement);
    return out;
  }

 private:
  sqlite3* db_ = nullptr;
};

SpawnOptions quiet_environment(SpawnOptions options) {
  for (const char* name : {"HOLDFAST_DB", "NO_COLOR", "JOURNAL_STREAM"}) {
    if (options.env.count(name) == 0) options.unset_env.push_back(name);
  }
  options.env.emplace("TERM", "xterm");
  return options;
}

std::vector<std::string> command_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> out = {holdfast_program()};
  out.insert(out.end(), arguments.begin(), arguments.end());
  return out;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

}  // namespace

RunResult command(const std::vector<std::string>& arguments, SpawnOptions options) {
  options.wait_timeout_ms = std::min(options.wait_timeout_ms, kCommandTimeoutMs);
  return run(command_of(arguments), quiet_environment(std::move(options)));
}

Process start_command(const std::vector<std::string>& arguments, SpawnOptions options) {
  return Process::spawn(command_of(arguments), quiet_environment(std::move(options)));
}

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> out;
  for (const std::string& line : lines_of(text)) {
    out.push_back(Json::parse(line));
    if (!out.back().is_object()) throw std::runtime_error("not an object: " + line);
  }
  return out;
}

bool drives_terminal(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return true;
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) {
      return true;  // C1: U+0080 to U+009F
    }
    // U+202A to U+202E, bidirectional overrides
    if (text.compare(i, 2, "\xe2\x80") == 0 && i + 2 < text.size() && text[i + 2] >= '\xaa' &&
        text[i + 2] <= '\xae') {
      return true;
    }
  }
  return false;
}

std::string error_line_problem(const std::string& err, const std::string& command) {
  if (err.empty()) return "stderr is empty";
  if (err.back() != '\n') return "no newline at the end: " + err;
  if (err.find('\n') != err.size() - 1) return "more than one line: " + err;
  const std::string start = "holdfast: " + command + ": ";
  if (err.compare(0, start.size(), start) != 0)
    return "does not begin with `" + start + "`: " + err;
  if (drives_terminal(err)) return "drives the terminal: " + err;
  return {};
}

Database::Database() {
  const RunResult result = command({"init", path()});
  if (result.code() != 0) throw std::runtime_error("init: " + result.err);
}

std::string Database::emit(const std::string& aggregate, const std::string& payload,
                           const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {"emit",        path(),    "--type",    "sensor.reading.v1",
                                        "--aggregate", aggregate, "--payload", payload};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const RunResult result = command(arguments);
  if (result.code() != 0) throw std::runtime_error("emit: " + result.err);
  return result.out.substr(0, result.out.size() - 1);
}

void Database::sql(const std::string& text) const { Connection(path()).exec(text); }

std::string Database::text(const std::string& query) const {
  return Connection(path()).value(query);
}

std::int64_t Database::number(const std::string& query) const { return std::stoll(text(query)); }

void Database::set_acked(std::int64_t seq) const {
  sql("UPDATE outbox_destination SET acked_seq=" + std::to_string(seq) +
      ",claimed_seq=" + std::to_string(seq));
}

void Database::reject(std::int64_t seq, const std::string& status, int attempts,
                      const std::string& error) const {
  sql("INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts,last_error)"
      " SELECT id," +
      std::to_string(seq) + ",0," + quoted(status) + "," + std::to_string(attempts) + "," +
      quoted(error) + " FROM outbox_destination");
}

WriteLock::WriteLock(const std::string& path) : connection_(new Connection(path)) {
  static_cast<Connection*>(connection_)->exec("BEGIN IMMEDIATE");
}

WriteLock::~WriteLock() { delete static_cast<Connection*>(connection_); }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

bool running_as_root() { return ::geteuid() == 0; }

}  // namespace holdfast::test
