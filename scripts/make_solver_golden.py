#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/golden/solvers.json: schedules and whole paths of diffusers' schedulers.

    pip install torch==2.15.0 diffusers==0.42.1 numpy
    python scripts/make_solver_golden.py

The model is a line: out = (p - q tau/1000) x + r tau/1000 c with the numbers below, so that both
sides can make it. The schedulers' tables keep the float32 rounding of their flow sigmas, everything
else runs in float64 (alpha_bar too, from the same formula); `f32` is the last state of the
schedulers left entirely in float32, for scale. Noise is given, not drawn.
"""
import json
from pathlib import Path

import diffusers
import diffusers.schedulers.scheduling_ddpm as ddpm_module
import torch

OUT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "solvers.json"
P, Q, R = 0.7, 0.4, 0.3
X = [1.25, -0.5, 0.03125, -2.0]
C = [0.5, -1.0, 2.0, 0.25]


def noise(k, dtype):
    return torch.tensor([((7 * k + 3 * j) % 11 - 5) / 4 for j in range(len(X))], dtype=dtype)[None]


def model(x, tau):
    t = float(tau) / 1000
    return (P - Q * t) * x + R * t * torch.tensor(C, dtype=x.dtype)[None]


def alpha_bar(zero_snr, dtype):
    betas = torch.linspace(1e-4, 0.02, 1000, dtype=dtype)
    a = torch.cumprod(1 - betas, 0)
    if zero_snr:
        s = a.sqrt()
        s = (s - s[-1]) * s[0] / (s[0] - s[-1])
        a = s**2
    return a


def flow(case, dtype):
    kind, n, shift = case["solver"], case["steps"], case["shift"]
    if kind == "euler":
        s = diffusers.FlowMatchEulerDiscreteScheduler(shift=shift)
    else:
        s = diffusers.UniPCMultistepScheduler(prediction_type="flow_prediction",
                                              use_flow_sigmas=True, flow_shift=shift)
    s.set_timesteps(n)
    s.sigmas = s.sigmas.to(dtype)
    x = torch.tensor(X, dtype=dtype)[None]
    path = [x]
    for t in s.timesteps:
        x = s.step(model(x, t), t, x, return_dict=False)[0]
        path.append(x)
    return s.sigmas.tolist(), s.timesteps.tolist(), path


def ddpm(case, dtype):
    kind, n = case["solver"], case["steps"]
    cls = diffusers.DDIMScheduler if kind == "ddim" else diffusers.DDPMScheduler
    s = cls(prediction_type=case["predicts"], timestep_spacing=case["spacing"], clip_sample=False)
    s.alphas_cumprod = alpha_bar(case["zero_snr"], dtype)
    s.one = s.final_alpha_cumprod = torch.tensor(1.0, dtype=dtype)
    s.set_timesteps(n)
    x = torch.tensor(X, dtype=dtype)[None]
    path = [x]
    for k, t in enumerate(s.timesteps):
        out = model(x, t)
        if kind == "ddim":
            eta = case["eta"]
            x = s.step(out, int(t), x, eta=eta, return_dict=False,
                       variance_noise=noise(k, dtype) if eta > 0 else None)[0]
        else:
            ddpm_module.randn_tensor = lambda *a, _k=k, **b: noise(_k, dtype)
            x = s.step(out, t, x, return_dict=False)[0]
        path.append(x)
    return None, s.timesteps.tolist(), path


def main():
    cases = [dict(solver=kind, steps=n, shift=shift)
             for kind in ("euler", "unipc") for n, shift in ((1, 1.0), (2, 3.0), (5, 3.0), (12, 5.0))]
    cases.append(dict(solver="unipc", steps=50, shift=5.0))
    cases.append(dict(solver="unipc", steps=4, shift=0.5))
    for predicts in ("epsilon", "v_prediction", "sample"):
        for kind, eta in (("ddim", 0.0), ("ddim", 0.6), ("ddpm", 0.0)):
            cases.append(dict(solver=kind, steps=7, predicts=predicts, spacing="leading", eta=eta,
                              zero_snr=False))
    cases.append(dict(solver="ddim", steps=1, predicts="epsilon", spacing="leading", eta=0.0,
                      zero_snr=False))
    cases.append(dict(solver="ddim", steps=50, predicts="v_prediction", spacing="trailing", eta=0.0,
                      zero_snr=True))
    cases.append(dict(solver="ddpm", steps=20, predicts="v_prediction", spacing="trailing", eta=0.0,
                      zero_snr=True))
    for case in cases:
        run = flow if "shift" in case else ddpm
        sigmas, taus, path = run(case, torch.float64)
        torch.set_default_dtype(torch.float32)
        _, _, f32 = run(case, torch.float32)
        if sigmas is not None:
            case["sigmas"] = sigmas
        case["taus"] = taus
        case["path"] = [p[0].tolist() for p in path]
        case["f32"] = f32[-1][0].tolist()
    OUT.write_text(json.dumps({
        "made_by": f"scripts/make_solver_golden.py, diffusers {diffusers.__version__}, "
                   f"torch {torch.__version__}",
        "model": {"p": P, "q": Q, "r": R, "c": C}, "x": X, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
