// Everything that makes up for faults and missing settings of particular NNG versions, in one
// place. What a newer NNG does by itself compiles to nothing here.
//
// Some of it replaces functions at link time: the build passes -Wl,--wrap=NAME, upon which calls of
// NAME go to __wrap_NAME, and __real_NAME is the original (ld(1)). A program that is linked without
// these flags does not link at all, for it would lack the cures.
#include "nng_compat.hpp"

#include <elf.h>
#include <link.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <sys/auxv.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#define HOLDFAST_NNG_OLDER_THAN(major, minor) \
  (NNG_MAJOR_VERSION < (major) || (NNG_MAJOR_VERSION == (major) && NNG_MINOR_VERSION < (minor)))

extern "C" {

// -- NNG < 1.6: one EPIPE kills a listener or dialer for good (upstream issue 1518) ---------------
//
// A peer that connects and goes away during the handshake makes NNG's write fail with EPIPE. NNG
// translates that to NNG_ECLOSED, which its listener and dialer take for "you were closed": they
// never accept or dial again, while the port still looks open. 1.6 translates it as done here.
#if HOLDFAST_NNG_OLDER_THAN(1, 6)
int __real_nni_plat_errno(int error);
int __wrap_nni_plat_errno(int error);

int __wrap_nni_plat_errno(int error) {
  return error == EPIPE ? NNG_ECONNSHUT : __real_nni_plat_errno(error);
}
#endif

// -- NNG < 1.6: every timeout follows the wall clock (upstream issue 1526) ------------------------
//
// A slip in its configuration makes NNG measure time with CLOCK_REALTIME. When the clock of a board
// is set back, from a wrong date in the future, say, no timeout comes for as long as it was set
// back (G7). Here the same is done with CLOCK_MONOTONIC, as later versions do.
#if HOLDFAST_NNG_OLDER_THAN(1, 6)
struct nni_plat_cv;
struct nni_plat_mtx;
extern pthread_condattr_t nni_cvattr;  // what NNG makes all its condition variables with
std::uint64_t __wrap_nni_clock(void);
void __real_nni_plat_cv_init(nni_plat_cv* condition, nni_plat_mtx* mutex);
void __wrap_nni_plat_cv_init(nni_plat_cv* condition, nni_plat_mtx* mutex);

std::uint64_t __wrap_nni_clock(void) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

void __wrap_nni_plat_cv_init(nni_plat_cv* condition, nni_plat_mtx* mutex) {
  pthread_condattr_setclock(&nni_cvattr, CLOCK_MONOTONIC);
  __real_nni_plat_cv_init(condition, mutex);
}
#endif

// -- NNG < 1.10: a lost connection is dialled again at once, every other time ---------------------
//
// The random wait before NNG reconnects is negative for one half of all random numbers, and a
// negative wait is none. (1.10 was seen to be right; which version was the first is not known.)
#if HOLDFAST_NNG_OLDER_THAN(1, 10)
void __real_nni_sleep_aio(nng_duration ms, nng_aio* aio);
void __wrap_nni_sleep_aio(nng_duration ms, nng_aio* aio);

void __wrap_nni_sleep_aio(nng_duration ms, nng_aio* aio) {
  if (ms == INT32_MIN) ms = INT32_MAX;
  __real_nni_sleep_aio(ms < 0 ? -ms : ms, aio);
}
#endif

// -- NNG < 1.7: threads are started by the number of cores ----------------------------------------
//
// Two threads per core for callbacks and one per core for timers, which a small board pays for with
// memory and never needs. Later versions have a setting: see prepare_nng().
#if HOLDFAST_NNG_OLDER_THAN(1, 7)
int __wrap_nni_plat_ncpu(void);

int __wrap_nni_plat_ncpu(void) { return 1; }
#endif

// -- All 1.x versions: closing a connection can hang NNG's only clean-up thread -------------------
//
// An operation started on an nng_aio that is being closed is dropped without a word: its callback
// never comes. NNG's TCP and IPC transports do start one, if a connection is closed (by us, or as a
// result of an error on its other direction) just when part of a message has been received or sent
// and the rest is to follow. The message above then never ends, and the thread that takes down
// connections, of which there is one for the whole process, waits for it for ever: no connection
// and no socket can be closed any more. (Upstream issue 1543; pull request 1636, in 1.6, covers
// receiving over TCP.) Here such an operation ends with NNG_ECLOSED, as its starter expects.
//
// A protocol that sends a message on a connection that is being closed meets the same: nobody frees
// the message. One request in some hundred lost connections stayed in memory for ever. Here the
// message is freed.
struct nni_pipe;
int __real_nni_aio_begin(nng_aio* aio);
int __wrap_nni_aio_begin(nng_aio* aio);
void __real_nng_stream_recv(nng_stream* stream, nng_aio* aio);
void __wrap_nng_stream_recv(nng_stream* stream, nng_aio* aio);
void __real_nng_stream_send(nng_stream* stream, nng_aio* aio);
void __wrap_nng_stream_send(nng_stream* stream, nng_aio* aio);
void __real_nni_pipe_send(nni_pipe* pipe, nng_aio* aio);
void __wrap_nni_pipe_send(nni_pipe* pipe, nng_aio* aio);
void nni_aio_finish_error(nng_aio* aio, int error);  // what NNG itself ends a failed operation with

}  // extern "C"

