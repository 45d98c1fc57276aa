// SPDX-License-Identifier: MIT
// vtrain data synth: labelled moving shapes. Floor 7.
#include <algorithm>
#include <atomic>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/data_options.h"
#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
#include "core/pool.h"
#include "data/image.h"
#include "data/synth.h"
#include "data/video.h"

namespace vt {
namespace {

struct Args {
    EncodeArgs common;
    int64_t count = 512, valid = 0;
    double fps = 8;
    fs::path mp4;
};

int synth(Args& a) {
    finish_encode_args(a.common);
    if (a.common.out.empty() && a.mp4.empty()) {
        raise(Fault::kUser, "data synth: give --out, --mp4 or both");
    }
    check_range("--fps", a.fps, 1e-3, 1000);
    constexpr int64_t kMost = int64_t{1} << 40;
    if (a.count < 1 || a.valid < 0 || a.count > kMost || a.valid > kMost) {
        raise(Fault::kUser, fmt::format("--count {} (1 or more), --valid {} (0 or more), each at "
                                        "most {}: out of range",
                                        a.count, a.valid, kMost));
    }
    EncodeSpec& spec = a.common.spec;
    spec.fps = a.fps;
    const ClipShape& size = spec.shapes.front();
    const SynthSpec shape{.T = size.T, .H = size.H, .W = size.W, .fps = a.fps};
    const int64_t n = a.count + a.valid;
    const auto clip_at = [&](int64_t i) {
        return synth_clip(a.common.seed, static_cast<uint64_t>(i), shape);
    };

    if (!a.mp4.empty()) {
        make_folder(a.mp4, "--mp4");
        Progress progress("writing mp4");
        for (int64_t i = 0; i < n; ++i) {
            const SynthClip s = clip_at(i);
            const std::string name = fmt::format("shape-{:06}", i);
            write_mp4(a.mp4 / (name + ".mp4"), s.clip);
            write_atomic(a.mp4 / (name + ".txt"), s.caption + "\n");
            progress.tick(static_cast<double>(i + 1) / static_cast<double>(n),
                          fmt::format("clip {} of {}", i + 1, n));
        }
        say("wrote {} clips with their captions to {}", n, a.mp4.string());
    }
    if (a.common.out.empty()) return 0;
    // the shards, and the pixels they are made from
    const double pixels =
        static_cast<double>(n) * static_cast<double>(size.T * size.H * size.W * 3);
    const double need =
        static_cast<double>(n) * static_cast<double>(stored_bytes(spec, size, 1)) + pixels;
    check_space(a.common.out, static_cast<int64_t>(std::min(need, 9e18)), "the data set");
    Progress drawing("drawing"), writing("writing shards");
    const EncodeReport report = encode_dataset(
        a.common.out, spec,
        [&](const ClipSink& sink) {
            Pool pool(spec.threads);
            std::atomic<int64_t> drawn{0};
            std::atomic<bool> failed{false};
            pool.parallel_for(n, [&](int64_t i, int /*thread*/) {
                if (failed) return;
                try {
                    const SynthClip s = clip_at(i);
                    sink({.file = i,
                          .clip = 0,
                          .id = fmt::format("shape-{}-{:06}", a.common.seed, i),
                          .caption = s.caption,
                          .valid = i >= a.count,
                          .pixels = &s.clip});
                } catch (...) {
                    failed = true;
                    throw;
                }
                const int64_t k = ++drawn;
                drawing.tick(static_cast<double>(k) / static_cast<double>(n),
                             fmt::format("clip {} of {}", k, n));
            });
        },
        [&](int64_t done, int64_t of) {
            writing.tick(static_cast<double>(done) / static_cast<double>(of),
                         fmt::format("sample {} of {}", done, of));
        });
    say_report(a.common, report);
    return 0;
}

}  // namespace

void add_data_synth(CLI::App& data, Work& work) {
    CLI::App* c =
        data.add_subcommand("synth", "Write clips of moving coloured shapes with captions");
    const auto a = std::make_shared<Args>();
    add_encode_options(*c, a->common, false);
    c->add_option("--count", a->count, "Training clips")->capture_default_str();
    c->add_option("--valid", a->valid, "More clips, for OUT/valid")->capture_default_str();
    c->add_option("--fps", a->fps, "Frames per second")->capture_default_str();
    c->add_option("--mp4", a->mp4, "Also (or only) write mp4 files with captions to this folder");
    c->callback([a, &work] { work = [a] { return synth(*a); }; });
}

}  // namespace vt
