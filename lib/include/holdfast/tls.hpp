// Mutual TLS between relay and gateway, for URLs tls+tcp://host:port. Both sides show a certificate
// of one CA, and each refuses a peer without one: there is no switch to verify less.
//
// A relay accepts the gateway if the certificate is made out to the name it dialled. A gateway
// accepts every device of its CA: it does not yet bind a device to its own streams. Certificates
// are for one side only (extended key usage serverAuth for gateways, clientAuth for devices), so
// that no device can play gateway.
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

  bool empty() const {
    return ca_file.empty() && cert_file.empty() && key_file.empty() && server_name.empty();
  }
};

constexpr std::size_t kTlsFileBytesMax = 64 * 1024;

struct CertificateFacts {
  std::string name;    // the common name
  std::string serial;  // hexadecimal, upper case
  std::int64_t not_before_ms = 0;
  std::int64_t not_after_ms = 0;
};

// The first certificate of a PEM file. Errors: not_found, permission, invalid.
Status read_certificate(const std::string& file, CertificateFacts& facts);

}  // namespace holdfast
