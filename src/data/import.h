// SPDX-License-Identifier: MIT
// From arrays other programs saved (safetensors, npy, npz) to shards: latents and caption
// embeddings that are already encoded.
// Floor 3.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "data/facts.h"
#include "data/shard.h"

namespace vt {

struct ImportSpec {
    std::vector<fs::path> inputs;  // files with latents, and folders that are searched through
    std::string only = "*";        // what the names of files in folders must match (glob)
    std::string stem_regex;  // its first group is the sample's name in a file's; "": all of it
    // Where text embeddings are: "" in the latents' file; a folder with files of the same names; or
    // a path with {dir} (the latents' folder) and {stem} in it.
    std::string text;
    std::map<std::string, std::string> names;  // array (latents, text, mask, lengths) -> glob
    std::string layout;                        // of one latents array, e.g. "CTHW", "TCHW", "NCTHW"
    std::string text_rows = "auto";   // which rows are text: auto, mask, trim (zero rows), all
    fs::path captions;                // table, see Captions; "": beside the files, or none
    bool input_normalised = false;    // what lies in the files
    bool keep_raw = false;            // do not normalise
    bool two_bytes_are_bf16 = false;  // npy has no bfloat16 of its own
    FactsGiven facts;                 // text_dim and normalised are filled in here
    std::string empty_text;           // file with the empty caption's embedding, or "zero"
    bool strict = false;              // the first bad file ends it
    DType dtype = DType::kBF16;
    int64_t samples_per_shard = 1024;
    double valid_fraction = 0;  // share of samples, chosen by the hash of their ids
};

struct ImportReport {
    int64_t files = 0, bad_files = 0;  // seen; left out as a whole
    int64_t bad_samples = 0;           // of other files
    int64_t without_caption = 0;       // no text was found for
    int64_t train = 0, valid = 0, shards = 0, bytes = 0;
    std::map<std::array<int64_t, 4>, int64_t> shapes;  // samples of each (C,T,H,W)
    LatentFacts facts;
    std::vector<double> mean, std;  // measured per channel, as written
};

/// Reads all headers, then samples shape by shape, into OUT/CxTxHxW-NNNNN.h5 (and OUT/valid). A
/// file or sample that cannot be used is named on stderr with the reason and left out. Nothing is
/// seen in `out` before all is there; with no good sample nothing is written. kUser for options
/// that do not fit together, kData where spec.strict meets a bad file or no sample is good.
ImportReport import_latents(const fs::path& out, const ImportSpec& spec);

/// "" if measured statistics of normalised latents are plausible, else what is odd about them.
[[nodiscard]] std::string odd_statistics(const std::vector<double>& mean,
                                         const std::vector<double>& std);

}  // namespace vt
