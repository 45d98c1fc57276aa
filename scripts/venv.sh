#!/usr/bin/env bash
# Makes build/venv, a Python environment with what checks against other programs need. Training and
# scripts/test.sh need none of it.
# Usage: scripts/venv.sh [readers|torch]
#   readers   h5py, numpy, xxhash, pyarrow, safetensors, tensorboard: outside readers and writers (default)
#   torch     and PyTorch (CPU) with diffusers, for scripts/{check_diffusers,bench_pytorch,make_golden}.py
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-readers}
readers=(h5py==3.16.0 numpy==2.4.6 xxhash==4.1.0 pyarrow==26.0.1 safetensors==0.8.0 tensorboard)
torch=(torch==2.15.0 diffusers==0.42.1 transformers==5.24.0 accelerate==1.15.0)
case "$what" in
    readers) wanted=("${readers[@]}") ;;
    torch) wanted=("${readers[@]}" "${torch[@]}") ;;
    *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
esac
venv=build/venv
if [[ ! -x $venv/bin/python ]]; then
    mkdir -p build
    python3 -m venv "$venv"
fi
stamp=$venv/.$what
if [[ "$(cat "$stamp" 2> /dev/null)" != "${wanted[*]}" ]]; then
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${wanted[@]}"
    echo "${wanted[*]}" > "$stamp"
fi
echo "$venv/bin/python"
