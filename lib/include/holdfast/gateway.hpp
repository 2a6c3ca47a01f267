// The gateway: accepts batches from many devices, applies each event once (G4) and answers only
// after its own durable commit (G3). Commits of many devices are grouped into one fsync.
//
// Without a handler, accepted events are appended to the gateway's own log (outbox_event with
// source set), from where relays and sinks carry them on. With a handler, your code runs inside the
// transaction that holds the inbox row.
//
// Thread: everything, handlers included, runs on the thread that calls poll().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/clock.hpp"
#include "holdfast/inbox.hpp"
#include "holdfast/log.hpp"
#include "holdfast/status.hpp"
#include "holdfast/tls.hpp"

namespace holdfast {

constexpr const char* kDefaultConsumer = "log";
constexpr int kGatewayContexts = 64;  // requests taken from the network at once
// What is there already is committed together, with one fsync; nothing is waited for. At most:
constexpr int kGroupFramesMax = 64;
constexpr std::size_t kGroupBytesMax = 4 * 1024 * 1024;  // or one frame, if larger
constexpr std::int64_t kGroupMs = 50;     // of storing, before those stored so far are answered
constexpr int kMaxSessions = 16'384;      // devices remembered; the longest idle is forgotten
constexpr int kMaxGapsPerStream = 4'096;  // open gaps of one stream and lane; then refused
constexpr std::int64_t kReplyTimeoutMs = 10'000;  // a peer that does not read is disconnected

struct GatewayOptions {
  std::string database;  // path; created and initialised if missing
  // tls+tcp://0.0.0.0:7447, tcp://127.0.0.1:7447, ipc:///run/holdfast.sock. Plain tcp:// on an
  // address that others can reach is refused unless `insecure` is set.
  std::vector<std::string> listen;
  TlsOptions tls;         // for tls+tcp
  bool insecure = false;  // anybody who reaches the port may read, forge and hold back events
  std::string consumer = kDefaultConsumer;
  Handler handler;  // empty: append to this database's own log
  VersionGuard guard = VersionGuard::apply_all;
  std::int64_t outbox_retention_ms = 7LL * 24 * 3600 * 1000;  // < 0: never purge
  std::int64_t inbox_retention_ms = 14LL * 24 * 3600 * 1000;  // < 0: never purge
  // As RelayOptions::reserve_bytes. It is for removing what retention allows, not for more events:
  // on a full disk devices hear `unavailable`, keep what they have, and try again.
  std::int64_t reserve_bytes = 4LL * 1024 * 1024;
  LogFunction log;
  const Clock* clock = nullptr;
};

class Gateway {
 public:
  Gateway();
  ~Gateway();
  Gateway(Gateway&&) noexcept;
  Gateway& operator=(Gateway&&) noexcept;
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Opens the database and listens. Errors: a port in use, a bad URL, a database problem.
  static Status start(const GatewayOptions& options, Gateway& out);

  // Handles what has arrived, waiting up to timeout_ms for something. Returns an error only when
  // the gateway cannot go on (the disk failed, the database is damaged); nothing that was not
  // durably committed has been acknowledged then.
  Status poll(int timeout_ms);
  // Makes a poll() in another thread, or under a signal handler, return soon.
  void wake();

  // The URLs really bound (port 0 in `listen` becomes the port the kernel chose).
  std::vector<std::string> urls() const;

  // Called after each commit that added to the log, on the polling thread (to wake relays).
  void on_commit(std::function<void()> callback);

  void stop();  // closes the listeners; unanswered requests are offered again by the devices

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast
