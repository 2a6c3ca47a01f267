// The kept inputs of the fuzz targets (tests/fuzz/corpus), which include everything that fuzzing
// has ever found, through the same functions, built by any compiler and under every sanitizer
// (G10).
#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "support/command_line.hpp"
#include "support/programs.hpp"

using namespace holdfast;
using namespace holdfast::test;

extern "C" {
using Target = int(const std::uint8_t* data, std::size_t size);
// Each is LLVMFuzzerTestOneInput of tests/fuzz/fuzz_….cpp; see the CMakeLists.txt there.
Target fuzz_gateway_frame, fuzz_device_frame, fuzz_event_json, fuzz_url, fuzz_options,
    fuzz_database, fuzz_gateway_control;
}

namespace {

const std::string kCorpus = HOLDFAST_SOURCE "/tests/fuzz/corpus/";
constexpr std::size_t kCorpusBytesMax = 300 * 1024;
constexpr std::size_t kTargets = 6;

std::set<std::string> inputs(const std::string& target) {
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus + target))
    paths.insert(entry.path().string());
  return paths;
}

void feed(Target& target, const std::string& path) {
  const std::string bytes = read_file(path);
  target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

// A broken promise aborts: the input that broke it is on stderr before, and in doctest's report.
void replay(const char* name, Target& target) {
  const std::set<std::string> paths = inputs(name);
  CHECK(paths.size() >= 10);
  for (const std::string& path : paths) {
    CAPTURE(path);
    feed(target, path);
  }
  MESSAGE(paths.size() << " inputs of " << std::string(name));
}

const Program kControl("fuzz_control", [](const Arguments&) {
  for (const std::string& path : inputs("gateway_frame")) feed(fuzz_gateway_control, path);
  return 0;
});

}  // namespace

TEST_CASE("kept inputs: frames of devices at a gateway (G10)") {
  replay("gateway_frame", fuzz_gateway_frame);
}
TEST_CASE("kept inputs: answers of a gateway at a device (G10)") {
  replay("device_frame", fuzz_device_frame);
}
TEST_CASE("kept inputs: lines of events (G10)") { replay("event_json", fuzz_event_json); }
TEST_CASE("kept inputs: addresses (G10)") { replay("url", fuzz_url); }
TEST_CASE("kept inputs: values of options (G10)") { replay("options", fuzz_options); }
TEST_CASE("kept inputs: rows, schema and bytes of databases (G10)") {
  replay("database", fuzz_database);
}

TEST_CASE("control: a gateway that loses what it answered `stored` does not pass") {
  Process control = start_program("fuzz_control", {});
  const ExitStatus status = control.wait(60'000);
  CHECK_FALSE((status.exited && status.code == 0));
  CHECK_FALSE(status.running);
  CHECK(control.stderr_text().find("broken: what was answered `stored` is in the inbox") !=
        std::string::npos);
}

TEST_CASE("the kept inputs are few, and belong to a target") {
  std::size_t bytes = 0, folders = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kCorpus)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
    folders += entry.is_directory() ? 1 : 0;
  }
  CHECK(bytes > 0);
  CHECK(bytes < kCorpusBytesMax);
  CHECK(folders == kTargets);
}
