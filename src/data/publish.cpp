// SPDX-License-Identifier: MIT
#include "data/publish.h"

#include <cmath>
#include <sys/file.h>
#include <system_error>

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

static bool holds_shards(const fs::path& dir) {
    std::error_code ec;
    for (const auto& e : fs::directory_iterator(dir, ec)) {
        if (e.path().extension() == ".h5") return true;
    }
    return false;
}

ShardFolder::ShardFolder(fs::path out, int64_t samples_per_shard, DType dtype)
    : out_(std::move(out)),
      dir_(out_ / ".encoding"),
      made_out_(!fs::exists(out_)),
      samples_per_shard_(samples_per_shard),
      dtype_(dtype) {
    if (holds_shards(out_) || holds_shards(out_ / "valid")) {
        raise(Fault::kUser, fmt::format("{} already holds shards (*.h5)", out_.string()),
              "give another --out, or remove them first");
    }
    try {
        fs::create_directories(dir_);
        lock_ = create_write(dir_ / "lock");
        if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
            busy_ = true;
            raise(Fault::kUser, fmt::format("{} is being written by another run", out_.string()));
        }
        for (const bool valid : {false, true}) {
            fs::remove_all(part(valid));
            fs::create_directories(part(valid));
        }
    } catch (const fs::filesystem_error& e) {
        cleanup();
        raise(Fault::kSystem,
              fmt::format("cannot prepare {}: {}", out_.string(), e.code().message()));
    } catch (...) {
        cleanup();
        throw;
    }
}

ShardFolder::~ShardFolder() {
    series_.clear();
    cleanup();
}

void ShardFolder::cleanup() noexcept {
    if (busy_) return;
    std::error_code ec;
    fs::remove_all(dir_, ec);
    if (made_out_) fs::remove(out_, ec);  // only if nothing is in it
}

void ShardFolder::add(const std::string& name, bool valid, const LatentFacts& facts,
                      std::array<int64_t, 4> shape, const std::vector<float>& empty_text,
                      const ShardSample& sample) {
    Series& s = series_[{name, valid}];
    if (s.writer == nullptr) {
        const std::string file = fmt::format("{}-{:05}.h5", name, s.names.size());
        s.writer = std::make_unique<ShardWriter>(part(valid) / file, facts, shape, empty_text,
                                                 ShardOptions{.dtype = dtype_});
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
    try {
        for (const bool valid : {false, true}) {
            const fs::path to = valid ? out_ / "valid" : out_;
            bool any = false;
            for (const auto& [key, s] : series_) {
                if (key.second != valid) continue;
                for (const std::string& name : s.names) {
                    if (!any) fs::create_directories(to);
                    any = true;
                    fs::rename(part(valid) / name, to / name);
                    published_.push_back(to / name);
                    bytes_ += static_cast<int64_t>(fs::file_size(to / name));
                }
            }
            if (any) fsync_dir(to);
        }
    } catch (const fs::filesystem_error& e) {
        std::error_code ec;
        for (const fs::path& p : published_) fs::remove(p, ec);
        published_.clear();
        raise(Fault::kSystem,
              fmt::format("cannot move shards into {}: {}", out_.string(), e.code().message()));
    }
}

}  // namespace vt
