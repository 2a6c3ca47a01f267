// A device, a wire and a gateway as processes of their own, to kill at exact points; and the
// comparison of what the device committed with what the gateway applied.
//
// The device's business table is reading(n, sensor), with an event of aggregate sensor for each row
// in the same transaction. The gateway's business table is effect(event_id, sensor, n), without any
// unique key: an effect that happens twice is two rows.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "support/programs.hpp"
#include "support/tcp_proxy.hpp"

namespace holdfast::test {

struct Verdict {
  std::int64_t committed = 0;      // readings on the device
  std::int64_t without_event = 0;  // readings without an event, or events without a reading
  std::int64_t lost = 0;           // events without an effect
  std::int64_t twice = 0;          // effects beyond the first of an event
  std::int64_t out_of_order = 0;   // effects that came after a later one of their sensor
  std::int64_t invented = 0;       // effects without a reading
  bool sound = false;              // both databases pass integrity_check

  bool right() const {
    return sound && without_event == 0 && lost == 0 && twice == 0 && out_of_order == 0 &&
           invented == 0;
  }
  std::string text() const;
};

class World {
 public:
  using Options = std::map<std::string, std::string>;

  World();

  // count: readings to commit. kill_before_commit, kill_after_commit: dies at that one.
  // two_commits=1: the control, business change and event in commits of their own;
  // kill_between: dies between the two of that reading.
  Process device(const Options& options);
  // kill_in_handler: dies in that call of the handler, before the commit; kill_after_commit: dies
  // when the commit that holds that call is durable, before any answer. Returns once it listens.
  Process gateway(const Options& options = {});
  // drain=1: ends when everything is sent. flush: ms between cursor writes. kill_after_sent: dies
  // once that many events were answered. naive=1: the control, a consumer without an inbox instead
  // of a gateway.
  Process relay(const Options& options = {});

  // With everything alive and well until nothing is pending; true if that worked.
  bool drain(const Options& relay_options = {});
  Verdict verdict() const;

  std::int64_t acked() const;    // the device's cursor, as on disk
  std::int64_t effects() const;  // rows at the gateway
  const std::string& device_db() const { return device_db_; }
  const std::string& gateway_db() const { return gateway_db_; }
  TcpProxy& wire() { return wire_; }

 private:
  TemporaryDirectory directory_;
  std::string device_db_ = directory_.file("device.db");
  std::string gateway_db_ = directory_.file("gateway.db");
  TcpProxy wire_;
};

// Waits for an end by SIGKILL.
bool was_killed(Process& process);

}  // namespace holdfast::test
