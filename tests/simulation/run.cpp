#include "run.hpp"

#include <cstdio>

#include "support/crash_disk.hpp"

namespace holdfast::simulation {

void Figures::add(const Figures& other) {
  const auto each = [](const Figures& of) {
    return std::vector<std::int64_t>{
        of.cuts,    of.cuts_of_gateway, of.cuts_in_boot,  of.transactions,
        of.events,  of.unknown,         of.unknown_there, of.frames,
        of.dropped, of.copied,          of.late,          of.wall_jumps,
        of.dead,    of.discarded,       of.duplicates,    of.applied};
  };
  const std::vector<std::int64_t> more = each(other);
  std::size_t i = 0;
  for (std::int64_t* mine :
       {&cuts, &cuts_of_gateway, &cuts_in_boot, &transactions, &events, &unknown, &unknown_there,
        &frames, &dropped, &copied, &late, &wall_jumps, &dead, &discarded, &duplicates, &applied})
    *mine += more[i++];
}

EventId Run::id() {
  EventId id;
  for (auto& byte : id.bytes) byte = static_cast<std::uint8_t>(random());
  return id;
}

EventId Run::fixed_id(std::uint64_t which) const {
  std::mt19937_64 own(seed * 2 + which);
  EventId id;
  for (auto& byte : id.bytes) byte = static_cast<std::uint8_t>(own());
  return id;
}

void Run::note(std::uint64_t number) { digest = test::hash_bytes(digest, &number, sizeof number); }

void Run::say(const std::string& who, const std::string& what) const {
  if (trace) std::printf("%-8s %s\n", who.c_str(), what.c_str());
}

void Run::breach(const std::string& what) {
  say("BROKEN", what);
  broken.push_back(what);
}

}  // namespace holdfast::simulation
