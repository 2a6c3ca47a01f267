// holdfast gateway list|allow|deny: whose streams a gateway takes, by certificate name.
#include <CLI/CLI.hpp>

#include "command.hpp"
#include "event_text.hpp"
#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kListText = {
    "list", nullptr, "List the certificate names with their streams.", "[DB] [--json]",
    "A line for each stream that is bound to a name, and for each denied name.\n"
    "\n"
    "Example:\n"
    "  holdfast gateway list gateway.db\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such database, 75 locked."};

constexpr CommandText kAllowText = {
    "allow", nullptr, "Take back a deny; with --stream, bind a stream to this name.",
    "[DB] NAME [--stream ID]",
    "A stream belongs to the certificate name that first wrote it over TLS. After a device got a\n"
    "certificate of another name, or its database another device, --stream gives the stream to\n"
    "NAME, and only to NAME. A running gateway goes by it at once.\n"
    "\n"
    "Example:\n"
    "  holdfast gateway allow gateway.db pump8 --stream 5b1e6c1e-8c2c-4b8a-9d5e-0c3f5a7d9b11\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such stream or database, 75 locked."};

constexpr CommandText kDenyText = {
    "deny", nullptr, "Take nothing more that comes with a certificate of this name.", "[DB] NAME",
    "A running gateway goes by it at once. What is stored stays. The device keeps its events and\n"
    "tries again. To bar one certificate, and not its name: --tls-revoked.\n"
    "\n"
    "Example:\n"
    "  holdfast gateway deny gateway.db pump7\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such database, 75 locked."};

struct Options {
  DatabaseArgument db;
  std::string stream;
  bool json = false;
};

std::string json_of(const CertificateStream& row) {
  JsonLine line;
  line.text("name", row.name).boolean("denied", row.denied);
  if (!row.stream.nil())
    line.text("stream", row.stream.text())
        .text_if_set("device", row.device)
        .number("events", row.events)
        .number("first_seen_at", row.first_seen_at_ms)
        .number("last_seen_at", row.last_seen_at_ms);
  return line.finish();
}

int run_list(const Options& options) {
  const Where where{"gateway list", options.db.path()};
  Store store;
  Status status = Store::open(where.subject, Access::read_only, {}, store);
  if (!status.ok()) return fail(where, status);
  Output out;
  {
    Table table(out, {{"NAME", Align::left, 32},
                      {"ALLOWED"},
                      {"STREAM"},
                      {"EVENTS", Align::right},
                      {"FIRST SEEN", Align::right},
                      {"LAST SEEN", Align::right}});
    status = store.list_certificates([&](const CertificateStream& row) {
      const bool bound = !row.stream.nil();
      if (options.json) {
        out.line(json_of(row));
      } else {
        table.row({row.name, row.denied ? Table::Cell{"denied", Colour::red} : Table::Cell{"yes"},
                   bound ? row.stream.text() : "-", bound ? format_count(row.events) : "-",
                   bound ? age_since(row.first_seen_at_ms) : "-",
                   bound ? age_since(row.last_seen_at_ms) : "-"});
      }
      return !out.failed();
    });
  }
  return status.ok() ? finish(where, out) : fail(where, status);
}

int run_change(const Options& options, bool deny) {
  const Where where{deny ? "gateway deny" : "gateway allow", ""};
  const auto [path, name] = options.db.path_and_name();
  if (name.empty()) throw CLI::RequiredError("NAME");
  EventId stream;
  if (!options.stream.empty() && (!EventId::parse(options.stream, stream) || stream.nil()))
    return fail({where.command, path}, kExitUsage,
                "--stream: \"" + options.stream + "\" is no stream id",
                "see `holdfast gateway list`");
  Store store;
  bool changed = false;
  Status status = Store::open(path, Access::read_write, {}, store);
  if (status.ok())
    status = deny ? store.deny_certificate(name, changed)
                  : store.allow_certificate(name, stream, changed);
  if (!status.ok()) return fail({where.command, path}, status);
  Output out;
  const std::string what = stream.nil() ? "" : " for stream " + stream.text();
  out.line((deny ? "denied " : "allowed ") + escaped(name) + what +
           (changed ? "" : " (as before)"));
  return finish(where, out);
}

}  // namespace

void add_gateway_certificates(CLI::App& gateway, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* list = declare(gateway, kListText);
  options->db.add(*list);
  list->add_flag("--json", options->json, "Print one JSON object per line");
  list->callback([options, &run] { run = [options] { return run_list(*options); }; });

  CLI::App* allow = declare(gateway, kAllowText);
  options->db.add_with_rest(*allow, "NAME", "Common name of the certificate");
  allow->add_option("--stream", options->stream, "Bind this stream to NAME")->option_text("ID");
  allow->callback([options, &run] { run = [options] { return run_change(*options, false); }; });

  CLI::App* deny = declare(gateway, kDenyText);
  options->db.add_with_rest(*deny, "NAME", "Common name of the certificate");
  deny->callback([options, &run] { run = [options] { return run_change(*options, true); }; });
}

}  // namespace holdfast::cli
