// The checks of `holdfast doctor` of what the database lies on.
#include "doctor_checks.hpp"
#include "output.hpp"
#include "platform.hpp"

namespace holdfast::cli {
namespace {

// A flash or disk that really stores a block needs longer than this for it.
constexpr std::int64_t kSyncTooFastUs = 20;
constexpr std::int64_t kSyncSlowUs = 250'000;
constexpr std::int64_t kMiB = 1024 * 1024;
constexpr std::int64_t kFreeFailBytes = 4 * kMiB;
constexpr std::int64_t kFreeWarnBytes = 32 * kMiB;
constexpr std::int64_t kFreeInodesWarn = 16;

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
  for (const platform::StorageFacts::Danger& each : facts.dangers)
    out.add(Level::warn, "storage", each.text, each.remedy);
  for (const std::string& each : facts.notes) out.add(Level::note, "storage", each);
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

// Can the database grow to its cap, as the application expects?
void check_cap(const platform::StorageFacts& facts, const DatabaseFacts& database, Findings& out) {
  if (!database.exists || facts.free_bytes < 0) return;
  const std::int64_t cap = database.limits.max_bytes;
  const std::int64_t room = facts.free_bytes + database.bytes;
  if (cap == 0) {
    const bool counted = database.limits.max_events > 0;
    out.add(Level::ok, "cap",
            counted ? plural(database.limits.max_events, "event") + ", no cap in bytes"
                    : "none: without a gateway the log grows until the disk is full");
  } else if (cap > room) {
    out.add(Level::warn, "cap",
            format_bytes(cap) + ", but there is room for " + format_bytes(room) +
                " only: the disk is full before the cap is reached",
            "free some space, or lower it: `holdfast init DB --max-bytes SIZE`");
  } else {
    out.add(Level::ok, "cap", format_bytes(cap) + ", there is room for it");
  }
}

// A new -wal must survive a power cut, and that takes a sync of its folder.
void check_folder_sync(const std::string& path, Findings& out) {
  const Status status = platform::sync_parent_directory(path);
  if (status.ok()) {
    out.add(Level::ok, "folder sync", "works");
  } else {
    out.add(Level::warn, "folder sync", status.text(),
            "new files may vanish at a power cut; use a file system that syncs folders");
  }
}

void check_sync(const std::string& path, const platform::StorageFacts& facts, int rounds,
                Findings& out) {
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

}  // namespace

void check_storage(const std::string& path, const DatabaseFacts& database, int sync_rounds,
                   Findings& out) {
  const platform::StorageFacts facts = platform::probe_storage(path);
  check_file_system(facts, out);
  check_space(facts, out);
  check_cap(facts, database, out);
  if (sync_rounds == 0) return;
  check_folder_sync(path, out);
  check_sync(path, facts, sync_rounds, out);
}

}  // namespace holdfast::cli
