"""Puts one mistake at a time into the kernels of cuda/norm.cu and runs their tests; fails if a
mistake passes. A mistake takes some seconds to compile, so .ci/run --full runs this, ctest does not.
Usage: mutants.py BUILD_FOLDER, where vtrain_cuda_tests is built"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

root = Path(__file__).resolve().parents[2]
build = Path(sys.argv[1]).resolve()
KERNELS, ROWS = "norm.cu", "rows.cuh"
# what it is, file, text, what becomes of it (the first occurrence, or the one after a mark)
MUTANTS = [
    ("block_sum: no barrier", ROWS, "    __syncthreads();\n    float sum = 0;", "    float sum = 0;"),
    ("block_sum2: no barrier", ROWS, "    __syncthreads();\n    a = b = 0;", "    a = b = 0;"),
    ("warp_sum: a step short", ROWS, "m > 0; m /= 2", "m > 1; m /= 2"),
    ("load8 of bf16: length not checked", ROWS, "if (vector && n >= kOct) {\n        const uint4",
     "if (vector) {\n        const uint4"),
    ("store8 of f32: length not checked", ROWS,
     "if (vector && n >= kOct) {\n        reinterpret_cast<float4*>",
     "if (vector) {\n        reinterpret_cast<float4*>"),
    ("norm_fwd: every thread writes the statistics", KERNELS,
     "    if (tid() == 0) {\n        a.mean", "    if (tid() >= 0) {\n        a.mean"),
    ("norm_fwd: columns past the end in the variance", KERNELS, "if (o * kOct + i < a.D) squares",
     "squares"),
    ("norm_fwd: too little shared memory", KERNELS, "sizeof(TH) * octets(a.D) * kOct",
     "sizeof(TH) * a.D"),
    ("find: a row belongs to the segment before", KERNELS, "begin[mid] <= at", "begin[mid] < at"),
    ("norm_bwd: sums of two rows share a place", KERNELS, "(row - begin) & 1", "(row - begin) & 0"),
    ("norm_bwd: a piece runs on into the next segment", KERNELS,
     "begin + seg.step < seg.begin[i_seg + 1] ?", "true ?"),
    ("norm_bwd: dh overwritten", KERNELS, "t[i] += rstd", "t[i] = rstd"),
    ("norm_bwd: a mean left out", KERNELS, " - mean_g - xh * mean_gx", " - 0 * mean_g - xh * mean_gx"),
    ("norm_bwd: too little shared memory", KERNELS, "2 * sizeof(float) + sizeof(TH) + sizeof(TY)",
     "2 * sizeof(float) + sizeof(TH)"),
    ("norm_bwd: sums not cleared", KERNELS, "dshift[o * kOct + i] = dgain[o * kOct + i] = 0;",
     "dshift[o * kOct + i] = 0;"),
    ("add_pieces: no barrier", KERNELS, "        __syncthreads();\n        if (warp == 0",
     "        if (warp == 0"),
    ("add_pieces: turns share a place", KERNELS, "sums[turn & 1][w][lane]", "sums[0][w][lane]"),
    ("add_pieces: the sum overwritten", KERNELS, "+= total", "= total"),
    ("qknorm_bwd: turned the wrong way", KERNELS, "turn(d, a, row, c, -1);\n            for (int i = 0; i < kOct; ++i) {\n                dw",
     "turn(d, a, row, c, 1);\n            for (int i = 0; i < kOct; ++i) {\n                dw"),
    ("qknorm_bwd: the pull of the norm turned round", KERNELS, "- v[i] * pull", "+ v[i] * pull"),
    ("qknorm_bwd: dw without 1/rms", KERNELS, "dw[c + i] += d[i] * v[i] * r;",
     "dw[c + i] += d[i] * v[i];"),
    ("angles: width's table for height", KERNELS, "return table[1] + 2 * (pair - split0);",
     "return table[2] + 2 * (pair - split0);"),
]

commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "vtrain_cuda_tests"], text=True,
                          capture_output=True, check=True).stdout.splitlines()
compile_line = next(c for c in commands if c.endswith("cuda/norm.cu") and "emu.h" in c)
link_line = next(c for c in commands if "-o tests/cuda/vtrain_cuda_tests" in c)
object_file = re.search(r" -o (\S+norm\.cu\.o) ", compile_line).group(1)


def outcome(tmp: Path) -> str:
    made, program = tmp / "norm.o", tmp / "tests"
    line = re.sub(r" -MD| -M[TF] \S+", "", compile_line)
    line = line.replace(f" -o {object_file} ", f" -o {made} ")
    line = line.replace(f"{root}/cuda/norm.cu", f"{tmp}/cuda/norm.cu").replace(" -I", f" -I{tmp} -I", 1)
    subprocess.run(line, shell=True, cwd=build, check=True)
    link = link_line.replace(f" {object_file} ", f" {made} ")
    link = link.replace("-o tests/cuda/vtrain_cuda_tests", f"-o {program}").split(" && cd ")[0]
    if str(program) not in link or str(made) not in link:
        sys.exit("the link command is not as expected: " + link)
    subprocess.run(link, shell=True, cwd=build, check=True)
    done = subprocess.run([program, "-tc=cuda/norm*", "--abort-after=1"], text=True,
                          errors="replace", capture_output=True, timeout=300)
    if done.returncode == 0:
        return ""
    told = re.search(r"(vt::emu: |emu: .*|data race.*|\S+\[\d+\] is .*|wrote outside.*|.* differs under.*)", done.stdout)
    return told.group(0).strip()[:110] if told else f"status {done.returncode}"


missed = 0
for name, file, text, instead in MUTANTS:
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(folder)
        shutil.copytree(root / "cuda", tmp / "cuda")
        source = (tmp / "cuda" / file).read_text()
        if source.count(text) < 1:
            sys.exit(f"{name}: the text it changes is not in {file}")
        (tmp / "cuda" / file).write_text(source.replace(text, instead, 1))
        said = outcome(tmp)
        missed += not said
        print(f"{name}: {said or 'MISSED'}", flush=True)
print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} caught")
sys.exit(bool(missed))
