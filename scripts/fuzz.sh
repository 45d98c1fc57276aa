#!/usr/bin/env bash
# Fuzzes the readers of foreign text and headers: libFuzzer, address and undefined-behaviour
# sanitizers. A finding is written to build/fuzz/findings and ends with a non-zero exit.
# Usage: scripts/fuzz.sh [--seconds N] [TARGET...]     N of each target (20); targets: tests/fuzz/fuzz_*.cpp
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=20 targets=()
while (($#)); do
    case "$1" in
        --seconds) seconds=${2:?--seconds wants a number}; shift 2 ;;
        -*) sed -n '2,4s/^# //p' "$0" >&2; exit 2 ;;
        *) targets+=("$1"); shift ;;
    esac
done
if ((${#targets[@]} == 0)); then
    for file in tests/fuzz/fuzz_*.cpp; do
        name=${file##*/fuzz_}
        targets+=("${name%.cpp}")
    done
fi
cmake --preset fuzz > /dev/null
cmake --build --preset fuzz -j "$(nproc)" --target "${targets[@]/#/fuzz_}"
mkdir -p build/fuzz/findings
one() {
    local name=$1 corpus=build/fuzz/corpus/$1 log=build/fuzz/$1.log
    mkdir -p "$corpus"
    # an input that takes a second or half a gigabyte is a finding too
    if ! build/fuzz/tests/fuzz/fuzz_"$name" -max_total_time="$2" -timeout=1 -rss_limit_mb=2048 \
        -malloc_limit_mb=512 -print_final_stats=1 -artifact_prefix=build/fuzz/findings/"$name"- \
        "$corpus" tests/fuzz/seeds/"$name" > "$log" 2>&1; then
        echo "fuzz: $name: a finding (build/fuzz/findings, $log):" >&2
        grep -m 3 -E "ERROR|SUMMARY|wrong kind|terminate" "$log" >&2 || tail -n 5 "$log" >&2
        return 1
    fi
    printf 'fuzz: %s: %s inputs, no finding\n' "$name" \
        "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
}
export -f one
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'one {} '"$seconds"
