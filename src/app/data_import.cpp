// SPDX-License-Identifier: MIT
// vtrain data import: latents and text embeddings that are already encoded, to shards. Floor 7.
#include <memory>

#include <CLI/CLI.hpp>

#include "app/data_options.h"
#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
#include "data/import.h"

namespace vt {

namespace {

struct Args {
    ImportSpec spec;
    FactsArgs facts;
    fs::path out;
    std::vector<std::string> maps;
    std::string dtype = "bf16";
};

int import(Args& a) {
    ImportSpec& s = a.spec;
    s.names = parse_names(a.maps, {"latents", "text", "mask", "lengths"}, "--map");
    s.dtype = a.dtype == "f32" ? DType::kF32 : DType::kBF16;
    s.facts = a.facts.given();
    add_known(s.facts);
    if (!s.facts.normalised) {
        raise(Fault::kUser, "it is not stated whether the latents are normalised",
              "--normalised yes: they are (z - mean) / std already; no: they are as the encoder "
              "gave them and are normalised now");
    }
    s.input_normalised = *s.facts.normalised;
    s.facts.normalised.reset();  // of what is written: import_latents decides
    const ImportReport r = import_latents(a.out, s);
    say("wrote {} training and {} validation samples in {} shard(s), {:.1f} MB, to {}", r.train,
        r.valid, r.shards, static_cast<double>(r.bytes) / 1e6, a.out.string());
    for (const auto& [shape, n] : r.shapes) {
        say("  {},{},{},{}: {} samples", shape[0], shape[1], shape[2], shape[3], n);
    }
    say("latents {} of {} channels, {}; text {} of {} rows x {}", r.facts.codec, r.facts.channels,
        r.facts.normalised ? "normalised" : "raw", r.facts.text_encoder, r.facts.text_len,
        r.facts.text_dim);
    if (r.without_caption > 0) {
        warn("{} samples have no caption text, only its embedding", r.without_caption);
    }
    if (const std::string odd = r.facts.normalised ? odd_statistics(r.mean, r.std) : "";
        !odd.empty()) {
        warn(
            "these are unusual for normalised latents: {}; is --normalised {} right, and --codec "
            "{}?",
            odd, s.input_normalised ? "yes" : "no", r.facts.codec);
    }
    if (r.bad_files + r.bad_samples > 0) {
        say("{} of {} files and {} samples of others were left out, see above", r.bad_files,
            r.files, r.bad_samples);
    }
    return 0;
}

constexpr const char* kAbout =
    R"(Latents and text embeddings that are already encoded, to shards

Reads .safetensors, .npy and .npz: a file a sample, or a batch (N in front of --layout). Each shape
becomes a set of shards, OUT/CxTxHxW-NNNNN.h5. A file that cannot be used is named with the reason
and left out. (.pt, .parquet and .tar: scripts/pack_hdf5.py. HDF5: vtrain data repack.)

One file per clip, with tensors "latents" (16,T,H,W) and "prompt_embeds" (rows,4096), captions in
NAME.txt beside each:
  vtrain data import clips/ --out shards --layout CTHW --codec wan2.1-vae --normalised no \
    --text-encoder umt5-xxl --text-len 512 --fps 16 --empty-text empty.safetensors

Arrays of several clips, latents.npy (N,T,16,H,W), text.npy (N,512,4096), text in its own file:
  vtrain data import latents.npy --out shards --layout NTCHW --text '{dir}/text.npy{stem}' ...
)";

}  // namespace

void add_data_import(CLI::App& data, Work& work) {
    CLI::App* c = data.add_subcommand("import", kAbout);
    const auto a = std::make_shared<Args>();
    ImportSpec& s = a->spec;
    c->add_option("files", s.inputs, "Files with latents, and folders to search")->required();
    c->add_option("--out", a->out, "Folder for the shards")->required();
    c->add_option("--layout", s.layout,
                  "The dims of a latents array in order, e.g. CTHW, TCHW, CHW (pictures), NCTHW "
                  "(a batch)")
        ->required();
    c->add_option("--empty-text", s.empty_text,
                  "File with the embedding of the empty caption, or the word zero");
    c->add_option("--text", s.text,
                  "Where text embeddings are if not in the latents' file: a folder with files of "
                  "the same names, or a path with {dir} and {stem} in it, e.g. "
                  "'{dir}/{stem}.text.npy'");
    c->add_option("--map", a->maps,
                  "What an array is called: latents=NAME, text=NAME, mask=NAME, lengths=NAME; NAME "
                  "may hold * and ?. Usual names are found without");
    c->add_option("--text-rows", s.text_rows,
                  "Which rows are text: those a mask or lengths array says (mask), all but zero "
                  "rows at the end (trim), all; auto: mask where there is one, else trim")
        ->check(CLI::IsMember({"auto", "mask", "trim", "all"}))
        ->capture_default_str();
    c->add_option("--captions", s.captions,
                  "Table of captions (.txt NAME tab caption, .csv, .jsonl, .json); NAME is the "
                  "file's, in a batch NAME#0, NAME#1, ...; without it NAME.json, .jsonl or .txt "
                  "beside each file");
    c->add_option("--only", s.only, "Which names in folders are latents, e.g. '*_wan.safetensors'")
        ->capture_default_str();
    c->add_option(
        "--stem", s.stem_regex,
        R"(What of a file's name is the sample's: the first group, e.g. '^(.*)_\d+x\d+$')");
    c->add_flag("--keep-raw", s.keep_raw, "Store raw latents as they are");
    c->add_flag("--u2-is-bf16", s.two_bytes_are_bf16,
                "uint16 and 2-byte void numbers of npy files are bfloat16");
    c->add_flag("--strict", s.strict, "End at the first file or sample that cannot be used");
    c->add_option("--dtype", a->dtype, "Stored numbers: bf16 or f32")
        ->check(CLI::IsMember({"bf16", "f32"}))
        ->capture_default_str();
    c->add_option("--samples-per-shard", s.samples_per_shard, "Samples in one file")
        ->capture_default_str();
    c->add_option("--valid-fraction", s.valid_fraction,
                  "Share of samples set aside in OUT/valid, chosen by their ids");
    add_facts_options(*c, a->facts);
    c->callback([a, &work] { work = [a] { return import(*a); }; });
}

}  // namespace vt
