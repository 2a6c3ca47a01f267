// gateway --print: a destination that writes each event as a JSON line to stdout.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "holdfast/sink.hpp"

namespace holdfast::cli {

constexpr const char* kPrintDestination = "print";

// At least once: a batch counts as delivered when all of its bytes were written, so a restart
// prints what was not, and may print the last batch again. Never blocks in write(2) beyond stop().
class PrintSink : public Sink {
 public:
  // `on_error` is called, on the relay's thread, when stdout turned out to be gone.
  explicit PrintSink(std::function<void()> on_error);
  ~PrintSink() override;
  PrintSink(const PrintSink&) = delete;
  PrintSink& operator=(const PrintSink&) = delete;

  Status open_status() const;
  Status deliver(const std::vector<EventRecord>& events, std::vector<Outcome>& outcomes) override;

  void stop();  // from any thread: deliver() returns soon, with an error
  // Why nothing can be written any more: errno, 0 while all is well. EPIPE: the reader is gone.
  int error() const { return error_.load(); }

 private:
  bool wait_writable();

  std::function<void()> on_error_;
  int stop_fd_ = -1;
  std::atomic<int> error_{0};
  std::string buffer_;
};

}  // namespace holdfast::cli
