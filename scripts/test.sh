#!/usr/bin/env bash
# From a clone to a tested build: installs what is missing, builds, runs every test. Prints the
# seconds of each tier and ends with ctest's summary. Usage: scripts/test.sh [CTEST_ARGUMENTS...]
set -euo pipefail
cd "$(dirname "$0")/.."

tier() {
    local name=$1 begin=$SECONDS
    shift
    "$@" || { echo "== $name: failed after $((SECONDS - begin)) s" >&2; exit 1; }
    echo "== $name: $((SECONDS - begin)) s"
}
tier "set-up" scripts/setup.sh
tier "configure" cmake --preset release
tier "build" cmake --build --preset release -j "$(nproc)"
echo "== tests (ctest's closing lines give the seconds of each kind)"
exec ctest --test-dir build/release -j2 --output-on-failure "$@"
