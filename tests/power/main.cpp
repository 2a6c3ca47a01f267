// The device under test of tests/power: one static program, linked like `holdfast` itself.
//   holdfast_power write DB [--seed N] [--count N] [--ack FILE] [--checkpoint-frames N] [--relaxed]
//   holdfast_power judge DB [--seed N]
//   as process 1: a virtual machine's only program (guest.hpp)
// What it says is listed in report.hpp. Exit status: 0 done, 1 failed, 2 wrong usage.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "guest.hpp"
#include "report.hpp"
#include "workload.hpp"

namespace {

using namespace holdfast::power;

int usage() {
  say("failed usage: holdfast_power write|judge DB [OPTIONS]");
  return 2;
}

bool parse(int argc, char** argv, Workload& workload) {
  for (int i = 3; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--relaxed") {
      workload.relaxed = true;
      continue;
    }
    if (++i == argc) return false;
    if (option == "--seed") {
      workload.seed = std::strtoull(argv[i], nullptr, 10);
    } else if (option == "--count") {
      workload.count = std::atoll(argv[i]);
    } else if (option == "--checkpoint-frames") {
      workload.checkpoint_frames = std::atoi(argv[i]);
    } else if (option == "--ack") {
      report_fd() = open(argv[i], O_WRONLY | O_CLOEXEC);
      if (report_fd() < 0) return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (getpid() == 1 && argc < 3) run_guest();
  Workload workload;
  if (argc < 3 || !parse(argc, argv, workload)) return usage();
  workload.database = argv[2];
  const std::string command = argv[1];
  if (command == "judge") {
    say_verdict(judge(workload.database, workload.seed));
    return 0;
  }
  if (command != "write") return usage();
  try {
    write(workload, say_acked);
    return 0;
  } catch (const std::exception& error) {
    say("failed %s", error.what());
    return 1;
  }
}
