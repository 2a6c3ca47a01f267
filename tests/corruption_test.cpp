// Damaged files (G10): whatever a medium does to the database or its -wal, no call crashes, hangs
// or says that all is well while rows are gone; relay and gateway stop with a clear status.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "holdfast/gateway.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/damage.hpp"
#include "support/scale.hpp"
#include "support/sinks.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kCallsMs = 20'000;
constexpr int kRelayMs = 5'000;
constexpr std::uint64_t kSeed = 41;

// Ends the program, naming what it hung on, if that takes too long.
class Watchdog {
 public:
  explicit Watchdog(std::string what)
      : what_(std::move(what)), thread_([this] {
          std::unique_lock<std::mutex> lock(mutex_);
          const auto limit = std::chrono::milliseconds(kCallsMs);
          if (changed_.wait_for(lock, limit, [this] { return done_; })) return;
          std::fprintf(stderr, "hangs: %s\n", what_.c_str());
          std::abort();
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

using Contents = std::map<std::int64_t, std::string>;  // seq → state, id, payload

// What the calls on one damaged database said.
struct Verdict {
  std::vector<Status> statuses;
  std::string integrity;  // "" if it could not be asked
  Contents listed;
  std::set<std::string> delivered;
  Status relay;
  bool drained = false;
  bool noticed = false;  // some call said that something is wrong

  void add(const Status& status) {
    statuses.push_back(status);
    noticed = noticed || !status.ok();
  }
};

Status list_all(Store& store, Contents& contents) {
  ListFilter filter;
  filter.all_states = true;
  filter.limit = -1;
  return store.list(filter, [&](const EventView& view) {
    contents[view.event.seq] = view.event.id.text() + " " + view.event.payload;
    return true;
  });
}

void look(const std::string& path, Verdict& verdict) {
  Store store;
  const Status opened = Store::open(path, Access::read_only, {}, store);
  verdict.add(opened);
  if (!opened.ok()) return;
  verdict.add(list_all(store, verdict.listed));
  std::vector<EventView> views;
  for (const std::int64_t seq : {41, 72, 110, 160, 222, 280}) {
    const Status found = store.find(seq, views);
    if (found.code() != Code::not_found) verdict.add(found);
  }
  const Status by_id = store.find(EventId::make_random(), views);
  if (by_id.code() != Code::not_found) verdict.add(by_id);
  StoreStats stats;
  verdict.add(store.stats(stats));
  std::vector<AuditRow> audit;
  verdict.add(store.audit(100, audit));
  verdict.add(store.list_inbox({}, [](const InboxRow&) { return true; }));
  verdict.add(store.list_streams([](const InboxStreamRow&) { return true; }));
  verdict.add(store.list_gaps([](const InboxGapRow&) { return true; }));
  Store::Health health;
  verdict.add(store.health(false, health));
  verdict.integrity = health.integrity;
  if (health.integrity != "ok" || !health.findings.empty()) verdict.noticed = true;
}

void act(const std::string& path, Verdict& verdict) {
  Store store;
  const Status opened = Store::open(path, Access::read_write, {}, store);
  verdict.add(opened);
  if (!opened.ok()) return;
  std::int64_t changed = 0;
  verdict.add(store.retry(72, "", changed));
  verdict.add(store.retry_all_dead("", changed));
  verdict.add(store.discard(61, "", "a test", changed));
  PurgeOptions purge;
  purge.outbox_older_than_ms = 0;
  purge.inbox_older_than_ms = 0;
  PurgeResult purged;
  verdict.add(store.purge(purge, purged));
  const Status begun = store.begin();
  verdict.add(begun);
  if (!begun.ok()) return;
  Outbox outbox;
  Status status = Outbox::attach(store.connection(), {}, outbox);
  if (status.ok()) status = outbox.emit(sensor_event("new"));
  verdict.add(status);
  verdict.add(status.ok() ? store.commit() : store.rollback());
}

void relay_all(const std::string& path, Verdict& verdict) {
  MemorySink sink;
  RelayOptions options;
  options.database = path;
  options.sink = &sink;
  options.retry_delay_min_ms = 1;
  options.retry_delay_max_ms = 2;
  options.link_delay_min_ms = 1;
  options.link_delay_max_ms = 2;
  options.reserve_bytes = 0;
  Relay relay;
  verdict.relay = Relay::start(options, relay);
  if (verdict.relay.ok()) {
    relay.wait(kRelayMs, [](const RelayState& state) {
      return state.drained || state.phase == RelayState::Phase::failed ||
             state.phase == RelayState::Phase::stopped;
    });
    verdict.drained = relay.state().drained;
    verdict.relay = relay.stop();
  }
  verdict.add(verdict.relay);
  for (const EventRecord& event : sink.stored())
    verdict.delivered.insert(event.id.text() + " " + event.payload);
}

void receive(const std::string& path, const std::string& socket, Verdict& verdict) {
  GatewayOptions options;
  options.database = path;
  options.listen = {"ipc://" + socket};
  options.reserve_bytes = 0;
  Gateway gateway;
  const Status started = Gateway::start(options, gateway);
  verdict.add(started);
  if (!started.ok()) return;
  verdict.add(gateway.poll(0));
  gateway.stop();
}

Verdict try_everything(const FilePair& files, const TemporaryDirectory& directory,
                       const std::string& shm = "") {
  const std::string path = directory.file("app.db");
  Verdict verdict;
  const auto fresh = [&] {
    place(files, path);
    if (!shm.empty()) write_file(path + "-shm", shm);
  };
  fresh();
  look(path, verdict);
  act(path, verdict);
  fresh();
  relay_all(path, verdict);
  fresh();
  receive(path, directory.file("s"), verdict);
  fresh();
  InitOptions options;
  options.device = "board-1";
  verdict.add(Store::init(path, options, nullptr));
  return verdict;
}

// These name a cause that a person can act on; a defect of ours or "it may be stored" would not do
// (a COMMIT that met the damage is rightly unknown).
std::string status_problem(const Verdict& verdict) {
  for (const Status& status : verdict.statuses) {
    if (status.code() == Code::internal || status.code() == Code::busy ||
        status.code() == Code::no_space || status.code() == Code::permission)
      return std::string(code_name(status.code())) + ": " + status.text();
    if (status.code() == Code::misuse &&
        std::string(status.text()).find("journal") == std::string::npos)
      return std::string("misuse: ") + status.text();
    if (!status.ok() && std::string(status.text()).empty()) return "a status without a text";
  }
  if (verdict.relay.ok() && !verdict.drained) return "the relay neither drained nor stopped";
  if (verdict.relay.code() == Code::corrupt &&
      std::string(verdict.relay.text()).find("holdfast doctor") == std::string::npos)
    return std::string("no advice: ") + verdict.relay.text();
  return "";
}

// Success although rows are gone or different. SQLite keeps no checksum of a page, so changed bytes
// inside a value can't be seen; and a -wal that was cut is what a power cut leaves: older commits.
std::string silent_loss(const Damage& damage, const Verdict& verdict, const Contents& whole) {
  if (verdict.noticed) return "";
  std::int64_t newest = 0;
  for (const auto& [seq, text] : verdict.listed) {
    if (seq != ++newest && newest > 1) return "a hole before seq " + std::to_string(seq);
    newest = seq;
    const auto same = whole.find(seq);
    if (same == whole.end()) return "an invented event, seq " + std::to_string(seq);
    if (text != same->second && (damage.wal || damage.kind == Damage::Kind::truncate))
      return "another event at seq " + std::to_string(seq);
  }
  const bool wal_gone = damage.wal || damage.kind == Damage::Kind::truncate || damage.offset < 100;
  if (!wal_gone && verdict.listed.size() != whole.size())
    return std::to_string(whole.size() - verdict.listed.size()) + " rows are gone";
  return "";
}

Contents contents_of(const FilePair& files) {
  TemporaryDirectory directory;
  place(files, directory.file("app.db"));
  Store store;
  must(Store::open(directory.file("app.db"), Access::read_only, {}, store));
  Contents contents;
  must(list_all(store, contents));
  return contents;
}

// Every stride-th, so that a smaller scale still sees all kinds.
std::vector<Damage> sample(std::vector<Damage> all, int wanted) {
  std::vector<Damage> out;
  const std::size_t stride =
      std::max<std::size_t>(1, all.size() / static_cast<std::size_t>(wanted));
  for (std::size_t i = 0; i < all.size(); i += stride) out.push_back(all[i]);
  return out;
}

}  // namespace

TEST_CASE("control: the undamaged database passes, and says ok everywhere") {
  const FilePair files = realistic_database();
  TemporaryDirectory directory;
  const Verdict verdict = try_everything(files, directory);
  for (const Status& status : verdict.statuses) CHECK_MESSAGE(status.ok(), status.text());
  CHECK(verdict.integrity == "ok");
  CHECK_FALSE(verdict.noticed);
  CHECK(verdict.listed.size() == 240);
  CHECK(verdict.drained);
  CHECK(verdict.delivered.size() > 150);
  CHECK(status_problem(verdict).empty());
  CHECK(silent_loss({}, verdict, verdict.listed).empty());

  // And the check notices what it is for.
  Contents more = verdict.listed;
  more[1000] = "was there";
  CHECK_FALSE(silent_loss({Damage::Kind::zeros, false, 4096, 1024, 0}, verdict, more).empty());
  Verdict wrong = verdict;
  wrong.listed[500] = "invented";
  CHECK_FALSE(silent_loss({}, wrong, verdict.listed).empty());
  wrong = verdict;
  wrong.drained = false;
  CHECK_FALSE(status_problem(wrong).empty());
  wrong.add(Status::error(Code::internal, "x"));
  CHECK_FALSE(status_problem(wrong).empty());
}

TEST_CASE("no damage to database or -wal crashes or hangs a call, or passes for success (G10)") {
  const std::uint64_t start = seed(kSeed);
  CAPTURE(start);  // HOLDFAST_TEST_SEED
  const FilePair files = realistic_database();
  const Contents whole = contents_of(files);
  TemporaryDirectory directory;
  int noticed = 0, tried = 0;
  for (const Damage& damage : sample(every_damage(files, start), scaled(250))) {
    CAPTURE(damage.text());
    const Watchdog watchdog(damage.text());
    FilePair bad = files;
    damage.apply(bad);
    if (bad.db == files.db && bad.wal == files.wal) continue;
    const Verdict verdict = try_everything(bad, directory);
    CHECK(status_problem(verdict) == "");
    CHECK(silent_loss(damage, verdict, whole) == "");
    noticed += verdict.noticed ? 1 : 0;
    ++tried;
  }
  MESSAGE(tried << " damaged databases, " << noticed << " noticed");
  CHECK(noticed > 0);
  if (tried >= 50) CHECK(noticed > tried / 4);  // 39 % of all; a few say nothing of that
}

TEST_CASE("a -shm full of garbage is built anew: it holds nothing that counts") {
  const FilePair files = realistic_database();
  TemporaryDirectory directory;
  std::uint64_t state = seed(kSeed);
  for (int i = 0; i < scaled(5); ++i) {
    std::string shm(32768, '\0');
    for (char& c : shm) c = static_cast<char>((state = state * 6364136223846793005ULL + 1) >> 56);
    const Watchdog watchdog("-shm " + std::to_string(i));
    const Verdict verdict = try_everything(files, directory, shm);
    for (const Status& status : verdict.statuses) CHECK_MESSAGE(status.ok(), status.text());
    CHECK(verdict.listed.size() == 240);
  }
}

TEST_CASE("no command crashes or hangs on a damaged database; each error is one clear line (G10)") {
  const std::uint64_t start = seed(kSeed + 1);
  CAPTURE(start);  // HOLDFAST_TEST_SEED
  const FilePair files = realistic_database();
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  std::vector<std::vector<std::string>> commands = {
      {"ls", path, "--status", "all"},
      {"show", path, "160"},
      {"stats", path},
      {"doctor", path, "--sync-rounds", "0"},
      {"purge", path, "--older-than", "0s"},
      {"retry", path, "--all-dead"},
      {"inbox", "ls", path},
      {"inbox", "stats", path},
      {"emit", path, "--type", "t", "--aggregate", "sensor/x", "--payload", "1"},
      {"init", path},
      {"relay", path, "--to", "ipc://" + directory.file("nobody"), "--drain", "--drain-timeout",
       "200ms"},
      {"backup", path, directory.file("copy.db")},
  };
  int runs = 0, refused = 0;
  // A handful of damages may all be where none of these commands looks: not fewer than twelve.
  for (const Damage& damage : sample(every_damage(files, start), std::max(12, scaled(12)))) {
    FilePair bad = files;
    damage.apply(bad);
    for (const std::vector<std::string>& each : commands) {
      CAPTURE(damage.text());
      CAPTURE(each[0]);
      place(bad, path);
      std::remove(directory.file("copy.db").c_str());
      const RunResult result = command(each);
      ++runs;
      REQUIRE(result.status.exited);
      CHECK_MESSAGE((result.code() == 0 || result.code() == 1 || result.code() == 3 ||
                     result.code() == 4 || result.code() == 75),
                    result.code());
      if (result.code() != 1) continue;
      ++refused;
      const std::string name = each[0] == "inbox" ? "inbox " + each[1] : each[0];
      // A relay logs as it goes; its last line is the error.
      CHECK(error_line_problem(lines_of(result.err).back() + "\n", name) == "");
      CHECK(result.err.find(path) != std::string::npos);
    }
  }
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  MESSAGE(runs << " commands, " << refused << " refused, at most " << usage.ru_maxrss << " KiB");
  CHECK(refused > 0);
}

TEST_CASE("relay and gateway stop on a damaged database: exit 1, the file and `holdfast doctor`") {
  FilePair files = realistic_database();
  Damage{Damage::Kind::noise, false, 0, kDamagePageBytes, 1}.apply(files);
  files.wal.clear();
  TemporaryDirectory directory;
  const std::string path = directory.file("app.db");
  place(files, path);
  for (const std::vector<std::string>& each :
       {std::vector<std::string>{"relay", path, "--to", "ipc://" + directory.file("s")},
        {"relay", path, "--to", "ipc://" + directory.file("s"), "--drain"},
        {"gateway", path, "--listen", "ipc://" + directory.file("g")}}) {
    CAPTURE(each[0]);
    const RunResult result = command(each);
    CHECK(result.code() == 1);
    CHECK(error_line_problem(result.err, each[0]) == "");
    CHECK(result.err.find(path) != std::string::npos);
    CHECK(result.err.find("holdfast doctor") != std::string::npos);
  }
}
