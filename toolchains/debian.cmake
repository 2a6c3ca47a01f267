# What the toolchain files of this folder share: Debian's cross compiler for `triplet`, its multiarch
# packages (libsqlite3-dev:armhf …), and `emulator`, the command that runs a program of the target.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_C_COMPILER ${triplet}-gcc)
set(CMAKE_CXX_COMPILER ${triplet}-g++)
set(CMAKE_STRIP ${triplet}-strip)
set(CMAKE_LIBRARY_ARCHITECTURE ${triplet}) # where find_library looks
# By its whole path, for a test may change PATH; building alone does not need it.
list(POP_FRONT emulator HOLDFAST_QEMU_NAME)
find_program(HOLDFAST_QEMU ${HOLDFAST_QEMU_NAME})
if(HOLDFAST_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${HOLDFAST_QEMU} ${emulator})
else()
  set(CMAKE_CROSSCOMPILING_EMULATOR ${HOLDFAST_QEMU_NAME} ${emulator})
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# Not the build machine's own libraries.
if(NOT CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL CMAKE_SYSTEM_PROCESSOR)
  list(APPEND CMAKE_IGNORE_PATH /usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu
       /lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu)
  set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/${triplet}/pkgconfig:/usr/share/pkgconfig)
endif()
