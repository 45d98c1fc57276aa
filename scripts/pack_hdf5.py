#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Latents and text embeddings that other trainers saved, to shards of latents (data/README.md).

Reads
  .pt, .pth       a dict of tensors a sample, or of a batch, or a list of dicts (needs torch; only
                  tensors and plain values are unpickled)
  .parquet        FastVideo's columns: vae_latent_bytes, vae_latent_shape, vae_latent_dtype,
                  text_embedding_bytes, _shape, _dtype, caption, id, file_name (needs pyarrow)
  .tar            WebDataset as Megatron-Bridge writes it: KEY.pth the latent, KEY.pickle (or .pkl)
                  the embedding, KEY.json the caption (needs torch)
  folders         searched for all of these
and writes OUT/CxTxHxW-NNNNN.h5, one set of shards for each latent shape. What cannot be used is named
with the reason and left out. Needs h5py, numpy and xxhash.

    pip install h5py numpy xxhash torch pyarrow
    python scripts/pack_hdf5.py clips/ --out shards --codec wan2.1-vae --normalised no \\
        --text-encoder umt5-xxl --text-len 512 --fps 16 --empty-text empty.pt
    vtrain data verify shards

Nothing about the latents is guessed: --normalised says whether they are already (z - mean) / std; raw
ones are normalised here.
"""
import argparse
import io
import json
import os
import pickle
import sys
import tarfile
import tempfile
from pathlib import Path

import h5py
import numpy as np
import xxhash

LATENT_NAMES = ["latents", "latent", "vae_latent", "vae_latents", "x0", "model_input"]
TEXT_NAMES = ["text", "prompt_embeds", "prompt_embed", "text_embedding", "text_embeds", "context",
              "encoder_hidden_states", "text_embed", "caption_embeds"]
MASK_NAMES = ["mask", "text_mask", "attention_mask", "prompt_attention_mask", "prompt_embeds_mask",
              "text_attention_mask"]
CAPTION_NAMES = ["caption", "prompt", "text_prompt", "captions", "prompts"]
ID_NAMES = ["id", "video_id", "file_name", "key", "path"]


class Bad(Exception):
    """A sample or file that cannot be used; the text says why."""


# --- numbers --------------------------------------------------------------------------------------


def to_numpy(x):
    """Tensors and arrays as numpy; bfloat16 as float32, which holds it exactly."""
    if hasattr(x, "detach"):  # torch
        x = x.detach().cpu()
        return (x.float() if x.dtype.is_floating_point and x.element_size() < 4 else x).numpy()
    return np.asarray(x)


def to_bf16(x):
    """float32 to bfloat16 bits (uint16), to nearest, ties to even. For finite numbers."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bytes(raw, shape, dtype):
    """An array from its bytes, as FastVideo's records keep them."""
    dtype = str(dtype).replace("torch.", "")
    count = int(np.prod(shape)) if len(shape) else 0
    width = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "bool": 1, "int8": 1,
             "uint8": 1, "int32": 4, "int64": 8}.get(dtype)
    if width is None:
        raise Bad(f"numbers of type '{dtype}'")
    if len(raw) != count * width:
        raise Bad(f"{len(raw)} bytes for {tuple(shape)} of {dtype}")
    if dtype == "bfloat16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).reshape(shape)


def turned(latent, layout):
    """(C,T,H,W) from an array whose dims lie in the order of `layout`."""
    if latent.ndim == len(layout) + 1 and latent.shape[0] == 1:
        latent = latent[0]
    if latent.ndim != len(layout):
        raise Bad(f"latents are {latent.shape}, --layout {layout} has {len(layout)} letters")
    if "T" not in layout:
        latent, layout = latent[None], "T" + layout
    return np.ascontiguousarray(latent.transpose([layout.index(k) for k in "CTHW"]), np.float32)


