#include "postgres_sink.hpp"

#include <libpq-fe.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <array>

#include "holdfast/clock.hpp"
#include "json.hpp"
#include "postgres_sql.hpp"

namespace holdfast::cli {
namespace {

constexpr std::int64_t kConnectTimeoutMs = 5'000;     // of a connection, password included
constexpr std::int64_t kStatementTimeoutMs = 30'000;  // without an answer: the connection is closed
constexpr int kLookMs = 50;                           // for stop()
constexpr int kPartitionMonths = 4;                   // this month and those after it

// The first line of what libpq says.
std::string first_line(const char* text) {
  std::string line = text != nullptr ? text : "";
  line.resize(std::min(line.find('\n'), line.size()));
  if (line.compare(0, 8, "ERROR:  ") == 0) line.erase(0, 8);
  return line;
}

// A column of all rows as an array's text.
class ArrayText {
 public:
  void null() { separate() += "NULL"; }
  void text(std::string_view value) {
    separate() += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') text_ += '\\';
      text_ += c;
    }
    text_ += '"';
  }
  void text_or_null(std::string_view value) { value.empty() ? null() : text(value); }
  void number(std::int64_t value) { separate() += std::to_string(value); }
  void bytes(std::string_view value) {
    static constexpr char kDigits[] = "0123456789abcdef";
    separate() += "\"\\\\x";
    for (const unsigned char c : value) {
      text_ += kDigits[c >> 4];
      text_ += kDigits[c & 15];
    }
    text_ += '"';
  }
  std::string finish() { return "{" + text_ + "}"; }

 private:
  std::string& separate() {
    if (!text_.empty()) text_ += ',';
    return text_;
  }
  std::string text_;
};

// In the order of kPostgresColumns.
std::vector<std::string> columns_of(const std::vector<const EventRecord*>& rows) {
  std::array<ArrayText, kPostgresColumnCount> columns;
  for (const EventRecord* event : rows) {
    auto column = columns.begin();
    column++->text(event->id.text());
    column++->number(event->seq);
    column++->text(event->event_type);
    column++->text(event->aggregate_type);
    column++->text(event->aggregate_id);
    event->aggregate_version == kNoVersion ? column->null()
                                           : column->number(event->aggregate_version);
    ++column;
    wall_known(event->created_at_ms) ? column->number(event->created_at_ms) : column->null();
    ++column;
    column++->text_or_null(event->content_type);
    column++->text_or_null(event->trace);
    column++->text_or_null(event->headers);
    column++->number(event->lane);
    column++->text_or_null(event->source);
    event->source_stream.nil() ? column->null() : column->text(event->source_stream.text());
    ++column;
    event->source_seq == 0 ? column->null() : column->number(event->source_seq);
    ++column;
    const bool text = is_sql_text(event->payload);
    text ? column->text(event->payload) : column->null();
    ++column;
    text ? column->null() : column->bytes(event->payload);
  }
  std::vector<std::string> out;
  for (ArrayText& column : columns) out.push_back(column.finish());
  return out;
}

// Is it the data that the server refuses, and not this connection, table or moment?
bool is_about_data(const char* state) {
  if (state == nullptr) return false;
  for (const char* of : {"22", "23", "54", "P0"}) {
    if (::strncmp(state, of, 2) == 0) return true;
  }
  return false;
}

// The smallest UUID of version 7 of a month's first millisecond, UTC.
std::string first_id_of_month(int year, int month) {
  tm date{};
  date.tm_year = year - 1900;
  date.tm_mon = month;  // beyond December is the next year
  date.tm_mday = 1;
  const auto ms = static_cast<std::uint64_t>(::timegm(&date)) * 1000;
  EventId id;
  for (std::size_t i = 0; i < 6; ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(ms >> (8 * (5 - i)));
  }
  return id.text();
}

void append_option(std::string& conninfo, const char* keyword, const std::string& value) {
  conninfo += std::string(conninfo.empty() ? "" : " ") + keyword + "='";
  for (const char c : value) {
    if (c == '\'' || c == '\\') conninfo += '\\';
    conninfo += c;
  }
  conninfo += '\'';
}

// What libpq makes of the URL without our own options.
Status to_conninfo(const SinkUrl& url, std::string& conninfo) {
  std::string text = url.text.substr(0, url.text.find('?'));
  for (const auto& [name, value] : url.options) {
    text += (text.find('?') == std::string::npos ? "?" : "&") + name + "=" +
            percent_encode(value, [](char) { return false; });
  }
  char* problem = nullptr;
  PQconninfoOption* const options = PQconninfoParse(text.c_str(), &problem);
  if (options == nullptr) {
    const Status status =
        Status::error(Code::invalid, "sink %s: %s", url.name.c_str(), first_line(problem).c_str());
    PQfreemem(problem);
    return status;
  }
  bool application = false;
  for (const PQconninfoOption* each = options; each->keyword != nullptr; ++each) {
    if (each->val == nullptr) continue;
    append_option(conninfo, each->keyword, each->val);
    application = application || ::strcmp(each->keyword, "application_name") == 0;
  }
  PQconninfoFree(options);
  append_option(conninfo, "client_encoding", "UTF8");
  if (!application) append_option(conninfo, "application_name", "holdfast");
  return {};
}

bool quote_table(const std::string& name, std::string& out) {
  std::size_t parts = 0;
  for (std::size_t at = 0; at <= name.size(); ++parts) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    if (end == at) return false;
    out += parts == 0 ? "\"" : ".\"";
    for (const char c : name.substr(at, end - at)) {
      if (c == '"') out += '"';
      out += c;
    }
    out += '"';
    at = end + 1;
  }
  return parts <= 2;
}

}  // namespace

