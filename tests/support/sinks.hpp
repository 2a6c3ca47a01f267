// Where a relay of a test delivers to when no gateway is wanted.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "holdfast/sink.hpp"

namespace holdfast::test {

// Keeps what it was given, and answers as told.
class MemorySink : public Sink {
 public:
  // Says what becomes of an event; called with the mutex held. Empty: everything is stored.
  std::function<Outcome(const EventRecord&)> answer;
  // Not ok: the sink cannot be reached.
  std::function<Status()> reachable;

  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++calls_;
    changed_.notify_all();  // heard once the mutex is free
    if (reachable) {
      Status status = reachable();
      if (!status.ok()) return status;
    }
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (answer) outcomes[i] = answer(events[i]);
      if (outcomes[i].kind == Outcome::Kind::stored) stored_.push_back(events[i]);
    }
    return Status();
  }

  std::vector<EventRecord> stored() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stored_;
  }
  std::vector<std::string> payloads() const {
    std::vector<std::string> out;
    for (const EventRecord& event : stored()) out.push_back(event.payload);
    return out;
  }
  int calls() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }
  bool wait_for_calls(int calls, int timeout_ms) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                             [&] { return calls_ >= calls; });
  }
  bool wait_for(std::size_t events, int timeout_ms) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                             [&] { return stored_.size() >= events; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<EventRecord> stored_;
  int calls_ = 0;
};

}  // namespace holdfast::test
