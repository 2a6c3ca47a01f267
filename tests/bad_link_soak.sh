#!/bin/bash
# bad_link_test with every fault held ten times as long.
set -eu
HOLDFAST_TEST_SCALE=1000 exec "$HOLDFAST_BUILD/tests/holdfast_tests" --source-file='*/bad_link_test.cpp'
