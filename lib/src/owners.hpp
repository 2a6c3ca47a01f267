// Whose streams are whose: a stream belongs to the certificate name that first wrote it over TLS.
// Read from the database for each frame, so that `holdfast gateway allow|deny` takes effect at
// once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "db.hpp"

namespace holdfast {

constexpr std::size_t kMaxCertificateNameBytes = 64;  // X.520: ub-common-name
constexpr const char* kNotYourStreamCounter = "not_your_stream";

// 1 to 64 bytes of UTF-8 without control characters.
Status check_certificate_name(std::string_view name);

class StreamOwners {
 public:
  explicit StreamOwners(sqlite3* db) : db_(db) {}

  // `name`: of the certificate, "" without TLS. Without it a stream that has no owner is open.
  enum class Verdict { own, unbound, foreign, denied };
  Status judge(const EventId& stream, std::string_view name, Verdict& verdict);
  Status owner(const EventId& stream, std::string& name);  // "": none
  // Inside an open transaction. Replaces an owner.
  Status bind(const EventId& stream, std::string_view name, std::int64_t wall_ms);

 private:
  sqlite3* db_;
  Statement get_, put_, denied_;
};

}  // namespace holdfast
