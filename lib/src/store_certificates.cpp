// The part of Store that says which certificate name may write which stream of a gateway.
#include <algorithm>

#include "identity.hpp"
#include "owners.hpp"
#include "schema.hpp"
#include "store_impl.hpp"

namespace holdfast {

Status Store::list_certificates(const std::function<bool(const CertificateStream&)>& fn) {
  if (!impl_) return not_open("certificates");
  Statement statement;
  Status status = statement.prepare(impl_->db.handle(), sql::kCertificateStreams);
  if (!status.ok()) return status;
  std::vector<CertificateStream> rows;
  while (statement.step(status, "inbox_owner")) {
    CertificateStream row;
    row.name = std::string(statement.column_text(0));
    row.denied = statement.column_int(1) != 0;
    if (!statement.column_id(2, row.stream)) row.stream = EventId();
    row.first_seen_at_ms = statement.column_int(3);
    row.device = std::string(statement.column_text(4));
    row.last_seen_at_ms = statement.column_int(5);
    row.events = statement.column_int(6);
    rows.push_back(std::move(row));
  }
  statement.finalize();
  for (const CertificateStream& row : rows)
    if (status.ok() && !fn(row)) break;
  return status;
}

namespace {

Status set_denied(Db& db, const std::string& name, std::int64_t wall_ms, bool denied,
                  bool& changed) {
  Statement statement;
  Status status = statement.prepare(db.handle(), denied ? sql::kDeniedPut : sql::kDeniedDelete);
  if (!status.ok()) return status;
  statement.bind_text(1, name);
  if (denied) statement.bind(2, std::max<std::int64_t>(0, wall_ms));
  status = statement.run("inbox_denied");
  changed = status.ok() && db.changes() > 0;
  return status;
}

Status rebind(sqlite3* db, const EventId& stream, const std::string& name, std::int64_t wall_ms,
              bool& changed) {
  Statement known;
  Status status = known.prepare(db, sql::kStreamKnown);
  if (!status.ok()) return status;
  known.bind_id(1, stream);
  const bool exists = known.step(status, "inbox_stream") && known.column_int(0) > 0;
  known.finalize();
  if (status.ok() && !exists)
    return Status::error(Code::not_found,
                         "stream %s has written nothing here; see `holdfast gateway list` and "
                         "`holdfast inbox stats`",
                         stream.text().c_str());
  StreamOwners owners(db);
  std::string owner;
  if (status.ok()) status = owners.owner(stream, owner);
  if (!status.ok() || owner == name) return status;
  changed = true;
  status = owners.bind(stream, name, wall_ms);
  return status.ok() ? add_audit(db, wall_ms, "certificate_bind",
                                 name + ", stream " + stream.text() +
                                     ", before: " + (owner.empty() ? "none" : owner))
                     : status;
}

// Both calls: one transaction, with an audit row for each thing that changed.
Status change_certificate(Db& db, std::int64_t wall_ms, const std::string& name, bool denied,
                          const EventId& stream, bool& changed) {
  Status status = check_certificate_name(name);
  if (!status.ok()) return status;
  Transaction transaction(db.handle());
  status = transaction.begin();
  if (status.ok()) status = set_denied(db, name, wall_ms, denied, changed);
  if (status.ok() && changed)
    status =
        add_audit(db.handle(), wall_ms, denied ? "certificate_deny" : "certificate_allow", name);
  if (status.ok() && !stream.nil()) status = rebind(db.handle(), stream, name, wall_ms, changed);
  return status.ok() ? transaction.commit() : status;
}

}  // namespace

Status Store::allow_certificate(const std::string& name, const EventId& stream, bool& changed) {
  changed = false;
  if (!impl_) return not_open("certificates");
  return change_certificate(impl_->db, impl_->clock().wall_ms(), name, false, stream, changed);
}

Status Store::deny_certificate(const std::string& name, bool& changed) {
  changed = false;
  if (!impl_) return not_open("certificates");
  return change_certificate(impl_->db, impl_->clock().wall_ms(), name, true, EventId{}, changed);
}

}  // namespace holdfast
