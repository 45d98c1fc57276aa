#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `vtrain forward`, `ckpt import` and `ckpt export` with diffusers' own Wan class.

    pip install torch==2.15.0 diffusers==0.42.1 safetensors
    python scripts/check_diffusers.py [--vtrain build/release/vtrain]

For several sizes: random weights in the real class, saved by it, run here and there, outputs and
every gradient compared; then imported and exported by vtrain (whole and sharded, fp32 and bf16),
loaded strictly by the real class and compared. Last, a run of five steps: its weights and its
average, exported as fp32 and bf16, loaded strictly and run in both programs. Prints one line per
comparison and exits 1 if one is over its limit.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file, save_file

BASE = dict(patch_size=(1, 2, 2), in_channels=16, out_channels=16, text_dim=64, freq_dim=256,
            rope_max_seq_len=1024)
# name: (sizes, (B, T, H, W), text rows, zero rows at the end of the text)
CASES = {
    "head12": (dict(num_attention_heads=2, attention_head_dim=12, ffn_dim=32, num_layers=2),
               (2, 3, 8, 12), 12, 0),
    "head64": (dict(num_attention_heads=4, attention_head_dim=64, ffn_dim=512, num_layers=3),
               (2, 4, 8, 10), 32, 20),
    "head128": (dict(num_attention_heads=3, attention_head_dim=128, ffn_dim=1000, num_layers=2,
                     patch_size=(2, 2, 2)), (1, 4, 12, 8), 77, 50),
}
# Largest relative Frobenius difference of the output and of the worst gradient, some 4 x what was
# measured: float32 roundoff on both sides; matrix operands rounded to bfloat16 (the worst are the
# cross-attention key biases, whose gradient nearly cancels).
LIMIT_F32 = (1e-5, 3e-5)
LIMIT_BF16 = (0.012, 0.2)
CHANNELS = 3 * 2 * 4**2  # of the built-in codec with one temporal and two spatial levels
failures = 0


def report(what, value, limit):
    global failures
    ok = value <= limit  # false for NaN
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what}: {value:.3g} (limit {limit:g})")


def rel(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30))


def vtrain(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))}: exit {done.returncode}\n{done.stderr}")


def strictly(what, folder, kind):
    model, info = WanTransformer3DModel.from_pretrained(folder, torch_dtype=kind,
                                                        output_loading_info=True)
    loose = sum(len(info.get(k, ())) for k in ("missing_keys", "unexpected_keys",
                                               "mismatched_keys"))
    report(f"{what} export, keys that do not match", loose, 0)
    return model


RUN = """
[run]
out = "run"
seed = 1
train_iters = 5
[model]
preset = "tiny"
[data]
train = ["data/*.h5"]
global_batch_size = 4
micro_batch_size = 2
[optim]
lr = 2e-3
lr_warmup_iters = 1
ema_decay = [0.5]
"""


def check_run(program, folder):
    folder = Path(folder)
    vtrain(program, "data", "synth", "--out", folder / "data", "--count", 8, "--size", "16x16",
           "--frames", 5, "--temporal-levels", 1, "--spatial-levels", 2, "--text-dim", 16,
           "--text-len", 8)
    (folder / "run.toml").write_text(RUN)
    vtrain(program, "--config", folder / "run.toml", "--set", f"run.out={folder / 'run'}")
    outs = {}
    for weights, flags in (("weights", ()), ("EMA", ("--ema", 0))):
        for dtype in ("fp32", "bf16"):
            what = f"run, {weights} {dtype}"
            target = folder / f"{weights}_{dtype}"
            vtrain(program, "ckpt", "export", "--checkpoint", folder / "run", "--out", target,
                   "--dtype", dtype, *flags)
            model = strictly(what, target, torch.float32).eval()  # bf16 values, computed in fp32
            c = model.config
            report(f"{what}: channels and text width that are not the data's",
                   (c.in_channels, c.out_channels, c.text_dim) != (CHANNELS, CHANNELS, 16), 0)
            torch.manual_seed(7)
            inputs = dict(hidden_states=torch.randn(2, c.in_channels, 3, 4, 4),
                          timestep=torch.tensor([100.0, 900.0]),
                          encoder_hidden_states=torch.randn(2, 8, c.text_dim))
            save_file(inputs, folder / "inputs.safetensors")
            with torch.no_grad():
                want = model(**inputs, return_dict=False)[0]
            vtrain(program, "forward", "--weights", target, "--inputs",
                   folder / "inputs.safetensors", "--out", f"{target}.safetensors")
            got = load_file(f"{target}.safetensors")["out"]  # mapped: never written over
            report(f"{what}: out, relative", rel(got, want), LIMIT_F32[0])
            outs[weights, dtype] = got
    for weights in ("weights", "EMA"):
        report(f"run, {weights}: out of bf16 weights against fp32 ones, relative",
               rel(outs[weights, "bf16"], outs[weights, "fp32"]), LIMIT_BF16[0])
    if torch.equal(outs["weights", "fp32"], outs["EMA", "fp32"]):
        sys.exit("the weights and their average give the same output")


