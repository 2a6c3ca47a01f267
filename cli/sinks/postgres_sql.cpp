#include "postgres_sql.hpp"

namespace holdfast::cli {
namespace {

// The table's name with something behind it, quoted again.
std::string beside(const std::string& table, const std::string& suffix) {
  return table.substr(0, table.size() - 1) + "_" + suffix + "\"";
}

}  // namespace

std::string postgres_insert(const std::string& table) {
  return "INSERT INTO " + table +
         " (event_id, seq, event_type, aggregate_type, aggregate_id, aggregate_version, created_at,"
         " content_type, trace, headers, lane, source, source_stream, source_seq, payload,"
         " payload_binary)"
         " SELECT event_id, seq, event_type, aggregate_type, aggregate_id, aggregate_version,"
         " to_timestamp(created_at / 1000.0), content_type, trace, headers, lane, source,"
         " source_stream, source_seq, payload, payload_binary"
         " FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[],"
         " $7::bigint[], $8::text[], $9::text[], $10::json[], $11::smallint[], $12::text[],"
         " $13::uuid[], $14::bigint[], $15::text[], $16::bytea[])"
         " AS event (event_id, seq, event_type, aggregate_type, aggregate_id, aggregate_version,"
         " created_at, content_type, trace, headers, lane, source, source_stream, source_seq,"
         " payload, payload_binary)"
         " ON CONFLICT (event_id) DO NOTHING RETURNING event_id";
}

std::string postgres_create(const std::string& table, bool partitioned) {
  return "CREATE TABLE IF NOT EXISTS " + table +
         " (event_id uuid PRIMARY KEY,"
         " seq bigint NOT NULL,"
         " event_type text NOT NULL,"
         " aggregate_type text NOT NULL,"
         " aggregate_id text NOT NULL,"
         " aggregate_version bigint,"
         " created_at timestamptz,"
         " content_type text,"
         " trace text,"
         " headers json,"
         " lane smallint NOT NULL,"
         " source text,"
         " source_stream uuid,"
         " source_seq bigint,"
         " payload text,"
         " payload_binary bytea,"
         " stored_at timestamptz NOT NULL DEFAULT now(),"
         " CHECK ((payload IS NULL) <> (payload_binary IS NULL)))" +
         (partitioned ? " PARTITION BY RANGE (event_id)" : "");
}

std::string postgres_default_partition(const std::string& table) {
  return "CREATE TABLE IF NOT EXISTS " + beside(table, "other") + " PARTITION OF " + table +
         " DEFAULT";
}

std::string postgres_month_partition(const std::string& table, const std::string& suffix,
                                     const std::string& first_id, const std::string& end_id) {
  return "CREATE TABLE IF NOT EXISTS " + beside(table, suffix) + " PARTITION OF " + table +
         " FOR VALUES FROM ('" + first_id + "') TO ('" + end_id + "')";
}

}  // namespace holdfast::cli
