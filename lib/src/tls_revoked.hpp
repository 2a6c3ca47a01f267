// The list of certificates that are not accepted any more (TlsOptions::revoked_file).
#pragma once

#include <set>
#include <string>

#include "holdfast/status.hpp"

namespace holdfast::tls {

using Serials = std::set<std::string>;  // as in CertificateFacts

// Errors: those of reading; invalid, with the number of the line that is no serial number.
Status read_revoked(const std::string& file, Serials& out);

}  // namespace holdfast::tls
