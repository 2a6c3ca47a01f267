// The one error model of Holdfast.
//
// Every call that can fail returns a Status by value. Nothing throws across this API, nothing is
// swallowed: a Status that is not looked at is a compiler warning.
//
// A Status owns its text in a fixed buffer, so making one never allocates and it may be copied
// anywhere. The code is frozen: scripts and other languages may depend on the numbers.
#pragma once

#include <cstdarg>
#include <cstddef>

namespace holdfast {

enum class Code : int {
  ok = 0,
  no_transaction = 1,  // emit outside a transaction: two commits would break atomicity (G1)
  not_durable = 2,     // the connection cannot promise G2; the text names the pragma to set
  invalid = 3,         // an argument or field is bad; the text names it
  full = 4,            // a configured cap was reached; nothing was written
  busy = 5,            // another writer held the database past the timeout; nothing was written
  unknown = 6,       // a COMMIT met an I/O error: it may or may not be there (see Outbox::resolve)
  not_found = 7,     // no such event, destination or file
  newer_schema = 8,  // the database was made by newer software; nothing was written
  no_schema = 9,     // a database without Holdfast's tables: run `holdfast init`
  io = 10,           // the operating system reported an I/O error
  read_only = 11,    // file or file system is read-only
  corrupt = 12,      // not a database, or a damaged one: run `holdfast doctor`
  no_space = 13,     // the disk is full
  misuse = 14,       // the call is not allowed in this state; the text says why
  unavailable = 15,  // the other side cannot be reached now; try again later
  lease_lost = 16,   // another relay owns the destination
  permission = 17,   // the operating system denied it
  exists = 18,       // it is there already
  refused = 19,      // the gateway refused; the text says why
  internal = 20,     // a defect in Holdfast
};

// "no_transaction", "not_durable", … : stable names for logs and JSON.
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok

  // printf-style; longer texts are cut at kTextBytes - 1.
  static Status error(Code code, const char* format, ...) __attribute__((format(printf, 2, 3)));
  // The same with the native code of SQLite or NNG that caused it.
  static Status native_error(Code code, int native, const char* format, ...)
      __attribute__((format(printf, 3, 4)));

  bool ok() const { return code_ == Code::ok; }
  explicit operator bool() const { return ok(); }
  Code code() const { return code_; }
  int native() const { return native_; }      // SQLite extended or NNG code, 0 if none
  const char* text() const { return text_; }  // one line, without a newline; "" when ok

  static constexpr std::size_t kTextBytes = 320;

 private:
  void set(Code code, int native, const char* format, std::va_list args);

  Code code_ = Code::ok;
  int native_ = 0;
  char text_[kTextBytes] = {0};
};

}  // namespace holdfast
