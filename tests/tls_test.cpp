// Mutual TLS over real sockets, with certificates that the openssl program makes on the spot. Each
// refusal has its control: the same with the right certificate, or the right time, is delivered.
#include "holdfast/tls.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "holdfast/relay.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/tls_site.hpp"
#include "tls.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kSoonMs = 30'000;
constexpr std::int64_t kDayMs = TlsSite::kDayMs;
constexpr const char* kDelivered = "delivered";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Logged within a moment: the gateway's own thread tells.
bool gateway_says(const TlsSite& site, const std::string& part) {
  const std::int64_t until = system_clock().boot_ms() + kSoonMs;
  while (!has(site.gateway_log(), part)) {
    if (system_clock().boot_ms() > until) return false;
    ::usleep(2000);
  }
  return true;
}

SpawnOptions stays_open() {
  SpawnOptions options;
  options.keep_stdin_open = true;
  return options;
}

// With its control.
void refuses_foreign_gateway(TlsSite& site) {
  const Authority foreign;
  TlsOptions tls = foreign.gateway();
  tls.ca_file = site.authority.ca();
  site.listen(tls);
  CHECK(has(site.deliver(), "is not from our CA"));
  site.listen();
  CHECK(site.deliver() == kDelivered);
}

std::string open_error(const TlsOptions& tls) {
  std::shared_ptr<tls::Tls> made;
  return tls::Tls::open(tls::Side::device, tls, system_clock(), 0, made).text();
}

}  // namespace

TEST_CASE("events arrive over TLS if both sides show a certificate of one CA (G10)") {
  TlsSite site;
  site.listen();
  CHECK(site.deliver() == kDelivered);
  CHECK(Connection(site.gateway_db).number("SELECT count(*) FROM outbox_event") == 1);
  CHECK(site.log().empty());
  CHECK(site.gateway_log().empty());
}

TEST_CASE("a device without a certificate of the gateway's CA gets nothing stored (G10)") {
  TlsSite site;
  site.listen();
  const Authority foreign;
  TlsOptions tls = foreign.device();
  tls.ca_file = site.authority.ca();  // it knows the gateway, the gateway does not know it
  CHECK(has(site.deliver(tls), "not from its CA"));
  CHECK(gateway_says(site, "the certificate of \"pump7\""));
  CHECK(gateway_says(site, "is not from our CA"));
  CHECK(Connection(site.gateway_db).number("SELECT count(*) FROM outbox_event") == 0);
  CHECK(site.deliver() == kDelivered);
}

TEST_CASE("a device does not speak to a gateway of another CA (G10)") {
  TlsSite site;
  refuses_foreign_gateway(site);
}

TEST_CASE("no certificate at all, and no TLS at all, are refused by the gateway (G10)") {
  TlsSite site;
  site.listen();
  const std::string port = site.url().substr(site.url().rfind(':') + 1);
  (void)run({"openssl", "s_client", "-connect", "127.0.0.1:" + port, "-CAfile", site.authority.ca(),
             "-tls1_2"});
  CHECK(gateway_says(site, "has no certificate"));
  CHECK(site.deliver({}, "tcp://127.0.0.1:" + port) != kDelivered);
  CHECK(site.deliver() == kDelivered);
}

TEST_CASE("a gateway must be the one that was dialled: name and address are checked (G10)") {
  TlsSite site;
  site.listen(site.authority.gateway("DNS:gateway.example,IP:127.0.0.1"));
  const std::string port = site.url().substr(site.url().rfind(':') + 1);
  CHECK(site.deliver(site.device, "tls+tcp://127.0.0.1:" + port) == kDelivered);
  CHECK(has(site.deliver(site.device, "tls+tcp://localhost:" + port), "made out to another name"));
  TlsOptions named = site.device;
  named.server_name = "gateway.example";
  CHECK(site.deliver(named, "tls+tcp://localhost:" + port) == kDelivered);
  named.server_name = "other.example";
  CHECK(has(site.deliver(named, "tls+tcp://127.0.0.1:" + port), "made out to another name"));
  named.server_name = "127.0.0.2";
  CHECK(has(site.deliver(named, "tls+tcp://127.0.0.1:" + port), "made out to another name"));
}

TEST_CASE("a device's certificate cannot play gateway, and a gateway's not device (G10)") {
  TlsSite site;
  const TlsOptions impostor = site.authority.device("127.0.0.1");  // the very name that is dialled
  Process other =
      Process::spawn({"openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", impostor.cert_file,
                      "-key", impostor.key_file, "-CAfile", impostor.ca_file},
                     stays_open());
  const std::string line = other.wait_for_stdout("ACCEPT ", kSoonMs);
  REQUIRE(line != "");
  CHECK(has(site.deliver(site.device, "tls+tcp://" + line.substr(line.find("127.0.0.1"))),
            "is not meant for this side"));

  const TlsOptions gateway = site.authority.gateway();
  site.listen(gateway);
  const std::string port = site.url().substr(site.url().rfind(':') + 1);
  (void)run({"openssl", "s_client", "-connect", "127.0.0.1:" + port, "-CAfile", gateway.ca_file,
             "-cert", gateway.cert_file, "-key", gateway.key_file, "-tls1_2"});
  const bool said = gateway_says(site, "the certificate of \"gateway\"");
  INFO(site.gateway_log());
  CHECK(said);
  CHECK(gateway_says(site, "is not meant for this side"));
  CHECK(site.deliver() == kDelivered);

  // Mixed up by whoever set it up: said at the start.
  CHECK(has(site.deliver(gateway), "is not meant for a device"));
}

