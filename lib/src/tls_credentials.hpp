// What the TLS files hold, read and checked as a whole. Only tls*.cpp include this, as it is made
// of mbedTLS's types.
#pragma once

#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>

#include <initializer_list>
#include <memory>
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
};

// Errors name the file and what is wrong with it: missing, not readable, no PEM, a certificate for
// the other side, a key that does not fit it, a key that everybody can read.
Status load(Side side, const TlsOptions& options, std::shared_ptr<const Credentials>& out);

// A regular file of at most kTlsFileBytesMax; one that is `secret` must not be open to everybody.
Status read_file(const char* what, const std::string& file, bool secret, std::string& out);

// Changes when one of the files does.
std::string stamp_of(std::initializer_list<const std::string*> files);

CertificateFacts facts_of(const mbedtls_x509_crt& certificate);
std::int64_t ms_of(const mbedtls_x509_time& time);

}  // namespace holdfast::tls
