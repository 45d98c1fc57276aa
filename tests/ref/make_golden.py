# SPDX-License-Identifier: MIT
"""Prints tests/ref/golden.h: PyTorch's float64 results that the reference ops must reproduce.
Inputs are wave(n, k)[i] = sin(0.7 i + k). Usage: python make_golden.py > golden.h"""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def wave(shape, k):
    n = 1
    for s in shape:
        n *= s
    return torch.sin(0.7 * torch.arange(n) + k).reshape(shape)


def show(name, t):
    body = ", ".join(repr(x) for x in t.flatten().tolist())
    print(f"inline const std::vector<double> {name} = {{{body}}};")


print("// SPDX-License-Identifier: MIT")
print(f"// Made by make_golden.py with PyTorch {torch.__version__.split('+')[0]}.")
print("// clang-format off\n#pragma once\n\n#include <vector>\n\nnamespace vt::test::golden {")
x, w, b = wave((3, 4), 0), wave((2, 4), 1), wave((2,), 2)
show("gelu", F.gelu(3 * F.linear(x, w, b), approximate="tanh"))
show("silu", F.silu(5 * x))
show("layernorm", F.layer_norm(x, (4,), wave((4,), 1), wave((4,), 2), 1e-6))
show("rmsnorm", F.rms_norm(x, (4,), wave((4,), 1), 1e-6))
q, k, v = (wave((1, 2, n, 4), i) for i, n in ((0, 3), (1, 5), (2, 5)))  # (1, heads, rows, width)
show("attention", F.scaled_dot_product_attention(q, k, v).transpose(1, 2))
show("lse", torch.logsumexp(q @ k.transpose(-1, -2) / 2, -1).transpose(1, 2))
p = torch.nn.Parameter(wave((5,), 0))
opt = torch.optim.AdamW([p], lr=0.1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.05)
for step in range(3):
    p.grad = wave((5,), step + 1)
    opt.step()
show("adamw", p.detach())
print("}  // namespace vt::test::golden")
