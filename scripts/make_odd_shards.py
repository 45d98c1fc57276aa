#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Variants of tests/golden/h5py-tiny.h5 with the same numbers, as other writers may make them:

    h5py-odd.h5      accepted: f16 latents, f64 text, f32 empty text, a user block in front, a bool
                     as a bool, a string of fixed length
    h5py-chunked.h5  refused: compressed chunks

    python scripts/make_odd_shards.py tests/golden
"""
import sys

import h5py
import numpy as np
import xxhash


def numbers(data_set):
    return (data_set[...].astype(np.uint32) << 16).view(np.float32)


def derive(source, path, latent_type, text_type, userblock=0, **options):
    with h5py.File(source) as a, h5py.File(path, "w", userblock_size=userblock) as b:
        for key, value in a.attrs.items():
            b.attrs[key] = value
        b.attrs["normalised"] = True
        b.attrs["codec"] = np.bytes_("example-vae")
        latents = numbers(a["latents"]).astype(latent_type)
        text = numbers(a["text"]).astype(text_type)
        rows = a["text_offsets"][...]
        b.create_dataset("latents", data=latents, **options)
        b["text"] = text
        b["empty_text"] = numbers(a["empty_text"])
        b["checksums"] = np.array(
            [xxhash.xxh3_64_intdigest(latents[i].tobytes() + text[rows[i]:rows[i + 1]].tobytes())
             for i in range(len(latents))], np.uint64)
        for name in ("text_offsets", "ids", "id_offsets", "captions", "caption_offsets"):
            b[name] = a[name][...]


def main(folder):
    tiny = f"{folder}/h5py-tiny.h5"
    derive(tiny, f"{folder}/h5py-odd.h5", "<f2", "<f8", userblock=512)
    derive(tiny, f"{folder}/h5py-chunked.h5", "<f4", "<f4", compression="gzip")


if __name__ == "__main__":
    main(sys.argv[1])
