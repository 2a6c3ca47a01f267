#include "holdfast/version.hpp"

#include "db.hpp"
#include "nng_compat.hpp"

namespace holdfast {

Versions library_versions() {
  Versions versions;
  versions.holdfast = HOLDFAST_VERSION_STRING;
  versions.sqlite = sqlite_version_text();
  versions.nng = nng_version_text();
  versions.tls = tls_version_text();
  return versions;
}

}  // namespace holdfast
