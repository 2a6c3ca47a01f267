// holdfast doctor: is this device able to keep what Holdfast promises?
#include <CLI/CLI.hpp>
#include <cstdio>

#include "command.hpp"
#include "holdfast/clock.hpp"
#include "json.hpp"
#include "output.hpp"
#include "platform.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "doctor", kGroupLook, "Check whether this device can keep events through a power cut.",
    "[DB] [OPTIONS]",
    "Looks at the database (schema, integrity, settings, triggers), at what it lies on (file\n"
    "system, mount options, write cache, space) and at the clock, and times fdatasync in a small\n"
    "file beside the database, which is removed again. Works on a damaged or missing file, too.\n"
    "Levels: ok; note (good to know); warn and fail (events may be lost, or delivery stops).\n"
    "\n"
    "Example:\n"
    "  holdfast doctor /var/lib/app/app.db\n"
    "\n"
    "Exit status: 0 nothing above a note, 1 failed, 2 wrong usage, 3 no such database, 4\n"
    "something to worry about."};

constexpr int kSyncRounds = 50;
// A flash or disk that really stores a block needs longer than this for it.
constexpr std::int64_t kSyncTooFastUs = 20;
constexpr std::int64_t kSyncSlowUs = 250'000;
constexpr std::int64_t kMiB = 1024 * 1024;
constexpr std::int64_t kFreeFailBytes = 4 * kMiB;
constexpr std::int64_t kFreeWarnBytes = 32 * kMiB;
constexpr std::int64_t kFreeInodesWarn = 16;
// Checkpoints start at 500 frames, so a WAL beyond this is being kept from them.
constexpr std::int64_t kWalNoteBytes = 16 * kMiB;
constexpr std::int64_t kWalWarnBytes = 64 * kMiB;
constexpr int kSynchronousFull = 2;

enum class Level { ok, note, warn, fail };

struct Finding {
  Level level = Level::ok;
  std::string check;
  std::string text;
  std::string advice;
};

class Findings {
 public:
  void add(Level level, const char* check, std::string text, std::string advice = {}) {
    if (level > worst_) worst_ = level;
    list_.push_back({level, check, std::move(text), std::move(advice)});
  }
  Level worst() const { return worst_; }
  const std::vector<Finding>& list() const { return list_; }

 private:
  std::vector<Finding> list_;
  Level worst_ = Level::ok;
};

struct Options {
  DatabaseArgument db;
  bool json = false;
  bool quick = false;
  int sync_rounds = kSyncRounds;
};

const char* level_name(Level level) {
  constexpr const char* kNames[] = {"ok", "note", "warn", "fail"};
  return kNames[static_cast<int>(level)];
}

Colour level_colour(Level level) {
  constexpr Colour kColours[] = {Colour::green, Colour::none, Colour::yellow, Colour::red};
  return kColours[static_cast<int>(level)];
}

// --- the database ---

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
              " has the WAL-reset race, fixed in 3.51.3; Holdfast's own "
              "connections are immune",
          "keep other programs from checkpointing: `PRAGMA wal_autocheckpoint=0`");
}

