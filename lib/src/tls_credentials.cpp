#include "tls_credentials.hpp"

#include <fcntl.h>
#include <mbedtls/oid.h>
#include <mbedtls/version.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "platform.hpp"

namespace holdfast::tls {

Credentials::Credentials() {
  mbedtls_x509_crt_init(&ca);
  mbedtls_x509_crt_init(&chain);
  mbedtls_pk_init(&key);
}

Credentials::~Credentials() {
  mbedtls_x509_crt_free(&ca);
  mbedtls_x509_crt_free(&chain);
  mbedtls_pk_free(&key);
}

namespace {

using Bytes = const unsigned char*;

#if MBEDTLS_VERSION_MAJOR >= 3
int random_bytes(void*, unsigned char* out, std::size_t size) {
  while (size > 0) {
    const std::uint64_t bits = platform::random_u64();
    const std::size_t part = size < sizeof bits ? size : sizeof bits;
    std::memcpy(out, &bits, part);
    out += part;
    size -= part;
  }
  return 0;
}
int parse_key(mbedtls_pk_context& key, Bytes pem, std::size_t size) {
  return mbedtls_pk_parse_key(&key, pem, size, nullptr, 0, random_bytes, nullptr);
}
int check_pair(const mbedtls_pk_context& pub, const mbedtls_pk_context& key) {
  return mbedtls_pk_check_pair(&pub, &key, random_bytes, nullptr);
}
#else
int parse_key(mbedtls_pk_context& key, Bytes pem, std::size_t size) {
  return mbedtls_pk_parse_key(&key, pem, size, nullptr, 0);
}
int check_pair(const mbedtls_pk_context& pub, const mbedtls_pk_context& key) {
  return mbedtls_pk_check_pair(&pub, &key);
}
#endif

Status file_error(int error, const char* what, const std::string& file) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found
                    : error == EACCES || error == EPERM ? Code::permission
                                                        : Code::io;
  return Status::error(code, "cannot read the TLS %s %s: %s", what, file.c_str(),
                       std::strerror(error));
}

Status bad_file(const char* what, const std::string& file, const char* why) {
  return Status::error(Code::invalid, "TLS %s %s: %s", what, file.c_str(), why);
}

// What is checked is the very file that is read.
Status read_open(int fd, const char* what, const std::string& file, bool secret, std::string& out) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return file_error(errno, what, file);
  if (!S_ISREG(info.st_mode)) return bad_file(what, file, "is no regular file");
  if (secret && (info.st_mode & (S_IROTH | S_IWOTH)) != 0)
    return Status::error(Code::permission,
                         "TLS %s %s can be read by everybody: chmod 600, and make a new one if "
                         "others have had access",
                         what, file.c_str());
  if (info.st_size > static_cast<off_t>(kTlsFileBytesMax))
    return bad_file(what, file, "is larger than 64 KiB");
  out.resize(kTlsFileBytesMax);
  std::size_t size = 0;
  while (size < out.size()) {
    const ssize_t n = ::read(fd, &out[size], out.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(errno, what, file);
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  out.resize(size);
  return Status();
}

}  // namespace

Status read_file(const char* what, const std::string& file, bool secret, std::string& out) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return file_error(errno, what, file);
  Status status = read_open(fd, what, file, secret, out);
  ::close(fd);
  return status;
}

