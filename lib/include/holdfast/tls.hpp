// Mutual TLS between relay and gateway, for URLs tls+tcp://host:port. Both sides show a certificate
// of one CA, and each refuses a peer without one: there is no switch to verify less.
//
// A relay accepts the gateway if the certificate is made out to the name it dialled. A device is
// who the common name of its certificate says: its stream is bound to that name when it is first
// written, and taken under no other (see Store::allow_certificate). Certificates are for one side
// only (extended key usage serverAuth for gateways, clientAuth for devices), so that no device can
// play gateway.
//
// The files are read again when they changed, for the connections made from then on; if what is
// read then is no good, what was read before stays in use.
//
// While the wall clock is not set (see wall_known() in clock.hpp), a certificate that begins "in
// the future" is accepted: its CA made it before now, whatever the clock says. Expiry is checked as
// of the latest time the device can know: see DESIGN.md. Everything else is checked as ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "holdfast/status.hpp"

namespace holdfast {

struct TlsOptions {
  std::string ca_file;      // PEM: the CA, or several, whose certificates are accepted
  std::string cert_file;    // PEM: this side's certificate, then those between it and the CA
  std::string key_file;     // PEM: its key, not encrypted; others must not be able to read the file
  std::string server_name;  // relay: the gateway's name in its certificate; "": the URL's host

  // Certificates that are not accepted any more: one serial number a line, hexadecimal as `openssl
  // x509 -serial` prints it (colons and leading zeros do not matter); # begins a comment. "": none.
  // A gateway cuts their connections, too, within kRevokedLookMs of a change; a relay looks when it
  // connects. A file that cannot be read, or a line that is no serial number, is an error at the
  // start; later it is logged, and the list before stays in force. Missing is not empty.
  std::string revoked_file;

  bool empty() const {
    return ca_file.empty() && cert_file.empty() && key_file.empty() && server_name.empty() &&
           revoked_file.empty();
  }
};

constexpr std::size_t kTlsFileBytesMax = 64 * 1024;
constexpr std::int64_t kRevokedLookMs = 2'000;
constexpr std::size_t kSerialDigitsMax = 40;  // RFC 5280: 20 bytes
// A certificate that ends sooner than this is worth a warning.
constexpr std::int64_t kCertificateWarnMs = 30LL * 24 * 3600 * 1000;

struct CertificateFacts {
  std::string name;    // the common name
  std::string serial;  // hexadecimal, upper case
  std::int64_t not_before_ms = 0;
  std::int64_t not_after_ms = 0;
};

// The first certificate of a PEM file. Errors: not_found, permission, invalid.
Status read_certificate(const std::string& file, CertificateFacts& facts);

}  // namespace holdfast
