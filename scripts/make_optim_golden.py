#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/golden/optim.json: learning rates, averages and AdamW steps of other libraries.

    pip install torch==2.15.0 diffusers==0.42.1 transformers==5.24.0
    python scripts/make_optim_golden.py

lr: what optimizers hold after n calls of a scheduler's step(), which is the rate of our step n.
ema: EMAModel's decay at step n, and its shadow parameter along p(n) = value(7, n), from value(7, 0).
adamw: three tensors of six numbers with a learning rate and a decay each, and a fourth that joins
after two steps; values and gradients are value(k, i) below. All in float64.
"""
import json
import re
from pathlib import Path

import diffusers
import torch
import transformers
from diffusers.optimization import get_scheduler as diffusers_scheduler
from diffusers.training_utils import EMAModel
from torch.optim import lr_scheduler as torch_lr
from transformers.optimization import get_scheduler as transformers_scheduler

OUT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "optim.json"


def value(k, i):
    return ((k * 37 + i * 101) % 211) / 211 - 0.5


def rates(make, peak, steps):
    p = torch.nn.Parameter(torch.zeros(1))
    opt = torch.optim.SGD([p], lr=peak)
    schedule = make(opt)
    out = []
    for _ in range(steps):
        opt.step()
        schedule.step()
        out.append(float(opt.param_groups[0]["lr"]))
    return out


def from_diffusers(name, **kw):
    return lambda opt: diffusers_scheduler(name, opt, **kw)


def from_transformers(name, **kw):
    return lambda opt: transformers_scheduler(name, opt, **kw)


def wsd(kind):
    keys = dict(num_stable_steps=15, num_decay_steps=20, decay_type=kind, min_lr_ratio=0.1)
    return from_transformers("warmup_stable_decay", num_warmup_steps=5,
                             scheduler_specific_kwargs=keys)


WARM = ["lr_warmup_iters=6"]
WSD = ["lr_warmup_iters=5", "lr_warmup_init=2e-4", "lr_wsd_decay_iters=20", "min_lr=2e-4",
       "lr_decay_style=wsd"]
# of: (settings of [optim] beside lr = 2e-3, scheduler, steps); train_iters is 40
LR = {
    "diffusers constant_with_warmup": (
        WARM, from_diffusers("constant_with_warmup", num_warmup_steps=6), 20),
    "diffusers linear": (
        WARM + ["lr_decay_style=linear"],
        from_diffusers("linear", num_warmup_steps=6, num_training_steps=40), 50),
    "diffusers cosine": (
        WARM + ["lr_decay_style=cosine"],
        from_diffusers("cosine", num_warmup_steps=6, num_training_steps=40), 40),
    "diffusers cosine_with_restarts": (
        ["lr_warmup_iters=4", "lr_decay_style=cosine_restarts", "lr_cycles=3"],
        from_diffusers("cosine_with_restarts", num_warmup_steps=4, num_training_steps=40,
                       num_cycles=3), 50),
    "transformers inverse_sqrt": (
        WARM + ["lr_decay_style=inverse_sqrt"],
        from_transformers("inverse_sqrt", num_warmup_steps=6), 60),
    "transformers cosine_with_min_lr": (
        WARM + ["lr_decay_style=cosine", "min_lr=3e-4"],
        from_transformers("cosine_with_min_lr", num_warmup_steps=6, num_training_steps=40,
                          scheduler_specific_kwargs=dict(min_lr=3e-4)), 40),
    "transformers warmup_stable_decay linear": (WSD, wsd("linear"), 50),
    "transformers warmup_stable_decay cosine": (
        WSD + ["lr_wsd_decay_style=cosine"], wsd("cosine"), 50),
    "transformers warmup_stable_decay 1-sqrt": (
        WSD + ["lr_wsd_decay_style=minus_sqrt"], wsd("1-sqrt"), 50),
    "torch LinearLR": (
        ["lr_decay_style=linear", "min_lr=5e-4", "lr_decay_iters=30"],
        lambda opt: torch_lr.LinearLR(opt, start_factor=1.0, end_factor=0.25, total_iters=30), 40),
    "torch LinearLR as a warm-up": (
        ["lr_warmup_iters=10", "lr_warmup_init=4e-4"],
        lambda opt: torch_lr.LinearLR(opt, start_factor=0.2, end_factor=1.0, total_iters=10), 20),
    "torch CosineAnnealingLR": (
        ["lr_decay_style=cosine", "min_lr=1e-4"],
        lambda opt: torch_lr.CosineAnnealingLR(opt, T_max=40, eta_min=1e-4), 40),
    "torch CosineAnnealingWarmRestarts": (
        ["lr_decay_style=cosine_restarts", "lr_cycles=3", "lr_cycle_length=2", "lr_decay_iters=70",
         "min_lr=1e-4"],
        lambda opt: torch_lr.CosineAnnealingWarmRestarts(opt, T_0=10, T_mult=2, eta_min=1e-4), 69),
}

# of: (keys of [[optim.ema]], EMAModel's)
EMA = {
    "no warm-up flag": ('decay=0.9999, warmup="diffusers"', dict(decay=0.9999)),
    "power": ('decay=0.9999, warmup="power"', dict(decay=0.9999, use_ema_warmup=True)),
    "power, late": (
        'decay=0.9999, warmup="power", inv_gamma=10.0, power=0.75, update_after_step=5, '
        'min_decay=0.2',
        dict(decay=0.9999, use_ema_warmup=True, inv_gamma=10.0, power=0.75, update_after_step=5,
             min_decay=0.2)),
    "no warm-up flag, late, low": (
        'decay=0.6, warmup="diffusers", update_after_step=3, min_decay=0.3',
        dict(decay=0.6, update_after_step=3, min_decay=0.3)),
}
STEPS = [1, 2, 3, 4, 5, 6, 7, 8, 10, 100, 1000, 1000000]


def average(keys):
    p = torch.nn.Parameter(torch.tensor([value(7, 0)], dtype=torch.float64))
    ema = EMAModel([p], **keys)
    decay = [ema.get_decay(n) for n in STEPS]
    along = []
    for n in range(1, 13):
        p.data[0] = value(7, n)
        ema.step([p])
        along.append(float(ema.shadow_params[0][0]))
    return decay, along


def adamw():
    def tensor(k, scale=1.0):
        return torch.tensor([value(k, i) * scale for i in range(6)], dtype=torch.float64)

    params = [tensor(k).requires_grad_() for k in (1, 2, 3, 4)]
    keys = [dict(lr=1e-2, weight_decay=0.05), dict(lr=2.5e-3, weight_decay=0.2),
            dict(lr=1e-2, weight_decay=0.0), dict(lr=3e-2, weight_decay=0.05)]
    opt = torch.optim.AdamW([dict(params=[p], **k) for p, k in zip(params[:3], keys)],
                            betas=(0.9, 0.95), eps=1e-6)
    out = []
    for t in range(1, 6):
        if t == 3:
            opt.add_param_group(dict(params=[params[3]], **keys[3]))
        for k, p in enumerate(params, 1):
            p.grad = tensor(10 * t + k, 0.1 if k == 2 else 1.0)
        opt.step()
        out.append([p.detach().tolist() for p in params])
    return out


golden = {
    "maker": "scripts/make_optim_golden.py",
    "versions": {"torch": torch.__version__.split("+")[0], "diffusers": diffusers.__version__,
                 "transformers": transformers.__version__},
    "lr": [dict(of=name, settings=keys, values=rates(make, 2e-3, steps))
           for name, (keys, make, steps) in LR.items()],
    "ema_steps": STEPS,
    "ema": [dict(of=name, table=table, decay=average(keys)[0], along=average(keys)[1])
            for name, (table, keys) in EMA.items()],
    "adamw": adamw(),
}
text = json.dumps(golden, indent=1)
text = re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m.group(0).split()), text)
OUT.write_text(text + "\n")
print(OUT, OUT.stat().st_size, "bytes")
