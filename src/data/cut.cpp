// SPDX-License-Identifier: MIT
#include "data/cut.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "core/check.h"

namespace vt {
namespace {

class Cutter {
  public:
    Cutter(const fs::path& path, const CutSpec& spec,
           const std::function<void(const Clip&, int64_t)>& to)
        : path_(path), spec_(spec), to_(to) {
        for (const ClipShape& s : spec.shapes) lengths_.insert(s.T);
    }

    CutReport run() {
        // the longest first; a file that turns out shorter is short, and read again
        const int64_t longest = *lengths_.rbegin();
        pass(longest);
        if (report_.clips == 0 && report_.refused.empty()) {
            const auto above = lengths_.upper_bound(report_.frames);
            if (above == lengths_.begin()) {
                refuse("too short",
                       fmt::format("{} frame{} at {} fps, a clip needs {}", report_.frames,
                                   report_.frames == 1 ? "" : "s", rate(), *lengths_.begin()));
            } else {
                pass(*std::prev(above));
            }
        }
        if (report_.clips > 0) {  // what stopped it later does not undo them
            if (!report_.refused.empty()) report_.trouble = report_.refused;
            report_.refused.clear();
            report_.kind.clear();
        } else if (report_.refused.empty()) {
            refuse("too short", fmt::format("{} frames", report_.frames));
        }
        return report_;
    }

  private:
    [[nodiscard]] std::string rate() const {
        return spec_.fps > 0 ? fmt::format("{:g}", spec_.fps) : "its own";
    }
    void refuse(const std::string& kind, const std::string& more = {}) {
        report_.kind = kind;
        report_.refused = more.empty() ? kind : kind + ": " + more;
    }

    void pass(int64_t frames) {
        length_ = frames;
        chosen_ = false;
        report_.frames = stretch_ = skip_ = 0;
        clip_.rgb.clear();
        try {
            const VideoInfo info = read_video(path_, {.fps = spec_.fps, .threads = spec_.threads},
                                              [&](const VideoFrame& f) { return take(f); });
            if (!info.trouble.empty()) {
                report_.trouble = fmt::format("{} after {} frames", info.trouble, info.decoded);
            }
        } catch (const Error& e) {
            if (e.fault() != Fault::kData) throw;
            // the file is named by whoever reports this
            std::string why = e.message();
            const std::string name = path_.string() + ": ";
            const size_t at = why.find(name);
            if (at != std::string::npos) why.erase(0, at + name.size());
            refuse(why);
            report_.kind = why.substr(0, why.find_first_of("(:"));
            while (report_.kind.ends_with(' ')) report_.kind.pop_back();
        }
    }

    // The shape and the stride, by the first frame.
    bool choose(const VideoFrame& f) {
        if (f.still) length_ = *lengths_.begin();
        if (f.still && length_ != 1) {
            report_.frames = 1;
            refuse("too short", fmt::format("1 frame, a picture; a clip needs {}", length_));
            return false;
        }
        const auto shape = choose_shape(spec_.shapes, length_, f.H, f.W, spec_.enlarge);
        if (!shape) {
            refuse("smaller than every shape", fmt::format("{}x{} pixels", f.H, f.W));
            return false;
        }
        report_.shape = *shape;
        report_.crop = spec_.crop == Crop::kSqueeze ? 0 : crop_share(*shape, f.H, f.W);
        if (crop_share(*shape, f.H, f.W) > spec_.max_crop) {
            refuse("unlike every shape", fmt::format("{}x{} pixels, {:.0f} % of it would be lost",
                                                     f.H, f.W, 100 * report_.crop));
            return false;
        }
        stride_ = spec_.stride > 0 ? spec_.stride : length_;
        limit_ = spec_.max_clips > 0 ? spec_.max_clips : INT64_MAX;
        if (length_ == 1) {
            if (spec_.stride == 0) {
                stride_ = spec_.fps > 0 ? std::max<int64_t>(1, std::llround(spec_.fps)) : 25;
            }
            if (lengths_.size() > 1) limit_ = 1;  // a video among pictures for want of length
        }
        clip_.T = shape->T;
        clip_.H = shape->H;
        clip_.W = shape->W;
        clip_.fps = spec_.fps;
        clip_.rgb.reserve(static_cast<size_t>(shape->T * shape->H * shape->W * 3));
        return chosen_ = true;
    }

    bool take(const VideoFrame& f) {
        if (!chosen_ && !choose(f)) return false;
        if (!f.joins) {
            clip_.rgb.clear();
            stretch_ = skip_ = 0;
        }
        report_.frames = std::max(report_.frames, ++stretch_);
        if (skip_ > 0) {
            --skip_;
            return true;
        }
        const auto fitted = resize_crop(f.rgb, f.H, f.W, clip_.H, clip_.W, spec_.crop);
        clip_.rgb.insert(clip_.rgb.end(), fitted.begin(), fitted.end());
        if (clip_.rgb.size() < fitted.size() * static_cast<size_t>(clip_.T)) return true;
        to_(clip_, report_.clips++);
        if (report_.clips >= limit_) return false;
        const auto drop = static_cast<std::ptrdiff_t>(fitted.size()) * std::min(stride_, clip_.T);
        clip_.rgb.erase(clip_.rgb.begin(), clip_.rgb.begin() + drop);
        skip_ = std::max(int64_t{0}, stride_ - clip_.T);
        return true;
    }

    const fs::path& path_;
    const CutSpec& spec_;
    const std::function<void(const Clip&, int64_t)>& to_;
    std::set<int64_t> lengths_;
    CutReport report_;
    Clip clip_;
    bool chosen_ = false;
    int64_t length_ = 0, stride_ = 0, limit_ = 0, stretch_ = 0;
    int64_t skip_ = 0;  // frames between clips when the stride is longer than a clip
};

}  // namespace

CutReport cut_video(const fs::path& path, const CutSpec& spec,
                    const std::function<void(const Clip&, int64_t)>& to) {
    VT_CHECK(!spec.shapes.empty(), "no shapes to cut {} to", path.string());
    return Cutter(path, spec, to).run();
}

}  // namespace vt