TEST_CASE("an expired certificate is refused, by the clock of whoever checks it (G10)") {
  TlsSite site;
  site.listen(site.authority.gateway("IP:127.0.0.1", 400));
  CHECK(site.deliver() == kDelivered);
  site.device_clock.step_wall(401 * kDayMs);
  CHECK(has(site.deliver(), "has expired: it ended "));
  site.device_clock.step_wall(-401 * kDayMs);
  site.gateway_clock.step_wall(801 * kDayMs);
  CHECK(has(site.deliver(), "expired, by its clock"));
  CHECK(gateway_says(site, "has expired: it ended "));
  site.gateway_clock.step_wall(-801 * kDayMs);
  CHECK(site.deliver() == kDelivered);
}

TEST_CASE("at 1970 what is wrong otherwise stays refused: another CA, another name (G10)") {
  TlsSite site;
  site.device_clock.set_wall(0);
  site.listen(site.authority.gateway("DNS:gateway.example"));
  CHECK(has(site.deliver(), "made out to another name"));
  refuses_foreign_gateway(site);
}

TEST_CASE("at 1970 expiry is checked as of what the device knows (G10)") {
  TlsSite site;
  site.listen(site.authority.gateway("IP:127.0.0.1", 400));
  const std::int64_t now = system_clock().wall_ms();
  // The database remembers a time after the end of the gateway's certificate.
  site.device_clock.set_wall(now + 500 * kDayMs);
  CHECK(has(site.deliver(), "has expired"));
  REQUIRE(Connection(site.device_db).number("SELECT max(wall_ms) FROM holdfast_time") >
          now + 400 * kDayMs);
  site.device_clock.set_wall(0);
  CHECK(has(site.deliver(), "has expired"));
  CHECK(has(site.log(), "the clock is not set: certificates are checked as of 20"));
  // It would have ended our own certificate, too: a clock that was wrong, which locks nobody out.
  Connection(site.device_db).run("DELETE FROM holdfast_time");
  site.device_clock.set_wall(now + 5000 * kDayMs);
  CHECK(has(site.deliver(), "has expired"));
  site.device_clock.set_wall(0);
  CHECK(site.deliver() == kDelivered);
}

TEST_CASE("renewed files are used from the next connection on, and nobody is disconnected (G3)") {
  TlsSite site;
  const TlsOptions first = site.authority.gateway("IP:127.0.0.1", 400);
  site.listen(first);
  CHECK(site.deliver() == kDelivered);
  CertificateFacts before, after;
  REQUIRE(read_certificate(first.cert_file, before).ok());
  (void)site.authority.gateway("IP:127.0.0.1", 700);  // over the same files
  REQUIRE(read_certificate(first.cert_file, after).ok());
  CHECK(after.not_after_ms > before.not_after_ms + 200 * kDayMs);
  CHECK(after.serial != before.serial);
  // A device whose clock is past the old one's end tells which one was shown.
  site.device_clock.step_wall(500 * kDayMs);
  CHECK(site.deliver() == kDelivered);
  CHECK(gateway_says(
      site, "TLS files read again: the certificate of \"gateway\" (serial " + after.serial));

  // Half a renewal: the key of another certificate. What was there stays in use.
  const TlsOptions other = site.authority.gateway("IP:127.0.0.1", 700, "other");
  write_file(first.key_file, read_file(other.key_file));
  CHECK(site.deliver() == kDelivered);
  CHECK(gateway_says(site, "the old ones stay in use"));
}

TEST_CASE("a device's renewed certificate is used from its next connection on (G3)") {
  TlsSite site;
  site.device = site.authority.device("pump7", 400);
  site.listen();
  site.gateway_clock.step_wall(500 * kDayMs);
  const std::string url = site.url();
  const auto arguments = [&] {
    std::vector<std::string> all = {"relay", site.device_db, "--to", url};
    for (const std::string& each : tls_arguments(site.device)) all.push_back(each);
    return all;
  }();
  Connection(site.device_db)
      .run(
          "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,payload)"
          " VALUES('t','sensor','1','x')");
  Process relay = start_command(arguments);
  CHECK(relay.wait_for_stderr("expired, by its clock", kSoonMs) != "");
  (void)site.authority.device("pump7", 700);
  CHECK(relay.wait_for_stderr("connected to tls+tcp://", kSoonMs) != "");
}

