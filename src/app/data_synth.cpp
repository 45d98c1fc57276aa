// SPDX-License-Identifier: MIT
// vtrain data synth: labelled moving shapes. Floor 7.
#include <memory>

#include <CLI/CLI.hpp>

#include "app/data_options.h"
#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
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
    if (a.count < 1 || a.valid < 0 || !(a.fps > 0 && a.fps <= 1000)) {
        raise(Fault::kUser,
              fmt::format("--count {} (1 or more), --valid {} (0 or more), --fps {} (above 0, to "
                          "1000): out of range",
                          a.count, a.valid, a.fps));
    }
    EncodeSpec& spec = a.common.spec;
    spec.fps = a.fps;
    const SynthSpec shape{.T = spec.T, .H = spec.H, .W = spec.W, .fps = a.fps};
    const auto clip_at = [&](int64_t i) {
        return synth_clip(a.common.seed, static_cast<uint64_t>(i), shape);
    };

    if (!a.mp4.empty()) {
        fs::create_directories(a.mp4);
        for (int64_t i = 0; i < a.count + a.valid; ++i) {
            const SynthClip s = clip_at(i);
            const std::string name = fmt::format("shape-{:06}", i);
            write_mp4(a.mp4 / (name + ".mp4"), s.clip);
            write_atomic(a.mp4 / (name + ".txt"), s.caption + "\n");
        }
        say("wrote {} clips with their captions to {}", a.count + a.valid, a.mp4.string());
    }
    if (a.common.out.empty()) return 0;
    const EncodeReport report =
        encode_dataset(a.common.out, spec, [&](int /*pass*/, const ClipSink& sink) {
            for (int64_t i = 0; i < a.count + a.valid; ++i) {
                const SynthClip s = clip_at(i);
                sink({.id = fmt::format("shape-{}-{:06}", a.common.seed, i),
                      .caption = s.caption,
                      .valid = i >= a.count,
                      .clip = &s.clip});
            }
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
