#include "tls_open.hpp"

#include "link_url.hpp"
#include "powered_time.hpp"

namespace holdfast {

Status open_tls(tls::Side side, const TlsOptions& options, const std::vector<std::string>& urls,
                sqlite3* db, const Clock& clock, std::shared_ptr<tls::Tls>& out) {
  LinkUrl with_tls;
  for (const std::string& url : urls) {
    LinkUrl parsed;
    const Status status = parse_url(url, parsed);
    if (!status.ok()) return status;
    if (parsed.tls) with_tls = parsed;
  }
  if (!with_tls.tls && options.empty()) return Status();
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
  const Status status = last_known_wall(db, known_ms);
  return status.ok() ? tls::Tls::open(side, complete, clock, known_ms, out) : status;
}

void tell_unset_clock(tls::Tls* tls, bool& said, const LogFunction& log) {
  if (tls == nullptr || tls->clock_is_set()) return;
  if (!said && log)
    log(LogLevel::warning,
        "the clock is not set: certificates are checked as of " + tls::date_text(tls->as_of_ms()));
  said = true;
}

void tell_tls_news(tls::Tls* tls, const LogFunction& log) {
  if (tls == nullptr) return;
  const std::string news = tls->take_news();
  if (!news.empty() && log) log(LogLevel::warning, news);
}

}  // namespace holdfast
