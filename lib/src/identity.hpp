// Who a database is: the stream it emits on, the store it is, the label people gave the device.
// A copy of a database reuses its stream; when that shows, the copy takes a new one (G11).
#pragma once

#include <string>

#include "db.hpp"

namespace holdfast {

struct Identity {
  EventId stream{};    // who numbers the events
  EventId store{};     // which database a gateway is
  std::string device;  // a label
};

Status read_identity(sqlite3* db, Identity& identity);

// Inside an open transaction: a new stream id, counted and audited.
Status take_new_stream(sqlite3* db, std::int64_t wall_ms, const char* why);

// A database made by `holdfast backup` carries a mark: it takes a new stream when it is first
// opened for writing, so that a restored backup never speaks with the original's voice.
Status mark_new_stream_on_open(sqlite3* db);
Status honour_new_stream_mark(sqlite3* db, std::int64_t wall_ms);

Status set_device(sqlite3* db, const std::string& device);

// holdfast_meta: when the certificate in use ends, wall ms; 0 or no row: none.
constexpr const char* kRelayCertificateKey = "relay_certificate_ends_at";
constexpr const char* kGatewayCertificateKey = "gateway_certificate_ends_at";

Status add_counter(sqlite3* db, const char* name, std::int64_t delta);
Status add_audit(sqlite3* db, std::int64_t wall_ms, const char* action, const std::string& detail);
constexpr std::int64_t kAuditRowsMax = 10'000;

}  // namespace holdfast
