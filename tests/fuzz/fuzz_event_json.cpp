// What `holdfast emit --ndjson` reads: lines of a file, an event in each, into a real outbox.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "fuzz.hpp"
#include "holdfast/json.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/store.hpp"
#include "json.hpp"
#include "line_reader.hpp"
#include "support/process.hpp"

using namespace holdfast;
using namespace holdfast::fuzz;

namespace {

constexpr std::size_t kLineBytesMax = 4096;
constexpr std::size_t kDepthMax = 16;

// A file without a file system.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("ndjson", MFD_CLOEXEC)) {
    require(
        fd_ >= 0 && ::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
        "a file in memory can be written");
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// The deepest nesting, as another parser sees it; -1 if it refuses the text.
int depth_by_other_parser(std::string_view text) {
  int deepest = 0;
  const nlohmann::json::parser_callback_t measure = [&](int depth, auto event, auto&) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start)
      deepest = std::max(deepest, depth + 1);
    return true;
  };
  return nlohmann::json::parse(text.begin(), text.end(), measure, false).is_discarded() ? -1
                                                                                        : deepest;
}

// The other parser ends a text at NUL, and refuses numbers that a double can't hold.
void check_json(std::string_view text) {
  const bool valid = json::valid(text, kDepthMax);
  if (text.find('\0') != std::string_view::npos) {
    require(!valid, "NUL is not JSON");
    return;
  }
  const int depth = depth_by_other_parser(text);
  const bool other = depth >= 0 && depth <= static_cast<int>(kDepthMax);
  const bool large_number = text.find_first_of("eE") != std::string_view::npos ||
                            text.size() > std::numeric_limits<double>::max_exponent10;
  require(valid == other || (valid && depth < 0 && large_number),
          "two parsers agree on what JSON is", text);
}

class Site {
 public:
  Site() {
    const std::string path = directory_.file("app.db");
    require_ok(Store::init(path, {}, nullptr), "init");
    require_ok(Store::open(path, Access::read_write, {}, store_), "open");
    require_ok(Outbox::attach(store_.connection(), {}, outbox_), "attach");
  }

  // Emits, reads back what is in the log, and takes it away again.
  void emit(const cli::ParsedEvent& parsed) {
    require_ok(store_.begin(), "begin");
    Emitted emitted;
    const Event event = parsed.event();
    const Status valid = validate(event);
    const Status status = outbox_.emit(event, &emitted);
    require_explained(status, "emit");
    require(status.ok() == valid.ok(), "what is valid is emitted, and nothing else",
            status.ok() ? valid.text() : status.text());
    if (status.ok()) check_row(parsed, emitted);
    require_ok(store_.rollback(), "rollback");
  }

 private:
  void check_row(const cli::ParsedEvent& parsed, const Emitted& emitted) {
    std::vector<EventView> views;
    require_ok(store_.find(emitted.seq, views), "an emitted event is in the log");
    require(views.size() == 1, "an emitted event is in the log once");
    const EventRecord& row = views.front().event;
    require(row.id == emitted.id && row.payload == parsed.payload &&
                row.event_type == parsed.event_type &&
                row.aggregate_type == parsed.aggregate_type &&
                row.aggregate_id == parsed.aggregate_id && row.headers == parsed.headers &&
                row.trace == parsed.trace && row.content_type == parsed.content_type &&
                row.lane == parsed.lane && row.aggregate_version == parsed.aggregate_version &&
                row.ttl_ms == parsed.ttl_ms,
            "the log holds what was given");
    check_line(row);
  }

  // `ls --json` prints what `emit --ndjson` reads.
  static void check_line(const EventRecord& row) {
    const std::string line = cli::event_line(row);
    require(json::valid(line, 64), "a printed line is JSON", line);
    cli::ParsedEvent again;
    std::string why;
    require(cli::parse_event(line, again, why), "what is printed can be read back", why);
    require(again.id == row.id && again.payload == row.payload &&
                again.event_type == row.event_type && again.aggregate_id == row.aggregate_id &&
                again.aggregate_type == row.aggregate_type && again.trace == row.trace &&
                again.content_type == row.content_type && again.lane == row.lane,
            "and says the same", line);
  }

  test::TemporaryDirectory directory_;
  Store store_;
  Outbox outbox_;  // after store_: detached before its connection closes
};

// Lines as the reader gives them are those of the text.
void take_lines(std::string_view text, Site& site) {
  const MemoryFile file(text);
  cli::LineReader reader(kLineBytesMax);
  require_ok(reader.open(file.path()), "open");
  std::string_view line;
  Status status;
  while (reader.next(line, status)) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    require(line == text.substr(0, end), "a line is what stands between two newlines");
    text.remove_prefix(std::min(end + 1, text.size()));
    check_json(line);
    cli::ParsedEvent event;
    std::string why;
    if (cli::parse_event(line, event, why))
      site.emit(event);
    else
      require(!why.empty(), "a bad line has a reason");
  }
  if (status.ok())
    require(text.empty(), "every line is read");
  else
    require(std::min(text.find('\n'), text.size()) > kLineBytesMax, "a line that fits is read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Site site;
  take_lines({reinterpret_cast<const char*>(data), size}, site);
  return 0;
}
