#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>

#include "link_nng_internal.hpp"
#include "tls.hpp"

namespace holdfast::link {
namespace {

// One that is made for `tls`, and only its caller's until it is given away.
int make_config(const std::shared_ptr<tls::Tls>& tls, nng_tls_config** out) {
  const tls::Adopt adopt(tls);
  const bool gateway = tls->is_gateway();
  nng_tls_config* config = nullptr;
  int error = nng_tls_config_alloc(&config, gateway ? NNG_TLS_MODE_SERVER : NNG_TLS_MODE_CLIENT);
  if (error != 0) return error;
  // Without a name, any certificate of our CA would do.
  if (!gateway) error = nng_tls_config_server_name(config, tls->server_name().c_str());
  if (!gateway && tls->server_name().empty()) error = NNG_EINVAL;
  if (error == 0) error = nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED);
  const tls::PemTexts pem = tls->pem();
  if (error == 0) error = nng_tls_config_ca_chain(config, pem.ca.c_str(), nullptr);
  if (error == 0)
    error = nng_tls_config_own_cert(config, pem.certificate.c_str(), pem.key.c_str(), nullptr);
  if (error != 0) {
    nng_tls_config_free(config);
    return error;
  }
  *out = config;
  return 0;
}

template <typename Endpoint, typename Set>
int set_config(Endpoint endpoint, const std::shared_ptr<tls::Tls>& tls, const LinkUrl& url,
               Set set) {
  if (!url.tls) return 0;
  if (tls == nullptr) return NNG_ENOARG;
  nng_tls_config* config = nullptr;
  int error = make_config(tls, &config);
  if (error != 0) return error;
  error = set(endpoint, NNG_OPT_TLS_CONFIG, config);
  nng_tls_config_free(config);  // the endpoint holds it now
  return error;
}

}  // namespace

int set_tls(nng_dialer dialer, const std::shared_ptr<tls::Tls>& tls, const LinkUrl& url) {
  return set_config(dialer, tls, url, nng_dialer_set_ptr);
}

int set_tls(nng_listener listener, const std::shared_ptr<tls::Tls>& tls, const LinkUrl& url) {
  return set_config(listener, tls, url, nng_listener_set_ptr);
}

bool identify(nng_pipe pipe, std::string& name, std::string& serial) {
  CertificateFacts peer;
  const tls::Look look(peer);
  bool verified = false;
  if (nng_pipe_get_bool(pipe, NNG_OPT_TLS_VERIFIED, &verified) != 0) return true;
  name = std::move(peer.name);
  serial = std::move(peer.serial);
  return verified && !name.empty();
}

}  // namespace holdfast::link
