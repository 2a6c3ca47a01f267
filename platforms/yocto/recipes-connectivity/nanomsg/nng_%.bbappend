# Holdfast needs TLS, and libnng.a: it replaces functions inside of it at link time
# (lib/cmake/HoldfastDependencies.cmake), which a shared library does not allow.
PACKAGECONFIG:append = " mbedtls"
EXTRA_OECMAKE:append = " -DBUILD_SHARED_LIBS=OFF"
# nng-dev depends on it, and there is no shared library for it to hold.
ALLOW_EMPTY:${PN} = "1"
