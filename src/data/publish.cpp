// SPDX-License-Identifier: MIT
#include "data/publish.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace vt {

void ChannelMoments::add(const std::vector<float>& latent) {
    const size_t per = latent.size() / sum_.size();
    for (size_t c = 0; c < sum_.size(); ++c) {
        double s = 0, q = 0;
        for (size_t i = c * per; i < (c + 1) * per; ++i) {
            s += double{latent[i]};
            q += double{latent[i]} * double{latent[i]};
        }
        sum_[c] += s;
        square_[c] += q;
    }
    n_ += static_cast<double>(per);
}

std::vector<double> ChannelMoments::mean() const {
    std::vector<double> out = sum_;
    for (double& v : out) v /= n_;
    return out;
}

std::vector<double> ChannelMoments::std() const {
    std::vector<double> out = square_;
    for (size_t c = 0; c < out.size(); ++c) {
        const double m = sum_[c] / n_;
        out[c] = std::sqrt(std::max(0.0, out[c] / n_ - m * m));
    }
    return out;
}

ShardFolder::ShardFolder(const fs::path& out, int64_t samples_per_shard, DType dtype)
    : staging_(out), samples_per_shard_(samples_per_shard), dtype_(dtype) {
    if (holds_shards(out) || holds_shards(out / "valid")) {
        raise(Fault::kUser, fmt::format("{} already holds shards (*.h5)", out.string()),
              "give another --out, or remove them first");
    }
}

void ShardFolder::add(const std::string& name, bool valid, const LatentFacts& facts,
                      std::array<int64_t, 4> shape, const std::vector<float>& empty_text,
                      const ShardSample& sample) {
    Series& s = series_[{name, valid}];
    if (s.writer == nullptr) {
        const std::string file = fmt::format("{}-{:05}.h5", name, s.names.size());
        s.writer = std::make_unique<ShardWriter>(staging_.part(valid) / file, facts, shape,
                                                 empty_text, ShardOptions{.dtype = dtype_});
        s.names.push_back(file);
    }
    s.writer->add(sample);
    ++samples_.at(valid ? 1 : 0);
    if (s.writer->count() == samples_per_shard_) {
        s.writer->close();
        s.writer.reset();
    }
}

void ShardFolder::close() {
    for (auto& [key, s] : series_) {
        if (s.writer == nullptr) continue;
        if (s.writer->count() == 0) {  // its only samples were refused
            s.names.pop_back();
        } else {
            s.writer->close();
        }
        s.writer.reset();
    }
}

void ShardFolder::publish() {
    close();
    published_ = staging_.publish();
    for (const fs::path& p : published_) bytes_ += static_cast<int64_t>(fs::file_size(p));
}

}  // namespace vt