TEST_CASE("files that are no good are named at the start, with the reason") {
  const Authority authority;
  const TlsOptions good = authority.device();
  CHECK(open_error(good) == "");
  TlsOptions bad = good;
  bad.cert_file = authority.file("none.crt");
  CHECK(open_error(bad) ==
        "cannot read the TLS certificate " + bad.cert_file + ": No such file or directory");
  bad = good;
  bad.ca_file = authority.file("ca.txt");
  write_file(bad.ca_file, "no certificate\n");
  CHECK(has(open_error(bad), "TLS CA " + bad.ca_file + ": holds no PEM text"));
  write_file(bad.ca_file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  CHECK(has(open_error(bad), "no certificate that can be read"));
  bad = good;
  bad.key_file = authority.device("valve3").key_file;
  CHECK(open_error(bad) ==
        "TLS key " + bad.key_file + " is not the key of the certificate " + good.cert_file);
  bad.key_file = authority.file("locked.key");
  REQUIRE(run({"openssl", "ec", "-in", good.key_file, "-aes128", "-passout", "pass:x", "-out",
               bad.key_file})
              .code() == 0);
  ::chmod(bad.key_file.c_str(), 0600);
  CHECK(has(open_error(bad), "is encrypted"));
  bad.key_file = authority.path();
  CHECK(has(open_error(bad), "is no regular file"));
  ::chmod(good.key_file.c_str(), 0644);
  CHECK(has(open_error(good), "can be read by everybody"));
  ::chmod(good.key_file.c_str(), 0640);  // a group of its own is how services share a key
  CHECK(open_error(good) == "");
}

TEST_CASE("TLS without its files, and files without TLS, are refused before anything starts") {
  TlsSite site;
  const std::string url = "tls+tcp://127.0.0.1:7447";
  CHECK(has(site.deliver({}, url), "TLS needs three files"));
  CHECK(has(site.deliver(site.device, "tcp://127.0.0.1:7447"), "no tls+tcp:// URL"));
  GatewayOptions options;
  options.database = site.gateway_db;
  options.listen = {url};
  Gateway gateway;
  CHECK(has(Gateway::start(options, gateway).text(), "TLS needs three files"));
}

TEST_CASE("an address that others can reach needs TLS, or --insecure by name (G10)") {
  Database db;
  for (const std::string listen : {"tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://gateway.example:0"}) {
    CAPTURE(listen);
    const RunResult refused = command({"gateway", db.file("g.db"), "--listen", listen});
    CHECK(refused.code() == 2);
    CHECK(has(refused.err, "needs TLS"));
  }
  for (const std::string listen : {"tcp://127.0.0.1:0", "tcp://127.3.2.1:0", "tcp://localhost:0"}) {
    CAPTURE(listen);
    Process gateway = start_command({"gateway", db.file("g.db"), "--listen", listen});
    CHECK(gateway.wait_for_stderr("listening on tcp://", kSoonMs) != "");
    CHECK_FALSE(has(gateway.stderr_text(), "insecure"));
  }
  Process gateway =
      start_command({"gateway", db.file("g.db"), "--listen", "tcp://0.0.0.0:0", "--insecure"});
  CHECK(gateway.wait_for_stderr("listening on tcp://", kSoonMs) != "");
  CHECK(has(gateway.stderr_text(), "insecure: whoever reaches this port"));
}

TEST_CASE("relay and gateway as programs: --tls-ca, --tls-cert, --tls-key, --tls-server-name") {
  Database db;
  db.emit();
  const Authority authority;
  std::vector<std::string> listen = {"gateway", db.file("g.db"), "--listen", "tls+tcp://0.0.0.0:0"};
  const TlsOptions own = authority.gateway("DNS:gateway.example");
  for (const std::string& each : tls_arguments(own)) listen.push_back(each);
  Process gateway = start_command(listen);
  const std::string line = gateway.wait_for_stderr("listening on tls+tcp://0.0.0.0:", kSoonMs);
  REQUIRE(line != "");
  std::vector<std::string> forward = {"relay", db.path(), "--drain", "--to",
                                      "tls+tcp://127.0.0.1:" + line.substr(line.rfind(':') + 1)};
  for (const std::string& each : tls_arguments(authority.device())) forward.push_back(each);
  std::vector<std::string> hasty = forward;
  hasty.insert(hasty.end(), {"--drain-timeout", "1s"});
  const RunResult refused = command(hasty);
  CHECK(refused.code() == 75);
  CHECK(has(refused.err, "made out to another name"));
  forward.insert(forward.end(), {"--tls-server-name", "gateway.example"});
  CHECK(command(forward).code() == 0);

  CHECK(command({"relay", db.path(), "--to", "tls+tcp://127.0.0.1:1", "--tls-ca", own.ca_file})
            .code() == 2);
}
