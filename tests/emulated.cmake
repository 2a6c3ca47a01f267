# Tests of another architecture, under CMAKE_CROSSCOMPILING_EMULATOR. CTest puts the emulator before
# the test program; what a test starts itself goes through two small scripts:
#   emulator   runs the program that its arguments name
#   program    is the holdfast program, emulated
# Both replace themselves with the emulator, so that a pid is the pid of the program.
string(JOIN " " emulate ${CMAKE_CROSSCOMPILING_EMULATOR})
set(emulator ${PROJECT_BINARY_DIR}/emulated/run)
set(program ${PROJECT_BINARY_DIR}/emulated/holdfast)
file(CONFIGURE OUTPUT ${emulator} @ONLY CONTENT "#!/bin/sh\nexec @emulate@ \"$@\"\n")
file(CONFIGURE OUTPUT ${program} @ONLY
     CONTENT "#!/bin/sh\nexec @emulate@ '${PROJECT_BINARY_DIR}/cli/holdfast' \"$@\"\n")
file(CHMOD ${emulator} ${program} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
     GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# Libraries that are not where the cross compiler looks, and where pkg-config does.
set(target_packages /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig)
foreach(prefix ${CMAKE_PREFIX_PATH})
  string(APPEND target_flags " -isystem ${prefix}/include -L${prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
  string(PREPEND target_packages "${prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:")
endforeach()

# not_emulated.txt: `test | * | reason` leaves out a test, `test | case | reason` one case of it,
# `test | short | reason` labels it `long`, which a short run leaves out.
set(not_emulated)
set(long_emulated)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS not_emulated.txt)
file(STRINGS not_emulated.txt lines REGEX "^[^#].*[|].*[|]")
foreach(line ${lines})
  string(REGEX MATCH "^([^| ]+) *[|] *(.*[^ ]) *[|] *(.+)$" _ "${line}")
  if(CMAKE_MATCH_2 STREQUAL "*")
    list(APPEND not_emulated ${CMAKE_MATCH_1})
  elseif(CMAKE_MATCH_2 STREQUAL "short")
    list(APPEND long_emulated ${CMAKE_MATCH_1})
  else()
    string(APPEND not_emulated_cases_${CMAKE_MATCH_1} "${CMAKE_MATCH_2},") # doctest's list
  endif()
endforeach()

# An emulator is five to ten times as slow.
foreach(limit timeout_seconds timeout_seconds_protocol_test)
  math(EXPR ${limit} "3 * ${${limit}}")
endforeach()
