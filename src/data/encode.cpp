// SPDX-License-Identifier: MIT
#include "data/encode.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <sys/file.h>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace vt {
namespace {

constexpr double kLeastStd = 1e-3;

// Sums per channel in float64.
class ChannelStats {
  public:
    explicit ChannelStats(int64_t channels)
        : sum_(static_cast<size_t>(channels)), square_(static_cast<size_t>(channels)) {}
    void add(const std::vector<float>& latent) {
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
    [[nodiscard]] std::vector<double> mean() const {
        std::vector<double> out = sum_;
        for (double& v : out) v /= n_;
        return out;
    }
    [[nodiscard]] std::vector<double> std() const {
        std::vector<double> out = square_;
        for (size_t c = 0; c < out.size(); ++c) {
            const double m = sum_[c] / n_;
            out[c] = std::max(kLeastStd, std::sqrt(std::max(0.0, out[c] / n_ - m * m)));
        }
        return out;
    }

  private:
    double n_ = 0;
    std::vector<double> sum_, square_;
};

bool holds_shards(const fs::path& dir) {
    std::error_code ec;
    for (const auto& e : fs::directory_iterator(dir, ec)) {
        if (e.path().extension() == ".h5") return true;
    }
    return false;
}

// out/.encoding, locked while in use; removed at scope end. A folder whose lock is free was left
// by a run that was killed.
class Staging {
  public:
    explicit Staging(const fs::path& out) : made_out_(!fs::exists(out)), dir_(out / ".encoding") {
        try {
            fs::create_directories(out);
            fs::create_directories(dir_);
            lock_ = create_write(dir_ / "lock");
            if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
                busy_ = true;
                raise(Fault::kUser,
                      fmt::format("{} is being written by another run", out.string()));
            }
            for (const char* part : {"train", "valid"}) {
                fs::remove_all(dir_ / part);
                fs::create_directories(dir_ / part);
            }
        } catch (const fs::filesystem_error& e) {
            cleanup();
            raise(Fault::kSystem,
                  fmt::format("cannot prepare {}: {}", out.string(), e.code().message()));
        } catch (...) {
            cleanup();
            throw;
        }
    }
    ~Staging() { cleanup(); }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    [[nodiscard]] fs::path part(bool valid) const { return dir_ / (valid ? "valid" : "train"); }

  private:
    void cleanup() noexcept {
        if (busy_) return;
        std::error_code ec;
        fs::remove_all(dir_, ec);
        if (made_out_) fs::remove(dir_.parent_path(), ec);  // only if nothing is in it
    }
    bool made_out_, busy_ = false;
    fs::path dir_;
    Fd lock_;
};

// One split's shards, each closed when full.
class ShardSeries {
  public:
    ShardSeries(fs::path dir, const EncodeSpec& spec, const LatentFacts& facts,
                std::array<int64_t, 4> shape)
        : dir_(std::move(dir)), spec_(spec), facts_(facts), shape_(shape) {}
    void add(const ShardSample& sample) {
        if (writer_ == nullptr) {
            const std::string name = fmt::format("shard-{:05}.h5", names_.size());
            writer_ = std::make_unique<ShardWriter>(
                dir_ / name, facts_, shape_, embed_caption("", spec_.text_dim, spec_.text_len),
                ShardOptions{.dtype = spec_.dtype});
            names_.push_back(name);
        }
        writer_->add(sample);
        ++samples_;
        if (writer_->count() == spec_.samples_per_shard) close();
    }
    void close() {
        if (writer_ != nullptr) writer_->close();
        writer_.reset();
    }
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
    [[nodiscard]] int64_t samples() const { return samples_; }

  private:
    fs::path dir_;
    const EncodeSpec& spec_;
    const LatentFacts& facts_;
    std::array<int64_t, 4> shape_;
    std::unique_ptr<ShardWriter> writer_;
    std::vector<std::string> names_;
    int64_t samples_ = 0;
};

}  // namespace

