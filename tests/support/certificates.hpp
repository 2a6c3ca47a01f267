// A certificate authority of a test: made by the openssl program, on the spot, valid from now on.
#pragma once

#include <string>

#include "holdfast/tls.hpp"
#include "support/process.hpp"

namespace holdfast::test {

class Authority {
 public:
  Authority();

  // Options for one side. `name`: common name and file name; `host`: what a gateway's certificate
  // is made out to, "DNS:gateway.example,IP:127.0.0.1".
  TlsOptions device(const std::string& name = "pump7", int days = 800) const;
  TlsOptions gateway(const std::string& host = "IP:127.0.0.1,DNS:localhost", int days = 800,
                     const std::string& name = "gateway") const;

  std::string ca() const { return directory_.file("ca.crt"); }
  const std::string& path() const { return directory_.path(); }
  std::string file(const std::string& name) const { return directory_.file(name); }

 private:
  TlsOptions make(const std::string& name, const std::string& extensions, int days) const;

  TemporaryDirectory directory_;
};

// The same as arguments of relay and gateway.
std::vector<std::string> tls_arguments(const TlsOptions& tls);

}  // namespace holdfast::test
