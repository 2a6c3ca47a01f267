################################################################################
#
# holdfast
#
################################################################################

HOLDFAST_VERSION = 0.1.0
# The tree that this folder is in, copied without what was built there.
HOLDFAST_SITE = $(BR2_EXTERNAL_HOLDFAST_PATH)/../..
HOLDFAST_SITE_METHOD = local
HOLDFAST_OVERRIDE_SRCDIR_RSYNC_EXCLUSIONS = --exclude=/build
# The project states no licence, so `make legal-info` says "unknown", and the sources are not handed on.
HOLDFAST_REDISTRIBUTE = NO
HOLDFAST_SUPPORTS_IN_SOURCE_BUILD = NO
HOLDFAST_INSTALL_STAGING = YES
HOLDFAST_DEPENDENCIES = cereal cli11 json-for-modern-cpp mbedtls nng sqlite
HOLDFAST_CONF_OPTS = \
	-DCCACHE=OFF \
	-DHOLDFAST_STATIC=$(if $(BR2_STATIC_LIBS),ON,OFF) \
	-DHOLDFAST_SHARED=$(if $(BR2_STATIC_LIBS),OFF,ON) \
	-DHOLDFAST_CLI=ON \
	-DHOLDFAST_SINKS=OFF \
	-DHOLDFAST_DEMO=OFF \
	-DHOLDFAST_TESTS=OFF \
	-DHOLDFAST_WERROR=OFF

# Not in Config.in, where it would be a loop: holdfast selects sqlite.
ifeq ($(BR2_PACKAGE_HOLDFAST)$(BR2_PACKAGE_SQLITE_NO_SYNC),yy)
$(error holdfast needs a sqlite that syncs, or no COMMIT survives a power cut: turn BR2_PACKAGE_SQLITE_NO_SYNC off)
endif

# The user of relay and gateway, and the group of all who write to a shared database.
define HOLDFAST_USERS
	holdfast -1 holdfast -1 * /var/lib/holdfast - - Holdfast relay and gateway
endef

define HOLDFAST_PERMISSIONS
	/var/lib/holdfast d 2770 holdfast holdfast - - - - -
endef

define HOLDFAST_INSTALL_FOLDER
	$(INSTALL) -d -m 0755 $(TARGET_DIR)/etc/holdfast
	$(INSTALL) -d -m 0755 $(TARGET_DIR)/var/lib/holdfast
endef
HOLDFAST_POST_INSTALL_TARGET_HOOKS += HOLDFAST_INSTALL_FOLDER

# Buildroot enables every unit that no preset speaks of. Ours start once a file in /etc/holdfast says what with.
define HOLDFAST_INSTALL_INIT_SYSTEMD
	$(INSTALL) -D -m 0644 $(@D)/platforms/systemd/holdfast-relay@.service \
		$(TARGET_DIR)/usr/lib/systemd/system/holdfast-relay@.service
	$(INSTALL) -D -m 0644 $(@D)/platforms/systemd/holdfast-gateway.service \
		$(TARGET_DIR)/usr/lib/systemd/system/holdfast-gateway.service
	$(INSTALL) -D -m 0644 $(HOLDFAST_PKGDIR)/80-holdfast.preset \
		$(TARGET_DIR)/usr/lib/systemd/system-preset/80-holdfast.preset
endef

$(eval $(cmake-package))