Status PostgresSink::open(SinkUrl url, LogFunction, std::unique_ptr<StoppableSink>& out) {
  std::unique_ptr<PostgresSink> sink(new PostgresSink());
  sink->plain_ = "holdfast_event";
  url.take("table", sink->plain_);
  if (!quote_table(sink->plain_, sink->table_)) {
    return Status::error(Code::invalid, "sink %s: table is NAME or SCHEMA.NAME", url.name.c_str());
  }
  std::string password, key_password;
  Status status = take_secret(url, "password", password);
  if (status.ok()) status = take_secret(url, "sslpassword", key_password);
  if (status.ok()) status = to_conninfo(url, sink->conninfo_);
  if (!password.empty()) append_option(sink->conninfo_, "password", password);
  if (!key_password.empty()) append_option(sink->conninfo_, "sslpassword", key_password);
  if (status.ok()) out = std::move(sink);
  return status;
}

PostgresSink::~PostgresSink() { disconnect(); }

void PostgresSink::disconnect() {
  if (connection_ != nullptr) PQfinish(connection_);
  connection_ = nullptr;
}

Status PostgresSink::lost(const char* what) {
  const Status status = Status::error(Code::unavailable, "%s", what);
  disconnect();
  return status;
}

// For the connection's socket. A stop shortens it.
Status PostgresSink::wait(bool write, std::int64_t until) {
  const Clock& clock = system_clock();
  for (bool stop_seen = false;;) {
    if (stopping() && !stop_seen) {
      stop_seen = true;
      until = std::min(until, clock.boot_ms() + kSinkStopMs / 2);
    }
    pollfd poll_of{PQsocket(connection_), static_cast<short>(write ? POLLOUT : POLLIN), 0};
    if (poll_of.fd < 0) return lost("the connection is gone");
    if (::poll(&poll_of, 1, kLookMs) > 0) return {};
    if (clock.boot_ms() >= until) return lost(stop_seen ? "stopping" : "no answer in time");
  }
}

