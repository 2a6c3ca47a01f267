// holdfast certs init|device|gateway: a small certificate authority, by certificate_authority.cpp.
#include <arpa/inet.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "certificate_authority.hpp"
#include "command.hpp"
#include "holdfast/tls.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr CommandText kText = {
    "certs", kGroupWrite, "Make certificates for tls+tcp://: a CA, devices, gateways.",
    "init|device|gateway ...",
    "A small CA for trials and small fleets: it runs the openssl program (3.0 or newer). Its keys\n"
    "are P-256, without a password, for their owner alone (mode 0600). Whoever has ca.key can\n"
    "make a device: keep it off the gateway and the devices.\n"
    "\n"
    "Examples:\n"
    "  holdfast certs init --dir ca\n"
    "  holdfast certs gateway gateway.example 192.0.2.1 --dir ca\n"
    "  holdfast certs device pump7 --dir ca\n"
    "\n"
    "Exit status: 0 done, 1 failed or exists already, 2 wrong usage, 3 no CA there."};

constexpr CommandText kInitText = {
    "init", nullptr, "Make the CA: ca.key and ca.crt.", "[--dir D] [OPTIONS]",
    "Example:\n"
    "  holdfast certs init --dir ca\n"
    "\n"
    "Exit status: 0 done, 1 failed or exists already, 2 wrong usage."};

constexpr CommandText kDeviceText = {
    "device", nullptr, "Make a device's NAME.key and NAME.crt.", "NAME [--dir D] [OPTIONS]",
    "The gateway knows the device by NAME, whatever its files are called. To renew: --force, with\n"
    "the same NAME. The serial number that is printed is what --tls-revoked takes.\n"
    "\n"
    "Example:\n"
    "  holdfast certs device pump7 --dir ca\n"
    "\n"
    "Exit status: 0 done, 1 failed or exists already, 2 wrong usage, 3 no CA there."};

constexpr CommandText kGatewayText = {
    "gateway", nullptr, "Make a gateway's HOST.key and HOST.crt.", "HOST... [--dir D] [OPTIONS]",
    "HOST: the names and addresses that devices dial, all in one certificate; its files are "
    "called\n"
    "as the first.\n"
    "\n"
    "Example:\n"
    "  holdfast certs gateway gateway.example 192.0.2.1 --dir ca\n"
    "\n"
    "Exit status: 0 done, 1 failed or exists already, 2 wrong usage, 3 no CA there."};

constexpr std::size_t kNameBytesMax = 64;  // X.520: ub-common-name
constexpr std::size_t kHostsMax = 16;
constexpr int kDaysMax = 36'500;

struct Options {
  CertificatePlace where;
  std::vector<std::string> names;
};

// Nothing that openssl's configuration, a distinguished name or a path gives a meaning to.
bool is_plain_name(const std::string& name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::isalnum(static_cast<unsigned char>(name[0])) != 0 &&
         std::all_of(name.begin(), name.end(), plain);
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

int tell_made(const Where& where, const Options& options, const std::string& name) {
  const CertificateFiles files = certificate_files(options.where.dir, name);
  CertificateFacts facts;
  const Status status = read_certificate(files.certificate, facts);
  if (!status.ok()) return fail(where, status);
  Output out;
  out.line("made " + escaped(files.key) + " and " + escaped(files.certificate) + ": name " +
           facts.name + ", serial " + facts.serial + ", valid until " +
           format_wall_time(facts.not_after_ms));
  return finish(where, out);
}

int run_init(const Options& options) {
  const Where where{"certs init", ""};
  const Status status = make_authority(options.where);
  return status.ok() ? tell_made(where, options, "ca") : fail(where, status);
}

int run_device(const Options& options) {
  const Where where{"certs device", ""};
  const std::string& name = options.names.front();
  if (options.names.size() > 1) throw CLI::ExtrasError({options.names.back()});
  if (!is_plain_name(name) || name == "ca")
    return fail(where, kExitUsage, "\"" + name + "\" is no name for a device",
                "give 1 to 64 letters, digits, '-', '_', '.', a letter or digit first; not \"ca\"");
  const Status status = make_device_certificate(options.where, name);
  return status.ok() ? tell_made(where, options, name) : fail(where, status);
}

int run_gateway_certs(const Options& options) {
  const Where where{"certs gateway", ""};
  std::string hosts;
  for (const std::string& host : options.names) {
    const bool address = is_address(host);
    if ((!address && !is_plain_name(host)) || host == "ca" || options.names.size() > kHostsMax)
      return fail(where, kExitUsage, "\"" + host + "\" is no host name or address",
                  "give at most 16 names of 64 letters, digits, '-', '.', or addresses");
    hosts += (hosts.empty() ? "" : ",") + std::string(address ? "IP:" : "DNS:") + host;
  }
  const std::string& name = options.names.front();
  const Status status = make_gateway_certificate(options.where, name, hosts);
  return status.ok() ? tell_made(where, options, name) : fail(where, status);
}

}  // namespace

void add_certs(CLI::App& program, Run& run) {
  CLI::App* group = declare(program, kText);
  group->require_subcommand(1);
  struct Part {
    const CommandText* text;
    int (*run)(const Options&);
    const char* name;
  };
  for (const Part& part :
       {Part{&kInitText, run_init, nullptr}, Part{&kDeviceText, run_device, "NAME"},
        Part{&kGatewayText, run_gateway_certs, "HOST"}}) {
    auto options = std::make_shared<Options>();
    CLI::App* command = declare(*group, *part.text);
    if (part.name == nullptr) options->where.days = kAuthorityDays;
    if (part.name != nullptr)
      command->add_option(part.name, options->names, "Whose certificate")
          ->required()
          ->type_name("");
    command->add_option("--dir", options->where.dir, "Folder of the CA's files")
        ->option_text("D [.]");
    command
        ->add_option("--days", options->where.days, "How long it is valid; not longer than its CA")
        ->check(CLI::Range(1, kDaysMax))
        ->option_text(part.name == nullptr ? "N [3650]" : "N [730]");
    command->add_flag("--force", options->where.force, "Replace files that exist");
    command->callback([options, call = part.run, &run] { run = [=] { return call(*options); }; });
  }
}

}  // namespace holdfast::cli
