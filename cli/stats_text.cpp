#include "stats_text.hpp"

#include <cmath>
#include <cstdio>

#include "holdfast/clock.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr std::size_t kErrorColumns = 60;

std::string destination_json(const DestinationStats& d) {
  JsonLine line;
  line.text("destination", d.name).number("pending", d.pending);
  if (d.oldest_pending_age_ms >= 0) line.number("oldest_pending_age_ms", d.oldest_pending_age_ms);
  line.number("retry", d.retry)
      .number("held", d.held)
      .number("dead", d.dead)
      .number("sent", d.sent)
      .number("duplicates", d.duplicates)
      .number("rejected", d.rejected)
      .number("retries", d.retries)
      .number("gone", d.gone)
      .number("rewinds", d.rewinds)
      .number("capped", d.capped);
  std::string lanes;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const LaneStats& each = d.lanes[lane];
    JsonLine lane_line;
    lane_line.number("lane", lane)
        .number("acked_seq", each.acked_seq)
        .number("claimed_seq", each.claimed_seq)
        .number("pending", each.pending);
    lanes += (lanes.empty() ? "" : ",") + lane_line.finish();
  }
  line.raw("lanes", "[" + lanes + "]").boolean("leased", d.leased);
  line.text_if_set("lease_owner", d.lease_owner)
      .text_if_set("url", d.url)
      .number("link_failures", d.link_failures);
  line.text_if_set("last_error", d.last_error);
  if (d.last_error_at_ms > 0) line.number("last_error_at", d.last_error_at_ms);
  return line.finish();
}

void print_log(const StoreStats& stats, Output& out) {
  const auto field = [&out](const char* name, const std::string& value) {
    std::string label = name;
    label.resize(9, ' ');
    out.line(coloured(out, Colour::dim, label) + escaped(value));
  };
  field("device", stats.device.empty() ? "-" : stats.device);
  field("stream", stats.stream.text());
  field("log", stats.newest_seq == 0 ? "no events yet"
                                     : "seq " + format_count(stats.oldest_seq) + " to " +
                                           format_count(stats.newest_seq));
  field("size", format_bytes(stats.db_bytes) + ", WAL " + format_bytes(stats.wal_bytes));
  if (stats.limits.max_events > 0 || stats.limits.max_bytes > 0) {
    const Limits& caps = stats.limits;
    field("caps", (caps.max_events > 0 ? format_count(caps.max_events) + " events, " : "") +
                      (caps.max_bytes > 0 ? format_bytes(caps.max_bytes) + ", " : "") +
                      (caps.when_full == WhenFull::drop_oldest ? "then the oldest are dropped"
                                                               : "then emit is refused"));
  }
  if (stats.gaps_unreported > 0) {
    field("gaps", format_count(stats.gaps_unreported) + " not yet reported upstream");
  }
  if (stats.expired > 0) {
    field("expired", format_count(stats.expired) + " given up at their time to live");
  }
  if (stats.forks > 0) {
    field("forks", format_count(stats.forks) + "; this database was copied or restored");
  }
}

Table::Cell counted(std::int64_t count, Colour colour) {
  return {format_count(count), count > 0 ? colour : Colour::none};
}

std::string link_text(const DestinationStats& d, std::int64_t wall_now_ms) {
  std::string out = d.leased ? "active" : "none";
  if (d.leased && !d.url.empty()) out += " on " + d.url;
  if (d.link_failures > 0) out = plural(d.link_failures, "failure") + " in a row";
  if (d.rewinds > 0) out += ", " + plural(d.rewinds, "rewind");
  if (d.last_error.empty()) return out;
  out += ": " + d.last_error;
  if (wall_known(d.last_error_at_ms) && wall_known(wall_now_ms)) {
    out += " (" + format_age(std::max<std::int64_t>(0, wall_now_ms - d.last_error_at_ms)) + " ago)";
  }
  return out;
}

void print_destinations(const StoreStats& stats, std::int64_t wall_now_ms, Output& out) {
  if (stats.destinations.empty()) {
    out.line("no destinations");
    return;
  }
  Table table(out, {{"DESTINATION"},
                    {"PENDING", Align::right},
                    {"OLDEST", Align::right},
                    {"RETRY", Align::right},
                    {"HELD", Align::right},
                    {"DEAD", Align::right},
                    {"GONE", Align::right},
                    {"SENT", Align::right},
                    {"DUPLICATES", Align::right},
                    {"REJECTED", Align::right},
                    {"RELAY", Align::left, kErrorColumns}});
  for (const DestinationStats& d : stats.destinations) {
    table.row({d.name, format_count(d.pending),
               d.pending > 0 ? format_age(d.oldest_pending_age_ms) : "-",
               counted(d.retry, Colour::yellow), counted(d.held, Colour::yellow),
               counted(d.dead, Colour::red), counted(d.gone, Colour::red), format_count(d.sent),
               format_count(d.duplicates), format_count(d.rejected), link_text(d, wall_now_ms)});
  }
}

