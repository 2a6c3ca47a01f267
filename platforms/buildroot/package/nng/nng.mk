################################################################################
#
# nng
#
################################################################################

NNG_VERSION = 1.5.2
NNG_SITE = $(call github,nanomsg,nng,v$(NNG_VERSION))
NNG_LICENSE = MIT
NNG_LICENSE_FILES = LICENSE.txt
# Static, whatever the other libraries are: Holdfast replaces functions inside of it at link time
# (lib/cmake/HoldfastDependencies.cmake).
NNG_INSTALL_STAGING = YES
NNG_INSTALL_TARGET = NO
NNG_DEPENDENCIES = mbedtls
NNG_CONF_OPTS = \
	-DBUILD_SHARED_LIBS=OFF \
	-DNNG_ENABLE_TLS=ON \
	-DNNG_ENABLE_NNGCAT=OFF \
	-DNNG_TESTS=OFF \
	-DNNG_TOOLS=OFF

$(eval $(cmake-package))
