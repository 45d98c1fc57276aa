#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a small shard of latents with h5py: the example data/README.md refers to, and the maker of
tests/golden/h5py-tiny.h5 (h5py 3.x, numpy, xxhash; any version).

    python scripts/make_shard_h5py.py tests/golden/h5py-tiny.h5
"""
import sys

import h5py
import numpy as np
import xxhash


def to_bf16(x):
    """float32 to bfloat16 bits (uint16), to nearest, ties to even. For finite numbers."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def strings(h5, name, offsets_name, values):
    """Strings as flat UTF-8 bytes and count + 1 offsets into them."""
    raw = [v.encode() for v in values]
    h5[name] = np.frombuffer(b"".join(raw), np.uint8)
    h5[offsets_name] = np.cumsum([0] + [len(r) for r in raw]).astype(np.int64)


def write_shard(path, latents, texts, empty_text, ids, captions, facts):
    """latents (N,C,T,H,W) float32; texts: N arrays (rows, text_dim); empty_text (rows, text_dim)."""
    stored = to_bf16(latents)
    stored_texts = [to_bf16(t) for t in texts]
    with h5py.File(path, "w") as h5:
        h5.attrs["format"] = "vtrain-latents"
        h5.attrs["version"] = 1
        for key, value in facts.items():
            h5.attrs[key] = value
        # no chunks, no compression, no maxshape: h5py then stores the array in one run of bytes
        for name, data in (("latents", stored), ("text", np.concatenate(stored_texts)),
                           ("empty_text", to_bf16(empty_text))):
            h5.create_dataset(name, data=data).attrs["dtype"] = "bf16"
        h5["text_offsets"] = np.cumsum([0] + [len(t) for t in texts]).astype(np.int64)
        h5["checksums"] = np.array(
            [xxhash.xxh3_64_intdigest(l.tobytes() + t.tobytes()) for l, t in zip(stored, stored_texts)],
            np.uint64)
        strings(h5, "ids", "id_offsets", ids)
        strings(h5, "captions", "caption_offsets", captions)


def main(path):
    # every number is k / 64 with |k| < 128: exact in bfloat16, so readers can be compared exactly
    def numbers(shape, start):
        n = int(np.prod(shape))
        return (((np.arange(n) * 37 + start * 11) % 255 - 127) / 64).astype(np.float32).reshape(shape)

    C, T, H, W, dim = 4, 2, 3, 5, 8
    captions = ["a red ball rolls", "", "naïve café, 2 cats"]
    rows = [4, 1, 5]
    write_shard(
        path,
        latents=numbers((3, C, T, H, W), 0),
        texts=[numbers((r, dim), i + 1) for i, r in enumerate(rows)],
        empty_text=numbers((1, dim), 2),
        ids=[f"clips/{i}.mp4#0" for i in range(3)],
        captions=captions,
        facts={
            "codec": "example-vae",
            "channels": C,
            "scale": np.array([4, 8, 8], np.int64),
            "normalised": 1,
            "mean": np.array([0.0, 0.25, -0.5, 1.0]),
            "std": np.array([1.0, 2.0, 0.5, 1.5]),
            "text_encoder": "example-encoder",
            "text_dim": dim,
            "text_len": 6,
            "fps": 16.0,
        },
    )


if __name__ == "__main__":
    main(sys.argv[1])
