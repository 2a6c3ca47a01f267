#include "tls_open.hpp"

#include "identity.hpp"
#include "link_url.hpp"
#include "powered_time.hpp"
#include "schema.hpp"

namespace holdfast {

namespace {

// For `stats` and `doctor` only: a database that is full or locked just now is no reason to stop,
// and the next start or renewal notes it.
void note_end(sqlite3* db, tls::Side side, std::int64_t ends_at_ms) {
  const char* const key =
      side == tls::Side::gateway ? kGatewayCertificateKey : kRelayCertificateKey;
  Statement get, set;
  Status status = get.prepare(db, sql::kMetaGet);
  if (!status.ok()) return;
  get.bind_text(1, key);
  const std::int64_t noted = get.step(status, key) ? get.column_int(0) : 0;
  get.finalize();
  if (!status.ok() || noted == ends_at_ms) return;
  status = set.prepare(db, sql::kMetaSet);
  if (status.ok()) status = set.bind_text(1, key).bind(2, ends_at_ms).run(key);
}

}  // namespace

Status open_tls(tls::Side side, const TlsOptions& options, const std::vector<std::string>& urls,
                sqlite3* db, const Clock& clock, std::shared_ptr<tls::Tls>& out) {
  LinkUrl with_tls;
  for (const std::string& url : urls) {
    LinkUrl parsed;
    const Status status = parse_url(url, parsed);
    if (!status.ok()) return status;
    if (parsed.tls && !with_tls.tls) with_tls = parsed;
  }
  if (!with_tls.tls && options.empty()) {
    note_end(db, side, 0);
    return Status();
  }
  if (!with_tls.tls)
    return Status::error(Code::invalid,
                         "TLS files are given, but no tls+tcp:// URL that would use them");
  if (options.ca_file.empty() || options.cert_file.empty() || options.key_file.empty())
    return Status::error(Code::invalid,
                         "%s: TLS needs three files: the CA, this side's certificate and its key",
                         with_tls.text.c_str());
  TlsOptions complete = options;
  if (complete.server_name.empty()) complete.server_name = with_tls.host;
  if (complete.server_name.back() == '.') complete.server_name.pop_back();
  std::int64_t known_ms = 0;
  Status status = last_known_wall(db, known_ms);
  if (status.ok()) status = tls::Tls::open(side, complete, clock, known_ms, out);
  if (status.ok()) note_end(db, side, out->own().not_after_ms);
  return status;
}

void tell_unset_clock(tls::Tls* tls, bool& said, const LogFunction& log) {
  if (tls == nullptr || tls->clock_is_set()) return;
  if (!said && log)
    log(LogLevel::warning,
        "the clock is not set: certificates are checked as of " + tls::date_text(tls->as_of_ms()));
  said = true;
}

void tell_tls_news(tls::Tls* tls, sqlite3* db, const LogFunction& log) {
  if (tls == nullptr) return;
  const std::string news = tls->take_news();
  if (news.empty()) return;
  if (log) log(LogLevel::warning, news);
  note_end(db, tls->is_gateway() ? tls::Side::gateway : tls::Side::device, tls->own().not_after_ms);
}

}  // namespace holdfast