void check_spec(const EncodeSpec& s) {
    const int64_t nt = int64_t{1} << s.codec.lt, ns = int64_t{1} << s.codec.ls;
    if (s.T < 1 || (s.T - 1) % nt != 0) {
        const int64_t below = s.T < 1 ? 1 : (s.T - 1) / nt * nt + 1;
        raise(Fault::kUser,
              fmt::format("--frames {}: with {} temporal level(s) it must be 1 + a multiple of {}",
                          s.T, s.codec.lt, nt),
              fmt::format("use {} or {}", below, below + nt));
    }
    if (s.H < ns || s.W < ns || s.H % ns != 0 || s.W % ns != 0) {
        raise(Fault::kUser,
              fmt::format("--size {}x{}: with {} spatial level(s) both must be multiples of {}",
                          s.H, s.W, s.codec.ls, ns));
    }
    const auto channels = static_cast<size_t>(s.codec.channels());
    if (s.mean.size() != s.std.size() || (!s.mean.empty() && s.mean.size() != channels)) {
        raise(Fault::kUser, fmt::format("statistics of {} channels for {}, which has {}",
                                        s.mean.size(), s.codec.name(), channels));
    }
    if (s.text_dim < 1 || s.text_len < 1 || s.samples_per_shard < 1) {
        raise(Fault::kUser,
              fmt::format("--text-dim {}, --text-len {}, --samples-per-shard {}: must be positive",
                          s.text_dim, s.text_len, s.samples_per_shard));
    }
}

EncodeReport encode_dataset(const fs::path& out, const EncodeSpec& spec,
                            const std::function<void(int pass, const ClipSink&)>& source) {
    check_spec(spec);
    if (holds_shards(out) || holds_shards(out / "valid")) {
        raise(Fault::kUser, fmt::format("{} already holds shards (*.h5)", out.string()),
              "give another --out, or remove them first");
    }
    const Staging staging(out);
    const int64_t C = spec.codec.channels(), nt = int64_t{1} << spec.codec.lt,
                  ns = int64_t{1} << spec.codec.ls;
    EncodeReport report;

    LatentFacts& facts = report.facts;
    if (!spec.mean.empty()) {
        facts.mean = spec.mean;
        facts.std = spec.std;
    } else {
        ChannelStats stats(C);
        int64_t train = 0;
        source(1, [&](const EncodeItem& item) {
            if (item.valid) return;
            stats.add(spec.codec.encode(*item.clip));
            ++train;
        });
        if (train == 0) return report;
        facts.mean = stats.mean();
        facts.std = stats.std();
    }
    facts.codec = spec.codec.name();
    facts.channels = C;
    facts.scale = {nt, ns, ns};
    facts.normalised = true;
    facts.text_encoder = kBuiltinTextEncoder;
    facts.text_dim = spec.text_dim;
    facts.text_len = spec.text_len;
    facts.fps = spec.fps;

    const std::array<int64_t, 4> shape{C, (spec.T - 1) / nt + 1, spec.H / ns, spec.W / ns};
    const auto per = static_cast<size_t>(shape[1] * shape[2] * shape[3]);
    ShardSeries series[2] = {{staging.part(false), spec, facts, shape},
                             {staging.part(true), spec, facts, shape}};
    source(2, [&](const EncodeItem& item) {
        ShardSample sample{.id = item.id,
                           .caption = item.caption,
                           .latent = spec.codec.encode(*item.clip),
                           .text = embed_caption(item.caption, spec.text_dim, spec.text_len)};
        for (size_t c = 0; c < facts.mean.size(); ++c) {
            const auto mean = static_cast<float>(facts.mean[c]);
            const auto scale = static_cast<float>(1 / facts.std[c]);
            float* z = sample.latent.data() + c * per;
            for (size_t i = 0; i < per; ++i) z[i] = (z[i] - mean) * scale;
        }
        series[item.valid ? 1 : 0].add(sample);
    });
    for (auto& s : series) s.close();

    std::vector<fs::path> published;
    try {
        for (const bool valid : {false, true}) {
            const ShardSeries& s = series[valid ? 1 : 0];
            const fs::path to = valid ? out / "valid" : out;
            if (!s.names().empty()) fs::create_directories(to);
            for (const std::string& name : s.names()) {
                fs::rename(staging.part(valid) / name, to / name);
                published.push_back(to / name);
                report.bytes += static_cast<int64_t>(fs::file_size(to / name));
            }
            if (!s.names().empty()) fsync_dir(to);
        }
    } catch (const fs::filesystem_error& e) {
        std::error_code ec;
        for (const fs::path& p : published) fs::remove(p, ec);
        raise(Fault::kSystem,
              fmt::format("cannot move shards into {}: {}", out.string(), e.code().message()));
    }
    report.train = series[0].samples();
    report.valid = series[1].samples();
    report.shards = static_cast<int64_t>(published.size());
    return report;
}

}  // namespace vt
