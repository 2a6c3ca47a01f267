SUMMARY = "Transactional outbox, its relay and gateway, for small devices"
DESCRIPTION = "A program writes its own data and the event that tells the world about it in one SQLite transaction; \
the relay gets that event to an upstream gateway, once in effect, however often the power fails."
SECTION = "net"
# The project states no licence, so nothing may be claimed here, and there is no file to take a checksum of.
LICENSE = "CLOSED"

DEPENDS = "sqlite3 nng mbedtls libcereal cli11 nlohmann-json"

inherit cmake externalsrc systemd useradd

EXTERNALSRC = "${HOLDFAST_SOURCE}"

# RelWithDebInfo: in MinSizeRel and Release the project strips its programs itself, and there would be
# nothing to put into holdfast-dbg.
EXTRA_OECMAKE = "-DCMAKE_BUILD_TYPE=RelWithDebInfo -DHOLDFAST_STATIC=OFF -DHOLDFAST_SHARED=ON -DHOLDFAST_CLI=ON \
    -DHOLDFAST_SINKS=OFF -DHOLDFAST_DEMO=OFF -DHOLDFAST_TESTS=OFF -DHOLDFAST_WERROR=OFF -DCCACHE=OFF"

# OE calls every ARM processor `arm`. These two want libatomic, and ARMv6 can have Thumb (CMakeLists.txt).
do_generate_toolchain_file:append:armv5() {
    echo "set( CMAKE_SYSTEM_PROCESSOR armv5 )" >> ${WORKDIR}/toolchain.cmake
}
do_generate_toolchain_file:append:armv6() {
    echo "set( CMAKE_SYSTEM_PROCESSOR armv6 )" >> ${WORKDIR}/toolchain.cmake
}

do_install:append() {
    install -d ${D}${systemd_system_unitdir} ${D}${sysconfdir}/holdfast ${D}${docdir}/holdfast/examples
    install -m 0644 ${S}/platforms/systemd/holdfast-relay@.service ${D}${systemd_system_unitdir}/
    install -m 0644 ${S}/platforms/systemd/holdfast-gateway.service ${D}${systemd_system_unitdir}/
    install -m 0644 ${S}/platforms/systemd/relay.conf ${D}${docdir}/holdfast/examples/
    install -m 0644 ${S}/platforms/systemd/gateway.conf ${D}${docdir}/holdfast/examples/
}

# holdfast          the program, its units, /etc/holdfast
# libholdfast       libholdfast.so: outbox and inbox
# holdfast-dev      headers, CMake and pkg-config files; with holdfast-staticdev and what that links, which those name
PACKAGES =+ "lib${BPN}"
FILES:lib${BPN} = "${libdir}/libholdfast.so.*"
FILES:${PN} = "${bindir}/holdfast ${sysconfdir}/holdfast ${systemd_system_unitdir}/holdfast-relay@.service \
    ${systemd_system_unitdir}/holdfast-gateway.service"
FILES:${PN}-dev = "${includedir}/holdfast ${libdir}/libholdfast.so ${libdir}/cmake/holdfast ${libdir}/pkgconfig"
FILES:${PN}-staticdev = "${libdir}/libholdfast.a"
FILES:${PN}-doc = "${docdir}/holdfast"
RDEPENDS:${PN}-dev = "lib${BPN} (= ${EXTENDPKGV}) ${PN}-staticdev (= ${EXTENDPKGV})"
RDEPENDS:${PN}-staticdev = "nng-dev nng-staticdev mbedtls-dev mbedtls-staticdev sqlite3-dev"

# Nothing is started before a file in /etc/holdfast says what with: platforms/systemd/README.md.
SYSTEMD_PACKAGES = "${PN}"
SYSTEMD_SERVICE:${PN} = "holdfast-relay@.service holdfast-gateway.service"
SYSTEMD_AUTO_ENABLE:${PN} = "disable"

USERADD_PACKAGES = "${PN}"
USERADD_PARAM:${PN} = "--system --user-group --home-dir ${localstatedir}/lib/holdfast --no-create-home \
    --shell ${base_sbindir}/nologin holdfast"
