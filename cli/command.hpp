// What the commands have in common: how they are declared, how they find their database, how help
// looks. Each command is one file with one function here; main.cpp only lists them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exit_status.hpp"
#include "holdfast/event.hpp"
#include "holdfast/store.hpp"

namespace CLI {
class App;
}

namespace holdfast::cli {

// The command that was chosen, with its arguments; returns the exit status.
using Run = std::function<int()>;

void add_init(CLI::App& program, Run& run);
void add_emit(CLI::App& program, Run& run);
void add_ls(CLI::App& program, Run& run);
void add_show(CLI::App& program, Run& run);
void add_resolve(CLI::App& program, Run& run);
void add_stats(CLI::App& program, Run& run);
void add_retry(CLI::App& program, Run& run);
void add_discard(CLI::App& program, Run& run);
void add_purge(CLI::App& program, Run& run);
void add_relay(CLI::App& program, Run& run);
void add_gateway(CLI::App& program, Run& run);
void add_gateway_certificates(CLI::App& gateway, Run& run);
void add_inbox(CLI::App& program, Run& run);
void add_doctor(CLI::App& program, Run& run);
void add_destination(CLI::App& program, Run& run);
void add_certs(CLI::App& program, Run& run);
void add_backup(CLI::App& program, Run& run);
void add_capture(CLI::App& program, Run& run);
void add_bench(CLI::App& program, Run& run);
void add_version(CLI::App& program, Run& run);

// Groups of `holdfast --help`.
constexpr const char* kGroupWrite = "Set up and write";
constexpr const char* kGroupLook = "Look";
constexpr const char* kGroupMove = "Move events";
constexpr const char* kGroupAct = "Act and maintain";

struct CommandText {
  const char* name;
  const char* group;  // nullptr: a command inside another
  const char* description;
  const char* usage;    // after the name: "[DB] ID|SEQ [OPTIONS]"
  const char* details;  // example and exit statuses, whole lines
};
CLI::App* declare(CLI::App& parent, const CommandText& text);
// The same look for the program itself.
void set_help(CLI::App& program, const char* usage, const char* details);

// The positional DB. It may be left out when $HOLDFAST_DB is set.
struct DatabaseArgument {
  std::string first;              // as typed
  std::vector<std::string> rest;  // positionals after it

  void add(CLI::App& command);
  void add_with_rest(CLI::App& command, const char* rest_name, const char* rest_description);

  // The database. Throws CLI::ValidationError if there is none.
  std::string path() const;
  // With a positional after it: if that one is missing and $HOLDFAST_DB is set, the first is it.
  struct Named {
    std::string path;
    std::string name;  // "" if missing
  };
  Named path_and_name() const;
  // With ids after it: if $HOLDFAST_DB is set and the first looks like an id, all of them are ids.
  struct WithIds {
    std::string path;
    std::vector<std::string> ids;
  };
  WithIds path_and_ids() const;
};

// An event as a person names it: a seq, or a UUID.
struct EventName {
  std::int64_t seq = 0;  // 0: by id
  EventId id{};
};
bool parse_event_name(const std::string& text, EventName& name);
// The event at every destination. Not found is an error that says so.
Status find_event(Store& store, const EventName& name, std::vector<EventView>& views);

// "sensor/boiler-1" at its first slash. False if there is none, or a part is empty.
bool split_aggregate(const std::string& text, std::string& type, std::string& id);

// Ends a command that printed: the exit status, or 1 with a line if stdout failed.
class Output;
int finish(const Where& where, Output& out, int exit_status = kExitDone);

}  // namespace holdfast::cli
