"""Writes tests/data/{plain,half}.safetensors with the safetensors package (0.8.0 here, torch 2.x).

Usage: python scripts/make_safetensors_fixture.py OUT_DIR
Values are small formulas, so that the tests can state them again without Python.
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

out = Path(sys.argv[1])
i = torch.arange(24, dtype=torch.float64)
save_file(
    {
        "a.f64": (i / 7 - 1).reshape(2, 3, 4),
        "b.i64": (torch.arange(5) - 2) * 2**40,
        "c.f32": (i[:6] / 3).float().reshape(6, 1),
        "d.i32": torch.tensor([[-(2**31), 2**31 - 1]], dtype=torch.int32),
        "e.bf16": (i[:3] / 3).bfloat16(),
        "f.u8": torch.arange(250, 255, dtype=torch.uint8),
        "g.scalar.u8": torch.tensor(7, dtype=torch.uint8),
        "h.empty.u8": torch.zeros(0, 4, dtype=torch.uint8),
    },
    out / "plain.safetensors",
    metadata={"format": "pt"},
)
half = torch.tensor([0.0, -0.0, 1.0, -2.5, 65504.0, 2.0**-24, -(2.0**-15), 1 / 3, float("inf"), float("-inf")])
save_file({"half": half.half()}, out / "half.safetensors")
