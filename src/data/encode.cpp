// SPDX-License-Identifier: MIT
#include "data/encode.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "core/check.h"
#include "core/pool.h"
#include "data/publish.h"

namespace vt {
namespace {

constexpr double kLeastStd = 1e-3;
__extension__ using Int128 = __int128;

// Sums per channel as integers of 2^-40: adding those gives the same bits in any order, so threads
// may add as they come. A clip's own sums are float64; |z| <= 64, so 10^12 of z^2 stay below 2^93.
class ChannelStats {
  public:
    explicit ChannelStats(int64_t channels)
        : sum_(static_cast<size_t>(channels)), square_(static_cast<size_t>(channels)) {}
    void add(const std::vector<float>& latent) {
        const size_t per = latent.size() / sum_.size();
        std::vector<Int128> sum(sum_.size()), square(sum_.size());
        for (size_t c = 0; c < sum.size(); ++c) {
            double s = 0, q = 0;
            for (size_t i = c * per; i < (c + 1) * per; ++i) {
                s += double{latent[i]};
                q += double{latent[i]} * double{latent[i]};
            }
            sum[c] = fixed(s);
            square[c] = fixed(q);
        }
        const std::lock_guard lock(mutex_);
        for (size_t c = 0; c < sum.size(); ++c) {
            sum_[c] += sum[c];
            square_[c] += square[c];
        }
        n_ += static_cast<double>(per);
    }
    [[nodiscard]] std::vector<double> mean() const {
        std::vector<double> out;
        for (const Int128 v : sum_) out.push_back(real(v) / n_);
        return out;
    }
    [[nodiscard]] std::vector<double> std() const {
        std::vector<double> out;
        for (size_t c = 0; c < sum_.size(); ++c) {
            const double m = real(sum_[c]) / n_;
            out.push_back(
                std::max(kLeastStd, std::sqrt(std::max(0.0, real(square_[c]) / n_ - m * m))));
        }
        return out;
    }

  private:
    static Int128 fixed(double v) { return static_cast<Int128>(std::nearbyint(v * 0x1p40)); }
    static double real(Int128 v) { return static_cast<double>(v) * 0x1p-40; }
    std::mutex mutex_;
    double n_ = 0;
    std::vector<Int128> sum_, square_;
};

// One clip in the spool: its id, its caption, its pixels.
struct Record {
    int64_t file, clip, offset;
    uint32_t id, caption;  // bytes
    uint16_t shape;        // in the spec's list
    bool valid;
};

// A file without a name: it is gone when the process is.
class Spool {
  public:
    explicit Spool(const fs::path& dir) : path_(dir / "clips") {
        std::string name = (dir / "clips.XXXXXX").string();
        fd_ = Fd(::mkostemp(name.data(), O_CLOEXEC));
        if (!fd_.open()) raise_errno("create a file in", dir);
        ::unlink(name.c_str());
    }
    // From any thread.
    void add(const EncodeItem& item, size_t shape) {
        std::string head = item.id + item.caption;
        const auto bytes = static_cast<int64_t>(head.size() + item.pixels->rgb.size());
        const int64_t at = end_.fetch_add(bytes);
        const auto words = static_cast<int64_t>(head.size());
        pwrite_all(fd_, head.data(), words, at, path_);
        pwrite_all(fd_, item.pixels->rgb.data(), bytes - words, at + words, path_);
        const std::lock_guard lock(mutex_);
        records_.push_back({.file = item.file,
                            .clip = item.clip,
                            .offset = at,
                            .id = static_cast<uint32_t>(item.id.size()),
                            .caption = static_cast<uint32_t>(item.caption.size()),
                            .shape = static_cast<uint16_t>(shape),
                            .valid = item.valid});
    }
    // Those of one shape and split, in order.
    [[nodiscard]] std::vector<Record> of(size_t shape, bool valid) const {
        std::vector<Record> out;
        for (const Record& r : records_) {
            if (r.shape == shape && r.valid == valid) out.push_back(r);
        }
        std::sort(out.begin(), out.end(), [](const Record& a, const Record& b) {
            return a.file != b.file ? a.file < b.file : a.clip < b.clip;
        });
        return out;
    }
    void read(const Record& r, std::string* id, std::string* caption, Clip* clip) const {
        id->resize(r.id);
        caption->resize(r.caption);
        pread_all(fd_, id->data(), r.id, r.offset, path_);
        pread_all(fd_, caption->data(), r.caption, r.offset + r.id, path_);
        clip->rgb.resize(static_cast<size_t>(clip->T * clip->H * clip->W * 3));
        pread_all(fd_, clip->rgb.data(), static_cast<int64_t>(clip->rgb.size()),
                  r.offset + r.id + r.caption, path_);
    }
    [[nodiscard]] size_t size() const { return records_.size(); }