def text_rows(text, mask):
    """(rows, dim) without padding."""
    text = np.asarray(text, np.float32)
    if text.ndim == 3 and text.shape[0] == 1:
        text = text[0]
    if text.ndim != 2:
        raise Bad(f"text is {text.shape}, not (rows, dim)")
    if mask is not None:
        mask = np.asarray(mask).reshape(-1) != 0
        rows = int(mask.sum())
        if mask.size != len(text) or mask[rows:].any():
            raise Bad("the mask does not mark the first rows of the text")
        return text[:rows]
    used = np.flatnonzero(text.any(axis=1))
    return text[: used[-1] + 1 if used.size else 0]


# --- readers: (id or None, caption, latent, text, mask) -------------------------------------------


def first_of(record, names):
    for name in names:
        if record.get(name) is not None:
            return record[name]
    return None


def as_samples(record, options, where):
    """Samples of a dict: one, or a batch where every entry has a leading dim."""
    latent = first_of(record, options.latents)
    text = first_of(record, options.text)
    if latent is None or text is None:
        raise Bad(f"no {'latents' if latent is None else 'text'}; it holds {sorted(map(str, record))}")
    mask, caption, name = (first_of(record, n) for n in (MASK_NAMES, CAPTION_NAMES, ID_NAMES))
    latent, text = to_numpy(latent), to_numpy(text)
    mask = None if mask is None else to_numpy(mask)
    batch = latent.shape[0] if latent.ndim == len(options.layout) + 1 else None
    if batch is None or (batch == 1 and not isinstance(caption, (list, tuple))):
        yield name, caption or "", latent, text, mask
        return
    if len(text) != batch or (mask is not None and len(mask) != batch):
        raise Bad(f"{batch} latents, {len(text)} texts")
    for i in range(batch):
        pick = lambda v: v[i] if isinstance(v, (list, tuple)) and len(v) == batch else None
        yield (pick(name) or f"{where}#{i}", pick(caption) or "", latent[i], text[i],
               None if mask is None else mask[i])


def read_pt(path, where, options):
    import torch

    data = torch.load(path, map_location="cpu", weights_only=True)
    for i, record in enumerate(data if isinstance(data, (list, tuple)) else [data]):
        if not isinstance(record, dict):
            raise Bad(f"holds a {type(record).__name__}, not a dict of tensors")
        inner = f"{where}#{i}" if isinstance(data, (list, tuple)) else where
        for sample in as_samples(record, options, inner):
            yield (sample[0] or inner, *sample[1:])


def read_parquet(path, where, options):
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    missing = {"vae_latent_bytes", "vae_latent_shape", "text_embedding_bytes",
               "text_embedding_shape"} - set(file.schema_arrow.names)
    if missing:
        raise Bad(f"columns {sorted(missing)} are missing; it has {file.schema_arrow.names}")
    row = 0
    for batch in file.iter_batches(batch_size=16):
        for record in batch.to_pylist():
            name = record.get("id") or record.get("file_name") or f"{where}#{row}"
            row += 1
            try:
                array = lambda p: from_bytes(record[f"{p}_bytes"], record[f"{p}_shape"],
                                             record.get(f"{p}_dtype") or "float32")
                mask = record.get("text_attention_mask_bytes")
                yield (name, record.get("caption") or "", array("vae_latent"),
                       array("text_embedding"), array("text_attention_mask") if mask else None)
            except Bad as e:
                options.left_out(f"{where}, row {row - 1}", e)


class PlainUnpickler(pickle.Unpickler):
    """Unpickles tensors and arrays and nothing that could run code of its own."""

    def find_class(self, module, name):
        allowed = {("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict"),
                   ("torch.storage", "_load_from_bytes"), ("numpy", "ndarray"), ("numpy", "dtype"),
                   ("numpy.core.multiarray", "_reconstruct"),
                   ("numpy._core.multiarray", "_reconstruct"),
                   ("numpy._core.numeric", "_frombuffer"), ("numpy.core.numeric", "_frombuffer")}
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            import torch

            return lambda raw: torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
        if (module, name) in allowed or (module == "torch" and name.endswith("Storage")):
            return super().find_class(module, name)
        raise Bad(f"the pickle asks for {module}.{name}, which is not a tensor")


