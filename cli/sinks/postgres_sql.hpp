// Every statement that a postgres:// sink says.
#pragma once

#include <string>

namespace holdfast::cli {

constexpr std::size_t kPostgresColumnCount = 16;

// Refusing to wait for ever for somebody's lock on the table, and durable whatever the role's
// default.
constexpr const char* kPostgresSession =
    "SELECT set_config('lock_timeout', '10s', false), set_config('synchronous_commit', CASE WHEN "
    "current_setting('synchronous_commit') = 'off' THEN 'on' ELSE "
    "current_setting('synchronous_commit') END, false)";
constexpr const char* kPostgresEncoding = "SHOW server_encoding";
constexpr const char* kPostgresBegin = "BEGIN";
// Deferred ones would tell at COMMIT, of no event in particular.
constexpr const char* kPostgresConstraints = "SET CONSTRAINTS ALL IMMEDIATE";
constexpr const char* kPostgresCommit = "COMMIT";
constexpr const char* kPostgresSavepoint = "SAVEPOINT part";
constexpr const char* kPostgresRollbackTo = "ROLLBACK TO SAVEPOINT part";

// `table` is quoted.
std::string postgres_insert(const std::string& table);
std::string postgres_create(const std::string& table, bool partitioned);
std::string postgres_default_partition(const std::string& table);
std::string postgres_month_partition(const std::string& table, const std::string& suffix,
                                     const std::string& first_id, const std::string& end_id);

}  // namespace holdfast::cli
