// Producers of a server that is measured beside Holdfast: each of CONNECTIONS sends a request,
// waits for the answer that acknowledges it, and sends the next. In C++, so that the client is not
// what limits the server.
//
//   holdfast_bench_load PORT CONNECTIONS SECONDS COUNT GREETING ANSWER REQUEST ANSWER EXPECTED
//
// Ends after SECONDS or COUNT acknowledged requests (0: no such limit), and prints both as JSON.
// GREETING (sent once; may be empty), REQUEST and EXPECTED (what each answer must hold) are
// hexadecimal; "%%%%" in the first two becomes the connection's number. ANSWER says when an answer
// is whole: lines:N or bytes:N.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kSilenceMaxMs = 20'000;       // no answer to anybody for so long: the server hangs
constexpr std::size_t kAnswerMax = 65'536;  // bytes of one answer

struct End {  // of an answer
  bool lines = false;
  std::size_t count = 0;
};

End parse_end(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) throw std::runtime_error("ANSWER is lines:N or bytes:N");
  return {text.substr(0, colon) == "lines", std::stoul(text.substr(colon + 1))};
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return out;
}

std::string numbered(std::string text, int number) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%04u", static_cast<unsigned>(number) % 10'000U);
  for (std::size_t at = 0; (at = text.find("%%%%", at)) != std::string::npos;) {
    text.replace(at, 4, digits);
  }
  return text;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
}

class Producer {
 public:
  Producer(int port, int number, const std::string& request)
      : request_(numbered(request, number)), fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd_ < 0 || ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      fail("cannot connect");
    }
    const int on = 1;
    (void)::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  int fd() const { return fd_; }
  void greet(const std::string& greeting, int number, End end) {
    if (greeting.empty()) return;
    send(numbered(greeting, number));
    while (!receive(end, "")) {
    }
  }
  void request() { send(request_); }
  // True once the answer is whole.
  bool receive(End end, const std::string& expected) {
    char bytes[4096];
    const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
    if (got <= 0) {
      if (got == 0) errno = 0;
      fail("the server closed the connection");
    }
    answer_.append(bytes, static_cast<std::size_t>(got));
    for (const char* at = bytes; end.lines && at < bytes + got; ++at) lines_ += *at == '\n';
    if (answer_.size() > kAnswerMax) fail("an answer without end");
    errno = 0;
    const bool whole = (end.lines ? lines_ : answer_.size()) >= end.count;
    if ((whole || answer_[0] == '-') && answer_.find(expected) == std::string::npos) {
      fail("the server answered " + answer_);
    }
    if (!whole) return false;
    answer_.clear();
    lines_ = 0;
    return true;
  }

 private:
  void send(const std::string& bytes) {
    if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      fail("cannot send");
    }
  }
  std::string request_, answer_;
  std::size_t lines_ = 0;
  int fd_;
};

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void run(int argc, char** argv) {
  if (argc != 10) throw std::runtime_error("nine arguments; see the head of load.cpp");
  const int port = std::atoi(argv[1]), connections = std::atoi(argv[2]);
  const double seconds = std::atof(argv[3]);
  const long count = std::atol(argv[4]);
  const std::string greeting = from_hex(argv[5]), request = from_hex(argv[7]);
  const std::string expected = from_hex(argv[9]);
  const End greeting_end = parse_end(argv[6]), end = parse_end(argv[8]);
  std::vector<Producer> producers;
  std::vector<pollfd> polled;
  for (int i = 0; i < connections; ++i) {
    producers.emplace_back(port, i, request);
    producers.back().greet(greeting, i, greeting_end);
    polled.push_back({producers.back().fd(), POLLIN, 0});
  }
  const auto start = Clock::now();
  const auto more = [&](long sent) {
    return (seconds <= 0 || since(start) < seconds) && (count <= 0 || sent < count);
  };
  long sent = 0, acknowledged = 0;
  for (Producer& each : producers) {
    if (!more(sent)) break;
    each.request();
    ++sent;
  }
  while (acknowledged < sent) {
    if (::poll(polled.data(), polled.size(), kSilenceMaxMs) <= 0) fail("the server is silent");
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0 || !producers[i].receive(end, expected)) continue;
      ++acknowledged;
      if (!more(sent)) continue;
      producers[i].request();
      ++sent;
    }
  }
  std::printf("{\"events\": %ld, \"seconds\": %.6f}\n", acknowledged, since(start));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast_bench_load: %s\n", error.what());
    return 1;
  }
}