def read_tar(path, where, options):
    import torch

    def load(ending, raw):
        if ending == "json":
            return json.loads(raw)
        if ending in ("pickle", "pkl"):
            return to_numpy(PlainUnpickler(io.BytesIO(raw)).load())
        return to_numpy(torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True))

    def sample(key, members):
        missing = {"pth", "pickle"} - set(members)
        if missing:
            raise Bad(f"{sorted(missing)} missing")
        info = load("json", members["json"]) if "json" in members else {}
        return key, first_of(info, CAPTION_NAMES) or "", load("pth", members["pth"]), \
            load("pickle", members["pickle"]), None

    def finish(key, members):
        try:
            return [sample(key, members)]
        except Exception as e:  # of one sample: a broken member must not end the file
            options.left_out(f"{where}, {key}", e)
            return []

    with tarfile.open(path, "r:*") as tar:
        now, members = None, {}
        for member in tar:
            if not member.isfile():
                continue
            name = Path(member.name)
            key, _, ending = name.name.partition(".")
            key, ending = str(name.parent / key), ending.lower().replace("pkl", "pickle")
            if key != now:
                if members:
                    yield from finish(now, members)
                now, members = key, {}
            if ending in ("pth", "pickle", "json"):
                members[ending] = tar.extractfile(member).read()
        if members:
            yield from finish(now, members)


READERS = {".pt": read_pt, ".pth": read_pt, ".parquet": read_parquet, ".tar": read_tar}


# --- shards ---------------------------------------------------------------------------------------


class Shard:
    """One shard in the making: samples go to spool files, close() lays the shard out."""

    def __init__(self, path, shape, facts, empty, dtype):
        self.path, self.shape, self.facts, self.empty, self.dtype = path, shape, facts, empty, dtype
        self.spool = [tempfile.TemporaryFile(dir=path.parent) for _ in range(2)]
        self.rows, self.sums, self.ids, self.captions = [0], [], [], []

    def stored(self, x):
        return to_bf16(x) if self.dtype == "bf16" else np.ascontiguousarray(x, "<f4")

    def add(self, name, caption, latent, text):
        parts = [self.stored(latent).tobytes(), self.stored(text).tobytes()]
        for file, part in zip(self.spool, parts):
            file.write(part)
        self.sums.append(xxhash.xxh3_64_intdigest(b"".join(parts)))
        self.rows.append(self.rows[-1] + len(text))
        self.ids.append(name)
        self.captions.append(caption)

    def close(self):
        """Written beside its place, synced and renamed."""
        temp = self.path.with_name(f".{self.path.name}.tmp{os.getpid()}")
        kind = "<u2" if self.dtype == "bf16" else "<f4"
        sizes = [(len(self.ids), *self.shape), (self.rows[-1], self.facts["text_dim"])]
        try:
            with h5py.File(temp, "w") as h5:
                h5.attrs["format"], h5.attrs["version"] = "vtrain-latents", 1
                for key, value in self.facts.items():
                    h5.attrs[key] = value
                h5["text_offsets"] = np.array(self.rows, np.int64)
                h5["checksums"] = np.array(self.sums, np.uint64)
                for name, offsets, values in (("ids", "id_offsets", self.ids),
                                              ("captions", "caption_offsets", self.captions)):
                    raw = [v.encode("utf-8", "replace") for v in values]
                    h5[name] = np.frombuffer(b"".join(raw), np.uint8)
                    h5[offsets] = np.cumsum([0] + [len(r) for r in raw]).astype(np.int64)
                h5["empty_text"] = self.stored(self.empty)
                for name, size, file in zip(("latents", "text"), sizes, self.spool):
                    # contiguous and unfiltered: without chunks, compression and maxshape
                    data = h5.create_dataset(name, size, kind)
                    file.seek(0)
                    for i in range(size[0]):
                        data[i] = np.fromfile(file, kind, int(np.prod(size[1:]))).reshape(size[1:])
                if self.dtype == "bf16":
                    for name in ("latents", "text", "empty_text"):
                        h5[name].attrs["dtype"] = "bf16"
            with open(temp, "rb") as f:
                os.fsync(f.fileno())
            os.rename(temp, self.path)
        finally:
            temp.unlink(missing_ok=True)


