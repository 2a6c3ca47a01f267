#include "tls_options.hpp"

#include <CLI/CLI.hpp>

namespace holdfast::cli {

void add_tls_options(CLI::App& command, TlsOptions& tls, TlsSide side) {
  CLI::Option* const ca = command.add_option(
      "--tls-ca", tls.ca_file, "PEM file: the CA whose certificates the other side may show");
  CLI::Option* const cert = command.add_option(
      "--tls-cert", tls.cert_file, "PEM file: this side's certificate; read again if it changes");
  CLI::Option* const key =
      command.add_option("--tls-key", tls.key_file, "PEM file: its key, not readable by everybody");
  ca->needs(cert, key);
  cert->needs(ca, key);
  key->needs(ca, cert);
  for (CLI::Option* option : {ca, cert, key}) option->option_text("FILE")->group("TLS");
  command
      .add_option("--tls-revoked", tls.revoked_file,
                  "Serial numbers not accepted, one a line; read again if it changes")
      ->needs(ca)
      ->option_text("FILE")
      ->group("TLS");
  if (side == TlsSide::gateway) return;
  command
      .add_option("--tls-server-name", tls.server_name,
                  "Name or address in the gateway's certificate")
      ->needs(ca)
      ->option_text("NAME [the URL's host]")
      ->group("TLS");
}

}  // namespace holdfast::cli
