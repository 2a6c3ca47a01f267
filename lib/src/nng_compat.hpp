// See nng_compat.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast {

// Call before any other use of NNG in this process; cheap when called again. Thread-safe.
void prepare_nng();

// TCP connections that NNG has begun in this process: those accepted, and those dialled once the
// other side's kernel has answered.
std::uint64_t tcp_connections_begun();

// As linked; the TLS library's is "" if NNG was built without one.
std::string nng_version_text();
std::string tls_version_text();

// TCP connections are given up once the other side has been silent, or sent data unacknowledged,
// for so long: a peer that lost its power or its cable is noticed within 15 s. The probes of an
// idle connection cost about 1.3 MB a day.
constexpr int kTcpUserTimeoutMs = 10'000;
constexpr int kTcpKeepaliveIdleS = 7;
constexpr int kTcpKeepaliveIntervalS = 2;
constexpr int kTcpKeepaliveProbes = 3;

}  // namespace holdfast
