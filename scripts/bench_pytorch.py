#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times the same training step in vtrain and in PyTorch, side by side.

    build/venv/bin/python scripts/bench_pytorch.py [--size small] [--rounds 5] [--out FILE.md]

(scripts/venv.sh torch makes the environment.) The step is forward, mean squared error, backward,
clipping by the global norm and AdamW, of diffusers' own WanTransformer3DModel, eager and compiled,
in float32 and under bfloat16 autocast, with fused AdamW; and of `vtrain --config` on a data set of
the same shapes, batches, text rows and threads. Rounds alternate: every PyTorch variant, then
vtrain, each for --steps steps of which the median counts; what is reported is the median over
rounds of the ratio of the two times, so that a machine that others use slows both. Peak memory is
what each process's resident size grew by after its libraries were loaded.
Prints Markdown. Exit 1 if something could not be run.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# name: (layers, heads, head width, feed-forward width, clip size, frames, batch, text rows, text width)
SIZES = {
    "tiny": (6, 2, 64, 512, 24, 9, 8, 8, 64),
    "small": (6, 8, 64, 2048, 64, 9, 2, 64, 256),
    "medium": (4, 12, 128, 8960, 64, 17, 1, 128, 512),
}
CHANNELS = 24  # of the built-in codec with one temporal and one spatial level


def resident_mib(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def worker(size, precision, compiled, threads):
    """A PyTorch process: answers each line of input with the seconds of its steps."""
    import torch
    from diffusers import WanTransformer3DModel

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    layers, heads, width, ffn, side, frames, batch, rows, text_width = SIZES[size]
    before = resident_mib("VmRSS")
    model = WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=heads, attention_head_dim=width,
        in_channels=CHANNELS, out_channels=CHANNELS, text_dim=text_width, freq_dim=256,
        ffn_dim=ffn, num_layers=layers, cross_attn_norm=True,
        qk_norm="rms_norm_across_heads", eps=1e-6, rope_max_seq_len=1024)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=1e-3, fused=True)
    forward = torch.compile(model) if compiled else model
    shape = (batch, CHANNELS, (frames - 1) // 2 + 1, side // 2, side // 2)
    x, target = torch.randn(shape), torch.randn(shape)
    tau, text = torch.rand(batch) * 1000, torch.randn(batch, rows, text_width)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            v = forward(hidden_states=x, timestep=tau, encoder_hidden_states=text,
                        return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(v.float(), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(3):
        step()
    print(json.dumps({"ready": sum(p.numel() for p in model.parameters())}), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        print(json.dumps({"s": times, "mib": resident_mib("VmHWM") - before}), flush=True)


class Torch:
    def __init__(self, size, precision, compiled, threads):
        self.name = f"PyTorch {'compiled' if compiled else 'eager'} {precision}"
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", size, precision, str(int(compiled)),
             str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.parameters = self.answer()["ready"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def steps(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        got = self.answer()
        return statistics.median(got["s"]), got["mib"]


class Vtrain:
    def __init__(self, program, size, precision, threads, folder):
        self.name = f"vtrain {precision}"
        layers, heads, width, ffn, side, frames, batch, rows, text_width = SIZES[size]
        data = folder / "data"
        if not data.exists():
            subprocess.run(
                [program, "data", "synth", "--out", data, "--count", "64", "--size",
                 f"{side}x{side}", "--frames", str(frames), "--spatial-levels", "1", "--text-dim",
                 str(text_width), "--text-len", str(rows)], check=True, stdout=subprocess.DEVNULL)
        self.out = folder / f"run-{precision}"
        self.command = [program]
        for key, value in {
                "run.out": f'"{self.out}"', "run.precision": f'"{precision}"',
                "run.threads": threads, "model.family": '"wan"', "model.num_layers": layers,
                "model.num_attention_heads": heads, "model.attention_head_dim": width,
                "model.ffn_dim": ffn, "model.patch_size": "[1, 2, 2]",
                "data.train": f'[{{ path = "{data}/*.h5" }}]', "data.global_batch_size": batch,
                "data.micro_batch_size": batch, "optim.lr": 1e-4, "checkpoint.resume": '"none"',
                "log.log_interval": 1}.items():
            self.command += ["--set", f"{key}={value}"]

    def steps(self, n):
        run = subprocess.run(self.command + ["--set", f"run.train_iters={n + 3}"],
                             capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"{self.name}: {run.stderr[-2000:]}")
        rows = [json.loads(line) for line in open(self.out / "metrics.jsonl")]
        rows = [r for r in rows if r["kind"] == "train" and "step_ms" in r][3:]
        return statistics.median(r["step_ms"] for r in rows) / 1e3, \
            max(r["memory_gib"] for r in rows) * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", choices=[*SIZES, "all"], default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--vtrain", default="build/release/vtrain")
    parser.add_argument("--out", help="write the tables here too")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    import diffusers
    import torch
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), "?")
    lines = [f"{cpu}, {args.threads} threads; PyTorch {torch.__version__.split('+')[0]}, "
             f"diffusers {diffusers.__version__}; {args.rounds} rounds of {args.steps} steps"]
    for size in list(SIZES) if args.size == "all" else [args.size]:
        layers, heads, width, ffn, side, frames, batch, rows, _ = SIZES[size]
        tokens = ((frames - 1) // 2 + 1) * (side // 4)**2
        lines += ["", f"**{size}**: {layers} layers, width {heads * width}, {heads} heads, "
                  f"feed-forward {ffn}, {batch} x {tokens} tokens, {rows} text rows", "",
                  "| precision | vtrain ms | eager ms | compiled ms | best PyTorch / vtrain "
                  "(median of ratios) | vtrain MiB | PyTorch MiB |", "|---|---|---|---|---|---|---|"]
        with tempfile.TemporaryDirectory() as folder:
            for precision in ("fp32", "bf16"):
                ours = Vtrain(args.vtrain, size, precision, args.threads, Path(folder))
                peers = [Torch(size, precision, compiled, args.threads)
                         for compiled in ((False,) if args.no_compile else (False, True))]
                seen = {x.name: [] for x in [ours, *peers]}
                memory = {}
                for _ in range(args.rounds):
                    for x in [*peers, ours]:
                        seconds, memory[x.name] = x.steps(args.steps)
                        seen[x.name].append(seconds)
                ratios = {p.name: statistics.median(a / b for a, b in
                                                    zip(seen[p.name], seen[ours.name]))
                          for p in peers}
                best = min(ratios, key=ratios.get)
                ms = [f"{1e3 * statistics.median(seen[x.name]):.1f}" for x in [ours, *peers]]
                if args.no_compile:
                    ms.append("-")
                lines.append(f"| {precision} | {' | '.join(ms)} | {ratios[best]:.2f} "
                             f"({best.split()[1]}) | {memory[ours.name]:.0f} | "
                             f"{memory[best]:.0f} |")
                for p in peers:
                    p.process.stdin.close()
                    p.process.wait()
    text = "\n".join(lines)
    print(text)
    if args.out:
        Path(args.out).write_text(text + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        worker(sys.argv[2], sys.argv[3], sys.argv[4] == "1", int(sys.argv[5]))
    else:
        try:
            main()
        except (RuntimeError, subprocess.CalledProcessError) as e:
            sys.exit(f"bench_pytorch: {e}")
