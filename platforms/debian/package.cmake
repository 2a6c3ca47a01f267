# Debian packages, by CPack: `make deb [ARCH=…]`, which configures a build for /usr and calls it.
#   holdfast          the program, units, man pages, completion
#   holdfast-gateway  the program with sinks, which the one of holdfast hands over to
#   libholdfast0      libholdfast.so: outbox and inbox
#   libholdfast-dev   headers, libholdfast.a, CMake and pkg-config files
# What only packages install is EXCLUDE_FROM_ALL: `make install` leaves the system's folders alone.
set(debian ${PROJECT_SOURCE_DIR}/platforms/debian)
set(package_files ${PROJECT_BINARY_DIR}/package) # made by platforms/debian/build-packages
set(only_packaged COMPONENT holdfast EXCLUDE_FROM_ALL)
file(GLOB units ${PROJECT_SOURCE_DIR}/platforms/systemd/*.service)
install(FILES ${units} DESTINATION lib/systemd/system ${only_packaged})
install(FILES ${PROJECT_SOURCE_DIR}/platforms/systemd/relay.conf
              ${PROJECT_SOURCE_DIR}/platforms/systemd/gateway.conf
        DESTINATION share/doc/holdfast/examples ${only_packaged})
install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION share/doc/holdfast ${only_packaged})
install(FILES ${PROJECT_SOURCE_DIR}/platforms/systemd/README.md
        DESTINATION share/doc/holdfast RENAME README.Debian ${only_packaged})
install(FILES ${debian}/holdfast.bash-completion DESTINATION share/bash-completion/completions
        RENAME holdfast ${only_packaged})
install(DIRECTORY ${package_files}/man/ DESTINATION share/man/man1 ${only_packaged})
install(FILES ${debian}/holdfast.lintian-overrides DESTINATION share/lintian/overrides
        RENAME holdfast ${only_packaged})
set(packages holdfast libholdfast0 libholdfast-dev)
if(TARGET holdfast_gateway)
  list(APPEND packages holdfast-gateway)
  install(FILES ${PROJECT_SOURCE_DIR}/lib/docs/SINKS.md DESTINATION share/doc/holdfast-gateway
          COMPONENT holdfast-gateway EXCLUDE_FROM_ALL)
  install(DIRECTORY ${package_files}/man-gateway/ DESTINATION share/man/man1
          COMPONENT holdfast-gateway EXCLUDE_FROM_ALL)
endif()
foreach(package ${packages})
  install(FILES ${debian}/copyright ${package_files}/changelog.gz
          DESTINATION share/doc/${package} COMPONENT ${package} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${HOLDFAST_MAINTAINER}")
set(CPACK_STRIP_FILES OFF) # the program is; the archive keeps its symbols
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
if(CMAKE_LIBRARY_ARCHITECTURE MATCHES "^aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
elseif(CMAKE_LIBRARY_ARCHITECTURE MATCHES "gnueabihf$")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE armhf)
endif()

set(CPACK_DEBIAN_HOLDFAST_PACKAGE_NAME holdfast)
set(CPACK_DEBIAN_HOLDFAST_PACKAGE_SECTION net)
set(CPACK_DEBIAN_HOLDFAST_DESCRIPTION "transactional outbox, its relay and gateway
 A program writes its own data and the event that tells the world about it in
 one SQLite transaction; the relay gets that event to an upstream gateway, once
 in effect, however often the power fails. This package has the program:
 relay, gateway and inspection, with units for systemd.")
set(CPACK_DEBIAN_HOLDFAST_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_HOLDFAST_PACKAGE_CONTROL_EXTRA
    ${debian}/postinst ${debian}/prerm ${debian}/postrm)

set(CPACK_DEBIAN_HOLDFAST-GATEWAY_PACKAGE_NAME holdfast-gateway)
set(CPACK_DEBIAN_HOLDFAST-GATEWAY_PACKAGE_SECTION net)
set(CPACK_DEBIAN_HOLDFAST-GATEWAY_PACKAGE_DEPENDS "holdfast (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_HOLDFAST-GATEWAY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_HOLDFAST-GATEWAY_DESCRIPTION "transactional outbox, its gateway's sinks
 Delivers what a gateway (or a device) has in its log to PostgreSQL, NATS
 JetStream, an MQTT 5 broker or a command: holdfast gateway --sink, holdfast
 relay --sink and holdfast sink.")

set(CPACK_DEBIAN_LIBHOLDFAST0_PACKAGE_NAME libholdfast0)
set(CPACK_DEBIAN_LIBHOLDFAST0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBHOLDFAST0_DESCRIPTION "transactional outbox and inbox, shared library
 Outbox and inbox in the application's own SQLite transactions, for C and C++.
 Relay and gateway are in the program holdfast and in the static library.")
set(CPACK_DEBIAN_LIBHOLDFAST0_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBHOLDFAST0_PACKAGE_CONTROL_EXTRA ${debian}/triggers)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")

set(CPACK_DEBIAN_LIBHOLDFAST-DEV_PACKAGE_NAME libholdfast-dev)
set(CPACK_DEBIAN_LIBHOLDFAST-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBHOLDFAST-DEV_PACKAGE_DEPENDS
    "libholdfast0 (= ${PROJECT_VERSION}), libsqlite3-dev, libnng-dev, libmbedtls-dev")
set(CPACK_DEBIAN_LIBHOLDFAST-DEV_DESCRIPTION "transactional outbox, relay and inbox, for development
 Headers, the static library (outbox, inbox, relay and gateway), and the files
 for CMake and pkg-config.")
include(CPack)