Status PostgresSink::connect() {
  if (stopping()) return Status::error(Code::unavailable, "stopping");
  if (connection_ != nullptr && PQstatus(connection_) == CONNECTION_OK) return {};
  disconnect();
  connection_ = PQconnectStart(conninfo_.c_str());
  if (connection_ == nullptr) return Status::error(Code::unavailable, "out of memory");
  const std::int64_t until = system_clock().boot_ms() + kConnectTimeoutMs;
  PostgresPollingStatusType step = PGRES_POLLING_WRITING;
  while (PQstatus(connection_) != CONNECTION_BAD && step != PGRES_POLLING_OK &&
         step != PGRES_POLLING_FAILED) {
    const Status status = wait(step == PGRES_POLLING_WRITING, until);
    if (!status.ok()) return status;
    step = PQconnectPoll(connection_);
  }
  if (step != PGRES_POLLING_OK) return lost(first_line(PQerrorMessage(connection_)).c_str());
  PQsetNoticeProcessor(connection_, [](void*, const char*) {}, nullptr);
  PQsetnonblocking(connection_, 1);
  return run(kPostgresSession);
}

Status PostgresSink::run(const std::string& sql) {
  Result result(nullptr, PQclear);
  return run(sql, {}, result);
}

// An error of the server leaves the connection as it is, with the reason in `result`.
Status PostgresSink::run(const std::string& sql, const std::vector<std::string>& values,
                         Result& result) {
  std::vector<const char*> texts;
  for (const std::string& value : values) texts.push_back(value.c_str());
  if (PQsendQueryParams(connection_, sql.c_str(), static_cast<int>(texts.size()), nullptr,
                        texts.data(), nullptr, nullptr, 0) != 1) {
    return lost(first_line(PQerrorMessage(connection_)).c_str());
  }
  const std::int64_t until = system_clock().boot_ms() + kStatementTimeoutMs;
  for (int flushed = 1; flushed > 0;) {
    flushed = PQflush(connection_);
    if (flushed < 0) return lost(first_line(PQerrorMessage(connection_)).c_str());
    const Status status = flushed > 0 ? wait(true, until) : Status();
    if (!status.ok()) return status;
    if (flushed > 0 && PQconsumeInput(connection_) != 1) {
      return lost(first_line(PQerrorMessage(connection_)).c_str());
    }
  }
  for (;;) {
    while (PQisBusy(connection_) != 0) {
      const Status status = wait(false, until);
      if (!status.ok()) return status;
      if (PQconsumeInput(connection_) != 1) {
        return lost(first_line(PQerrorMessage(connection_)).c_str());
      }
    }
    PGresult* const next = PQgetResult(connection_);
    if (next == nullptr) break;
    result.reset(next);
  }
  const ExecStatusType kind = PQresultStatus(result.get());
  if (kind == PGRES_COMMAND_OK || kind == PGRES_TUPLES_OK) return {};
  const std::string why = first_line(PQresultErrorMessage(result.get()));
  const char* const state = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
  if (PQstatus(connection_) != CONNECTION_OK || state == nullptr) return lost(why.c_str());
  return Status::error(Code::refused, "%s (SQLSTATE %s)", why.c_str(), state);
}

Status PostgresSink::insert(const std::vector<const EventRecord*>& rows,
                            const std::vector<Outcome*>& outcomes, Refused& refused) {
  refused = false;
  Result result(nullptr, PQclear);
  const Status status = run(postgres_insert(table_), columns_of(rows), result);
  if (status.code() == Code::refused) {
    why_ = status.text();
    refused = is_about_data(PQresultErrorField(result.get(), PG_DIAG_SQLSTATE));
    if (refused) return {};
    return lost(why_.c_str());  // a transaction under way is undone with the connection
  }
  if (!status.ok() || PQntuples(result.get()) == static_cast<int>(rows.size())) return status;
  std::set<std::string> stored;
  for (int i = 0; i < PQntuples(result.get()); ++i) stored.insert(PQgetvalue(result.get(), i, 0));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (stored.count(rows[i]->id.text()) == 0) outcomes[i]->kind = Outcome::Kind::duplicate;
  }
  return {};
}

