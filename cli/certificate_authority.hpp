// A small certificate authority, made of the openssl program: its files and what it signs. Names
// are checked by the caller.
#pragma once

#include <string>

#include "holdfast/status.hpp"

namespace holdfast::cli {

constexpr int kAuthorityDays = 3'650;
constexpr int kCertificateDays = 730;

struct CertificatePlace {
  std::string dir = ".";
  int days = kCertificateDays;
  bool force = false;  // replaces files that exist
};

struct CertificateFiles {
  std::string key, certificate;
};
CertificateFiles certificate_files(const std::string& dir, const std::string& name);

// ca.key and ca.crt; makes the folder. Sets the process's umask to 077, as the others do.
Status make_authority(const CertificatePlace& where);
Status make_device_certificate(const CertificatePlace& where, const std::string& name);
// `hosts` as openssl's subjectAltName: "DNS:gateway.example,IP:192.0.2.1".
Status make_gateway_certificate(const CertificatePlace& where, const std::string& name,
                                const std::string& hosts);

}  // namespace holdfast::cli