namespace {

Status read_pem(const char* what, const std::string& file, bool secret, std::string& out) {
  Status status = read_file(what, file, secret, out);
  if (!status.ok()) return status;
  if (out.find("-----BEGIN ") == std::string::npos || out.find('\0') != std::string::npos)
    return bad_file(what, file, "holds no PEM text (-----BEGIN ...)");
  return status;
}

// mbedTLS wants PEM with its NUL.
Bytes bytes_of(const std::string& pem) { return reinterpret_cast<Bytes>(pem.c_str()); }

Status parse_certificates(const char* what, const std::string& file, const std::string& pem,
                          mbedtls_x509_crt& out) {
  const int result = mbedtls_x509_crt_parse(&out, bytes_of(pem), pem.size() + 1);
  if (result == 0) return Status();
  return Status::native_error(Code::invalid, result, "TLS %s %s: %s", what, file.c_str(),
                              result > 0 ? "some of its certificates cannot be read"
                                         : "holds no certificate that can be read");
}

Status parse_private_key(const TlsOptions& options, Credentials& out) {
  const int result = parse_key(out.key, bytes_of(out.pem.key), out.pem.key.size() + 1);
  if (result == MBEDTLS_ERR_PK_PASSWORD_REQUIRED || result == MBEDTLS_ERR_PK_PASSWORD_MISMATCH)
    return bad_file("key", options.key_file, "is encrypted; give it without a password");
  if (result != 0)
    return Status::native_error(Code::invalid, result, "TLS key %s: holds no key that can be read",
                                options.key_file.c_str());
  if (check_pair(out.chain.pk, out.key) != 0)
    return Status::error(Code::invalid, "TLS key %s is not the key of the certificate %s",
                         options.key_file.c_str(), options.cert_file.c_str());
  return Status();
}

// A certificate without the extension is for every use.
Status check_usage(Side side, const TlsOptions& options, const Credentials& read) {
  const bool gateway = side == Side::gateway;
  const int result =
      gateway
          ? mbedtls_x509_crt_check_extended_key_usage(&read.chain, MBEDTLS_OID_SERVER_AUTH,
                                                      MBEDTLS_OID_SIZE(MBEDTLS_OID_SERVER_AUTH))
          : mbedtls_x509_crt_check_extended_key_usage(&read.chain, MBEDTLS_OID_CLIENT_AUTH,
                                                      MBEDTLS_OID_SIZE(MBEDTLS_OID_CLIENT_AUTH));
  if (result == 0) return Status();
  return bad_file("certificate", options.cert_file,
                  gateway ? "is not meant for a gateway (extended key usage serverAuth)"
                          : "is not meant for a device (extended key usage clientAuth)");
}

Status parse(Side side, const TlsOptions& options, Credentials& out) {
  Status status = parse_certificates("CA", options.ca_file, out.pem.ca, out.ca);
  if (status.ok())
    status = parse_certificates("certificate", options.cert_file, out.pem.certificate, out.chain);
  if (status.ok()) status = check_usage(side, options, out);
  return status.ok() ? parse_private_key(options, out) : status;
}

// Days since 1970-01-01 of the proleptic Gregorian calendar; time_t may have 32 bits.
std::int64_t days_from_civil(std::int64_t year, int month, int day) {
  if (month <= 2) --year;
  const std::int64_t era = year / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146'097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
         719'468;
}

}  // namespace

std::int64_t ms_of(const mbedtls_x509_time& time) {
  const std::int64_t days = days_from_civil(time.year, time.mon, time.day);
  return (((days * 24 + time.hour) * 60 + time.min) * 60 + time.sec) * 1000;
}

CertificateFacts facts_of(const mbedtls_x509_crt& certificate) {
  CertificateFacts facts;
  int names = 0;
  for (const mbedtls_x509_name* part = &certificate.subject; part != nullptr; part = part->next) {
    if (MBEDTLS_OID_CMP(MBEDTLS_OID_AT_CN, &part->oid) != 0) continue;
    facts.name.assign(reinterpret_cast<const char*>(part->val.p), part->val.len);
    ++names;
  }
  if (names > 1) facts.name.clear();  // it cannot be said which one is meant
  std::size_t first = 0;
  while (first + 1 < certificate.serial.len && certificate.serial.p[first] == 0) ++first;
  for (std::size_t i = first; i < certificate.serial.len; ++i) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    facts.serial += kDigits[certificate.serial.p[i] >> 4];
    facts.serial += kDigits[certificate.serial.p[i] & 15];
  }
  facts.not_before_ms = ms_of(certificate.valid_from);
  facts.not_after_ms = ms_of(certificate.valid_to);
  return facts;
}

Status load(Side side, const TlsOptions& options, std::shared_ptr<const Credentials>& out) {
  if (options.ca_file.empty() || options.cert_file.empty() || options.key_file.empty())
    return Status::error(Code::invalid,
                         "TLS needs three files: the CA, this side's certificate and its key");
  auto made = std::make_shared<Credentials>();
  Status status = read_pem("CA", options.ca_file, false, made->pem.ca);
  if (status.ok())
    status = read_pem("certificate", options.cert_file, false, made->pem.certificate);
  if (status.ok()) status = read_pem("key", options.key_file, true, made->pem.key);
  if (status.ok()) status = parse(side, options, *made);
  if (!status.ok()) return status;
  made->own = facts_of(made->chain);
  out = std::move(made);
  return status;
}

std::string stamp_of(std::initializer_list<const std::string*> files) {
  std::string stamp;
  for (const std::string* file : files) {
    struct stat info{};
    if (::stat(file->c_str(), &info) != 0) {
      stamp += "none;";
      continue;
    }
    for (const auto number :
         {static_cast<std::int64_t>(info.st_dev), static_cast<std::int64_t>(info.st_ino),
          static_cast<std::int64_t>(info.st_size), static_cast<std::int64_t>(info.st_mode),
          static_cast<std::int64_t>(info.st_ctim.tv_sec),
          static_cast<std::int64_t>(info.st_ctim.tv_nsec)})
      stamp += std::to_string(number) + ":";
    stamp += ";";
  }
  return stamp;
}

}  // namespace holdfast::tls

namespace holdfast {

Status read_certificate(const std::string& file, CertificateFacts& facts) {
  std::string pem;
  Status status = tls::read_pem("certificate", file, false, pem);
  if (!status.ok()) return status;
  tls::Credentials parsed;
  status = tls::parse_certificates("certificate", file, pem, parsed.chain);
  if (status.ok()) facts = tls::facts_of(parsed.chain);
  return status;
}

}  // namespace holdfast
