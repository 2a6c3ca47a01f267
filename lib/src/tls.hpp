// One side's part in TLS: its certificate, the CA it trusts, and the rules for judging a peer. NNG
// makes the connections and mbedTLS checks signatures, names and usage; what neither lets one set
// through NNG is added here, at link time (see tls.cpp).
//
// Thread-safe: handshakes run on NNG's threads.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "holdfast/clock.hpp"
#include "holdfast/tls.hpp"
#include "tls_files.hpp"
#include "tls_revoked.hpp"

struct mbedtls_ssl_context;
struct mbedtls_x509_crt;

namespace holdfast::tls {

struct Credentials;

class Tls {
 public:
  // Reads and checks the files. `known_ms`: a time that has passed for sure, 0 if none is known.
  // The clock is used until close().
  static Status open(Side side, const TlsOptions& options, const Clock& clock,
                     std::int64_t known_ms, std::shared_ptr<Tls>& out);

  // The files' content; read again if they changed. If that fails, take_news() says why, once for
  // each change, and the old content stays.
  PemTexts pem();
  CertificateFacts own();
  const std::string& server_name() const { return options_.server_name; }

  // As of when certificates are checked: now, or, while the clock is not set, the latest time that
  // has passed for sure.
  bool clock_is_set();
  std::int64_t as_of_ms();
  bool has_revocations() const { return !options_.revoked_file.empty(); }
  bool is_revoked(const std::string& serial);

  // `changed` is called from NNG's threads when a handshake failed or files were read again.
  void watch(std::function<void()> changed);
  // To be called before the clock and what `changed` uses go away: NNG takes connections down in
  // the background. Every peer is refused from then on.
  void close();
  // The newest failure or news since the last call, "" if none; `count`: how many of them.
  std::string take_failure(std::uint64_t& count);
  std::string take_news();
  // Handshakes begun; tells a listener that works from one that only has its port.
  std::uint64_t handshakes();

  // For tls.cpp's hooks.
  void judge(const mbedtls_x509_crt& certificate, int depth, std::uint32_t& flags);
  int choose_certificate(mbedtls_ssl_context& ssl);
  // NNG may go on with a handshake that has failed; ended() is true for its first end only.
  void began(const mbedtls_ssl_context* ssl);
  bool ended(const mbedtls_ssl_context* ssl);
  void failed(const std::string& why);
  bool is_gateway() const { return side_ == Side::gateway; }

 private:
  Tls(Side side, const TlsOptions& options, const Clock& clock, std::int64_t known_ms)
      : side_(side), options_(options), clock_(clock), known_ms_(known_ms) {}
  std::string stamp_of_credentials() const;
  // With the mutex held.
  std::shared_ptr<const Credentials> current();
  const Serials& revoked();
  void tell(const std::string& news);
  std::int64_t latest_known();
  bool has_address(const mbedtls_x509_crt& certificate) const;

  const Side side_;
  const TlsOptions options_;
  const Clock& clock_;
  const std::int64_t known_ms_;
  std::mutex mutex_;
  std::shared_ptr<const Credentials> credentials_;
  std::string stamp_;
  Serials revoked_;
  std::string revoked_stamp_;
  // Replaced ones, with the boot time when: a handshake under way may use them.
  std::deque<std::pair<std::int64_t, std::shared_ptr<const Credentials>>> retired_;
  std::function<void()> changed_;
  std::string failure_;
  std::string news_;
  std::uint64_t failures_ = 0;
  std::uint64_t handshakes_ = 0;
  std::unordered_set<const mbedtls_ssl_context*> under_way_;
  bool closed_ = false;
};

// While one exists, mbedTLS configurations made on this thread follow the rules of `tls`.
class Adopt {
 public:
  explicit Adopt(const std::shared_ptr<Tls>& tls);
  ~Adopt();
  Adopt(const Adopt&) = delete;
  Adopt& operator=(const Adopt&) = delete;
};

// While one exists, asking NNG on this thread whether a connection is verified also fills
// `peer`: who it is by its certificate.
class Look {
 public:
  explicit Look(CertificateFacts& peer);
  ~Look();
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;
};

// "2026-12-02T16:55:26Z"
std::string date_text(std::int64_t ms);

}  // namespace holdfast::tls
