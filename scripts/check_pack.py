#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Packs small data sets of every form scripts/pack_hdf5.py reads and compares what it wrote, number for
number. Needs h5py, numpy, xxhash, torch and pyarrow.

    python scripts/check_pack.py                        # prints "ok" or fails
    python scripts/check_pack.py --fixtures tests/golden  # writes packed-pt.h5, -parquet, -tar
"""
import argparse
import io
import json
import pickle
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import xxhash

sys.path.insert(0, str(Path(__file__).parent))
import pack_hdf5  # noqa: E402

C, T, H, W, DIM, LEN = 4, 2, 3, 5, 8, 6


def numbers(shape, start):
    """k / 64 with |k| < 128: exact in bfloat16 and float16."""
    n = int(np.prod(shape))
    return (((np.arange(n) * 37 + start * 11) % 255 - 127) / 64).astype(np.float32).reshape(shape)


def clip(i):
    """Latent, text (rows i + 1), caption and id of clip i."""
    return numbers((C, T, H, W), i), numbers((i + 1, DIM), i + 5), f"clip number {i}", f"clip-{i}"


def padded(text):
    return np.concatenate([text, np.zeros((LEN - len(text), DIM), np.float32)])


def make_pt(folder):
    for i in (0, 1):  # one file a clip, one with a batch of two
        z, t, caption, name = clip(i)
        torch.save({"latents": torch.from_numpy(z).to(torch.bfloat16)[None],
                    "prompt_embeds": torch.from_numpy(padded(t)), "prompt": caption, "id": name},
                   folder / f"{name}.pt")
    clips = [clip(2), clip(3)]
    mask = torch.tensor([[k < 3 for k in range(LEN)], [k < 4 for k in range(LEN)]])
    dirty = [np.where(m[:, None], padded(c[1]), 9) for c, m in zip(clips, mask.numpy())]
    torch.save({"latents": torch.from_numpy(np.stack([c[0] for c in clips])),
                "prompt_embeds": torch.from_numpy(np.stack(dirty)).float(),
                "prompt_attention_mask": mask, "captions": [c[2] for c in clips],
                "id": [c[3] for c in clips]}, folder / "batch.pt")
    torch.save({"latents": torch.zeros(C, T, H, W)}, folder / "no-text.pt")
    (folder / "broken.pt").write_bytes(b"not a tensor")


def make_parquet(folder):
    records = []
    for i in range(4):
        z, t, caption, name = clip(i)
        records.append({"id": name, "caption": caption, "file_name": name + ".mp4",
                        "vae_latent_bytes": z.tobytes(), "vae_latent_shape": list(z.shape),
                        "vae_latent_dtype": "float32", "text_embedding_bytes": t.tobytes(),
                        "text_embedding_shape": list(t.shape), "text_embedding_dtype": "float32",
                        "fps": 16.0})
    records.append(dict(records[0], id="short", vae_latent_bytes=b"too short"))
    pq.write_table(pa.Table.from_pylist(records), folder / "data.parquet")


def make_tar(folder):
    class Evil:
        def __reduce__(self):
            return (print, ("code ran",))

    with tarfile.open(folder / "shard_000.tar", "w") as tar:
        def put(name, raw):
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))

        for i in range(5):
            z, t, caption, name = clip(i)
            pth = io.BytesIO()
            torch.save(torch.from_numpy(z), pth)
            if i == 4:
                name, t = "evil", Evil()
            else:
                t = torch.from_numpy(padded(t)) if i else padded(t)
            put(f"samples/{name}.pth", pth.getvalue())
            put(f"samples/{name}.pickle", pickle.dumps(t))
            put(f"samples/{name}.json", json.dumps({"caption": caption}).encode())


def check(path, dtype, prefix, raw_mean=None):
    """What a shard holds against the clips."""
    with h5py.File(path) as h5:
        def floats(x):
            return (x.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else x

        z, t, rows = h5["latents"][...], h5["text"][...], h5["text_offsets"][...]
        assert z.shape == (4, C, T, H, W), z.shape
        assert h5["latents"].chunks is None and h5["latents"].id.get_offset() is not None
        names = h5["ids"][...].tobytes().decode()
        cuts = h5["id_offsets"][...]
        for i in range(4):
            sum_ = xxhash.xxh3_64_intdigest(z[i].tobytes() + t[rows[i]:rows[i + 1]].tobytes())
            assert sum_ == h5["checksums"][i]
            name = names[cuts[i]:cuts[i + 1]]
            k = int(name[-1])
            want_z, want_t, caption, want_name = clip(k)
            assert name == prefix + want_name, name
            if raw_mean is not None:
                want_z = want_z - np.float32(raw_mean)
            assert np.array_equal(floats(z[i]), want_z), name
            assert np.array_equal(floats(t[rows[i]:rows[i + 1]]), want_t), name
            begin, end = h5["caption_offsets"][i], h5["caption_offsets"][i + 1]
            assert h5["captions"][begin:end].tobytes().decode() == caption
        assert h5.attrs["text_dim"] == DIM and h5.attrs["normalised"] == 1


def check_codecs():
    """The statistics are those the program has built in."""
    source = (Path(__file__).parent.parent / "src/data/known.cpp").read_text()
    for name, (_, _, mean, std) in pack_hdf5.CODECS.items():
        if name != "wan2.1-vae":
            factor = re.search(rf'"{name}", "[^"]*",\s*\d+, {{[^}}]*}}, ([\d.]+), ([\d.]+)\)', source)
            assert float(factor.group(1)) == mean[0] and 1 / float(factor.group(2)) == std[0], name
            continue
        block = source[source.index(name):]
        for word, want in (("mean", mean), ("std", std)):
            body = re.search(rf"\.{word} = {{([^}}]*)}}", block).group(1)
            assert [float(v) for v in body.split(",")] == want, (name, word)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--fixtures", type=Path)
    fixtures = p.parse_args().fixtures
    check_codecs()
    with tempfile.TemporaryDirectory() as temp:
        temp = Path(temp)
        empty = temp / "empty.pt"
        torch.save(torch.from_numpy(padded(numbers((1, DIM), 2))), empty)
        facts = ["--codec", "example-vae", "--scale", "4,8,8", "--std", "1,1,1,1",
                 "--text-encoder", "example-encoder", "--text-len", str(LEN), "--fps", "16",
                 "--empty-text", str(empty)]
        for form, make, dtype, prefix in (("pt", make_pt, "bf16", ""),
                                          ("parquet", make_parquet, "f32", ""),
                                          ("tar", make_tar, "bf16", "samples/")):
            folder, out = temp / form, temp / f"{form}-out"
            folder.mkdir()
            make(folder)
            code = pack_hdf5.main([str(folder), "--out", str(out), *facts, "--mean", "0,0,0,0",
                                   "--normalised", "yes", "--dtype", dtype])
            shard = out / f"{C}x{T}x{H}x{W}-00000.h5"
            assert code == 0 and [x.name for x in out.iterdir()] == [shard.name], list(out.iterdir())
            check(shard, dtype, prefix)
            if fixtures:
                shutil.copy(shard, fixtures / f"packed-{form}.h5")
        code = pack_hdf5.main([str(temp / "parquet"), "--out", str(temp / "raw"), *facts, "--mean",
                               "0.5,0.5,0.5,0.5", "--normalised", "no", "--dtype", "f32"])
        assert code == 0
        check(temp / "raw" / f"{C}x{T}x{H}x{W}-00000.h5", "f32", "", raw_mean=0.5)
    print("check_pack: ok")


if __name__ == "__main__":
    main()
