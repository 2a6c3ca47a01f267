// holdfast-sim: the two-node simulation, layer L3 of "Power cuts" in tests/README.md.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "simulation.hpp"
#include "support/scale.hpp"

namespace {

using namespace holdfast::simulation;

constexpr const char* kUsage =
    "usage: holdfast-sim --seed N [--trace] [--control NAME]   one run\n"
    "       holdfast-sim --seeds FROM COUNT [--control NAME]   many\n"
    "       holdfast-sim --controls                            each must be caught\n"
    "       holdfast-sim --test PART                           part 1 or 2 of `make test`\n"
    "       holdfast-sim --soak                                for HOLDFAST_SOAK_SECONDS\n"
    "exit status: 0 every promise was kept, 1 one was broken, 2 wrong usage\n";

constexpr int kTestSeeds = 1'250;  // of each of the two parts
constexpr int kTwice = 20;         // seeds that run twice, to see that they replay
constexpr std::uint64_t kControlSeedsMax = 500;
constexpr int kFailuresMax = 5;

struct Named {
  Control control;
  const char* name;
  const char* what;
};
constexpr Named kControls[] = {
    {Control::marked_before_ack, "marked-before-ack",
     "events are marked as sent when they are sent"},
    {Control::answer_first, "answer-first", "the gateway answers before its commit"},
    {Control::gateway_unsynced, "gateway-unsynced", "the gateway commits at synchronous OFF"},
    {Control::effect_outside, "effect-outside", "the effect is a commit of its own"},
    {Control::marks_forgotten, "marks-forgotten", "a gateway boots without marks and inbox rows"},
    {Control::wall_clock, "wall-clock", "leases and back-offs go by the wall clock"},
    {Control::application_normal, "application-normal", "the application commits at NORMAL"},
};

struct Options {
  std::uint64_t from = 0, count = 0;
  Control control = Control::none;
  const char* control_name = "";
  bool trace = false, controls = false, soak = false;
  int part = 0;
};

const char* program = "holdfast-sim";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class Tally {
 public:
  // False: a promise was broken; it was told, with the way to see it again.
  bool run(std::uint64_t seed, const Options& options) {
    Simulation simulation(seed, options.control, options.trace);
    const Run& run = simulation.go();
    ++seeds_;
    figures_.add(run.figures);
    digest_ = run.digest;
    if (run.broken.empty()) return true;
    ++failures_;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                first_line(run.broken.front()).c_str());
    if (!options.trace)
      std::printf("  replay: %s --seed %llu --trace%s%s\n", program,
                  static_cast<unsigned long long>(seed),
                  options.control == Control::none ? "" : " --control ", options.control_name);
    return false;
  }

  void print() const {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    const Figures& f = figures_;
    std::printf("%lld seeds in %.1f s: %lld broke a promise\n", ll(seeds_), seconds, ll(failures_));
    std::printf("  power cuts %lld (device %lld, gateway %lld; %lld of them while booting)\n",
                ll(f.cuts), ll(f.cuts - f.cuts_of_gateway), ll(f.cuts_of_gateway),
                ll(f.cuts_in_boot));
    std::printf(
        "  transactions %lld, events %lld; COMMITs without an answer %lld, of which %lld"
        " stood\n",
        ll(f.transactions), ll(f.events), ll(f.unknown), ll(f.unknown_there));
    std::printf("  frames %lld, lost %lld, copied %lld, out of order %lld; wall clock jumps %lld\n",
                ll(f.frames), ll(f.dropped), ll(f.copied), ll(f.late), ll(f.wall_jumps));
    std::printf("  applied %lld, duplicates filtered %lld, dead %lld, discarded %lld\n",
                ll(f.applied), ll(f.duplicates), ll(f.dead), ll(f.discarded));
  }

  int failures() const { return failures_; }
  std::uint64_t digest() const { return digest_; }

 private:
  static long long ll(std::int64_t value) { return static_cast<long long>(value); }

  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::int64_t seeds_ = 0;
  int failures_ = 0;
  Figures figures_;
  std::uint64_t digest_ = 0;
};

bool run_seeds(std::uint64_t from, std::uint64_t count, const Options& options) {
  Tally tally;
  for (std::uint64_t seed = from; seed < from + count && tally.failures() < kFailuresMax; ++seed)
    tally.run(seed, options);
  tally.print();
  return tally.failures() == 0;
}

