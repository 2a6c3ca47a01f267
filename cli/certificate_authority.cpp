#include "certificate_authority.hpp"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "holdfast/clock.hpp"
#include "holdfast/tls.hpp"
#include "output.hpp"

extern char** environ;

namespace holdfast::cli {

CertificateFiles certificate_files(const std::string& dir, const std::string& name) {
  return {dir + "/" + name + ".key", dir + "/" + name + ".crt"};
}

namespace {

constexpr const char* kLeaf =
    "authorityKeyIdentifier=keyid\nbasicConstraints=critical,CA:FALSE\n"
    "keyUsage=critical,digitalSignature\n";

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

Status check_free(const CertificateFiles& files, bool force) {
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
Status move_into_place(const CertificatePlace& where, const CertificateFiles& made,
                       const CertificateFiles& files) {
  Status status = sync(made.key);
  if (status.ok()) status = sync(made.certificate);
  if (!status.ok()) return status;
  for (const auto& [from, to] :
       {std::pair(made.key, files.key), std::pair(made.certificate, files.certificate)})
    if (::rename(from.c_str(), to.c_str()) != 0)
      return Status::error(Code::io, "%s: %s", to.c_str(), ::strerror(errno));
  return sync(where.dir);
}

constexpr std::int64_t kMsPerDay = 24LL * 3600 * 1000;

// A certificate that outlives its CA is refused from the CA's last day on, while doctor and metrics
// show its own: so it does not.
Status days_within_ca(const CertificatePlace& where, int& days) {
  CertificateFacts ca;
  const Status status = read_certificate(certificate_files(where.dir, "ca").certificate, ca);
  if (!status.ok()) return status;
  const std::int64_t left = (ca.not_after_ms - system_clock().wall_ms()) / kMsPerDay;
  days = static_cast<int>(std::min<std::int64_t>(where.days, left));
  if (days >= 1) return status;
  return Status::error(Code::misuse, "the CA in %s ends %s: make a new one", where.dir.c_str(),
                       format_wall_time(ca.not_after_ms).c_str());
}

// Makes both under other names first: a failure leaves what was there.
Status make(const CertificatePlace& where, const std::string& name, const std::string& common_name,
            const std::string& extensions, bool by_ca) {
  const CertificateFiles files = certificate_files(where.dir, name);
  Status status = check_free(files, where.force);
  int days = where.days;
  if (status.ok() && by_ca) status = days_within_ca(where, days);
  if (!status.ok()) return status;
  const CertificateFiles made = {files.key + ".new", files.certificate + ".new"};
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
    const CertificateFiles ca = certificate_files(where.dir, "ca");
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
  if (status.ok()) status = move_into_place(where, made, files);
  if (!status.ok())
    for (const std::string& file : {made.key, made.certificate}) ::unlink(file.c_str());
  return status;
}

// What all of them begin with: a clock, a folder, keys for nobody else.
Status prepare(const CertificatePlace& where, bool needs_ca) {
  if (!wall_known(system_clock().wall_ms()))
    return Status::error(Code::misuse, "the clock is not set, and certificates begin now; set it");
  ::umask(077);
  if (!needs_ca && ::mkdir(where.dir.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::error(Code::io, "%s: %s", where.dir.c_str(), ::strerror(errno));
  const CertificateFiles ca = certificate_files(where.dir, "ca");
  for (const std::string& file : {ca.key, ca.certificate})
    if (needs_ca && ::access(file.c_str(), R_OK) != 0)
      return Status::error(errno == ENOENT ? Code::not_found : Code::permission,
                           "%s: %s; `holdfast certs init --dir %s` makes a CA", file.c_str(),
                           ::strerror(errno), where.dir.c_str());
  return Status();
}

}  // namespace

Status make_authority(const CertificatePlace& where) {
  const Status status = prepare(where, false);
  if (!status.ok()) return status;
  return make(where, "ca", "Holdfast CA",
              "basicConstraints=critical,CA:TRUE,pathlen:0\n"
              "keyUsage=critical,keyCertSign,cRLSign\n",
              false);
}

Status make_device_certificate(const CertificatePlace& where, const std::string& name) {
  const Status status = prepare(where, true);
  if (!status.ok()) return status;
  return make(where, name, name, kLeaf + std::string("extendedKeyUsage=clientAuth\n"), true);
}

Status make_gateway_certificate(const CertificatePlace& where, const std::string& name,
                                const std::string& hosts) {
  const Status status = prepare(where, true);
  if (!status.ok()) return status;
  return make(where, name, name,
              kLeaf + std::string("extendedKeyUsage=serverAuth\nsubjectAltName=") + hosts + "\n",
              true);
}

}  // namespace holdfast::cli
