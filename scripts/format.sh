#!/usr/bin/env bash
# Formats all C++ sources with clang-format 14. With --check it changes nothing and fails where a file
# would change. Usage: scripts/format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(command -v clang-format-14 || command -v clang-format) || {
    echo "format: clang-format 14 is missing; scripts/setup.sh --dev installs it" >&2
    exit 1
}
mode=(-i)
case "${1:-}" in
    "") ;;
    --check) mode=(--dry-run -Werror) ;;
    *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
folders=(src tests)
[[ -d cuda ]] && folders+=(cuda)
find "${folders[@]}" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    xargs -0 -n 16 -P "$(nproc)" "$tool" "${mode[@]}"
