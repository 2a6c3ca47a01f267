// holdfast doctor: is this device able to keep what Holdfast promises?
#include <CLI/CLI.hpp>
#include <cstdio>

#include "command.hpp"
#include "doctor_checks.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/tls.hpp"
#include "json.hpp"
#include "output.hpp"
#include "salvage.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "doctor", kGroupLook, "Check whether this device can keep events through a power cut.",
    "[DB] [OPTIONS]",
    "Looks at the database (schema, integrity, settings, triggers), at who has it open, at what "
    "it\n"
    "lies on (file system, mount options, write cache, space), at the clock and at when the "
    "certificates\n"
    "end that relay and gateway use (warn: in less than 30 days, fail: expired), and times "
    "fdatasync\n"
    "in a small file beside the database, which is removed again. Works on a damaged or missing\n"
    "file, too. Run as root it sees the programs of other users as well.\n"
    "Levels: ok; note (good to know); warn and fail (events may be lost, or delivery stops), each\n"
    "with a remedy.\n"
    "\n"
    "With --salvage nothing is checked: every event that can still be read, with its state, and\n"
    "what the receiving side knows, go to a new database, page by page, whatever SQLite itself "
    "can\n"
    "open. Tables of the application are not copied. Stop its programs first; the damaged file "
    "and\n"
    "its -wal are only read. The new database begins a new stream, and tells the gateway which\n"
    "events are lost.\n"
    "\n"
    "Examples:\n"
    "  holdfast doctor /var/lib/app/app.db\n"
    "  holdfast doctor /var/lib/app/app.db --salvage /var/lib/app/new.db\n"
    "\n"
    "Exit status: 0 nothing above a note, or all salvaged, 1 failed, 2 wrong usage, 3 no such\n"
    "database, 4 something to worry about, or lost, 75 in use."};

constexpr int kSyncRounds = 50;

struct Options {
  DatabaseArgument db;
  bool json = false;
  bool quick = false;
  int sync_rounds = kSyncRounds;
  std::string user;
  std::string salvage;
  std::string tls_cert;
};

const char* level_name(Level level) {
  constexpr const char* kNames[] = {"ok", "note", "warn", "fail"};
  return kNames[static_cast<int>(level)];
}

Colour level_colour(Level level) {
  constexpr Colour kColours[] = {Colour::green, Colour::none, Colour::yellow, Colour::red};
  return kColours[static_cast<int>(level)];
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

void check_certificate_end(const std::string& whose, std::int64_t ends_at_ms, Findings& out) {
  const std::int64_t now = system_clock().wall_ms();
  const std::string when = whose + " ends " + format_wall_time(ends_at_ms);
  const char* const remedy =
      "make a new one of the same name (`holdfast certs`, or your CA) over the same files; they "
      "are "
      "read again by themselves";
  if (!wall_known(now)) {
    out.add(Level::note, "certificate", when + "; the clock is not set, so it is not compared");
  } else if (ends_at_ms < now) {
    out.add(Level::fail, "certificate", when + ": it has expired, and nothing gets through",
            remedy);
  } else {
    const bool soon = ends_at_ms - now < kCertificateWarnMs;
    out.add(soon ? Level::warn : Level::ok, "certificate",
            when + (soon ? ": in less than 30 days" : ""), soon ? remedy : "");
  }
}

// Those that relay and gateway said they use, and one that is named.
void check_certificates(const DatabaseFacts& database, const std::string& file, Findings& out) {
  if (database.relay_certificate_ends_at_ms > 0)
    check_certificate_end("that of the relay", database.relay_certificate_ends_at_ms, out);
  if (database.gateway_certificate_ends_at_ms > 0)
    check_certificate_end("that of the gateway", database.gateway_certificate_ends_at_ms, out);
  if (file.empty()) return;
  CertificateFacts facts;
  const Status status = read_certificate(file, facts);
  if (status.ok()) {
    check_certificate_end(file, facts.not_after_ms, out);
  } else {
    out.add(Level::fail, "certificate", status.text(), "name the PEM file that --tls-cert has");
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
  if (!options.salvage.empty())
    return run_salvage(options.db.path(), options.salvage, options.json);
  const Where where{"doctor", options.db.path()};
  Findings findings;
  const DatabaseFacts database = check_database(where.subject, options.quick, findings);
  check_access(where.subject, database, options.user, findings);
  check_storage(where.subject, database, options.sync_rounds, findings);
  check_clock(findings);
  check_certificates(database, options.tls_cert, findings);
  Output out;
  if (options.json) {
    print_json(findings, out);
  } else {
    print_text(findings, out);
  }
  const bool worry = findings.worst() >= Level::warn;
  return finish(where, out, !database.exists ? kExitNotFound : worry ? kExitWorry : kExitDone);
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
  command
      ->add_option("--user", options->user,
                   "Check that this user can open database, -wal, -shm and folder [holdfast]")
      ->option_text("NAME");
  command
      ->add_option("--tls-cert", options->tls_cert,
                   "Also this certificate's end; those in use are known from the database")
      ->option_text("FILE");
  command->add_option("--salvage", options->salvage, "Copy what is readable to a new database")
      ->option_text("NEW.db");
  command->callback([options, &run] { run = [options] { return run_doctor(*options); }; });
}

}  // namespace holdfast::cli
