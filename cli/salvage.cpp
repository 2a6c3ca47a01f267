#include "salvage.hpp"

#include "command.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

// A person reads a few ranges; --json has them all.
constexpr std::size_t kRangesShown = 8;

std::string json_ranges(const std::vector<SeqRange>& ranges) {
  std::string out;
  for (const SeqRange& each : ranges)
    out += (out.empty() ? "[" : ",[") + std::to_string(each.first) + "," +
           std::to_string(each.last) + "]";
  return "[" + out + "]";
}

std::string json_tables(const std::vector<SalvagedTable>& tables) {
  std::string out;
  for (const SalvagedTable& each : tables) {
    JsonLine line;
    line.text("table", each.name).number("rows", each.rows).number("unreadable", each.unreadable);
    out += (out.empty() ? "" : ",") + line.finish();
  }
  return "[" + out + "]";
}

void print_json(const SalvageReport& report, Output& out) {
  JsonLine line;
  line.boolean("complete", report.complete())
      .text("stream", report.stream.text())
      .number("pages", report.pages)
      .number("damaged_pages", report.damaged_pages)
      .boolean("header_damaged", report.header_damaged)
      .boolean("wal_damaged", report.wal_damaged)
      .boolean("identity_lost", report.identity_lost)
      .number("lost_count", report.lost_count)
      .number("lost_pending", report.lost_pending)
      .raw("lost_events", json_ranges(report.lost_events))
      .boolean("newest_lost", report.newest_lost)
      .raw("tables", json_tables(report.tables));
  out.line(line.finish());
}

std::string text_ranges(const std::vector<SeqRange>& ranges) {
  std::string out;
  for (std::size_t i = 0; i < ranges.size() && i < kRangesShown; ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(ranges[i].first);
    if (ranges[i].last > ranges[i].first) out += "-" + std::to_string(ranges[i].last);
  }
  return ranges.size() > kRangesShown ? out + ", ..." : out;
}

void print_text(const SalvageReport& report, const std::string& new_path, Output& out) {
  for (const SalvagedTable& each : report.tables) {
    if (each.rows == 0 && each.unreadable == 0) continue;
    std::string line = each.name + ": " + plural(each.rows, "row");
    if (each.unreadable > 0) line += ", " + format_count(each.unreadable) + " unreadable";
    out.line(line);
  }
  if (report.damaged_pages > 0)
    out.line("damaged: " + plural(report.damaged_pages, "page") + " of " +
             format_count(report.pages));
  if (report.header_damaged) out.line("damaged: the first page, with the schema");
  if (report.wal_damaged) out.line("damaged: the -wal file; newer changes are lost");
  if (report.identity_lost) out.line("lost: device label or store id; new ones were made");
  if (report.lost_count > 0)
    out.line("lost: " + plural(report.lost_count, "event") + ", seq " +
             text_ranges(report.lost_events));
  if (report.newest_lost) out.line("lost: the newest events; how many there were is not known");
  if (report.lost_pending > 0)
    out.line("lost before they were sent: " + plural(report.lost_pending, "event") +
             "; the gateway will be told");
  out.line(std::string(report.complete() ? "everything" : "what is left") + " is in " +
           escaped(new_path) + ", as stream " + report.stream.text());
}

}  // namespace

int run_salvage(const std::string& path, const std::string& new_path, bool json) {
  const Where where{"doctor", path};
  SalvageReport report;
  const Status status = Store::salvage(path, new_path, report);
  if (!status.ok()) return fail(where, status);
  Output out;
  if (json) {
    print_json(report, out);
  } else {
    print_text(report, new_path, out);
  }
  return finish(where, out, report.complete() ? kExitDone : kExitWorry);
}

}  // namespace holdfast::cli
