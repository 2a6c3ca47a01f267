# What libholdfast links, found the same way by its own build and by the installed package.
#
#   holdfast_sqlite3   SQLite: the shared library, so that a process has one copy of it; the static
#                      one when HOLDFAST_STATIC asks for fully static executables
#   holdfast_nng       NNG and mbedTLS, always static, with the link options that its compat layer
#                      (lib/src/nng_compat.cpp) and TLS (lib/src/tls.cpp) need
#
# Debian's own nng::nng is the shared library, where --wrap could not reach inside; hence find_library.
include_guard(GLOBAL)

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# What is missing, as a message for the caller to fail with; empty when all is there.
set(HOLDFAST_MISSING)
macro(_holdfast_find kind variable file package)
  cmake_language(CALL find_${kind} ${variable} NAMES ${file})
  mark_as_advanced(${variable})
  if(NOT ${variable})
    string(APPEND HOLDFAST_MISSING "${file} not found (on Debian: apt-get install ${package})\n")
  endif()
endmacro()

_holdfast_find(path HOLDFAST_SQLITE3_INCLUDE sqlite3.h libsqlite3-dev)
if(HOLDFAST_STATIC)
  _holdfast_find(library HOLDFAST_SQLITE3_STATIC libsqlite3.a libsqlite3-dev)
  set(_holdfast_sqlite3 ${HOLDFAST_SQLITE3_STATIC})
else()
  _holdfast_find(library HOLDFAST_SQLITE3 sqlite3 libsqlite3-dev)
  set(_holdfast_sqlite3 ${HOLDFAST_SQLITE3})
endif()
add_library(holdfast_sqlite3 INTERFACE IMPORTED GLOBAL)
target_include_directories(holdfast_sqlite3 SYSTEM INTERFACE ${HOLDFAST_SQLITE3_INCLUDE})
target_link_libraries(holdfast_sqlite3 INTERFACE ${_holdfast_sqlite3} Threads::Threads
                      ${CMAKE_DL_LIBS} m)

_holdfast_find(path HOLDFAST_NNG_INCLUDE nng/nng.h libnng-dev)
_holdfast_find(library HOLDFAST_NNG_LIBRARY libnng.a libnng-dev)
_holdfast_find(path HOLDFAST_MBEDTLS_INCLUDE mbedtls/ssl.h libmbedtls-dev)
_holdfast_find(library HOLDFAST_MBEDTLS_LIBRARY libmbedtls.a libmbedtls-dev)
_holdfast_find(library HOLDFAST_MBEDX509_LIBRARY libmbedx509.a libmbedtls-dev)
_holdfast_find(library HOLDFAST_MBEDCRYPTO_LIBRARY libmbedcrypto.a libmbedtls-dev)
if(HOLDFAST_MISSING)
  return()
endif()

file(STRINGS ${HOLDFAST_NNG_INCLUDE}/nng/nng.h _holdfast_nng_h REGEX "#define NNG_(MAJOR|MINOR)_VERSION")
string(REGEX REPLACE ".*MAJOR_VERSION +([0-9]+).*MINOR_VERSION +([0-9]+).*" "\\1.\\2"
       HOLDFAST_NNG_VERSION "${_holdfast_nng_h}")

add_library(holdfast_nng INTERFACE IMPORTED GLOBAL)
target_include_directories(holdfast_nng SYSTEM INTERFACE ${HOLDFAST_NNG_INCLUDE}
                           ${HOLDFAST_MBEDTLS_INCLUDE})
target_link_libraries(holdfast_nng INTERFACE
  ${HOLDFAST_NNG_LIBRARY} ${HOLDFAST_MBEDTLS_LIBRARY} ${HOLDFAST_MBEDX509_LIBRARY}
  ${HOLDFAST_MBEDCRYPTO_LIBRARY})
target_link_libraries(holdfast_nng INTERFACE Threads::Threads)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^armv[56]")
  target_link_libraries(holdfast_nng INTERFACE atomic) # 64-bit atomics are calls there
endif()

# Functions that lib/src/nng_compat.cpp and lib/src/tls.cpp stand in for. `-u` pulls its object out of libholdfast.a
# although the first reference comes from libnng.a, which the linker reads later.
set(HOLDFAST_NNG_WRAPPED
  setsockopt # keepalive and user timeout, which NNG 1.x cannot set
  nni_posix_tcp_start # which sockets are NNG's
  nni_aio_begin nng_stream_recv nng_stream_send # a close that never ends (NNG #1543)
  nni_pipe_send # a message that a close leaves behind
  mbedtls_ssl_config_defaults mbedtls_ssl_config_free # our rules for certificates
  mbedtls_ssl_handshake # why one failed
  mbedtls_ssl_get_verify_result) # whose certificate it is
if(HOLDFAST_NNG_VERSION VERSION_LESS 1.6)
  list(APPEND HOLDFAST_NNG_WRAPPED
       nni_plat_errno # EPIPE in a handshake kills the listener (NNG #1518)
       nni_clock nni_plat_cv_init) # timeouts follow the wall clock (NNG #1526)
endif()
if(HOLDFAST_NNG_VERSION VERSION_LESS 1.7)
  list(APPEND HOLDFAST_NNG_WRAPPED nni_plat_ncpu) # the only handle on the number of threads
endif()
if(HOLDFAST_NNG_VERSION VERSION_LESS 1.10)
  list(APPEND HOLDFAST_NNG_WRAPPED nni_sleep_aio) # reconnects without waiting
endif()
function(holdfast_nng_link_flags out)
  set(flags)
  foreach(name ${HOLDFAST_NNG_WRAPPED})
    list(APPEND flags -Wl,--wrap=${name} -Wl,-u,__wrap_${name})
  endforeach()
  set(${out} ${flags} PARENT_SCOPE)
endfunction()