def check(program, name, folder):
    sizes, (n, T, H, W), rows, zeros = CASES[name]
    torch.manual_seed(len(name))
    model = WanTransformer3DModel(**{**BASE, **sizes}).eval()
    folder = Path(folder)
    model.save_pretrained(folder / "model")
    x = torch.randn(n, model.config.in_channels, T, H, W).requires_grad_()
    text = torch.randn(n, rows, model.config.text_dim)
    if zeros:
        text[:, rows - zeros:] = 0
    text.requires_grad_()
    tau = torch.linspace(20, 990, n)
    out = model(hidden_states=x, timestep=tau, encoder_hidden_states=text, return_dict=False)[0]
    r = torch.randn_like(out)
    (out * r).sum().backward()
    save_file({"hidden_states": x.detach(), "timestep": tau, "r": r,
               "encoder_hidden_states": text.detach()}, folder / "inputs.safetensors")
    want = {"hidden_states": x.grad, "encoder_hidden_states": text.grad,
            **{k: p.grad for k, p in model.named_parameters()}}

    for precision, limit in (("fp32", LIMIT_F32), ("bf16", LIMIT_BF16)):
        vtrain(program, "forward", "--weights", folder / "model", "--inputs",
               folder / "inputs.safetensors", "--out", folder / "out.safetensors", "--grad",
               "--precision", precision)
        got = load_file(folder / "out.safetensors")
        report(f"{name} {precision} out, relative", rel(got["out"], out.detach()), limit[0])
        if precision == "fp32":
            report(f"{name} {precision} out, absolute",
                   float((got["out"] - out.detach()).abs().max()), 1e-4)
        if set(got) != {"out", *("grad." + k for k in want)}:
            sys.exit(f"{name}: other tensors than expected")
        # A key's bias moves every score of a query alike, so its gradient is zero but for roundoff:
        # compare against the largest gradient of its kind instead.
        floor = 1e-3 * max(float(g.norm()) for g in want.values())
        worst, where = max((float((got["grad." + k].double() - g.double()).norm()) /
                            max(float(g.norm()), floor), k) for k, g in want.items())
        report(f"{name} {precision} gradients, worst ({where})", worst, limit[1])

    vtrain(program, "ckpt", "import", "--weights", folder / "model", "--out", folder / "imported")
    for dtype, shard in (("fp32", 10**10), ("bf16", 10**10), ("fp32", 60_000)):
        target = folder / f"export_{dtype}_{shard}"
        vtrain(program, "ckpt", "export", "--checkpoint", folder / "imported", "--out", target,
               "--dtype", dtype, "--max-shard-bytes", shard)
        kind = torch.float32 if dtype == "fp32" else torch.bfloat16
        back = strictly(f"{name} {dtype}", target, kind)
        differ = [k for k, v in model.config.items() if not k.startswith("_") and
                  (list(back.config[k]) if k == "patch_size" else back.config[k]) !=
                  (list(v) if k == "patch_size" else v)]
        report(f"{name} {dtype} export, config fields that differ {differ}", len(differ), 0)
        off = sum(not torch.equal(p.to(q.dtype), q) for p, q in
                  zip(model.state_dict().values(), back.state_dict().values()))
        report(f"{name} {dtype} export in {len(list(target.glob('*.safetensors')))} file(s), "
               "tensors that differ", off, 0)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--vtrain", default="build/release/vtrain")
options = parser.parse_args()
for case in CASES:
    with tempfile.TemporaryDirectory() as tmp:
        check(options.vtrain, case, tmp)
with tempfile.TemporaryDirectory() as tmp:
    check_run(options.vtrain, tmp)
sys.exit(failures != 0)
