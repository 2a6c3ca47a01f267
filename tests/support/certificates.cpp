#include "support/certificates.hpp"

#include <sys/stat.h>

#include <stdexcept>

#include "support/command_line.hpp"

namespace holdfast::test {
namespace {

void openssl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "openssl");
  const RunResult result = run(arguments);
  if (result.code() != 0)
    throw std::runtime_error("openssl " + arguments[1] + " failed: " + result.err);
}

const std::vector<std::string> kKey = {"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                                       "-nodes"};

std::vector<std::string> request(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"req"};
  arguments.insert(arguments.end(), kKey.begin(), kKey.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

Authority::Authority() {
  openssl(request({"-x509", "-keyout", file("ca.key"), "-out", ca(), "-days", "3650", "-subj",
                   "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign"}));
}

TlsOptions Authority::make(const std::string& name, const std::string& extensions, int days) const {
  TlsOptions made;
  made.ca_file = ca();
  made.cert_file = file(name + ".crt");
  made.key_file = file(name + ".key");
  openssl(request({"-keyout", made.key_file, "-out", file(name + ".csr"), "-subj", "/CN=" + name}));
  write_file(file(name + ".ext"), "basicConstraints=CA:FALSE\n" + extensions);
  openssl({"x509", "-req", "-in", file(name + ".csr"), "-CA", ca(), "-CAkey", file("ca.key"),
           "-CAcreateserial", "-out", made.cert_file, "-days", std::to_string(days), "-extfile",
           file(name + ".ext")});
  ::chmod(made.key_file.c_str(), 0600);
  return made;
}

TlsOptions Authority::device(const std::string& name, int days) const {
  return make(name, "extendedKeyUsage=clientAuth\n", days);
}

TlsOptions Authority::gateway(const std::string& host, int days, const std::string& name) const {
  return make(name, "extendedKeyUsage=serverAuth\nsubjectAltName=" + host + "\n", days);
}

std::vector<std::string> tls_arguments(const TlsOptions& tls) {
  return {"--tls-ca", tls.ca_file, "--tls-cert", tls.cert_file, "--tls-key", tls.key_file};
}

}  // namespace holdfast::test
