#!/bin/bash
# memory_test with backlogs of 2.6 GB each (10 M events of 256 bytes) and 50 devices.
set -eu
HOLDFAST_TEST_SCALE=13000 exec "$HOLDFAST_BUILD/tests/holdfast_tests" --source-file='*/memory_test.cpp'
