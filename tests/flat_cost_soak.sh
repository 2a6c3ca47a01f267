#!/bin/bash
# flat_cost_test against 10 million events.
set -eu
HOLDFAST_TEST_SCALE=5000 exec "$HOLDFAST_BUILD/tests/holdfast_tests" --source-file='*/flat_cost_test.cpp'
