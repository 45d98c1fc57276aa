#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the golden fixtures tests/golden/wan_*.json from the real diffusers class.

    pip install torch==2.15.0 diffusers==0.42.1 numpy
    python scripts/make_golden.py [NAME ...]

Weights and inputs are not stored: both sides make them by one rule (`unit` below; in C++
tests/model/fill.h). With k a stream number and j a flat row-major index,
    z = k 2^32 + j + 0x9E3779B97F4A7C15;  z = splitmix64's finalizer of z;  u = (z >> 11) 2^-53.
Parameter number k in the byte-sorted list of names: 0.6 (u - 0.5), or 1 + 0.2 (u - 0.5) for
one-dimensional tensors whose name ends in "weight". Input i is stream 1000 + i: 2 (u - 0.5).
hidden_states is input 0, encoder_hidden_states input 1 (rows from text_rows on are zero), and the
gradients are those of sum(out * r), r = input 50.

The class runs in float64; the steps it does in float32 whatever it is given (sinusoids, norms)
remain. bf16_rel is its own deviation when loaded in bfloat16, as a relative Frobenius norm.
"""
import datetime
import json
import re
import sys
import tempfile
from pathlib import Path

import diffusers
import numpy as np
import torch
from diffusers import WanTransformer3DModel

OUT = Path(__file__).resolve().parent.parent / "tests" / "golden"

BASE = dict(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4,
            out_channels=4, text_dim=16, freq_dim=256, ffn_dim=32, num_layers=1,
            cross_attn_norm=True, qk_norm="rms_norm_across_heads", eps=1e-6, rope_max_seq_len=32)
# name: (config changes, (n, T, H, W), text rows, of these not zero, timesteps)
CASES = {
    "patch222": (dict(patch_size=(2, 2, 2), num_layers=2), (2, 4, 4, 6), 5, 5, [3, 640]),
    "batch3_wide": (dict(attention_head_dim=16, num_attention_heads=3, in_channels=3,
                         out_channels=5, ffn_dim=72), (3, 2, 6, 4), 4, 4, [0, 250.5, 999]),
    "head64": (dict(attention_head_dim=64, num_attention_heads=2, ffn_dim=96, in_channels=2,
                    out_channels=2), (1, 3, 4, 6), 7, 7, [500]),
    "head128": (dict(attention_head_dim=128, num_attention_heads=2, ffn_dim=130, in_channels=2,
                     out_channels=2), (1, 2, 4, 6), 3, 3, [77]),
    "padded_text": (dict(num_layers=2, text_dim=20), (2, 1, 4, 4), 12, 5, [421, 12]),
    "one_token": (dict(attention_head_dim=6, num_attention_heads=1, ffn_dim=7), (1, 1, 2, 2), 1, 1,
                  [1000]),
}


def unit(k, n):
    with np.errstate(over="ignore"):
        z = np.uint64(k) * np.uint64(1 << 32) + np.arange(n, dtype=np.uint64)
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def inp(i, shape):
    return torch.from_numpy(2 * (unit(1000 + i, int(np.prod(shape))) - 0.5)).reshape(shape)


def fill_weights(model):
    state = model.state_dict()
    for k, name in enumerate(sorted(state, key=lambda s: s.encode())):
        u = unit(k, state[name].numel()) - 0.5
        norm = state[name].dim() == 1 and name.endswith("weight")
        value = 1 + 0.2 * u if norm else 0.6 * u
        state[name].copy_(torch.from_numpy(value).reshape(state[name].shape))


def short(x):
    return float(f"{float(x):.10g}")


def summary(t):
    t = t.detach().double().flatten()
    return {"l2": short(t.norm()), "first": [short(v) for v in t[:4]]}


def make(name):
    change, (n, T, H, W), rows, real, tau = CASES[name]
    config = {**BASE, **change}
    model = WanTransformer3DModel(**config).double().eval()
    with torch.no_grad():
        fill_weights(model)
    x = inp(0, (n, config["in_channels"], T, H, W)).requires_grad_()
    text = inp(1, (n, rows, config["text_dim"]))
    text[:, real:] = 0
    text.requires_grad_()
    t = torch.tensor(tau, dtype=torch.float64)
    out = model(hidden_states=x, timestep=t, encoder_hidden_states=text, return_dict=False)[0]
    (out * inp(50, out.shape)).sum().backward()

    with tempfile.TemporaryDirectory() as folder:
        model.float().save_pretrained(folder)
        low = WanTransformer3DModel.from_pretrained(folder, torch_dtype=torch.bfloat16)
    with torch.no_grad():
        o16 = low(hidden_states=x.bfloat16(), timestep=t.float(),
                  encoder_hidden_states=text.bfloat16(), return_dict=False)[0]
    rel = float((o16.double() - out.detach()).norm() / out.detach().norm())

    grads = {k: summary(p.grad) for k, p in model.named_parameters()}
    fixture = {
        "maker": "scripts/make_golden.py", "date": datetime.date.today().isoformat(),
        "versions": {"diffusers": diffusers.__version__, "torch": torch.__version__},
        "config": config, "shape": [n, T, H, W], "text_len": rows, "text_rows": real,
        "timestep": tau, "bf16_rel": round(rel, 5), "out_shape": list(out.shape),
        "dx": summary(x.grad), "dtext": summary(text.grad), "grads": grads,
        "out": [short(v) for v in out.detach().flatten()],
    }
    path = OUT / f"wan_{name}.json"
    text = json.dumps(fixture, indent=1)
    # one line per list: readable and small

    text = re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m.group(0).split()), text)
    path.write_text(text + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes, bf16 {rel:.4f}, "
          f"|out| {float(out.detach().abs().max()):.3f}")


for case in sys.argv[1:] or CASES:
    make(case)
