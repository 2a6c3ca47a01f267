#!/bin/bash
# Installs into an empty folder, and there builds and runs what a user would: an application in C99
# and one in C++17 without exceptions and RTTI, by pkg-config and by find_package, with the shared
# library, the static one and fully static.
set -eu
source=${HOLDFAST_SOURCE:?}
build=${HOLDFAST_BUILD:?}
cc=${CC:-cc} cxx=${CXX:-c++}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/usr
cmake --install "$build" --prefix "$prefix" >"$work/install.log" ||
  { cat "$work/install.log"; exit 1; }

libdir=$(dirname "$(find "$prefix" -name libholdfast.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
c=(-std=c99 -pedantic -Wall -Wextra -Werror "$source/tests/install/outbox.c")
cpp=(-std=c++17 -Wall -Wextra -Werror -fno-exceptions -fno-rtti)

count=0 failures=0
check() { # name command…: an application that prints the id of the event it committed
  local name=$1 db=$work/$count.db id
  shift
  count=$((count + 1))
  if id=$("$@" "$db" 2>&1) && [[ $id =~ ^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$ ]]; then
    echo "ok: $name: $id"
  else
    echo "FAILED: $name: $id"
    failures=$((failures + 1))
  fi
}
run_relay() { # name command: on a database of an earlier check
  count=$((count + 1))
  if "$2" "$work/0.db"; then
    echo "ok: $1"
  else
    echo "FAILED: $1"
    failures=$((failures + 1))
  fi
}
flags() { # pkg-config arguments, word by word
  local -a words
  eval "words=($(pkg-config "$@"))" # its output is quoted for the shell
  printf '%s\n' "${words[@]}"
}

# pkg-config
mapfile -t shared < <(flags --cflags --libs holdfast sqlite3)
mapfile -t static < <(flags --cflags --libs holdfast-static)
mapfile -t all_static < <(flags --static --cflags --libs holdfast)
"$cc" "${c[@]}" -o "$work/c_shared" "${shared[@]}"
check "C99, pkg-config, shared" "$work/c_shared"
"$cc" "${c[@]}" -o "$work/c_static" "${static[@]}"
check "C99, pkg-config, static" "$work/c_static"
"$cc" "${c[@]}" -o "$work/c_all_static" -static "${all_static[@]}" 2>"$work/link.log" ||
  { cat "$work/link.log"; exit 1; }
check "C99, pkg-config, fully static" env -u LD_LIBRARY_PATH "$work/c_all_static"
"$cxx" "${cpp[@]}" "$source/tests/install/outbox.cpp" -o "$work/cpp_shared" "${shared[@]}"
check "C++17, pkg-config, shared" "$work/cpp_shared"
"$cxx" "${cpp[@]}" "$source/tests/install/outbox.cpp" -o "$work/cpp_static" "${static[@]}"
check "C++17, pkg-config, static" "$work/cpp_static"
"$cxx" "${cpp[@]}" "$source/tests/install/relay.cpp" -o "$work/cpp_relay" "${static[@]}"
run_relay "C++17 with a relay, pkg-config, static" "$work/cpp_relay"

# find_package
build_consumers() { # folder languages
  CC=$cc CXX=$cxx cmake -S "$source/tests/install" -B "$1" -DCMAKE_PREFIX_PATH="$prefix" \
    -DLANGUAGES="$2" >"$work/cmake.log" 2>&1 && cmake --build "$1" >>"$work/cmake.log" 2>&1 ||
    { cat "$work/cmake.log"; exit 1; }
}
build_consumers "$work/both" "C;CXX"
check "C99, find_package, shared" "$work/both/c_shared"
check "C99, find_package, static" "$work/both/c_holdfast"
check "C++17, find_package, shared" "$work/both/cpp_shared"
check "C++17, find_package, static" "$work/both/cpp_holdfast"
run_relay "C++17 with a relay, find_package, static" "$work/both/cpp_relay"
build_consumers "$work/c" C
check "C99, find_package in a project without C++, shared" "$work/c/c_shared"
check "C99, find_package in a project without C++, static" "$work/c/c_holdfast"

# The installed program, and what the shared library lets out.
[ -x "$prefix/bin/holdfast" ] || { echo "FAILED: no bin/holdfast"; failures=$((failures + 1)); }
leaked=$(nm -DC --defined-only "$libdir/libholdfast.so" |
  grep -Ev ' (holdfast_|holdfast::|vtable for holdfast::|typeinfo (name )?for holdfast::)' || true)
[ -z "$leaked" ] || { echo "FAILED: libholdfast.so exports: $leaked"; failures=$((failures + 1)); }

echo "$count checks, $failures failed"
[ "$failures" = 0 ]
