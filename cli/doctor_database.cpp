// The checks of `holdfast doctor` that read the database.
#include "doctor_checks.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;
// Checkpoints start at 500 frames, so a WAL beyond this is being kept from them.
constexpr std::int64_t kWalNoteBytes = 16 * kMiB;
constexpr std::int64_t kWalWarnBytes = 64 * kMiB;
constexpr int kSynchronousFull = 2;

void check_settings(const Store::Health& health, Findings& out) {
  if (health.journal_mode == "wal") {
    out.add(Level::ok, "journal", "WAL, page size " + std::to_string(health.page_size));
  } else {
    out.add(Level::fail, "journal", "journal_mode is " + health.journal_mode + ", not WAL",
            "run `holdfast init`; while a program holds the file it can't be switched");
  }
  if (health.synchronous >= kSynchronousFull) {
    out.add(Level::ok, "synchronous", health.synchronous == kSynchronousFull ? "FULL" : "EXTRA");
  } else {
    out.add(Level::fail, "synchronous", "below FULL: a power cut may lose the newest events",
            "your build of SQLite has another default; please report this");
  }
}

void check_sqlite(const Store::Health& health, Findings& out) {
  if (health.wal_reset_fixed) {
    out.add(Level::ok, "sqlite", health.sqlite_version);
    return;
  }
  out.add(Level::note, "sqlite",
          health.sqlite_version +
              " has the WAL-reset race, fixed in 3.51.3; Holdfast's own connections are immune",
          "keep other connections from checkpointing: `PRAGMA wal_autocheckpoint=0`");
}

void check_health(Store& store, bool quick, DatabaseFacts& facts, Findings& out) {
  Store::Health health;
  const Status status = store.health(quick, health);
  if (!status.ok()) {
    out.add(Level::fail, "integrity", status.text(),
            "stop what uses the file, then run `holdfast doctor DB --salvage NEW.db`");
    return;
  }
  facts.wal_reset_fixed = health.wal_reset_fixed;
  if (health.integrity == "ok") {
    out.add(Level::ok, "integrity", quick ? "ok (quick check)" : "ok");
  } else {
    out.add(Level::fail, "integrity", health.integrity,
            "stop what uses the file, then run `holdfast doctor DB --salvage NEW.db`");
  }
  check_settings(health, out);
  check_sqlite(health, out);
  if (health.application_triggers_ok) {
    out.add(Level::ok, "triggers", "the log's guard triggers are in place");
  } else {
    out.add(Level::fail, "triggers", "guard triggers of the log are missing or changed",
            "run `holdfast init` to put them back");
  }
}

// Of a database that does not open.
const char* remedy(Code code) {
  switch (code) {
    case Code::not_found:
      return "run `holdfast init` to make it";
    case Code::corrupt:
      return "keep the file and its -wal; run `holdfast doctor DB --salvage NEW.db`";
    case Code::permission:
      return "run this as the user that owns the database";
    case Code::no_schema:
      return "run `holdfast init` to bring it up to date";
    case Code::newer_schema:
      return "use a newer `holdfast`";
    case Code::read_only:
      return "remount the file system read-write; its -wal must be read too";
    case Code::busy:
      return "find the program that holds the lock and end it";
    default:
      return "see that the file system is mounted and healthy";
  }
}

void check_destination(const DestinationStats& d, Findings& out) {
  const std::string pending = plural(d.pending, "event") + " pending";
  if (d.leased) {
    out.add(Level::ok, "relay", d.name + ": active, " + pending);
  } else {
    out.add(d.pending > 0 ? Level::note : Level::ok, "relay",
            d.name + ": no relay is at work, " + pending,
            d.pending > 0 ? "start `holdfast relay`, or see why it does not run" : "");
  }
  if (!d.last_error.empty() && d.link_failures > 0) {
    out.add(Level::note, "link", d.name + ": " + d.last_error);
  }
  if (d.dead > 0) {
    out.add(Level::note, "dead", d.name + ": " + plural(d.dead, "event") + " given up",
            "see `holdfast ls --status dead`, then retry or discard");
  }
}

void check_stats(Store& store, DatabaseFacts& facts, Findings& out) {
  StoreStats stats;
  const Status status = store.stats(stats);
  if (!status.ok()) {
    out.add(Level::fail, "statistics", status.text(),
            "stop what uses the file, then run `holdfast doctor DB --salvage NEW.db`");
    return;
  }
  facts.limits = stats.limits;
  facts.relay_certificate_ends_at_ms = stats.relay_certificate_ends_at_ms;
  facts.gateway_certificate_ends_at_ms = stats.gateway_certificate_ends_at_ms;
  facts.bytes = stats.db_bytes + stats.wal_bytes;
  const Level wal = stats.wal_bytes > kWalWarnBytes   ? Level::warn
                    : stats.wal_bytes > kWalNoteBytes ? Level::note
                                                      : Level::ok;
  out.add(
      wal, "size", format_bytes(stats.db_bytes) + ", WAL " + format_bytes(stats.wal_bytes),
      wal == Level::ok ? "" : "a reader that stays open keeps it from shrinking; find and end it");
  if (stats.forks > 0) {
    out.add(Level::note, "stream",
            "this database was found to be a copy " + plural(stats.forks, "time"));
  }
  for (const DestinationStats& each : stats.destinations) check_destination(each, out);
}

}  // namespace

DatabaseFacts check_database(const std::string& path, bool quick, Findings& out) {
  DatabaseFacts facts;
  Store store;
  const Status status = Store::open(path, Access::read_only, {}, store);
  facts.exists = status.code() != Code::not_found;
  if (!status.ok()) {
    out.add(Level::fail, "database", status.text(), remedy(status.code()));
    return facts;
  }
  out.add(Level::ok, "database", path + ", schema " + std::to_string(kSchemaVersion));
  check_health(store, quick, facts, out);
  check_stats(store, facts, out);
  return facts;
}

}  // namespace holdfast::cli
