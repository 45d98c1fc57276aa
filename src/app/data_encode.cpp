// SPDX-License-Identifier: MIT
// vtrain data encode: videos and pictures to shards of latents. Floor 7.
#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <map>
#include <memory>
#include <set>

#include <CLI/CLI.hpp>

#include "app/data_options.h"
#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
#include "core/rng.h"
#include "data/captions.h"
#include "data/video.h"

namespace vt {
namespace {

struct Args {
    EncodeArgs common;
    std::vector<fs::path> videos;
    fs::path captions;
    double fps = 16;
    int64_t stride = 0, max_clips = 0;
    double valid_fraction = 0;
};

struct Video {
    fs::path path;
    std::string id, caption;
    bool valid = false, bad = false;
    int64_t clips = 0;
};

// Folders are searched through; files named by the user are taken whatever their ending.
std::vector<Video> find_videos(const std::vector<fs::path>& inputs) {
    std::vector<Video> all;
    std::set<fs::path> seen;
    const auto add = [&](const fs::path& path, const fs::path& id) {
        if (!seen.insert(fs::weakly_canonical(path)).second) return;
        Video v;
        v.path = path;
        v.id = id.generic_string();
        all.push_back(std::move(v));
    };
    for (const fs::path& input : inputs) {
        if (!fs::exists(input)) {
            raise(Fault::kUser, fmt::format("--videos {}: no such file or folder", input.string()));
        }
        if (!fs::is_directory(input)) {
            add(input, input.lexically_normal());
            continue;
        }
        std::vector<fs::path> files;
        const auto options = fs::directory_options::skip_permission_denied;
        for (const auto& e : fs::recursive_directory_iterator(input, options)) {
            if (e.is_regular_file() && looks_like_video(e.path())) files.push_back(e.path());
        }
        std::sort(files.begin(), files.end());
        for (const fs::path& f : files) add(f, f.lexically_relative(input));
    }
    // ids are unique: where two folders hold equal names, the whole path is the id
    std::map<std::string, int> uses;
    for (const Video& v : all) ++uses[v.id];
    for (Video& v : all) {
        if (uses[v.id] > 1) v.id = v.path.lexically_normal().generic_string();
    }
    return all;
}

void set_captions(std::vector<Video>& videos, const fs::path& table) {
    const Captions captions = table.empty() ? Captions{} : Captions::load(table);
    int64_t missing = 0;
    for (Video& v : videos) {
        auto found = captions.find(v.path);
        if (!found && !table.empty()) ++missing;
        if (!found) found = caption_beside(v.path);
        v.caption = found ? *found : caption_of_name(v.path);
    }
    if (missing > 0) {
        warn("{} of {} files have no caption in {}; a .txt beside the file or its name is used",
             missing, videos.size(), table.string());
    }
}

// Whole files are set aside, so that no clip's neighbour is in the other part.
void set_valid(std::vector<Video>& videos, double fraction, uint64_t seed) {
    const auto n = static_cast<int64_t>(videos.size());
    if (fraction <= 0) return;
    if (n < 2) {
        warn("--valid-fraction needs two files or more; none is set aside");
        return;
    }
    const int64_t want =
        std::clamp<int64_t>(std::llround(fraction * static_cast<double>(n)), 1, n - 1);
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t place = keyed_permutation(seed, Purpose::kOrder, 0, static_cast<uint64_t>(n),
                                                 static_cast<uint64_t>(i));
        videos[static_cast<size_t>(i)].valid = static_cast<int64_t>(place) < want;
    }
}

// Says how far a pass is, at most every two seconds.
class Progress {
  public:
    Progress(int pass, size_t files) : pass_(pass), files_(files), next_(Clock::now() + kPeriod) {}
    void tick(size_t file, int64_t clips) {
        if (Clock::now() < next_) return;
        next_ = Clock::now() + kPeriod;
        say("pass {} of 2: file {} of {}, {} clips", pass_, file + 1, files_, clips);
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds kPeriod{2};
    int pass_;
    size_t files_;
    Clock::time_point next_;
};

// Cuts one file into clips and hands them on. Returns how many. kData as read_video says, and for a
// file too short for one clip.
int64_t cut_video(const Video& v, const Args& a,
                  const std::function<void(const Clip&, int64_t)>& to) {
    const EncodeSpec& spec = a.common.spec;
    const int64_t stride = a.stride > 0 ? a.stride : spec.T;
    const auto frame_bytes = static_cast<size_t>(spec.H * spec.W * 3);
    Clip clip{.T = spec.T, .H = spec.H, .W = spec.W, .fps = a.fps, .rgb = {}};
    int64_t frames = 0, clips = 0;
    int64_t skip = 0;  // frames between clips when the stride is longer than a clip
    (void)read_video(v.path, {.fps = a.fps}, [&](const VideoFrame& f) {
        ++frames;
        if (skip > 0) {
            --skip;
            return true;
        }
        const auto fitted = resize_crop(f.rgb, f.H, f.W, spec.H, spec.W);
        clip.rgb.insert(clip.rgb.end(), fitted.begin(), fitted.end());
        if (clip.rgb.size() < frame_bytes * static_cast<size_t>(spec.T)) return true;
        to(clip, clips++);
        const auto drop = static_cast<int64_t>(frame_bytes) * std::min(stride, spec.T);
        clip.rgb.erase(clip.rgb.begin(), clip.rgb.begin() + drop);
        skip = std::max(int64_t{0}, stride - spec.T);
        return a.max_clips == 0 || clips < a.max_clips;
    });
    if (clips == 0) {
        raise(Fault::kData,
              fmt::format("{}: {} frames at {} fps, a clip needs {}", v.path.string(), frames,
                          a.fps > 0 ? fmt::format("{:g}", a.fps) : "its own", spec.T));
    }
    return clips;
}

int encode(Args& a) {
    finish_encode_args(a.common);
    if (!have_video()) {
        raise(Fault::kUser, "this vtrain was built without libav and reads no videos",
              "install the libav development packages and configure with -DVTRAIN_LIBAV=ON");
    }
    if (a.fps < 0 || a.fps > 1000 || a.stride < 0 || a.max_clips < 0 || a.valid_fraction < 0 ||
        a.valid_fraction >= 1) {
        raise(Fault::kUser,
              fmt::format("--fps {} (0 to 1000), --stride {}, --max-clips {} (0 or more), "
                          "--valid-fraction {} (0 to below 1): out of range",
                          a.fps, a.stride, a.max_clips, a.valid_fraction));
    }
    a.common.spec.fps = a.fps;
    std::vector<Video> videos = find_videos(a.videos);
    if (videos.empty()) {
        raise(Fault::kUser, fmt::format("--videos {}: no video or picture files there",
                                        a.videos.front().string()));
    }
    set_captions(videos, a.captions);
    set_valid(videos, a.valid_fraction, a.common.seed);

    const bool counted = a.common.spec.mean.empty();  // there is a first pass
    const auto source = [&](int pass, const ClipSink& sink) {
        Progress progress(pass, videos.size());
        int64_t total = 0;
        for (size_t i = 0; i < videos.size(); ++i) {
            Video& v = videos[i];
            if (v.bad) continue;
            try {
                const int64_t clips = cut_video(v, a, [&](const Clip& clip, int64_t k) {
                    // a file must not change between the passes; what is new is left out
                    if (pass == 2 && counted && k >= v.clips) return;
                    sink({.id = fmt::format("{}#{}", v.id, k),
                          .caption = v.caption,
                          .valid = v.valid,
                          .clip = &clip});
                    progress.tick(i, ++total);
                });
                if (pass == 1) v.clips = clips;
            } catch (const Error& e) {
                if (e.fault() != Fault::kData) throw;
                v.bad = true;
                warn("left out: {}", e.message());
            }
        }
    };
    const EncodeReport report = encode_dataset(a.common.out, a.common.spec, source);

    const auto bad =
        std::count_if(videos.begin(), videos.end(), [](const Video& v) { return v.bad; });
    if (report.train == 0) {
        raise(Fault::kData,
              fmt::format("nothing was encoded: {} of {} files were left out, see above", bad,
                          videos.size()));
    }
    say_report(a.common, report);
    if (bad > 0) say("{} of {} files were left out, see above", bad, videos.size());
    return 0;
}

}  // namespace

void add_data_encode(CLI::App& data, Work& work) {
    CLI::App* c = data.add_subcommand(
        "encode", "Cut videos and pictures into clips and write them as shards of latents");
    const auto a = std::make_shared<Args>();
    c->add_option("--videos", a->videos, "Folders and files")->required();
    add_encode_options(*c, a->common, true);
    c->add_option("--captions", a->captions,
                  "Table of captions: .txt (NAME tab caption), .csv or .jsonl; without it NAME.txt "
                  "beside each file, or else the words of its name");
    c->add_option("--fps", a->fps, "Frames per second of the clips; 0 keeps each file's own")
        ->capture_default_str();
    c->add_option("--stride", a->stride, "Frames from one clip's start to the next; 0: --frames");
    c->add_option("--max-clips", a->max_clips, "Clips per file; 0: all");
    c->add_option("--valid-fraction", a->valid_fraction, "Share of files set aside in OUT/valid");
    c->callback([a, &work] { work = [a] { return encode(*a); }; });
}

}  // namespace vt
