// holdfast certs init|device|gateway: a small certificate authority, made of the openssl program.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "command.hpp"
#include "holdfast/clock.hpp"
#include "holdfast/tls.hpp"
#include "output.hpp"

extern char** environ;

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
constexpr int kCaDays = 3'650;
constexpr int kDays = 730;

struct Options {
  std::string dir = ".";
  std::vector<std::string> names;
  int days = kDays;
  bool force = false;
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

// Runs `openssl arguments…`; `input` (less than a pipe holds) is its /dev/stdin.
Status run_openssl(std::vector<std::string> arguments, const std::string& input) {
  arguments.insert(arguments.begin(), "openssl");
  std::vector<char*> argv;
  for (std::string& each : arguments) argv.push_back(each.data());
  argv.push_back(nullptr);
  int in[2], err[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return Status::error(Code::io, "pipe: %s", ::strerror(errno));
  if (::pipe2(err, O_CLOEXEC) != 0) {
    const int error = errno;
    ::close(in[0]);
    ::close(in[1]);
    return Status::error(Code::io, "pipe: %s", ::strerror(error));
  }
  const bool written =
      ::write(in[1], input.data(), input.size()) == static_cast<ssize_t>(input.size());
  ::close(in[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  pid_t pid = 0;
  const int error =
      written ? ::posix_spawnp(&pid, "openssl", &actions, nullptr, argv.data(), environ) : EIO;
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(err[1]);
  std::string said;
  char part[512];
  for (ssize_t n = 0; (n = ::read(err[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<std::size_t>(n));
  ::close(err[0]);
  if (error == ENOENT)
    return Status::error(
        Code::not_found,
        "the openssl program is not there; install it (Debian: apt install openssl)");
  if (error != 0) return Status::error(Code::io, "cannot run openssl: %s", ::strerror(error));
  int result = 0;
  while (::waitpid(pid, &result, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(result) && WEXITSTATUS(result) == 0) return Status();
  if (WIFEXITED(result) && WEXITSTATUS(result) == 127 && said.empty())
    return Status::error(Code::not_found, "the openssl program is not there; install it");
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return Status::error(Code::internal, "openssl failed: %s",
                       said.substr(said.rfind('\n') + 1).c_str());
}

struct Files {
  std::string key, certificate;
};

Files files_of(const Options& options, const std::string& name) {
  return {options.dir + "/" + name + ".key", options.dir + "/" + name + ".crt"};
}

Status check_free(const Files& files, bool force) {
  for (const std::string& file : {files.key, files.certificate}) {
    struct stat info{};
    if (force || ::lstat(file.c_str(), &info) != 0) continue;
    return Status::error(Code::exists, "%s exists already; --force replaces it", file.c_str());
  }
  return Status();
}

// Also of a folder: what was renamed in it.
Status sync(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  return synced ? Status()
                : Status::error(Code::io, "cannot sync %s: %s", path.c_str(), ::strerror(error));
}

// The key comes first: whoever copies the pair as soon as the certificate is there has both. A
// power cut between the two leaves a new key beside the old certificate, which every user of the
// pair refuses by name; --force makes both anew.
Status move_into_place(const Options& options, const Files& made, const Files& files) {
  Status status = sync(made.key);
  if (status.ok()) status = sync(made.certificate);
  if (!status.ok()) return status;
  for (const auto& [from, to] :
       {std::pair(made.key, files.key), std::pair(made.certificate, files.certificate)})
    if (::rename(from.c_str(), to.c_str()) != 0)
      return Status::error(Code::io, "%s: %s", to.c_str(), ::strerror(errno));
  return sync(options.dir);
}

constexpr std::int64_t kMsPerDay = 24LL * 3600 * 1000;

// A certificate that outlives its CA is refused from the CA's last day on, while doctor and metrics
// show its own: so it does not.
Status days_within_ca(const Options& options, int& days) {
  CertificateFacts ca;
  const Status status = read_certificate(files_of(options, "ca").certificate, ca);
  if (!status.ok()) return status;
  const std::int64_t left = (ca.not_after_ms - system_clock().wall_ms()) / kMsPerDay;
  days = static_cast<int>(std::min<std::int64_t>(options.days, left));
  if (days >= 1) return status;
  return Status::error(Code::misuse, "the CA in %s ends %s: make a new one", options.dir.c_str(),
                       format_wall_time(ca.not_after_ms).c_str());
}

// Makes both under other names first: a failure leaves what was there.
Status make(const Options& options, const std::string& name, const std::string& common_name,
            const std::string& extensions, bool by_ca) {
  const Files files = files_of(options, name);
  Status status = check_free(files, options.force);
  int days = options.days;
  if (status.ok() && by_ca) status = days_within_ca(options, days);
  if (!status.ok()) return status;
  const Files made = {files.key + ".new", files.certificate + ".new"};
  for (const std::string& file : {made.key, made.certificate}) ::unlink(file.c_str());
  std::vector<std::string> arguments = {"req",
                                        "-x509",
                                        "-newkey",
                                        "ec",
                                        "-pkeyopt",
                                        "ec_paramgen_curve:prime256v1",
                                        "-nodes",
                                        "-config",
                                        "/dev/stdin",
                                        "-keyout",
                                        made.key,
                                        "-out",
                                        made.certificate,
                                        "-days",
                                        std::to_string(days)};
  if (by_ca) {
    const Files ca = files_of(options, "ca");
    for (const std::string& each :
         {std::string("-CA"), ca.certificate, std::string("-CAkey"), ca.key})
      arguments.push_back(each);
  }
  status = run_openssl(std::move(arguments),
                       "[req]\nprompt=no\nstring_mask=utf8only\ndistinguished_name=dn\n"
                       "x509_extensions=ext\n[dn]\nCN=" +
                           common_name + "\n[ext]\nsubjectKeyIdentifier=hash\n" + extensions);
  if (status.ok() && ::chmod(made.certificate.c_str(), 0644) != 0)
    status = Status::error(Code::io, "%s: %s", made.certificate.c_str(), ::strerror(errno));
  if (status.ok()) status = move_into_place(options, made, files);
  if (!status.ok())
    for (const std::string& file : {made.key, made.certificate}) ::unlink(file.c_str());
  return status;
}

int tell_made(const Where& where, const Options& options, const std::string& name) {
  const Files files = files_of(options, name);
  CertificateFacts facts;
  const Status status = read_certificate(files.certificate, facts);
  if (!status.ok()) return fail(where, status);
  Output out;
  out.line("made " + escaped(files.key) + " and " + escaped(files.certificate) + ": name " +
           facts.name + ", serial " + facts.serial + ", valid until " +
           format_wall_time(facts.not_after_ms));
  return finish(where, out);
}

// What all of them begin with: a clock, a folder, keys for nobody else.
Status prepare(const Options& options, bool needs_ca) {
  if (!wall_known(system_clock().wall_ms()))
    return Status::error(Code::misuse, "the clock is not set, and certificates begin now; set it");
  ::umask(077);
  if (!needs_ca && ::mkdir(options.dir.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::error(Code::io, "%s: %s", options.dir.c_str(), ::strerror(errno));
  const Files ca = files_of(options, "ca");
  for (const std::string& file : {ca.key, ca.certificate})
    if (needs_ca && ::access(file.c_str(), R_OK) != 0)
      return Status::error(errno == ENOENT ? Code::not_found : Code::permission,
                           "%s: %s; `holdfast certs init --dir %s` makes a CA", file.c_str(),
                           ::strerror(errno), options.dir.c_str());
  return Status();
}

int run_init(const Options& options) {
  const Where where{"certs init", ""};
  Status status = prepare(options, false);
  if (status.ok())
    status = make(options, "ca", "Holdfast CA",
                  "basicConstraints=critical,CA:TRUE,pathlen:0\n"
                  "keyUsage=critical,keyCertSign,cRLSign\n",
                  false);
  return status.ok() ? tell_made(where, options, "ca") : fail(where, status);
}

constexpr const char* kLeaf =
    "authorityKeyIdentifier=keyid\nbasicConstraints=critical,CA:FALSE\n"
    "keyUsage=critical,digitalSignature\n";

int run_device(const Options& options) {
  const Where where{"certs device", ""};
  const std::string& name = options.names.front();
  if (options.names.size() > 1) throw CLI::ExtrasError({options.names.back()});
  if (!is_plain_name(name) || name == "ca")
    return fail(where, kExitUsage, "\"" + name + "\" is no name for a device",
                "give 1 to 64 letters, digits, '-', '_', '.', a letter or digit first; not \"ca\"");
  Status status = prepare(options, true);
  if (status.ok())
    status = make(options, name, name, kLeaf + std::string("extendedKeyUsage=clientAuth\n"), true);
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
  Status status = prepare(options, true);
  if (status.ok())
    status = make(
        options, name, name,
        kLeaf + std::string("extendedKeyUsage=serverAuth\nsubjectAltName=") + hosts + "\n", true);
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
    if (part.name == nullptr) options->days = kCaDays;
    if (part.name != nullptr)
      command->add_option(part.name, options->names, "Whose certificate")
          ->required()
          ->type_name("");
    command->add_option("--dir", options->dir, "Folder of the CA's files")->option_text("D [.]");
    command->add_option("--days", options->days, "How long it is valid; not longer than its CA")
        ->check(CLI::Range(1, kDaysMax))
        ->option_text(part.name == nullptr ? "N [3650]" : "N [730]");
    command->add_flag("--force", options->force, "Replace files that exist");
    command->callback([options, call = part.run, &run] { run = [=] { return call(*options); }; });
  }
}

}  // namespace holdfast::cli
