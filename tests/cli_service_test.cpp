// What a supervisor such as systemd hears of relay and gateway: sd_notify(3), on a real socket.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <stdexcept>

#include "holdfast/clock.hpp"
#include "support/command_line.hpp"

using namespace holdfast::test;

namespace {

constexpr int kSoonMs = 20'000;
constexpr int kDeadAfterMs = 900;  // of the watchdog

// The supervisor's end.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& address) : address_(address) {
    struct sockaddr_un name{};
    name.sun_family = AF_UNIX;
    REQUIRE(address.size() < sizeof name.sun_path);
    ::memcpy(name.sun_path, address.data(), address.size());
    if (address[0] == '@') name.sun_path[0] = '\0';
    fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const auto bytes =
        static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + address.size());
    REQUIRE(::bind(fd_, reinterpret_cast<const struct sockaddr*>(&name), bytes) == 0);
  }
  ~NotifySocket() { ::close(fd_); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  SpawnOptions options(bool watchdog) const {
    SpawnOptions options;
    options.env["NOTIFY_SOCKET"] = address_;
    options.unset_env = {"WATCHDOG_PID"};
    if (watchdog) options.env["WATCHDOG_USEC"] = std::to_string(kDeadAfterMs * 1000);
    return options;
  }
  // "" if none comes in time.
  std::string next(int timeout_ms) {
    struct pollfd one{fd_, POLLIN, 0};
    char text[512];
    if (::poll(&one, 1, timeout_ms) != 1) return "";
    const ssize_t bytes = ::recv(fd_, text, sizeof text, 0);
    return bytes < 0 ? "" : std::string(text, static_cast<std::size_t>(bytes));
  }
  // How many WATCHDOG=1 come within the time.
  int beats(int within_ms) {
    const holdfast::Clock& clock = holdfast::system_clock();
    const std::int64_t end = clock.boot_ms() + within_ms;
    int count = 0;
    for (std::int64_t now = clock.boot_ms(); now < end; now = clock.boot_ms())
      count += next(static_cast<int>(end - now)) == "WATCHDOG=1" ? 1 : 0;
    return count;
  }
  std::string next_but_beats() {
    for (;;) {
      std::string text = next(kSoonMs);
      if (text != "WATCHDOG=1") return text;
    }
  }

 private:
  std::string address_;
  int fd_ = -1;
};

void is_watched(NotifySocket& supervisor, Process& process, const std::string& status) {
  CHECK(supervisor.next(kSoonMs) == "READY=1\nSTATUS=" + status);
  CHECK(supervisor.beats(2 * kDeadAfterMs) >= 2);
  process.kill(SIGSTOP);  // the control: a program that does not run is not alive
  supervisor.beats(200);  // what was sent before
  CHECK(supervisor.beats(2 * kDeadAfterMs) == 0);
  process.kill(SIGCONT);
  CHECK(supervisor.beats(2 * kDeadAfterMs) >= 1);
  process.kill(SIGTERM);
  CHECK(supervisor.next_but_beats() == "STOPPING=1");
  CHECK(process.wait(kSoonMs).code == 0);
}

}  // namespace

TEST_CASE("relay: a supervisor hears that it is ready, alive, stopping") {
  const Database db;
  NotifySocket supervisor(db.file("notify"));
  const std::string url = "ipc://" + db.file("nobody");
  Process relay = start_command({"relay", db.path(), "--to", url}, supervisor.options(true));
  is_watched(supervisor, relay, "forwarding " + db.path() + " as upstream to " + url);
}

TEST_CASE("gateway: a supervisor hears that it is ready, alive, stopping") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("gateway.db");
  NotifySocket supervisor("@holdfast-test-" + std::to_string(::getpid()));
  Process gateway = start_command({"gateway", path, "--listen", "ipc://" + folder.file("g")},
                                  supervisor.options(true));
  is_watched(supervisor, gateway, "storing events in " + path);
}

TEST_CASE("without a watchdog nothing is sent between ready and stopping") {
  const Database db;
  NotifySocket supervisor(db.file("notify"));
  const std::vector<std::string> arguments = {"relay", db.path(), "--to",
                                              "ipc://" + db.file("nobody")};
  SpawnOptions options = supervisor.options(false);
  SUBCASE("none") {}
  SUBCASE("another process's") {
    options = supervisor.options(true);
    options.env["WATCHDOG_PID"] = "1";
  }
  Process relay = start_command(arguments, options);
  CHECK(supervisor.next(kSoonMs).find("READY=1\n") == 0);
  CHECK(supervisor.next(2 * kDeadAfterMs) == "");
  relay.kill(SIGTERM);
  CHECK(supervisor.next(kSoonMs) == "STOPPING=1");
}

TEST_CASE("a supervisor that does not listen is one warning, and no reason to stop") {
  const Database db;
  SpawnOptions options;
  options.env["NOTIFY_SOCKET"] = db.file("gone");
  options.env["WATCHDOG_USEC"] = "30000";
  Process relay =
      start_command({"relay", db.path(), "--to", "ipc://" + db.file("nobody")}, options);
  CHECK(relay.wait_for_stderr("can't be told", kSoonMs) != "");
  CHECK(relay.wait_for_stderr("forwarding", kSoonMs) != "");
  ::usleep(300'000);
  relay.kill(SIGTERM);
  CHECK(relay.wait(kSoonMs).code == 0);
  const std::string said = relay.stderr_text();
  CHECK(said.find("can't be told") == said.rfind("can't be told"));
}
