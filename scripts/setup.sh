#!/usr/bin/env bash
# Installs what vtrain needs to be built and tested: Debian 12 (or a relative with apt-get), as root or
# with sudo. Only what is missing; with nothing missing it ends at once, without the network.
# Usage: scripts/setup.sh [--dev]     --dev adds clang, clang-tidy, clang-format and a browser
set -euo pipefail

packages=(
    g++ cmake ninja-build pkg-config ccache python3 git
    libfmt-dev nlohmann-json3-dev libxxhash-dev libtomlplusplus-dev libcli11-dev doctest-dev
    libhdf5-dev libdnnl-dev
    libavformat-dev libavcodec-dev libavutil-dev libswscale-dev   # video files; optional
    libopenmpi-dev openmpi-bin                                    # several processes; optional
)
for arg in "$@"; do
    case "$arg" in
        --dev) packages+=(clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev chromium ffmpeg
            python3-venv) ;;
        *) echo "usage: scripts/setup.sh [--dev]" >&2; exit 2 ;;
    esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    cat >&2 <<'EOF'
scripts/setup.sh knows Debian 12 and its relatives (apt-get). On another system install:
  a C++20 compiler (g++ 12 or later), cmake 3.25 or later, ninja, pkg-config, python3,
  fmt 9, nlohmann-json 3, xxhash, toml++ 3, CLI11 2, doctest 2, HDF5 1.10 or later, oneDNN 2,
  and, for video files and several processes, the FFmpeg libraries and an MPI;
then: cmake --preset release && cmake --build --preset release
EOF
    exit 1
fi

installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' "${packages[@]}" 2>/dev/null || true)"
missing=()
for p in "${packages[@]}"; do
    [[ "$installed" == *" installed:$p "* ]] || missing+=("$p")
done
if ((${#missing[@]} == 0)); then
    echo "setup: all ${#packages[@]} packages are installed"
    exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: missing: ${missing[*]}" >&2
        echo "setup: install them as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
        -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}
apt update
apt install --no-install-recommends "${missing[@]}" >/dev/null
echo "setup: installed ${#missing[@]} packages"