  private:
    fs::path path_;
    Fd fd_;
    std::atomic<int64_t> end_{0};
    std::mutex mutex_;
    std::vector<Record> records_;
};

std::array<int64_t, 4> latent_shape(const EncodeSpec& s, const ClipShape& c) {
    return {s.codec.channels(), ((c.T - 1) >> s.codec.lt) + 1, c.H >> s.codec.ls,
            c.W >> s.codec.ls};
}

// Takes clips in, measures them, writes the shards.
class Encoder {
  public:
    Encoder(const fs::path& out, const EncodeSpec& spec)
        : out_(out),
          spec_(spec),
          folder_(out, spec.samples_per_shard, spec.dtype),
          spool_(folder_.workplace()),
          stats_(spec.codec.channels()) {}

    void take(const EncodeItem& item) {
        const Clip& c = *item.pixels;
        const auto shape = std::find(spec_.shapes.begin(), spec_.shapes.end(),
                                     ClipShape{.H = c.H, .W = c.W, .T = c.T});
        VT_CHECK(shape != spec_.shapes.end(), "clip {} of {}x{}x{}", item.id, c.H, c.W, c.T);
        if (spec_.mean.empty() && !item.valid) stats_.add(spec_.codec.encode(c));
        const int64_t need = needed_ += stored_bytes(spec_, *shape, 1);
        // now and then, so that a disk too small for the shards shows long before they are written
        if (count_++ % 64 == 0) check_space(out_, need, "what has been cut so far");
        spool_.add(item, static_cast<size_t>(shape - spec_.shapes.begin()));
        (item.valid ? valid_ : train_)++;
    }

    EncodeReport finish(const std::function<void(int64_t, int64_t)>& progress) {
        EncodeReport report;
        if (train_ == 0) return report;
        set_facts(report.facts);
        // a shard lies there twice for a moment
        check_space(out_, needed_ + largest_shard(), "the data set");
        Pool pool(spec_.threads);
        for (size_t s = 0; s < spec_.shapes.size(); ++s) {
            EncodeReport::Part part{.shape = spec_.shapes[s]};
            part.train = write(s, false, report.facts, pool, progress);
            part.valid = write(s, true, report.facts, pool, progress);
            report.parts.push_back(part);
            report.train += part.train;
            report.valid += part.valid;
        }
        folder_.publish();
        report.bytes = folder_.bytes();
        report.shards = folder_.shards();
        for (const fs::path& p : folder_.files()) {
            for (auto& part : report.parts) {
                const std::string start = stem(part.shape) + "-";
                if (p.filename().string().rfind(start, 0) != 0) continue;
                part.bytes += static_cast<int64_t>(fs::file_size(p));
            }
        }
        return report;
    }

  private:
    [[nodiscard]] std::string stem(const ClipShape& s) const {
        return spec_.shapes.size() == 1 ? "shard" : "shard-" + name_of(s);
    }
    [[nodiscard]] int64_t largest_shard() const {
        int64_t most = 0;
        for (const ClipShape& s : spec_.shapes) {
            most = std::max(most, stored_bytes(spec_, s,
                                               std::min(spec_.samples_per_shard,
                                                        static_cast<int64_t>(spool_.size()))));
        }
        return most;
    }
    void set_facts(LatentFacts& facts) const {
        facts.mean = spec_.mean.empty() ? stats_.mean() : spec_.mean;
        facts.std = spec_.mean.empty() ? stats_.std() : spec_.std;
        facts.codec = spec_.codec.name();
        facts.channels = spec_.codec.channels();
        const int64_t nt = int64_t{1} << spec_.codec.lt, ns = int64_t{1} << spec_.codec.ls;
        facts.scale = {nt, ns, ns};
        facts.normalised = true;
        facts.text_encoder = kBuiltinTextEncoder;
        facts.text_dim = spec_.text_dim;
        facts.text_len = spec_.text_len;
        facts.fps = spec_.fps;
    }

    [[nodiscard]] ShardSample sample_of(const Record& r, const LatentFacts& facts) const {
        const ClipShape& s = spec_.shapes[r.shape];
        Clip clip{.T = s.T, .H = s.H, .W = s.W, .fps = spec_.fps, .rgb = {}};
        ShardSample sample;
        spool_.read(r, &sample.id, &sample.caption, &clip);
        sample.latent = spec_.codec.encode(clip);
        sample.text = embed_caption(sample.caption, spec_.text_dim, spec_.text_len);
        const size_t per = sample.latent.size() / facts.mean.size();
        for (size_t c = 0; c < facts.mean.size(); ++c) {
            const auto mean = static_cast<float>(facts.mean[c]);
            const auto scale = static_cast<float>(1 / facts.std[c]);
            float* z = sample.latent.data() + c * per;
            for (size_t i = 0; i < per; ++i) z[i] = (z[i] - mean) * scale;
        }
        return sample;
    }

