#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Variants of tests/golden/h5py-tiny.h5 with the same numbers, as other writers may make them:

    h5py-odd.h5      accepted: f16 latents, f64 text, f32 empty text, a user block in front, a bool
                     as a bool, a string of fixed length
    h5py-chunked.h5  refused: compressed chunks

refused with the command that rewrites them, `vtrain data repack`:
    h5py-appended.h5  as appending writers make it: resizable, in chunks of two samples, no filter,
                      superblock 3 (latest format of HDF5 1.10)
    h5py-packed.h5    shuffle, gzip and fletcher32; big-endian f32; strings as data sets of strings
                      (variable length, ASCII of fixed length); compact offsets
    h5py-foreign.h5   other names in groups, (N,T,C,H,W), text padded to (N,rows,dim) with a mask, no
                      attribute at all
read in place once it is said what they are:
    h5py-plain.h5     other names, no attributes, no checksums, padded text
refused:
    h5py-virtual.h5   a virtual data set
    h5py-linked.h5    latents are an external link
    h5py-flagged.h5   marked as open for writing: its writer died

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


def texts(source, name):
    cuts = source[{"ids": "id_offsets", "captions": "caption_offsets"}[name]][...]
    raw = source[name][...].tobytes()
    return [raw[i:j].decode() for i, j in zip(cuts, cuts[1:])]


def checksums(latents, text, rows):
    return np.array(
        [xxhash.xxh3_64_intdigest(latents[i].tobytes() + text[rows[i]:rows[i + 1]].tobytes())
         for i in range(len(latents))], np.uint64)


def appended(source, path):
    with h5py.File(source) as a, h5py.File(path, "w", libver=("v110", "v110")) as b:
        for key, value in a.attrs.items():
            b.attrs[key] = value
        for name in a:
            x = a[name][...]
            chunks = (2, *x.shape[1:]) if x.ndim > 1 else (4,)
            b.create_dataset(name, data=x, chunks=chunks, maxshape=(None, *x.shape[1:]))
            for key, value in a[name].attrs.items():
                b[name].attrs[key] = value


def packed(source, path):
    with h5py.File(source) as a, h5py.File(path, "w") as b:
        for key, value in a.attrs.items():
            b.attrs[key] = value
        b.attrs["codec"] = np.array([a.attrs["codec"]], h5py.string_dtype())  # an array of one
        latents, text = numbers(a["latents"]).astype(">f4"), numbers(a["text"]).astype(">f4")
        options = {"compression": "gzip", "shuffle": True, "fletcher32": True}
        b.create_dataset("latents", data=latents, chunks=(2, *latents.shape[1:]), **options)
        b.create_dataset("text", data=text, chunks=(3, 4), **options)
        b["empty_text"] = numbers(a["empty_text"])
        rows = a["text_offsets"][...]
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_layout(h5py.h5d.COMPACT)
        kind = h5py.h5t.py_create(rows.dtype)
        raw = h5py.h5d.create(b.id, b"text_offsets", kind, h5py.h5s.create_simple(rows.shape), create)
        raw.write(h5py.h5s.ALL, h5py.h5s.ALL, rows)
        b["checksums"] = checksums(latents, text, rows)
        b["ids"] = np.array([t.encode() for t in texts(a, "ids")], "S20")
        b.create_dataset("captions", data=texts(a, "captions"), dtype=h5py.string_dtype())


def padded(a):
    rows = a["text_offsets"][...]
    out, mask = np.zeros((3, 6, 8), np.float32), np.zeros((3, 6), bool)
    for i in range(3):
        n = rows[i + 1] - rows[i]
        out[i, :n], mask[i, :n] = numbers(a["text"])[rows[i]:rows[i + 1]], True
    return out, mask


def foreign(source, path, plain):
    with h5py.File(source) as a, h5py.File(path, "w") as b:
        text, mask = padded(a)
        latents = numbers(a["latents"])
        if plain:
            b["vae_latent"], b["prompt_embeds"] = latents, text
            b["negative"] = numbers(a["empty_text"])
            return
        b.create_dataset("video/z", data=latents.transpose(0, 2, 1, 3, 4).astype("<f8"), chunks=True)
        b["cond/embeds"], b["cond/mask"] = np.where(mask[..., None], text, 7).astype("<f2"), mask
        b.create_dataset("cond/prompt", data=texts(a, "captions"), dtype=h5py.string_dtype())


def elsewhere(source, path, how):
    with h5py.File(source) as a, h5py.File(path, "w", libver=("v110", "v110")) as b:
        for key, value in a.attrs.items():
            b.attrs[key] = value
        for name in a:
            if name != "latents" or how == "flagged":
                a.copy(name, b)
        if how == "linked":
            b["latents"] = h5py.ExternalLink("h5py-tiny.h5", "/latents")
        if how == "virtual":
            layout = h5py.VirtualLayout(a["latents"].shape, a["latents"].dtype)
            layout[...] = h5py.VirtualSource("h5py-tiny.h5", "latents", a["latents"].shape)
            b.create_virtual_dataset("latents", layout)
    if how != "flagged":
        return
    # as a writer that dies leaves it: the file is copied while it is open
    with h5py.File(path, "r+", libver=("v110", "v110")) as b:
        b.flush()
        with open(path, "rb") as f:
            data = f.read()
    with open(path, "wb") as f:
        f.write(data)


def main(folder):
    tiny = f"{folder}/h5py-tiny.h5"
    derive(tiny, f"{folder}/h5py-odd.h5", "<f2", "<f8", userblock=512)
    derive(tiny, f"{folder}/h5py-chunked.h5", "<f4", "<f4", compression="gzip")
    appended(tiny, f"{folder}/h5py-appended.h5")
    packed(tiny, f"{folder}/h5py-packed.h5")
    foreign(tiny, f"{folder}/h5py-foreign.h5", plain=False)
    foreign(tiny, f"{folder}/h5py-plain.h5", plain=True)
    for how in ("virtual", "linked", "flagged"):
        elsewhere(tiny, f"{folder}/h5py-{how}.h5", how)


if __name__ == "__main__":
    main(sys.argv[1])
