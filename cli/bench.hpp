// What the measurements of `holdfast bench` have in common: where they work, how long, and what
// they found. Each bench_*.cpp measures one thing. Outbox, inbox, relay and gateway are used as
// applications use them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/outbox.hpp"
#include "holdfast/status.hpp"
#include "signals.hpp"

namespace holdfast::cli::bench {

constexpr std::size_t kPayloadBytes = 256;  // of each event

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  double of_limit = -1;  // value / the disk's own syncs per second just then; -1: not comparable
};

// A new directory that nobody else uses, inside of one that exists; removed with its files.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Status create(const std::string& parent);
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Between two measurements: the disk holds what one of them needs.
  void empty() const;

 private:
  std::string path_;
};

struct Bench {
  Scratch scratch;
  StopSignals signals;
  double seconds = 0;         // of one figure
  std::int64_t rows_max = 0;  // of the largest backlog
  std::vector<Figure> figures;
  std::vector<std::string> left_out;  // figures that cannot be had here, and why
  std::function<void(std::string_view)> progress;

  void add(const std::string& name, double value, const char* unit, double of_limit = -1) {
    figures.push_back({name, value, unit, of_limit});
  }
  std::int64_t slice_ms() const { return static_cast<std::int64_t>(seconds * 1000); }
};

// Each adds its figures. An error ends the run; a signal makes it return early.
Status measure_emit(Bench& bench);
Status measure_drain(Bench& bench);
Status measure_wake_up(Bench& bench);
Status measure_inbox(Bench& bench);
Status measure_backlog(Bench& bench);

// --- clocks and counters ---
double now_seconds();  // CLOCK_MONOTONIC
// A 4 KiB overwrite and fdatasync, again and again beside the databases: so many a second.
Status sync_limit(const Bench& bench, double& per_second);
// What this process gave to write(2) until now, and what of it went to a disk.
struct Written {
  std::int64_t call_bytes = 0, disk_bytes = 0;
};
Written written();
// While one exists, counts what SQLite asks the disk to sync, for all connections opened meanwhile.
class SyncCounter {
 public:
  SyncCounter();
  ~SyncCounter();
  SyncCounter(const SyncCounter&) = delete;
  SyncCounter& operator=(const SyncCounter&) = delete;
  static std::int64_t count();
};
double percentile(std::vector<double>& values, double part);  // sorts; 0 when empty

// --- the application that is measured ---
// One producer: its own connection, outbox and business table.
class Producer {
 public:
  Producer();
  ~Producer();
  Producer(Producer&&) noexcept;
  Status open(const std::string& database, std::function<void()> on_commit = {});
  // One business row and one event in one transaction.
  Status emit();
  // So many events in one transaction; no business rows.
  Status emit_batch(std::int64_t events);
  sqlite3* connection();
  Status write_row(std::int64_t value);  // into the open transaction

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
// All producers of a process, on threads of their own, through one Writer.
class Producers {
 public:
  Producers();
  ~Producers();
  Status open(const std::string& database);
  // One business row and one event; any thread.
  Status emit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
// A new database with outbox, inbox and the business table.
Status create_database(const std::string& path);
// A backlog, in large transactions; stops early when `bench` was told to.
Status fill(Bench& bench, const std::string& database, std::int64_t events);
std::string_view payload();  // JSON text of kPayloadBytes

}  // namespace holdfast::cli::bench