    // One shape's shards of one split. Returns how many samples.
    int64_t write(size_t shape, bool valid, const LatentFacts& facts, Pool& pool,
                  const std::function<void(int64_t, int64_t)>& progress) {
        const std::vector<Record> records = spool_.of(shape, valid);
        const ClipShape& s = spec_.shapes[shape];
        const int64_t clip_bytes = 4 * s.T * s.H * s.W * 3;
        const auto batch = static_cast<size_t>(std::clamp<int64_t>(
            (int64_t{64} << 20) / clip_bytes, pool.threads(), 16 * pool.threads()));
        std::vector<ShardSample> ready;
        const auto empty = embed_caption("", spec_.text_dim, spec_.text_len);
        for (size_t at = 0; at < records.size(); at += batch) {
            ready.assign(std::min(batch, records.size() - at), {});
            pool.parallel_for(static_cast<int64_t>(ready.size()), [&](int64_t i, int /*thread*/) {
                const auto k = static_cast<size_t>(i);
                ready[k] = sample_of(records[at + k], facts);
            });
            for (const ShardSample& sample : ready) {
                folder_.add(stem(s), valid, facts, latent_shape(spec_, s), empty, sample);
                if (progress) progress(++done_, train_ + valid_);
            }
        }
        folder_.close();
        return static_cast<int64_t>(records.size());
    }

    const fs::path& out_;
    const EncodeSpec& spec_;
    ShardFolder folder_;
    Spool spool_;
    ChannelStats stats_;
    std::atomic<int64_t> needed_{0}, count_{0}, train_{0}, valid_{0};
    int64_t done_ = 0;
};

}  // namespace

int64_t stored_bytes(const EncodeSpec& spec, const ClipShape& shape, int64_t samples) {
    const auto z = latent_shape(spec, shape);
    return samples * z[0] * z[1] * z[2] * z[3] * (spec.dtype == DType::kF32 ? 4 : 2);
}

void check_spec(const EncodeSpec& s) {
    const int64_t nt = int64_t{1} << s.codec.lt, ns = int64_t{1} << s.codec.ls;
    for (const ClipShape& c : s.shapes) {
        if (c.T < 1 || (c.T - 1) % nt != 0) {
            const int64_t below = c.T < 1 ? 1 : (c.T - 1) / nt * nt + 1;
            raise(Fault::kUser,
                  fmt::format("--frames {}: with {} temporal level(s) it must be 1 + a multiple of "
                              "{}",
                              c.T, s.codec.lt, nt),
                  fmt::format("use {} or {}", below, below + nt));
        }
        if (c.H < ns || c.W < ns || c.H % ns != 0 || c.W % ns != 0) {
            raise(Fault::kUser,
                  fmt::format("--size {}x{}: with {} spatial level(s) both must be multiples of {}",
                              c.H, c.W, s.codec.ls, ns));
        }
    }
    if (s.shapes.empty() || s.shapes.size() > UINT16_MAX) {
        raise(Fault::kUser, fmt::format("{} shapes of clips", s.shapes.size()));
    }
    const auto channels = static_cast<size_t>(s.codec.channels());
    if (s.mean.size() != s.std.size() || (!s.mean.empty() && s.mean.size() != channels)) {
        raise(Fault::kUser, fmt::format("statistics of {} channels for {}, which has {}",
                                        s.mean.size(), s.codec.name(), channels));
    }
    if (s.text_dim < 1 || s.text_len < 1 || s.samples_per_shard < 1 || s.text_dim > 65536 ||
        s.text_len > 65536) {
        raise(Fault::kUser,
              fmt::format("--text-dim {}, --text-len {} (both 1 to 65536), --samples-per-shard {} "
                          "(1 or more): out of range",
                          s.text_dim, s.text_len, s.samples_per_shard));
    }
}

EncodeReport encode_dataset(const fs::path& out, const EncodeSpec& spec,
                            const std::function<void(const ClipSink&)>& source,
                            const std::function<void(int64_t, int64_t)>& progress) {
    check_spec(spec);
    Encoder encoder(out, spec);
    source([&](const EncodeItem& item) { encoder.take(item); });
    return encoder.finish(progress);
}

}  // namespace vt
