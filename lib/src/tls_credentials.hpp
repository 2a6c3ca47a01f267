// What the TLS files hold, read and checked as a whole. Only tls*.cpp include this, as it is made
// of mbedTLS's types.
#pragma once

#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>

#include <memory>
#include <set>
#include <string>

#include "holdfast/tls.hpp"
#include "tls_files.hpp"

namespace holdfast::tls {

struct Credentials {
  Credentials();
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  PemTexts pem;
  mbedtls_x509_crt ca, chain;
  mbedtls_pk_context key;
  CertificateFacts own;
  std::set<std::string> revoked;  // serial numbers, as in CertificateFacts
};

// Errors name the file and what is wrong with it: missing, not readable, no PEM, a certificate for
// the other side, a key that does not fit it, a key that everybody can read.
Status load(Side side, const TlsOptions& options, std::shared_ptr<const Credentials>& out);

// Changes when one of the files does.
std::string stamp_of(const TlsOptions& options);

CertificateFacts facts_of(const mbedtls_x509_crt& certificate);
std::int64_t ms_of(const mbedtls_x509_time& time);

}  // namespace holdfast::tls
