// SPDX-License-Identifier: MIT
// Floor 3.
#include "data/import.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_set>

#include "core/check.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/import_file.h"
#include "data/publish.h"

namespace vt {

namespace {

struct Item {
    size_t file = 0;
    int64_t row = 0;
    std::array<int64_t, 4> shape{};
};

std::string shape_name(const std::array<int64_t, 4>& s) {
    return fmt::format("{}x{}x{}x{}", s[0], s[1], s[2], s[3]);
}

void check_spec(const ImportSpec& s) {
    std::string letters = s.layout;
    std::sort(letters.begin(), letters.end());
    const bool known =
        letters == "CHW" || letters == "CHTW" || letters == "CHNW" || letters == "CHNTW";
    if (!known || (letters.find('N') != std::string::npos && s.layout[0] != 'N')) {
        raise(Fault::kUser, fmt::format("--layout '{}': must say where C, H and W are", s.layout),
              "C,T,H,W in the order of the array's dims, T only where there are frames, N in front "
              "where a file holds a batch: CTHW, TCHW, CHW, NCTHW, ...");
    }
    if (s.samples_per_shard < 1 || s.valid_fraction < 0 || s.valid_fraction >= 1) {
        raise(Fault::kUser,
              fmt::format("--samples-per-shard {} (1 or more), --valid-fraction {} (0 to below 1)",
                          s.samples_per_shard, s.valid_fraction));
    }
    if (s.empty_text.empty()) {
        raise(Fault::kUser, "the empty caption's embedding is not given",
              "training with dropped captions and sampling with guidance need it: encode \"\" with "
              "the same text encoder and name the file, --empty-text FILE; --empty-text zero takes "
              "zero rows instead");
    }
}

// Says how far it is, at most every two seconds.
class Progress {
  public:
    void tick(const char* what, int64_t done, int64_t all) {
        if (Clock::now() < next_) return;
        next_ = Clock::now() + std::chrono::seconds(2);
        say("{} {} of {}", what, done, all);
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point next_ = Clock::now() + std::chrono::seconds(2);
};

class Import {
  public:
    Import(const fs::path& out, const ImportSpec& spec)
        : out_(out), spec_(spec), inputs_(find_inputs(spec)) {
        if (!spec.captions.empty()) captions_ = Captions::load(spec.captions);
        report_.files = static_cast<int64_t>(inputs_.size());
    }

    ImportReport run() {
        complete();
        scan();
        if (items_.empty()) return nothing();
        std::stable_sort(items_.begin(), items_.end(),
                         [](const Item& a, const Item& b) { return a.shape < b.shape; });
        ShardFolder folder(out_, spec_.samples_per_shard, spec_.dtype);
        moments_ = ChannelMoments(report_.facts.channels);
        for (size_t i = 0; i < items_.size(); ++i) {
            if (i > 0 && items_[i].shape != items_[i - 1].shape) folder.close();
            progress_.tick("samples", static_cast<int64_t>(i), static_cast<int64_t>(items_.size()));
            take(items_[i], folder);
        }
        report_.train = folder.train();
        report_.valid = folder.valid();
        if (report_.train + report_.valid == 0) return nothing();
        folder.publish();
        report_.shards = folder.shards();
        report_.bytes = folder.bytes();
        report_.mean = moments_.mean();
        report_.std = moments_.std();
        return report_;
    }

  private:
    // Facts of what is written. The text's width is that of the empty caption or the first file.
    void complete() {
        FactsGiven& f = spec_.facts;
        int64_t dim = 0;
        empty_ = read_empty_text(spec_, &dim);
        for (size_t i = 0; dim == 0 && i < inputs_.size(); ++i) {
            try {
                dim = ImportFile(inputs_[i], spec_).text_dim();
            } catch (const Error&) {
                continue;  // told when it is scanned
            }
        }
        FactsGiven width;
        if (dim > 0) width.text_dim = dim;
        join_facts(f, width, "--facts", "the text");
        f.normalised = !spec_.keep_raw || spec_.input_normalised;
        report_.facts = complete_facts(f, "as an option or in --facts");
        f.channels = report_.facts.channels;
        if (narrow<int64_t>(empty_.size()) > report_.facts.text_len * report_.facts.text_dim) {
            raise(Fault::kUser,
                  fmt::format("--empty-text has {} rows, --text-len is {}",
                              narrow<int64_t>(empty_.size()) / dim, report_.facts.text_len));
        }
    }