bool replays(std::uint64_t from, std::uint64_t count) {
  Tally tally;
  int different = 0;
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    tally.run(seed, Options());
    const std::uint64_t first = tally.digest();
    tally.run(seed, Options());
    if (first != tally.digest()) ++different;
  }
  std::printf("%llu seeds ran twice: %d went another way\n", static_cast<unsigned long long>(count),
              different);
  return different == 0 && tally.failures() == 0;
}

bool run_controls() {
  bool all = true;
  for (const Named& named : kControls) {
    std::uint64_t seed = 1;
    std::string first;
    for (; seed <= kControlSeedsMax && first.empty(); ++seed) {
      Simulation simulation(seed, named.control, false);
      const Run& run = simulation.go();
      if (!run.broken.empty()) first = first_line(run.broken.front());
    }
    all = all && !first.empty();
    if (first.empty())
      std::printf("control %s (%s): NOT CAUGHT in %llu seeds\n", named.name, named.what,
                  static_cast<unsigned long long>(kControlSeedsMax));
    else
      std::printf("control %s (%s): caught by seed %llu: %s\n", named.name, named.what,
                  static_cast<unsigned long long>(seed - 1), first.c_str());
  }
  return all;
}

bool run_test(int part) {
  const auto count = static_cast<std::uint64_t>(holdfast::test::scaled(kTestSeeds));
  const std::uint64_t from =
      holdfast::test::seed(1) + static_cast<std::uint64_t>(part - 1) * kTestSeeds;
  const bool kept = run_seeds(from, count, Options());
  if (part == 1) return kept;
  const bool same = replays(from, std::min<std::uint64_t>(count, kTwice));
  return run_controls() && kept && same;
}

// From the seed of the day on, unless HOLDFAST_TEST_SEED says where.
bool soak() {
  const char* const text = std::getenv("HOLDFAST_SOAK_SECONDS");
  const auto limit = std::chrono::seconds(text != nullptr ? std::atoi(text) : 600);
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t from = holdfast::test::seed(
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                 std::chrono::hours(24)) *
      10'000'000);
  std::printf("from seed %llu on\n", static_cast<unsigned long long>(from));
  Tally tally;
  for (std::uint64_t seed = from;
       std::chrono::steady_clock::now() - began < limit && tally.failures() < kFailuresMax; ++seed)
    tally.run(seed, Options());
  tally.print();
  return tally.failures() == 0;
}

bool read_number(const char* text, std::uint64_t& number) {
  char* end = nullptr;
  number = std::strtoull(text, &end, 10);
  return *text != 0 && *end == 0;
}

bool read_control(const std::string& name, Options& options) {
  for (const Named& named : kControls) {
    if (name != named.name) continue;
    options.control = named.control;
    options.control_name = named.name;
  }
  return options.control != Control::none;
}

bool read_options(int argc, char** argv, Options& options) {
  std::uint64_t part = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const int left = argc - i - 1;
    bool fine = true;
    if (option == "--seed" && left >= 1) {
      fine = read_number(argv[++i], options.from);
      options.count = 1;
    } else if (option == "--seeds" && left >= 2) {
      fine = read_number(argv[i + 1], options.from) && read_number(argv[i + 2], options.count);
      i += 2;
    } else if (option == "--control" && left >= 1) {
      fine = read_control(argv[++i], options);
    } else if (option == "--test" && left >= 1) {
      fine = read_number(argv[++i], part) && (part == 1 || part == 2);
    } else if (option == "--trace") {
      options.trace = true;
    } else if (option == "--controls") {
      options.controls = true;
    } else if (option == "--soak") {
      options.soak = true;
    } else {
      fine = false;
    }
    if (!fine) return false;
  }
  options.part = static_cast<int>(part);
  return (options.count > 0) + options.controls + options.soak + (part > 0) == 1;
}

}  // namespace

int main(int argc, char** argv) {
  program = argv[0];
  Options options;
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::printf("%s", kUsage);
    return 0;
  }
  if (!read_options(argc, argv, options)) {
    std::fprintf(stderr, "%s", kUsage);
    return 2;
  }
  const bool kept = options.controls   ? run_controls()
                    : options.soak     ? soak()
                    : options.part > 0 ? run_test(options.part)
                                       : run_seeds(options.from, options.count, options);
  return kept ? 0 : 1;
}