namespace {

// The operation this thread is about to start, and whether it was dropped.
thread_local nng_aio* starting = nullptr;
thread_local bool dropped = false;

// False if it was dropped.
template <typename On>
bool start(void (*operation)(On*, nng_aio*), On* on, nng_aio* aio) {
  nng_aio* const outer = starting;
  const bool outer_dropped = dropped;
  starting = aio;
  dropped = false;
  operation(on, aio);
  const bool started = !dropped;
  starting = outer;
  dropped = outer_dropped;
  return started;
}

}  // namespace

extern "C" {

int __wrap_nni_aio_begin(nng_aio* aio) {
  const int error = __real_nni_aio_begin(aio);
  if (error != 0 && aio == starting) dropped = true;
  return error;
}

void __wrap_nng_stream_recv(nng_stream* stream, nng_aio* aio) {
  if (!start(__real_nng_stream_recv, stream, aio)) nni_aio_finish_error(aio, NNG_ECLOSED);
}

void __wrap_nng_stream_send(nng_stream* stream, nng_aio* aio) {
  if (!start(__real_nng_stream_send, stream, aio)) nni_aio_finish_error(aio, NNG_ECLOSED);
}

void __wrap_nni_pipe_send(nni_pipe* pipe, nng_aio* aio) {
  if (start(__real_nni_pipe_send, pipe, aio)) return;
  nng_msg_free(nng_aio_get_msg(aio));
  nng_aio_set_msg(aio, nullptr);
}

// -- All versions: TCP keepalive can be switched on, but not tuned --------------------------------
//
// Linux waits two hours before it probes an idle connection, and a quarter of an hour before it
// gives up on unacknowledged data. Wherever keepalive is switched on, the times are set as well. In
// a program with other TCP connections this holds for them, too, unless they set the times
// afterwards.
//
// A connection that NNG closes is also reset. Else what was not sent yet would be sent
// nevertheless, and nobody waits for it any more: over 200 bytes a second for minutes, in the way
// of the connection that came after it. Only sockets of NNG, which starts each of its own here:
struct nni_tcp_conn;
void __real_nni_posix_tcp_start(nni_tcp_conn* connection, int nodelay, int keepalive);
void __wrap_nni_posix_tcp_start(nni_tcp_conn* connection, int nodelay, int keepalive);
int __real_setsockopt(int fd, int level, int name, const void* value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void* value, socklen_t size);

}  // extern "C"

namespace {

thread_local bool is_starting_tcp = false;
std::atomic<std::uint64_t> tcp_started{0};

}  // namespace

extern "C" {

void __wrap_nni_posix_tcp_start(nni_tcp_conn* connection, int nodelay, int keepalive) {
  is_starting_tcp = true;
  __real_nni_posix_tcp_start(connection, nodelay, keepalive);
  is_starting_tcp = false;
  ++tcp_started;
}

int __wrap_setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  const int result = __real_setsockopt(fd, level, name, value, size);
  const bool keepalive_on = result == 0 && level == SOL_SOCKET && name == SO_KEEPALIVE &&
                            size == sizeof(int) && *static_cast<const int*>(value) != 0;
  if (!keepalive_on) return result;
  // Failures are ignored: a socket that is not TCP has none of these.
  const int idle_s = holdfast::kTcpKeepaliveIdleS;
  const int interval_s = holdfast::kTcpKeepaliveIntervalS;
  const int probes = holdfast::kTcpKeepaliveProbes;
  const unsigned int timeout_ms = holdfast::kTcpUserTimeoutMs;
  const int saved = errno;
  __real_setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  __real_setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  __real_setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  __real_setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  const linger reset = {1, 0};
  if (is_starting_tcp) __real_setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  errno = saved;
  return result;
}

// -- glibc, fully static programs: name look-up loads shared libraries ----------------------------
//
// A static program that looks up a host name makes glibc dlopen() whatever nsswitch.conf names, of
// whatever version is installed on the board. This pins look-up to /etc/hosts and DNS, which are
// compiled in. Absent from musl.
int __nss_configure_lookup(const char* database, const char* services) __attribute__((weak));

}  // extern "C"

namespace holdfast {
namespace {

// A program that needs no dynamic loader has no PT_INTERP segment (elf(5)).
bool is_static_program() {
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR));
  const unsigned long count = getauxval(AT_PHNUM);
  if (segments == nullptr) return false;
  for (unsigned long i = 0; i < count; ++i) {
    if (segments[i].p_type == PT_INTERP) return false;
  }
  return true;
}

void limit_threads() {
#if !HOLDFAST_NNG_OLDER_THAN(1, 7)
  nng_init_set_parameter(NNG_INIT_NUM_TASK_THREADS, 2);
  nng_init_set_parameter(NNG_INIT_MAX_TASK_THREADS, 2);
  nng_init_set_parameter(NNG_INIT_NUM_EXPIRE_THREADS, 1);
  nng_init_set_parameter(NNG_INIT_MAX_EXPIRE_THREADS, 1);
  nng_init_set_parameter(NNG_INIT_NUM_POLLER_THREADS, 1);
  nng_init_set_parameter(NNG_INIT_MAX_POLLER_THREADS, 1);
  nng_init_set_parameter(NNG_INIT_NUM_RESOLVER_THREADS, 1);
#endif
}

void prepare_once() {
  if (&__nss_configure_lookup != nullptr && is_static_program()) {
    __nss_configure_lookup("hosts", "files dns");
  }
  limit_threads();
}

}  // namespace

void prepare_nng() {
  static std::once_flag once;
  std::call_once(once, prepare_once);
}

std::uint64_t tcp_connections_begun() { return tcp_started; }

std::string nng_version_text() { return nng_version(); }

std::string tls_version_text() {
  const char* engine = nng_tls_engine_description();
  return engine != nullptr ? engine : "";
}

}  // namespace holdfast
