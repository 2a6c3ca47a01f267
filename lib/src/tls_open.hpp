// What relay and gateway do alike about TLS before they use it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "db.hpp"
#include "holdfast/log.hpp"
#include "tls.hpp"

namespace holdfast {

// Errors: files that are missing or no good; options without an URL that uses them (they would
// protect nothing), or the other way round. `out` stays empty without a tls+tcp URL.
//
// Notes in the database when this side's certificate ends (0: no TLS), for `stats` and `doctor` in
// other processes. If that fails, the next start or renewal notes it.
Status open_tls(tls::Side side, const TlsOptions& options, const std::vector<std::string>& urls,
                sqlite3* db, const Clock& clock, std::shared_ptr<tls::Tls>& out);

// Says, once in `said`, as of when certificates are checked while the clock is not set.
void tell_unset_clock(tls::Tls* tls, bool& said, const LogFunction& log);
// Files that were read again, or could not be; notes the end again.
void tell_tls_news(tls::Tls* tls, sqlite3* db, const LogFunction& log);

}  // namespace holdfast
