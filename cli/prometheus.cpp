#include "prometheus.hpp"

#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "holdfast/version.hpp"

namespace holdfast::cli {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[40];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

// Label values may hold any UTF-8; a peer's name is not to be trusted with that.
std::string label_value(const std::string& text) {
  std::string out;
  for (const char c : is_utf8(text) ? text : std::string("invalid")) {
    if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

class Exposition {
 public:
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }

  void sample(const Labels& labels, double value, const char* suffix = "") {
    text_ += name_ + suffix;
    if (!labels.empty()) {
      char separator = '{';
      for (const auto& [label, label_text] : labels) {
        text_ += separator;
        text_ += std::string(label) + "=\"" + label_value(label_text) + "\"";
        separator = ',';
      }
      text_ += '}';
    }
    text_ += " " + number(value) + "\n";
  }

  void single(const char* name, const char* type, const char* help, std::int64_t value) {
    family(name, type, help);
    sample({}, static_cast<double>(value));
  }

  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

// One family of samples, one for each destination.
struct DestinationMetric {
  const char* name;
  const char* type;
  const char* help;
  double (*value)(const DestinationStats&);
};

constexpr DestinationMetric kDestinationMetrics[] = {
    {"holdfast_oldest_pending_age_seconds", "gauge",
     "Age of the oldest event that could be delivered now; 0 when nothing is pending.",
     [](const DestinationStats& d) {
       return d.oldest_pending_age_ms < 0 ? 0.0
                                          : static_cast<double>(d.oldest_pending_age_ms) / 1000;
     }},
    {"holdfast_retry_events", "gauge", "Events that were rejected and will be offered again.",
     [](const DestinationStats& d) { return static_cast<double>(d.retry); }},
    {"holdfast_held_events", "gauge", "Events that wait for an earlier one of their aggregate.",
     [](const DestinationStats& d) { return static_cast<double>(d.held); }},
    {"holdfast_dead_events", "gauge", "Events given up after too many rejections.",
     [](const DestinationStats& d) { return static_cast<double>(d.dead); }},
    {"holdfast_sent_total", "counter", "Events the other side has durably, duplicates included.",
     [](const DestinationStats& d) { return static_cast<double>(d.sent); }},
    {"holdfast_duplicates_total", "counter", "Events the other side knew already.",
     [](const DestinationStats& d) { return static_cast<double>(d.duplicates); }},
    {"holdfast_rejected_total", "counter", "Rejections by the other side.",
     [](const DestinationStats& d) { return static_cast<double>(d.rejected); }},
    {"holdfast_retries_total", "counter", "Events offered again after a rejection.",
     [](const DestinationStats& d) { return static_cast<double>(d.retries); }},
    {"holdfast_gone_total", "counter", "Events discarded, expired, capped or lost.",
     [](const DestinationStats& d) { return static_cast<double>(d.gone); }},
    {"holdfast_capped_total", "counter", "Events dropped at a cap before they were sent.",
     [](const DestinationStats& d) { return static_cast<double>(d.capped); }},
    {"holdfast_rewinds_total", "counter", "Times the other side had less than it once confirmed.",
     [](const DestinationStats& d) { return static_cast<double>(d.rewinds); }},
    {"holdfast_link_failures", "gauge", "Failed attempts to reach the other side, in a row.",
     [](const DestinationStats& d) { return static_cast<double>(d.link_failures); }},
    {"holdfast_relay_active", "gauge", "1 while a live relay holds the destination.",
     [](const DestinationStats& d) { return d.leased ? 1.0 : 0.0; }},
};

void add_backlog(Exposition& out, const StoreStats& stats) {
  constexpr const char* kLaneNames[kLaneCount] = {"normal", "urgent"};
  out.family("holdfast_backlog_events", "gauge",
             "Events not yet accepted by the destination; retry, held and dead ones excluded.");
  for (const DestinationStats& destination : stats.destinations) {
    for (int lane = 0; lane < kLaneCount; ++lane) {
      out.sample({{"destination", destination.name}, {"lane", kLaneNames[lane]}},
                 static_cast<double>(destination.lanes[lane].pending));
    }
  }
}

void add_histogram(Exposition& out, const InboxStats& inbox) {
  out.family("holdfast_handler_seconds", "histogram",
             "Time handlers took for an event, in their transaction.");
  double count = 0;
  bool infinite = false;
  for (const HistogramBucket& bucket : inbox.handler_seconds) {
    count = static_cast<double>(bucket.count);
    infinite = infinite || std::isinf(bucket.le_seconds);
    out.sample({{"le", number(bucket.le_seconds)}}, count, "_bucket");
  }
  if (!infinite) out.sample({{"le", "+Inf"}}, count, "_bucket");
  out.sample({}, inbox.handler_seconds_sum, "_sum");
  out.sample({}, count, "_count");
}

void add_inbox_counters(Exposition& out, const InboxStats& inbox) {
  const auto counter = [&out](const char* name, const char* help, std::int64_t value) {
    out.single(name, "counter", help, value);
  };
  counter("holdfast_inbox_applied_total", "Events applied, once each.", inbox.applied);
  counter("holdfast_inbox_duplicates_total", "Events filtered out: applied before.",
          inbox.duplicates);
  counter("holdfast_inbox_stale_total", "Events not applied: an older aggregate version.",
          inbox.stale);
  counter("holdfast_inbox_rejected_total", "Events rejected.", inbox.rejected);
  counter("holdfast_inbox_later_total", "Events put off by a handler.", inbox.later);
  counter("holdfast_inbox_held_total", "Events held behind an earlier one of their aggregate.",
          inbox.held);
  counter("holdfast_handler_failures_total", "Handler calls that did not apply their event.",
          inbox.handler_failures);
  counter("holdfast_inbox_not_your_stream_total",
          "Refused: another certificate's stream, or a denied name.", inbox.not_your_stream);
  counter("holdfast_inbox_gone_total", "Events reported as never to come.", inbox.gone);
  out.single("holdfast_inbox_streams", "gauge", "Streams known.", inbox.streams);
  out.single("holdfast_inbox_replaced_streams", "gauge",
             "Streams beyond the first of a device's name: copies, restores, new databases.",
             inbox.replaced_streams);
  out.single("holdfast_inbox_gaps", "gauge", "Ranges open below a high-water mark.",
             inbox.open_gaps);
}

}  // namespace

std::string prometheus_text(const StoreStats& stats) {
  Exposition out;
  out.family("holdfast_info", "gauge", "What runs here; always 1.");
  out.sample({{"version", kVersion},
              {"schema", std::to_string(stats.schema_version)},
              {"device", stats.device},
              {"stream", stats.stream.text()},
              {"store", stats.store.text()}},
             1);
  out.single("holdfast_newest_seq", "gauge", "Seq of the newest event in the log; 0 when empty.",
             stats.newest_seq);
  out.single("holdfast_oldest_seq", "gauge", "Seq of the oldest event kept; 0 when empty.",
             stats.oldest_seq);
  out.single("holdfast_db_bytes", "gauge", "Size of the database.", stats.db_bytes);
  out.single("holdfast_wal_bytes", "gauge", "Size of the write-ahead log.", stats.wal_bytes);
  out.single("holdfast_forks_total", "counter", "Times this database was found to be a copy.",
             stats.forks);
  out.single("holdfast_expired_total", "counter", "Events given up at their time to live.",
             stats.expired);
  out.single("holdfast_gaps", "gauge", "Gaps the other side has not been told of yet.",
             stats.gaps_unreported);
  const auto expiry = [&out](const char* name, std::int64_t ends_at_ms) {
    if (ends_at_ms > 0)
      out.single(name, "gauge", "When the certificate in use ends, Unix time.", ends_at_ms / 1000);
  };
  expiry("holdfast_relay_certificate_expiry_seconds", stats.relay_certificate_ends_at_ms);
  expiry("holdfast_gateway_certificate_expiry_seconds", stats.gateway_certificate_ends_at_ms);
  add_backlog(out, stats);
  for (const DestinationMetric& metric : kDestinationMetrics) {
    out.family(metric.name, metric.type, metric.help);
    for (const DestinationStats& destination : stats.destinations) {
      out.sample({{"destination", destination.name}}, metric.value(destination));
    }
  }
  add_inbox_counters(out, stats.inbox);
  add_histogram(out, stats.inbox);
  return out.take();
}

}  // namespace holdfast::cli