// From left to right: what waits for a refused event is known when its turn comes.
Status PostgresSink::insert_parts(const std::vector<const EventRecord*>& all,
                                  const std::vector<Outcome*>& all_outcomes, Refusals& refusals) {
  std::vector<const EventRecord*> rows;
  std::vector<Outcome*> outcomes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (refusals.holds(*all[i], *all_outcomes[i])) continue;
    rows.push_back(all[i]);
    outcomes.push_back(all_outcomes[i]);
  }
  if (rows.empty()) return {};
  Refused refused = false;
  Status status = run(kPostgresSavepoint);
  if (status.ok()) status = insert(rows, outcomes, refused);
  if (!status.ok() || !refused) return status;
  status = run(kPostgresRollbackTo);
  if (!status.ok()) return status;
  if (rows.size() == 1) {
    refusals.refuse(*rows.front(), Outcome::Kind::rejected, why_, *outcomes.front());
    return {};
  }
  const auto middle = static_cast<std::ptrdiff_t>(rows.size() / 2);
  status = insert_parts({rows.begin(), rows.begin() + middle},
                        {outcomes.begin(), outcomes.begin() + middle}, refusals);
  if (!status.ok()) return status;
  return insert_parts({rows.begin() + middle, rows.end()},
                      {outcomes.begin() + middle, outcomes.end()}, refusals);
}

Status PostgresSink::deliver(const std::vector<EventRecord>& events,
                             std::vector<Outcome>& outcomes) {
  Status status = connect();
  if (!status.ok()) return status;
  std::vector<const EventRecord*> rows;
  std::vector<Outcome*> places;
  for (std::size_t i = 0; i < events.size(); ++i) {
    rows.push_back(&events[i]);
    places.push_back(&outcomes[i]);
  }
  Refused refused = false;
  status = insert(rows, places, refused);
  if (!status.ok() || !refused) return status;
  Refusals refusals;
  status = run(kPostgresBegin);
  if (status.ok()) status = run(kPostgresConstraints);
  if (status.ok()) status = insert_parts(rows, places, refusals);
  if (status.ok()) status = run(kPostgresCommit);
  if (!status.ok()) return lost(status.text());
  return status;
}

Status PostgresSink::check() {
  Status status = connect();
  Result result(nullptr, PQclear);
  if (status.ok()) status = run(kPostgresEncoding, {}, result);
  if (!status.ok()) return status;
  const std::string encoding = PQgetvalue(result.get(), 0, 0);
  if (encoding != "UTF8") {
    return Status::error(Code::invalid, "the database's encoding is %s; events need UTF8",
                         encoding.c_str());
  }
  // Plans the real statement, with no rows: columns, key and rights are looked at.
  status = run(postgres_insert(table_), columns_of({}), result);
  if (status.ok()) return status;
  return Status::error(status.code(), "%s; see `holdfast sink init --help`", status.text());
}

Status PostgresSink::add_partitions() {
  const std::int64_t now_s = system_clock().wall_ms() / 1000;
  tm date{};
  const time_t seconds = now_s;
  ::gmtime_r(&seconds, &date);
  Status status = run(postgres_default_partition(table_));
  for (int i = 0; i < kPartitionMonths && status.ok(); ++i) {
    const int month = date.tm_mon + i;
    const int year = date.tm_year + 1900;
    char suffix[16];
    ::snprintf(suffix, sizeof suffix, "%04d_%02d", (year + month / 12) % 10000, month % 12 + 1);
    status = run(postgres_month_partition(table_, suffix, first_id_of_month(year, month),
                                          first_id_of_month(year, month + 1)));
  }
  return status;
}

Status PostgresSink::init(bool partitioned, std::string& did) {
  Status status = connect();
  if (status.ok()) status = run(postgres_create(table_, partitioned));
  if (status.ok() && partitioned) status = add_partitions();
  if (status.ok()) status = check();
  did = "table " + plain_ + " is ready";
  return status;
}

}  // namespace holdfast::cli
