// The wire under the frames: NNG REQ/REP with contexts. Only link_nng*.cpp and nng_compat.cpp,
// which makes up for NNG's faults, include <nng/…>. Frames are opaque bytes here.
//
// Threads: NNG calls back on its own threads; callbacks only fill a bounded mailbox and wake the
// owner, so that everything else happens on the owner's thread. Options and their reasons:
//   NNG_OPT_REQ_RESENDTIME infinite: by default NNG resends by itself, and one request would arrive
//     several times; retry belongs to the outbox.
//   NNG_OPT_RECVMAXSZ kMaxFrameBytes on both sides: the default is unlimited.
//   a receive is started only after its send completed (NNG 1.5.2 crashes otherwise).
//   TCP keepalive and TCP_USER_TIMEOUT on both sides (nng_compat.cpp), no Nagle.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/status.hpp"

namespace holdfast::tls {
class Tls;
}

namespace holdfast {

// Checks form and scheme (tcp://host:port, tls+tcp://host:port, ipc:///absolute/path, inproc://name
// for tests);
// the text says what is wrong and shows a correct example.
Status check_url(std::string_view url);

struct LinkEvent {
  enum class Kind { up, down, reply, failed };
  Kind kind = Kind::down;
  std::uint64_t token = 0;  // reply, failed: the request
  std::string frame;        // reply
  Status status;            // down, failed: why
};

// The device's side: one pipe to one gateway.
class LinkClient {
 public:
  LinkClient();
  ~LinkClient();  // closes; no callback runs after it
  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  // `wake` is called from NNG's threads whenever next() may have something; it must not block.
  // `tls` is needed for tls+tcp:// and used for nothing else.
  Status open(const std::string& url, std::function<void()> wake,
              std::shared_ptr<tls::Tls> tls = nullptr);
  // One attempt to connect: `up` or `down` follows, within 10 s. The owner decides when to try
  // again (NNG's own reconnect loop is not used: it retries without jitter or end). Does nothing
  // while an attempt is under way or the pipe is up. When the pipe is lost, what was under way
  // fails, and `down` comes last.
  void connect();
  // Drops the pipe and everything under way. Each request under way ends with `failed`, which
  // next() hands out at once; no `up` or `down` of the old pipe comes any more. Does not block.
  void disconnect();
  // Sends one frame; `reply` or `failed` with this token follows, at the latest after timeout_ms.
  // At most kLinkWindowMax requests may be under way. A timeout leaves the pipe as it is.
  void request(std::uint64_t token, std::string_view frame, std::int64_t timeout_ms);
  bool next(LinkEvent& event);  // false: nothing now

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
// Whether a request ended, or an attempt to connect, because nothing was heard in time.
bool is_timeout(const Status& status);
constexpr int kLinkWindowMax = 16;
// A server refuses more; it keeps some file descriptors free in any case (RLIMIT_NOFILE).
constexpr int kLinkConnectionsMax = 16'384;

struct LinkRequest {
  std::uint64_t token = 0;  // to reply with
  std::uint64_t pipe = 0;   // which connection
  std::string peer;         // address, for logs
  std::string certificate;  // its common name; "" without TLS
  std::string frame;
};

// The gateway's side.
class LinkServer {
 public:
  LinkServer();
  ~LinkServer();
  LinkServer(const LinkServer&) = delete;
  LinkServer& operator=(const LinkServer&) = delete;

  // `contexts` requests are taken at once; more wait in the kernel's buffers.
  Status open(int contexts, std::int64_t reply_timeout_ms, std::function<void()> wake);
  // Adds a listener; `bound` is the URL with the real port. Errors name URL and reason
  // (address in use, permission, cannot resolve). `tls` as for LinkClient.
  Status listen(const std::string& url, std::string& bound,
                std::shared_ptr<tls::Tls> tls = nullptr);
  bool next(LinkRequest& request);
  // Answers; the context then takes the next request. If the peer does not read within the reply
  // timeout its pipe is closed. An unknown token is ignored.
  void reply(std::uint64_t token, std::string_view frame);
  // Takes the next request without answering this one (the device will offer it again).
  void drop(std::uint64_t token);
  // Checks that each listener still accepts (NNG 1.5.2 can lose one for good, upstream issue 1518;
  // a cleaner of /tmp can remove the file of a local one) and listens again where it does not. Call
  // now and then; `healed` counts renewals. Takes a millisecond if all is well and up to 5 s for a
  // listener that is dead; a renewal drops the connections of that listener.
  Status check_listeners(int& healed);
  std::size_t connections() const;
  // Cuts the connections whose certificate's serial number is revoked; how many.
  int cut_revoked(tls::Tls& tls);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast
