#include "owners.hpp"

#include <algorithm>

#include "schema.hpp"

namespace holdfast {

Status check_certificate_name(std::string_view name) {
  const bool printable = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!name.empty() && name.size() <= kMaxCertificateNameBytes && printable && is_utf8(name))
    return Status();
  return Status::error(Code::invalid,
                       "certificate name: give 1 to %d bytes of UTF-8 without control characters",
                       static_cast<int>(kMaxCertificateNameBytes));
}

Status StreamOwners::owner(const EventId& stream, std::string& name) {
  name.clear();
  Status status = get_.prepare(db_, sql::kOwnerGet);
  if (!status.ok()) return status;
  get_.bind_id(1, stream);
  if (get_.step(status, "inbox_owner")) name = std::string(get_.column_text(0));
  get_.reset();
  return status;
}

Status StreamOwners::judge(const EventId& stream, std::string_view name, Verdict& verdict) {
  std::string bound;
  Status status = owner(stream, bound);
  if (status.ok()) status = denied_.prepare(db_, sql::kDeniedGet);
  if (!status.ok()) return status;
  denied_.bind_text(1, name);
  const bool denied = denied_.step(status, "inbox_denied") && denied_.column_int(0) > 0;
  denied_.reset();
  verdict = denied          ? Verdict::denied
            : bound.empty() ? Verdict::unbound
            : bound == name ? Verdict::own
                            : Verdict::foreign;
  return status;
}

Status StreamOwners::bind(const EventId& stream, std::string_view name, std::int64_t wall_ms) {
  Status status = put_.prepare(db_, sql::kOwnerPut);
  if (!status.ok()) return status;
  return put_.bind_id(1, stream)
      .bind_text(2, name)
      .bind(3, std::max<std::int64_t>(0, wall_ms))
      .run("inbox_owner");
}

}  // namespace holdfast