void check_health(Store& store, bool quick, Findings& out) {
  Store::Health health;
  const Status status = store.health(quick, health);
  if (!status.ok()) {
    out.add(Level::fail, "integrity", status.text(), "restore a backup, or copy what is readable");
    return;
  }
  if (health.integrity == "ok") {
    out.add(Level::ok, "integrity", quick ? "ok (quick check)" : "ok");
  } else {
    out.add(Level::fail, "integrity", health.integrity,
            "stop what uses the file, copy it with its -wal file, restore a backup");
  }
  check_settings(health, out);
  check_sqlite(health, out);
  if (health.application_triggers_ok) {
    out.add(Level::ok, "triggers", "the log's guard triggers are in place");
  } else {
    out.add(Level::fail, "triggers", "guard triggers of the log are missing or changed",
            "run `holdfast init` to put them back");
  }
  for (const std::string& finding : health.findings) out.add(Level::warn, "finding", finding);
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

void check_stats(Store& store, Findings& out) {
  StoreStats stats;
  const Status status = store.stats(stats);
  if (!status.ok()) {
    out.add(Level::fail, "statistics", status.text());
    return;
  }
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

// False if there is no such file.
bool check_database(const std::string& path, bool quick, Findings& out) {
  Store store;
  const Status status = Store::open(path, Access::read_only, {}, store);
  if (!status.ok()) {
    const char* advice = "";
    if (status.code() == Code::not_found) advice = "run `holdfast init` to make it";
    if (status.code() == Code::corrupt) advice = "restore a backup; keep the file and its -wal";
    out.add(Level::fail, "database", status.text(), advice);
    return status.code() != Code::not_found;
  }
  out.add(Level::ok, "database", path + ", schema " + std::to_string(kSchemaVersion));
  check_health(store, quick, out);
  check_stats(store, out);
  return true;
}

// --- what it lies on ---

std::string storage_text(const platform::StorageFacts& facts) {
  std::string out = facts.file_system.empty() ? "unknown" : facts.file_system;
  if (!facts.mount_point.empty()) out += " at " + facts.mount_point;
  if (!facts.device.empty()) out += " on " + facts.device;
  if (!facts.model.empty()) out += " (" + facts.model + ")";
  return out;
}

void check_file_system(const platform::StorageFacts& facts, Findings& out) {
  const std::string text = storage_text(facts);
  if (facts.network) {
    out.add(Level::fail, "file system", text + ": a network file system",
            "WAL needs shared memory and real locks; use a local disk");
  } else if (facts.memory) {
    out.add(Level::fail, "file system", text + ": memory, nothing survives a power cut",
            "put the database on flash or disk");
  } else {
    out.add(facts.file_system.empty() ? Level::note : Level::ok, "file system", text);
  }
  if (facts.read_only) {
    out.add(Level::fail, "mount", "read-only: " + facts.mount_options,
            "remount it read-write; if the kernel did this, the medium is failing");
  } else if (!facts.mount_options.empty()) {
    out.add(Level::ok, "mount", facts.mount_options);
  }
  if (!facts.write_cache.empty()) {
    out.add(Level::ok, "write cache",
            facts.write_cache == "write back"
                ? "write back; synced data depends on its flush command"
                : facts.write_cache);
  }
  for (const std::string& each : facts.notes) {
    const bool serious = each.find("power cut") != std::string::npos;
    out.add(serious ? Level::warn : Level::note, "storage", each);
  }
}

void check_space(const platform::StorageFacts& facts, Findings& out) {
  if (facts.free_bytes >= 0) {
    const Level level = facts.free_bytes < kFreeFailBytes   ? Level::fail
                        : facts.free_bytes < kFreeWarnBytes ? Level::warn
                                                            : Level::ok;
    out.add(level, "space",
            format_bytes(facts.free_bytes) + " of " + format_bytes(facts.total_bytes) + " free",
            level == Level::ok ? "" : "free some space; new events are refused when it is full");
  }
  if (facts.free_inodes >= 0 && facts.free_inodes < kFreeInodesWarn) {
    out.add(Level::warn, "inodes", format_count(facts.free_inodes) + " left",
            "remove files that are not needed");
  }
}

void check_sync(const std::string& path, const platform::StorageFacts& facts, int rounds,
                Findings& out) {
  if (rounds == 0) return;
  std::vector<std::int64_t> us;
  const Status status = platform::probe_sync(path, rounds, us);
  if (!status.ok() || us.empty()) {
    out.add(Level::warn, "sync", status.ok() ? "nothing was measured" : status.text(),
            "the directory of the database must be writable, for its -wal file too");
    return;
  }
  const std::int64_t median = us[us.size() / 2];
  const std::string text = "fdatasync takes " + format_count(median) + " us (median of " +
                           std::to_string(us.size()) + "), at most " + format_count(us.back()) +
                           " us";
  const bool real_device = !facts.memory && !facts.network && !facts.device.empty();
  if (median < kSyncTooFastUs && real_device) {
    out.add(Level::warn, "sync", text + ": too fast to be true",
            "the device or a layer above it acknowledges before it stores; try a power cut, or "
            "another card");
  } else if (median > kSyncSlowUs) {
    out.add(Level::note, "sync", text + ": slow", "emit in batches, or use a faster medium");
  } else {
    out.add(Level::ok, "sync", text);
  }
}

void check_clock(Findings& out) {
  const std::int64_t wall_ms = system_clock().wall_ms();
  if (wall_known(wall_ms)) {
    out.add(Level::ok, "clock", format_wall_time(wall_ms));
  } else {
    out.add(Level::note, "clock",
            "never set; order, leases and retries do not depend on it, created_at does",
            "set the time from the network when there is one");
  }
}

// --- telling ---

void print_json(const Findings& findings, Output& out) {
  for (const Finding& each : findings.list()) {
    JsonLine line;
    line.text("check", each.check)
        .text("level", level_name(each.level))
        .text("text", each.text)
        .text_if_set("advice", each.advice);
    out.line(line.finish());
  }
}

void print_text(const Findings& findings, Output& out) {
  for (const Finding& each : findings.list()) {
    char head[32];
    std::snprintf(head, sizeof head, "%-4s", level_name(each.level));
    std::string check = each.check;
    check.resize(std::max<std::size_t>(check.size(), 12), ' ');
    out.line(coloured(out, level_colour(each.level), head) + "  " + check + "  " +
             escaped(each.text));
    if (!each.advice.empty()) out.line("                    > " + escaped(each.advice));
  }
}

int run_doctor(const Options& options) {
  const Where where{"doctor", options.db.path()};
  Findings findings;
  const bool exists = check_database(where.subject, options.quick, findings);
  const platform::StorageFacts facts = platform::probe_storage(where.subject);
  check_file_system(facts, findings);
  check_space(facts, findings);
  check_sync(where.subject, facts, options.sync_rounds, findings);
  check_clock(findings);
  Output out;
  if (options.json) {
    print_json(findings, out);
  } else {
    print_text(findings, out);
  }
  const bool worry = findings.worst() >= Level::warn;
  return finish(where, out, !exists ? kExitNotFound : worry ? kExitWorry : kExitDone);
}

}  // namespace

void add_doctor(CLI::App& program, Run& run) {
  CLI::App* command = declare(program, kText);
  auto options = std::make_shared<Options>();
  options->db.add(*command);
  command->add_flag("--json", options->json, "Print one JSON object per finding");
  command->add_flag("--quick", options->quick,
                    "Skip the part of the integrity check that reads every index");
  command
      ->add_option("--sync-rounds", options->sync_rounds,
                   "Syncs to time; 0 leaves the storage alone")
      ->check(CLI::Range(0, 10'000))
      ->option_text("N [50]");
  command->callback([options, &run] { run = [options] { return run_doctor(*options); }; });
}

}  // namespace holdfast::cli