// The smallest bound below which so many of the calls stayed.
std::string quantile_bound(const InboxStats& inbox, double part) {
  if (inbox.handler_seconds.empty() || inbox.handler_seconds.back().count == 0) return "-";
  const double wanted = part * static_cast<double>(inbox.handler_seconds.back().count);
  for (const HistogramBucket& bucket : inbox.handler_seconds) {
    if (static_cast<double>(bucket.count) < wanted) continue;
    char text[40];
    if (std::isinf(bucket.le_seconds)) break;
    std::snprintf(text, sizeof text, "%.6g ms", bucket.le_seconds * 1000);
    return text;
  }
  return "above the highest bound";
}

}  // namespace

std::string inbox_stats_json(const InboxStats& inbox) {
  std::string buckets;
  std::int64_t count = 0;
  for (const HistogramBucket& bucket : inbox.handler_seconds) {
    JsonLine line;
    if (std::isinf(bucket.le_seconds)) {
      line.text("le", "+Inf");
    } else {
      line.real("le", bucket.le_seconds);
    }
    count = bucket.count;
    line.number("count", bucket.count);
    buckets += (buckets.empty() ? "" : ",") + line.finish();
  }
  JsonLine histogram;
  histogram.number("count", count)
      .real("sum", inbox.handler_seconds_sum)
      .raw("buckets", "[" + buckets + "]");
  JsonLine line;
  line.number("applied", inbox.applied)
      .number("duplicates", inbox.duplicates)
      .number("stale", inbox.stale)
      .number("rejected", inbox.rejected)
      .number("later", inbox.later)
      .number("held", inbox.held)
      .number("handler_failures", inbox.handler_failures)
      .number("streams", inbox.streams)
      .number("replaced_streams", inbox.replaced_streams)
      .number("open_gaps", inbox.open_gaps)
      .number("gone", inbox.gone)
      .number("not_your_stream", inbox.not_your_stream)
      .raw("handler_seconds", histogram.finish());
  return line.finish();
}

std::string stats_line(const StoreStats& stats) {
  std::string destinations;
  for (const DestinationStats& each : stats.destinations) {
    destinations += (destinations.empty() ? "" : ",") + destination_json(each);
  }
  JsonLine line;
  line.text_if_set("device", stats.device)
      .text("stream", stats.stream.text())
      .text("store", stats.store.text())
      .number("schema_version", stats.schema_version)
      .number("newest_seq", stats.newest_seq)
      .number("oldest_seq", stats.oldest_seq)
      .number("db_bytes", stats.db_bytes)
      .number("wal_bytes", stats.wal_bytes)
      .number("max_events", stats.limits.max_events)
      .number("max_bytes", stats.limits.max_bytes)
      .text("when_full", stats.limits.when_full == WhenFull::drop_oldest ? "drop_oldest" : "refuse")
      .number("forks", stats.forks)
      .number("expired", stats.expired)
      .number("gaps_unreported", stats.gaps_unreported)
      .number("relay_certificate_ends_at", stats.relay_certificate_ends_at_ms)
      .number("gateway_certificate_ends_at", stats.gateway_certificate_ends_at_ms)
      .raw("destinations", "[" + destinations + "]")
      .raw("inbox", inbox_stats_json(stats.inbox));
  return line.finish();
}

void print_inbox_stats(const InboxStats& inbox, Output& out) {
  Table table(out, {{"APPLIED", Align::right},
                    {"DUPLICATES", Align::right},
                    {"STALE", Align::right},
                    {"REJECTED", Align::right},
                    {"LATER", Align::right},
                    {"HELD", Align::right},
                    {"GONE", Align::right},
                    {"STREAMS", Align::right},
                    {"REPLACED", Align::right},
                    {"OPEN GAPS", Align::right},
                    {"FAILURES", Align::right},
                    {"HANDLER P50", Align::right},
                    {"P99", Align::right}});
  table.row({format_count(inbox.applied), format_count(inbox.duplicates),
             counted(inbox.stale, Colour::yellow), counted(inbox.rejected, Colour::yellow),
             format_count(inbox.later), format_count(inbox.held), counted(inbox.gone, Colour::red),
             format_count(inbox.streams), counted(inbox.replaced_streams, Colour::yellow),
             counted(inbox.open_gaps, Colour::yellow),
             counted(inbox.handler_failures, Colour::yellow), quantile_bound(inbox, 0.5),
             quantile_bound(inbox, 0.99)});
}

void print_stats(const StoreStats& stats, std::int64_t wall_now_ms, Output& out) {
  print_log(stats, out);
  out.write("\n");
  print_destinations(stats, wall_now_ms, out);
  if (stats.inbox.streams > 0 || stats.inbox.applied > 0) {
    out.line("\n" + coloured(out, Colour::bold, "INBOX"));
    print_inbox_stats(stats.inbox, out);
  }
}

}  // namespace holdfast::cli