    void scan() {
        for (size_t i = 0; i < inputs_.size(); ++i) {
            progress_.tick("headers", static_cast<int64_t>(i), report_.files);
            try {
                const ImportFile file(inputs_[i], spec_);
                for (int64_t row = 0; row < file.count(); ++row) {
                    items_.push_back({.file = i, .row = row, .shape = file.shape()});
                }
            } catch (const Error& e) {
                ++report_.bad_files;
                refuse(e);
            }
        }
    }

    void refuse(const Error& e) const {
        if (e.fault() == Fault::kBug || spec_.strict) throw e;
        warn("left out: {}{}{}", e.message(), e.hint().empty() ? "" : "; ", e.hint());
    }

    void take(const Item& item, ShardFolder& folder) {
        bool has_caption = false;
        ShardSample sample;
        try {
            if (!open_ || open_index_ != item.file) {
                open_ = std::make_unique<ImportFile>(inputs_[item.file], spec_);
                open_index_ = item.file;
            }
            sample = open_->read(item.row, captions_, report_.facts.text_len, &has_caption);
            if (open_->shape() != item.shape) {
                raise(Fault::kData, fmt::format("{} changed while it was read",
                                                inputs_[item.file].path.string()));
            }
        } catch (const Error& e) {
            ++report_.bad_samples;
            refuse(e);
            return;
        }
        if (!spec_.keep_raw && !spec_.input_normalised) normalise(sample.latent);
        const uint64_t hash = xxh3(sample.id);
        const bool valid = static_cast<double>(hash >> 11) * 0x1p-53 < spec_.valid_fraction;
        try {
            if (!ids_.insert(hash).second) {
                raise(Fault::kData,
                      fmt::format("{}, sample {}: its id '{}' is taken by another sample",
                                  inputs_[item.file].path.string(), item.row, sample.id),
                      "ids are unique inside the data set");
            }
            folder.add(shape_name(item.shape), valid, report_.facts, item.shape, empty_, sample);
        } catch (const Error& e) {
            if (e.fault() != Fault::kData) throw;
            ++report_.bad_samples;
            warn("{}, sample {}:", inputs_[item.file].path.string(), item.row);
            refuse(e);
            return;
        }
        moments_.add(sample.latent);
        ++report_.shapes[item.shape];
        if (!has_caption) ++report_.without_caption;
    }

    void normalise(std::vector<float>& latent) const {
        const LatentFacts& f = report_.facts;
        const size_t per = latent.size() / f.mean.size();
        for (size_t c = 0; c < f.mean.size(); ++c) {
            float* z = latent.data() + c * per;
            for (size_t i = 0; i < per; ++i) {
                z[i] = static_cast<float>((double{z[i]} - f.mean[c]) / f.std[c]);
            }
        }
    }

    [[noreturn]] ImportReport nothing() const {
        raise(Fault::kData,
              fmt::format("nothing was imported: {} of {} files and {} samples were left out, see "
                          "above",
                          report_.bad_files, report_.files, report_.bad_samples));
    }

    fs::path out_;
    ImportSpec spec_;
    std::vector<ImportInput> inputs_;
    Captions captions_;
    std::vector<float> empty_;
    std::vector<Item> items_;
    std::unordered_set<uint64_t> ids_;  // hashes: two of a billion ids meet once in thirty imports
    std::unique_ptr<ImportFile> open_;
    size_t open_index_ = 0;
    ChannelMoments moments_;
    ImportReport report_;
    Progress progress_;
};

}  // namespace

ImportReport import_latents(const fs::path& out, const ImportSpec& spec) {
    check_spec(spec);
    return Import(out, spec).run();
}

std::string odd_statistics(const std::vector<double>& mean, const std::vector<double>& std) {
    // One video's channel is far from the whole's; over channels the deviations even out.
    double m = 0, s = 0;
    for (size_t c = 0; c < mean.size(); ++c) {
        m += mean[c] * mean[c];
        s += std[c] * std[c];
    }
    const auto n = static_cast<double>(mean.size());
    m = std::sqrt(m / n);
    s = std::sqrt(s / n);
    if (m < 0.7 && s > 0.4 && s < 1.7) return {};
    return fmt::format(
        "over channels the means are {:.2f} (root mean square, 0 expected) and the "
        "deviations {:.2f} (1 expected)",
        m, s);
}

}  // namespace vt
