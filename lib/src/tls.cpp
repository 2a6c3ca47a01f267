// How the rules get into mbedTLS, of which NNG gives no handle away: the build passes
// -Wl,--wrap=NAME for four of its functions (see nng_compat.cpp for what that means), which NNG
// calls and which are used here
//   mbedtls_ssl_config_defaults    to add our verify and server-name callbacks to a configuration
//   mbedtls_ssl_config_free        to let go of what they use, exactly when nothing calls them
//   mbedtls_ssl_handshake          to learn why a handshake failed, which NNG reduces to a number
//   mbedtls_ssl_get_verify_result  to see the peer's certificate (NNG < 1.6 does not tell its name)
// A configuration that was not made under Adopt is left alone: the program may use mbedTLS itself.
#include "tls.hpp"

#include <arpa/inet.h>
#include <mbedtls/asn1.h>
#include <mbedtls/ssl.h>
#include <mbedtls/version.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "owners.hpp"
#include "tls_credentials.hpp"

#ifndef MBEDTLS_PRIVATE  // mbedTLS 3 renames what it calls private
#define MBEDTLS_PRIVATE(member) member
#endif

namespace holdfast::tls {
namespace {

using Lock = std::lock_guard<std::mutex>;

constexpr std::size_t kNameShownBytesMax = 64;
constexpr std::int64_t kRetiredKeptMs = 60'000;  // NNG gives a handshake 10 s
constexpr int kSubjectAltNameAddress = 7;        // RFC 5280: iPAddress [7]

thread_local const std::shared_ptr<Tls>* adopting = nullptr;
thread_local CertificateFacts* looking = nullptr;
// Why the handshake that this thread is in refuses the peer.
thread_local std::string refusal;
thread_local CertificateFacts presented;  // the peer's own certificate, for what is checked later

// From the network, for a log line: short, and nothing that a terminal obeys.
std::string shown(const std::string& name) {
  std::string out;
  for (const char c : name.substr(0, kNameShownBytesMax)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out;
}

std::string described(const CertificateFacts& facts) {
  return "the certificate of \"" + shown(facts.name) + "\" (serial " + shown(facts.serial) + ")";
}

std::string fault_text(std::uint32_t flags, const CertificateFacts& facts) {
  if ((flags & MBEDTLS_X509_BADCERT_NOT_TRUSTED) != 0) return "is not from our CA";
  if ((flags & MBEDTLS_X509_BADCERT_FUTURE) != 0)
    return "is not yet valid: it begins " + date_text(facts.not_before_ms);
  if ((flags & MBEDTLS_X509_BADCERT_EXPIRED) != 0)
    return "has expired: it ended " + date_text(facts.not_after_ms);
  if ((flags & MBEDTLS_X509_BADCERT_REVOKED) != 0) return "was revoked";
  if ((flags & MBEDTLS_X509_BADCERT_CN_MISMATCH) != 0) return "is made out to another name";
  constexpr std::uint32_t kUsage =
      MBEDTLS_X509_BADCERT_KEY_USAGE | MBEDTLS_X509_BADCERT_EXT_KEY_USAGE;
  if ((flags & kUsage) != 0) return "is not meant for this side (extended key usage)";
  if ((flags & MBEDTLS_X509_BADCERT_OTHER) != 0)
    return "names no device (one common name of 1 to 64 bytes)";
  char text[48];
  std::snprintf(text, sizeof text, "is not acceptable (flags 0x%x)", static_cast<unsigned>(flags));
  return text;
}

// TLS alerts by number (RFC 5246, section 7.2).
const char* alert_text(int alert) {
  switch (alert) {
    case 40:
      return "the other side refused: no certificate was shown, or nothing in common";
    case 44:
      return "the other side refused our certificate: revoked";
    case 45:
      return "the other side refused our certificate: expired, by its clock";
    case 48:
      return "the other side refused our certificate: not from its CA";
    case 42:
    case 43:
    case 46:
    case 49:
      return "the other side refused our certificate (its log says why)";
    default:
      return "the other side broke off the handshake";
  }
}

bool is_lost_connection(int error) {
  // MBEDTLS_ERR_NET_RECV_FAILED and _SEND_FAILED, which NNG's transport answers with.
  return error == -0x004C || error == -0x004E || error == MBEDTLS_ERR_SSL_CONN_EOF ||
         error == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY;
}

bool is_no_tls(int error) {
#if MBEDTLS_VERSION_MAJOR < 3
  if (error == MBEDTLS_ERR_SSL_BAD_HS_CLIENT_HELLO) return true;
#endif
  return error == MBEDTLS_ERR_SSL_INVALID_RECORD || error == MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
}

std::string handshake_text(int error, const mbedtls_ssl_context& ssl, std::uint32_t flags) {
  if (!refusal.empty()) return refusal;
  if (error == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE) {
    const unsigned char* const alert = ssl.MBEDTLS_PRIVATE(in_msg);
    return alert_text(alert != nullptr ? alert[1] : 0);
  }
  if (is_lost_connection(error)) return "the connection ended during the handshake";
  if (error == MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE) return "the other side has no certificate";
  if (is_no_tls(error)) return "the other side does not speak TLS";
  if (flags != 0 && flags != UINT32_MAX && (flags & MBEDTLS_X509_BADCERT_MISSING) == 0)
    return described(presented) + " " + fault_text(flags, presented);
  char text[64];
  std::snprintf(text, sizeof text, "handshake failed (mbedTLS error -0x%04x)",
                static_cast<unsigned>(-error));
  return text;
}

int verify_hook(void* context, mbedtls_x509_crt* certificate, int depth, std::uint32_t* flags) {
  (*static_cast<std::shared_ptr<Tls>*>(context))->judge(*certificate, depth, *flags);
  return 0;
}

int server_name_hook(void* context, mbedtls_ssl_context* ssl, const unsigned char*, std::size_t) {
  return (*static_cast<std::shared_ptr<Tls>*>(context))->choose_certificate(*ssl);
}

// Ours, or NULL if the configuration is somebody else's.
std::shared_ptr<Tls>* owner_of(const mbedtls_ssl_config* config) {
  if (config == nullptr || config->MBEDTLS_PRIVATE(f_vrfy) != verify_hook) return nullptr;
  return static_cast<std::shared_ptr<Tls>*>(config->MBEDTLS_PRIVATE(p_vrfy));
}

}  // namespace

std::string date_text(std::int64_t ms) {
  const std::int64_t seconds = ms / 1000;
  std::int64_t days = seconds / 86'400;
  const int of_day = static_cast<int>(seconds % 86'400);
  int year = 1970;
  const auto leap = [](int y) { return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0; };
  for (; days >= (leap(year) ? 366 : 365); ++year) days -= leap(year) ? 366 : 365;
  const int months[] = {31, leap(year) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  int month = 0;
  for (; days >= months[month]; ++month) days -= months[month];
  char text[64];  // as the compiler reckons; 21 are used
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02dZ", year, month + 1,
                static_cast<int>(days) + 1, of_day / 3600, of_day / 60 % 60, of_day % 60);
  return text;
}

Status Tls::open(Side side, const TlsOptions& options, const Clock& clock, std::int64_t known_ms,
                 std::shared_ptr<Tls>& out) {
  std::shared_ptr<Tls> made(new Tls(side, options, clock, known_ms));
  made->stamp_ = made->stamp_of_credentials();
  made->revoked_stamp_ = stamp_of({&options.revoked_file});
  Status status = load(side, options, made->credentials_);
  if (status.ok() && made->has_revocations())
    status = read_revoked(options.revoked_file, made->revoked_);
  if (status.ok()) out = std::move(made);
  return status;
}

std::string Tls::stamp_of_credentials() const {
  return stamp_of({&options_.ca_file, &options_.cert_file, &options_.key_file});
}

void Tls::tell(const std::string& news) {
  news_ += (news_.empty() ? "" : "; ") + news;
  if (changed_) changed_();
}

// The stamp is taken first: a change while the files are read is seen then.
std::shared_ptr<const Credentials> Tls::current() {
  const std::string stamp = stamp_of_credentials();
  if (closed_ || stamp == stamp_) return credentials_;
  stamp_ = stamp;
  std::shared_ptr<const Credentials> read;
  const Status status = load(side_, options_, read);
  if (!status.ok()) {
    tell(std::string("TLS files changed, but the old ones stay in use: ") + status.text());
    return credentials_;
  }
  const std::int64_t now = clock_.boot_ms();
  while (!retired_.empty() && retired_.front().first < now - kRetiredKeptMs) retired_.pop_front();
  retired_.emplace_back(now, std::move(credentials_));
  credentials_ = std::move(read);
  tell("TLS files read again: " + described(credentials_->own) + ", valid until " +
       date_text(credentials_->own.not_after_ms));
  return credentials_;
}

// Apart from the other files: a certificate that was renewed badly must not hold back a revocation.
const Serials& Tls::revoked() {
  if (closed_ || !has_revocations()) return revoked_;
  const std::string stamp = stamp_of({&options_.revoked_file});
  if (stamp == revoked_stamp_) return revoked_;
  revoked_stamp_ = stamp;
  Serials read;
  const Status status = read_revoked(options_.revoked_file, read);
  if (!status.ok()) {
    tell(std::string("TLS revocation list changed, but the old one stays in force: ") +
         status.text());
    return revoked_;
  }
  revoked_ = std::move(read);
  tell("TLS revocation list read again: " + std::to_string(revoked_.size()) + " serial number(s)");
  return revoked_;
}

PemTexts Tls::pem() {
  const Lock lock(mutex_);
  return current()->pem;
}

CertificateFacts Tls::own() {
  const Lock lock(mutex_);
  return current()->own;
}

bool Tls::clock_is_set() { return wall_known(clock_.wall_ms()); }

std::int64_t Tls::as_of_ms() {
  const Lock lock(mutex_);
  const std::int64_t now = clock_.wall_ms();
  return wall_known(now) ? now : latest_known();
}

// What is known without a clock: our CA made these certificates, so their beginnings have passed;
// and the database remembers a wall time. That one may be wrong, for clocks are; beyond the end of
// our own certificate it is not believed, lest one bad second lock the device out for ever.
std::int64_t Tls::latest_known() {
  const std::shared_ptr<const Credentials> files = current();
  std::int64_t known = files->own.not_before_ms;
  for (const mbedtls_x509_crt* ca = &files->ca; ca != nullptr; ca = ca->next)
    known = std::max(known, ms_of(ca->valid_from));
  if (known_ms_ <= files->own.not_after_ms) known = std::max(known, known_ms_);
  return known;
}

bool Tls::is_revoked(const std::string& serial) {
  const Lock lock(mutex_);
  return revoked().count(serial) != 0;
}

void Tls::watch(std::function<void()> changed) {
  const Lock lock(mutex_);
  changed_ = std::move(changed);
}

void Tls::close() {
  const Lock lock(mutex_);
  closed_ = true;
  changed_ = nullptr;
}

std::string Tls::take_failure(std::uint64_t& count) {
  const Lock lock(mutex_);
  count = std::exchange(failures_, 0);
  return std::exchange(failure_, {});
}

std::string Tls::take_news() {
  const Lock lock(mutex_);
  return std::exchange(news_, {});
}

std::uint64_t Tls::handshakes() {
  const Lock lock(mutex_);
  return handshakes_;
}

void Tls::began(const mbedtls_ssl_context* ssl) {
  const Lock lock(mutex_);
  ++handshakes_;
  under_way_.insert(ssl);
}

bool Tls::ended(const mbedtls_ssl_context* ssl) {
  const Lock lock(mutex_);
  return under_way_.erase(ssl) > 0;
}

void Tls::failed(const std::string& why) {
  const Lock lock(mutex_);
  ++failures_;
  // The first is the cause of what follows, if there is one connection only.
  if (side_ == Side::gateway || failures_ == 1) failure_ = why;
  if (changed_) changed_();
}

// mbedTLS knows no addresses in certificates before 3.5, only DNS names.
bool Tls::has_address(const mbedtls_x509_crt& certificate) const {
  unsigned char wanted[16];
  std::size_t size = 0;
  if (inet_pton(AF_INET, options_.server_name.c_str(), wanted) == 1) {
    size = 4;
  } else if (inet_pton(AF_INET6, options_.server_name.c_str(), wanted) == 1) {
    size = 16;
  } else {
    return false;
  }
  for (const mbedtls_x509_sequence* name = &certificate.subject_alt_names; name != nullptr;
       name = name->next) {
    const bool address = (name->buf.tag & MBEDTLS_ASN1_TAG_VALUE_MASK) == kSubjectAltNameAddress;
    if (address && name->buf.len == size && std::memcmp(name->buf.p, wanted, size) == 0)
      return true;
  }
  return false;
}

// Called for each certificate of the chain, from the CA down to the peer's own (depth 0). mbedTLS
// has set `flags` to what it finds wrong; its opinion of the time is replaced by ours, which uses
// the same clock as everything else here.
void Tls::judge(const mbedtls_x509_crt& certificate, int depth, std::uint32_t& flags) {
  const CertificateFacts facts = facts_of(certificate);
  const Lock lock(mutex_);
  if (closed_) {
    flags |= MBEDTLS_X509_BADCERT_OTHER;
    return;
  }
  const std::int64_t wall = clock_.wall_ms();
  const std::int64_t now = wall_known(wall) ? wall : latest_known();
  flags &= ~static_cast<std::uint32_t>(MBEDTLS_X509_BADCERT_EXPIRED | MBEDTLS_X509_BADCERT_FUTURE);
  if (facts.not_after_ms < now) flags |= MBEDTLS_X509_BADCERT_EXPIRED;
  if (facts.not_before_ms > now && wall_known(wall)) flags |= MBEDTLS_X509_BADCERT_FUTURE;
  if (depth == 0 && side_ == Side::device && has_address(certificate))
    flags &= ~static_cast<std::uint32_t>(MBEDTLS_X509_BADCERT_CN_MISMATCH);
  if (revoked().count(facts.serial) != 0) flags |= MBEDTLS_X509_BADCERT_REVOKED;
  if (depth == 0 && side_ == Side::gateway && !check_certificate_name(facts.name).ok())
    flags |= MBEDTLS_X509_BADCERT_OTHER;
  if (depth == 0) presented = facts;
  if (flags != 0) refusal = described(facts) + " " + fault_text(flags, facts);
}

// A renewed certificate takes effect here, connection by connection: a listener's own can't be
// changed without closing it, which would disconnect every device.
int Tls::choose_certificate(mbedtls_ssl_context& ssl) {
  const Lock lock(mutex_);
  const std::shared_ptr<const Credentials> files = current();
  // mbedTLS only reads them; `retired_` keeps them for as long as a handshake lasts.
  auto* const own = const_cast<Credentials*>(files.get());
  mbedtls_ssl_set_hs_ca_chain(&ssl, &own->ca, nullptr);
  return mbedtls_ssl_set_hs_own_cert(&ssl, &own->chain, &own->key);
}

Adopt::Adopt(const std::shared_ptr<Tls>& tls) { adopting = &tls; }
Adopt::~Adopt() { adopting = nullptr; }

Look::Look(CertificateFacts& peer) { looking = &peer; }
Look::~Look() { looking = nullptr; }

}  // namespace holdfast::tls

using namespace holdfast::tls;

extern "C" {

int __real_mbedtls_ssl_config_defaults(mbedtls_ssl_config* config, int endpoint, int transport,
                                       int preset);
int __wrap_mbedtls_ssl_config_defaults(mbedtls_ssl_config* config, int endpoint, int transport,
                                       int preset);
void __real_mbedtls_ssl_config_free(mbedtls_ssl_config* config);
void __wrap_mbedtls_ssl_config_free(mbedtls_ssl_config* config);
int __real_mbedtls_ssl_handshake(mbedtls_ssl_context* ssl);
int __wrap_mbedtls_ssl_handshake(mbedtls_ssl_context* ssl);
std::uint32_t __real_mbedtls_ssl_get_verify_result(const mbedtls_ssl_context* ssl);
std::uint32_t __wrap_mbedtls_ssl_get_verify_result(const mbedtls_ssl_context* ssl);

int __wrap_mbedtls_ssl_config_defaults(mbedtls_ssl_config* config, int endpoint, int transport,
                                       int preset) {
  const int result = __real_mbedtls_ssl_config_defaults(config, endpoint, transport, preset);
  if (result != 0 || adopting == nullptr) return result;
  auto* const owner = new std::shared_ptr<Tls>(*adopting);
  mbedtls_ssl_conf_verify(config, verify_hook, owner);
  if (endpoint == MBEDTLS_SSL_IS_SERVER) mbedtls_ssl_conf_sni(config, server_name_hook, owner);
  return result;
}

void __wrap_mbedtls_ssl_config_free(mbedtls_ssl_config* config) {
  std::shared_ptr<Tls>* const owner = owner_of(config);
  __real_mbedtls_ssl_config_free(config);
  delete owner;
}

int __wrap_mbedtls_ssl_handshake(mbedtls_ssl_context* ssl) {
  std::shared_ptr<Tls>* const owner =
      ssl != nullptr ? owner_of(ssl->MBEDTLS_PRIVATE(conf)) : nullptr;
  if (owner == nullptr) return __real_mbedtls_ssl_handshake(ssl);
  Tls& tls = **owner;  // cppcheck-suppress nullPointer // it takes the hooks for never installed
  if (ssl->MBEDTLS_PRIVATE(state) == MBEDTLS_SSL_HELLO_REQUEST) tls.began(ssl);
  refusal.clear();
  const int result = __real_mbedtls_ssl_handshake(ssl);
  if (result == MBEDTLS_ERR_SSL_WANT_READ || result == MBEDTLS_ERR_SSL_WANT_WRITE) return result;
  if (!tls.ended(ssl) || result == 0) return result;
  // Whoever only connects and goes away, as health checks do, is not worth a word at the gateway.
  if (tls.is_gateway() && is_lost_connection(result)) return result;
  tls.failed(handshake_text(result, *ssl, __real_mbedtls_ssl_get_verify_result(ssl)));
  return result;
}

std::uint32_t __wrap_mbedtls_ssl_get_verify_result(const mbedtls_ssl_context* ssl) {
  const std::uint32_t result = __real_mbedtls_ssl_get_verify_result(ssl);
  if (looking == nullptr || ssl == nullptr || result != 0) return result;
  if (const mbedtls_x509_crt* const peer = mbedtls_ssl_get_peer_cert(ssl); peer != nullptr)
    *looking = facts_of(*peer);
  return result;
}

}  // extern "C"