class Packer:
    def __init__(self, options):
        self.o, self.open, self.seen = options, {}, set()
        self.written = self.left = self.files = 0
        self.counts = {}

    def left_out(self, where, why):
        self.left += 1
        print(f"pack_hdf5: left out: {where}: {why}", file=sys.stderr)

    def add(self, name, caption, latent, text, mask):
        facts = self.o.facts
        latent = turned(to_numpy(latent), self.o.layout)
        if latent.shape[0] != facts["channels"]:
            raise Bad(f"latents have {latent.shape[0]} channels, {facts['codec']} has "
                      f"{facts['channels']}; is --layout right?")
        text = text_rows(to_numpy(text), mask)
        if text.shape[1] != facts["text_dim"] or len(text) > facts["text_len"]:
            raise Bad(f"text is {text.shape}, at most {facts['text_len']} rows of "
                      f"{facts['text_dim']} are right")
        if self.o.normalised == "no":
            per = (facts["channels"], 1, 1, 1)
            latent = ((latent - facts["mean"].reshape(per)) / facts["std"].reshape(per))
            latent = latent.astype(np.float32)
        largest = 3.38e38 if self.o.dtype == "bf16" else np.inf
        for x in (latent, text):
            if not np.isfinite(x).all() or (x.size and np.abs(x).max() > largest):
                raise Bad("holds an infinity or NaN")
        name = str(name)
        if name in self.seen:
            raise Bad(f"the id '{name}' is taken")
        self.seen.add(name)
        shape = latent.shape
        shard = self.open.get(shape)
        if shard is None:
            k = self.counts.setdefault(shape, 0)
            self.counts[shape] += 1
            path = self.o.out / f"{'x'.join(map(str, shape))}-{k:05}.h5"
            shard = self.open[shape] = Shard(path, shape, facts, self.o.empty, self.o.dtype)
        shard.add(name, str(caption), latent, text)
        self.written += 1
        if len(shard.ids) == self.o.samples_per_shard:
            self.open.pop(shape).close()

    def file(self, path, where):
        self.files += 1
        try:
            for sample in READERS[path.suffix](path, where, self.o):
                try:
                    self.add(*sample)
                except Bad as e:
                    self.left_out(f"{where}, {sample[0]}", e)
        except ImportError:
            raise
        except Exception as e:  # whatever a damaged file makes its library say
            self.left_out(where, f"{type(e).__name__}: {e}" if not isinstance(e, Bad) else e)

    def close(self):
        for shard in self.open.values():
            shard.close()


# --- facts ----------------------------------------------------------------------------------------

CODECS = {
    "wan2.1-vae": (16, (4, 8, 8),
                   [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134,
                    -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921],
                   [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526,
                    2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160]),
    "hunyuanvideo-vae": (16, (4, 8, 8), [0.0] * 16, [1 / 0.476986] * 16),
    "flux-vae": (16, (1, 8, 8), [0.1159] * 16, [1 / 0.3611] * 16),
    "sd-vae": (4, (1, 8, 8), [0.0] * 4, [1 / 0.18215] * 4),
}


