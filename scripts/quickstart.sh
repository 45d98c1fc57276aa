#!/usr/bin/env bash
# From a clone to a video one can watch: builds vtrain, makes clips (or takes yours), trains on them
# and samples. Under 15 minutes on two cores in all.
# Usage: scripts/quickstart.sh [--videos DIR] [--out DIR] [--minutes N]
#   --videos DIR   your own videos and pictures; captions in NAME.txt beside NAME.mp4, else the name
#   --out DIR      where everything goes                                  (runs/quickstart)
#   --minutes N    how long to train                                      (5)
# A second start with the same --out continues where the first one stopped.
set -euo pipefail
cd_from=$PWD
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit "$1"
}
videos="" own=no out=runs/quickstart minutes=5
while (($#)); do
    case "$1" in
        --videos | --out | --minutes)
            (($# > 1)) || usage 2 >&2
            case "$1" in
                --videos) videos=$(cd "$cd_from" && realpath -m -- "$2") ;;
                --out) out=$(cd "$cd_from" && realpath -m -- "$2") ;;
                --minutes) minutes=$2 ;;
            esac
            shift 2
            ;;
        -h | --help) usage 0 ;;
        *) usage 2 >&2 ;;
    esac
done
[[ $minutes =~ ^[1-9][0-9]{0,4}$ ]] || { echo "quickstart: --minutes $minutes: a whole number" >&2; exit 2; }
[[ -z $videos || -d $videos ]] || { echo "quickstart: --videos $videos: no such folder" >&2; exit 2; }
out=$(realpath -m -- "$out")

step() { printf '\n== %s (%d min %02d s so far)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

step "set-up"
scripts/setup.sh
step "build"
cmake --preset release > /dev/null
cmake --build --preset release --target vtrain -j "$(nproc)"
vtrain=build/release/vtrain
mkdir -p "$out"

# small enough that a few minutes on two cores show what is learned
size=24x24
clip=(--fps 8 --spatial-levels 1 --text-dim 64 --text-len 8)
cut=(--size "$size" --frames 9 --valid-fraction 0.05)
if [[ -n $videos ]]; then
    # pictures have a shape of their own; a few videos give many clips by overlap, and none is spared
    # for validation
    size=32x32
    cut=(--shapes "${size}x9,${size}x1")
    files=$(find "$videos" -type f ! -name '*.txt' ! -name '.*' | wc -l)
    ((files >= 100)) || cut+=(--stride $((files < 20 ? 1 : files < 50 ? 3 : 5)))
    ((files < 20)) || cut+=(--valid-fraction 0.05)
else
    own=yes videos=$out/clips
    if [[ ! -e $videos ]]; then
        step "clips of moving shapes"
        rm -rf "$videos.part"
        "$vtrain" data synth --count 1500 --mp4 "$videos.part" \
            --size "$size" --frames 9 "${clip[@]}"
        mv "$videos.part" "$videos"
    fi
fi
if ! compgen -G "$out/data/*.h5" > /dev/null; then
    step "latents of $videos"
    "$vtrain" data encode --videos "$videos" --out "$out/data" "${cut[@]}" "${clip[@]}"
fi

sets=(--set "data.train=$out/data/*.h5")
if compgen -G "$out/data/valid/*.h5" > /dev/null; then
    sets+=(--set "data.valid=$out/data/valid/*.h5")
else
    sets+=(--set "data.valid=[]" --set log.eval_interval=0)
fi

if [[ ! -s $out/iters ]]; then
    step "speed of this machine"
    rm -rf "$out/speed"
    "$vtrain" --config configs/quickstart.toml "${sets[@]}" --set "run.out=$out/speed" \
        --set run.train_iters=20 --set optim.lr_warmup_iters=0 --set log.log_interval=5 \
        --set log.eval_interval=0 --set checkpoint.resume=none \
        --set data.valid=[] --set checkpoint.save_interval=0 > "$out/speed.log" ||
        { tail -n 20 "$out/speed.log" >&2; exit 1; }
    # the steps that fit, of the last rows' time each
    python3 - "$out/speed/metrics.jsonl" "$minutes" > "$out/iters.part" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
ms = min(r["step_ms"] for r in rows if r["kind"] == "train" and "step_ms" in r)
print(max(100, round(60000 * float(sys.argv[2]) / ms / 100) * 100))
PY
    mv "$out/iters.part" "$out/iters"
    rm -rf "$out/speed"
fi
iters=$(cat "$out/iters")

step "training: $iters steps, about $minutes min"
"$vtrain" --config configs/quickstart.toml "${sets[@]}" --set "run.out=$out/run" \
    --set "run.train_iters=$iters"

step "samples"
# four captions of the clips themselves
prompts=()
while IFS= read -r -d '' file && ((${#prompts[@]} < 4)); do
    if [[ -s ${file%.*}.txt ]]; then
        caption=$(head -n 1 "${file%.*}.txt")
    else
        caption=$(basename "${file%.*}" | tr '_.-' '   ')
    fi
    [[ " ${prompts[*]-} " == *" $caption "* ]] || prompts+=("$caption")
done < <(find "$videos" -type f ! -name '*.txt' -print0 | sort -z)
args=()
for p in "${prompts[@]}"; do args+=(--prompt "$p"); done
rm -rf "$out/samples"
"$vtrain" sample --checkpoint "$out/run" --out "$out/samples" --size "$size" --frames 9 \
    --guidance 2 "${args[@]}"
"$vtrain" plot "$out/run" --out "$out/loss.png" --smooth 5

if [[ $own == yes ]]; then
    # of our own shapes a program can tell whether they are what the caption asks for
    step "score of 64 samples (colour, shape and way as the caption says)"
    args=()
    while IFS= read -r caption; do
        args+=(--prompt "$caption")
    done < <(cat "$videos"/*.txt | sort -u | awk 'NR % 3 == 1' | head -n 64)
    rm -rf "$out/score"
    "$vtrain" sample --checkpoint "$out/run" --out "$out/score" --guidance 2 "${args[@]}" \
        > "$out/score.log" || { tail -n 20 "$out/score.log" >&2; exit 1; }
    "$vtrain" data score "$out/score/samples.h5" | tee "$out/score.txt"
fi

printf '\n== made in %d min %02d s\n' $((SECONDS / 60)) $((SECONDS % 60))
for file in "$out"/samples/*.mp4 "$out"/samples/*.png "$out/loss.png"; do
    [[ -e $file ]] && printf '  %s\n' "$file"
done
printf '  %s\n' "$out/run (checkpoints, metrics.jsonl)"