def read_empty(name, options):
    if name == "zero":
        return None
    path = Path(name)
    if path.suffix == ".npy":
        return text_rows(np.load(path), None)
    import torch

    data = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(data, dict):
        mask = first_of(data, MASK_NAMES)
        data = first_of(data, options.text)
        return text_rows(to_numpy(data), None if mask is None else to_numpy(mask))
    return text_rows(to_numpy(data), None)


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("inputs", nargs="+", type=Path)
    p.add_argument("--out", type=Path, required=True, help="folder for the shards")
    p.add_argument("--codec", required=True, help=f"known: {', '.join(CODECS)}; any other with "
                   "--scale, --mean and --std")
    p.add_argument("--normalised", choices=["yes", "no"], required=True,
                   help="whether the latents are (z - mean) / std already")
    p.add_argument("--text-encoder", required=True)
    p.add_argument("--text-len", type=int, required=True, help="rows of text the model sees")
    p.add_argument("--fps", type=float, default=0.0, help="of the clips; 0: unknown or mixed")
    p.add_argument("--empty-text", required=True,
                   help="embedding of the empty caption (.pt, .npy), or the word zero")
    p.add_argument("--layout", default="CTHW", help="dims of one sample's latents in order")
    p.add_argument("--map", action="append", default=[], help="latents=NAME or text=NAME in .pt")
    p.add_argument("--scale", help="pixels per latent t,h,w")
    p.add_argument("--mean", help="per channel, separated by commas")
    p.add_argument("--std", help="per channel")
    p.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    p.add_argument("--samples-per-shard", type=int, default=1024)
    o = p.parse_args(argv)
    o.latents, o.text = list(LATENT_NAMES), list(TEXT_NAMES)
    for pair in o.map:
        ours, _, theirs = pair.partition("=")
        if ours not in ("latents", "text") or not theirs:
            p.error(f"--map {pair}: must be latents=NAME or text=NAME")
        setattr(o, ours, [theirs])
    if sorted(o.layout) not in (sorted("CTHW"), sorted("CHW")):
        p.error(f"--layout {o.layout}: must hold C, H, W and perhaps T")
    known = CODECS.get(o.codec)
    numbers = lambda t: [float(v) for v in t.split(",")]
    mean = numbers(o.mean) if o.mean else known and known[2]
    std = numbers(o.std) if o.std else known and known[3]
    scale = [int(v) for v in o.scale.split(",")] if o.scale else known and known[1]
    if not mean or not std or not scale or len(mean) != len(std) or len(scale) != 3:
        p.error(f"codec {o.codec}: give --scale t,h,w, --mean and --std per channel")
    o.empty = read_empty(o.empty_text, o)
    o.facts = {"codec": o.codec, "channels": len(mean), "scale": np.array(scale, np.int64),
               "normalised": 1, "mean": np.array(mean), "std": np.array(std),
               "text_encoder": o.text_encoder,
               "text_dim": 0 if o.empty is None else int(o.empty.shape[1]),
               "text_len": o.text_len, "fps": o.fps}
    return o


def find(inputs):
    """(path, name in messages and ids) of every file, in order."""
    for entry in inputs:
        if entry.is_dir():
            for path in sorted(entry.rglob("*")):
                if path.suffix in READERS and path.is_file():
                    yield path, str(path.relative_to(entry).with_suffix(""))
        elif entry.suffix in READERS:
            yield entry, entry.stem
        else:
            sys.exit(f"pack_hdf5: {entry}: must be a folder or end in {', '.join(READERS)}")


def main(argv=None):
    o = parse(argv)
    if o.out.exists() and any(o.out.glob("*.h5")):
        sys.exit(f"pack_hdf5: {o.out} already holds shards")
    o.out.mkdir(parents=True, exist_ok=True)
    packer = Packer(o)
    o.left_out = packer.left_out
    skip = Path(o.empty_text).resolve()
    files = [(p, w) for p, w in find(o.inputs) if p.resolve() != skip]
    if o.empty is None and files:  # the width of the text is that of the first sample
        for path, where in files:
            sample = next(iter(READERS[path.suffix](path, where, o)), None)
            if sample is not None:
                o.facts["text_dim"] = int(np.shape(to_numpy(sample[3]))[-1])
                break
        o.empty = np.zeros((0, o.facts["text_dim"]), np.float32)
    for path, where in files:
        packer.file(path, where)
    packer.close()
    print(f"pack_hdf5: {packer.written} samples of {packer.files} files in "
          f"{sum(packer.counts.values())} shards; {packer.left} left out")
    return 0 if packer.written else 3


if __name__ == "__main__":
    sys.exit(main())
