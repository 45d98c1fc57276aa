// SPDX-License-Identifier: MIT
// vtrain data encode: videos and pictures to shards of latents. Floor 7.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <sys/stat.h>

#include <CLI/CLI.hpp>

#include "app/data_options.h"
#include "app/data_tools.h"
#include "core/check.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/pool.h"
#include "core/rng.h"
#include "data/captions.h"
#include "data/cut.h"
#include "data/video.h"

namespace vt {
namespace {

struct Args {
    EncodeArgs common;
    std::vector<fs::path> videos;
    fs::path captions;
    std::string shapes, area, aspects = "16:9,4:3,1:1,3:4,9:16", crop = "center";
    std::vector<int64_t> durations;
    int64_t cell = 0;
    CutSpec cut;
    double valid_fraction = 0;
    bool require_captions = false, no_enlarge = false, strict = false;
};

struct Video {
    fs::path path;
    std::string id;
    std::vector<std::string> captions;
    int64_t bytes = 0;
    bool valid = false;
    CutReport cut;
};

struct Found {
    std::vector<Video> videos;
    std::vector<fs::path> ignored;  // files in folders that are no videos by name or content
};

// What cannot even be tried is in the list too, with the reason.
class Finder {
  public:
    // Folders are searched through; files named by the user are taken whatever their ending.
    Found find(const std::vector<fs::path>& inputs) {
        for (const fs::path& input : inputs) {
            std::error_code ec;
            if (!fs::exists(input, ec)) {
                raise(Fault::kUser,
                      fmt::format("--videos {}: no such file or folder", input.string()));
            }
            if (fs::is_directory(input, ec)) {
                search(input);
            } else {
                add({input, {}, {}}, input.lexically_normal());
            }
        }
        // ids are unique: where two folders hold equal names, the whole path is the id
        std::map<std::string, int> uses;
        for (const Video& v : out_.videos) ++uses[v.id];
        for (Video& v : out_.videos) {
            if (uses[v.id] > 1) v.id = v.path.lexically_normal().generic_string();
        }
        return std::move(out_);
    }

  private:
    struct File {
        fs::path path;
        std::string refused, kind;
    };

    void add(const File& file, const fs::path& id) {
        std::error_code ec;
        // a link that leads nowhere is itself
        const fs::path real = file.refused.empty() ? fs::weakly_canonical(file.path, ec)
                                                   : fs::absolute(file.path, ec);
        if (!files_.insert(real).second) return;
        const auto bytes = fs::file_size(file.path, ec);
        Video v;
        v.path = file.path;
        v.id = id.generic_string();
        v.bytes = ec ? 0 : static_cast<int64_t>(bytes);
        v.cut.refused = file.refused;
        v.cut.kind = file.kind;
        out_.videos.push_back(std::move(v));
    }

    // Level by level, each level sorted: of the paths that links make to a folder the shortest is
    // taken, and none is gone through twice.
    void search(const fs::path& root) {
        std::vector<File> files;
        std::vector<fs::path> level{root};
        while (!level.empty()) {
            std::vector<fs::path> below;
            for (const fs::path& dir : level) list(dir, below, files);
            std::sort(below.begin(), below.end());
            level = std::move(below);
        }
        std::sort(files.begin(), files.end(),
                  [](const File& a, const File& b) { return a.path < b.path; });
        for (const File& f : files) add(f, f.path.lexically_relative(root));
    }

    void list(const fs::path& dir, std::vector<fs::path>& below, std::vector<File>& files) {
        struct stat st {};
        if (::stat(dir.c_str(), &st) == 0 && !folders_.emplace(st.st_dev, st.st_ino).second) return;
        std::error_code ec;
        for (fs::directory_iterator it(dir, ec), end; it != end; it.increment(ec)) {
            const fs::path& path = it->path();
            // hidden, also the leavings of other systems
            if (path.filename().string().front() == '.') continue;
            std::error_code why;
            switch (fs::status(path, why).type()) {  // of what a link leads to
                case fs::file_type::directory:
                    below.push_back(path);
                    break;
                case fs::file_type::regular:
                    if (looks_like_video(path)) {
                        files.push_back({path, {}, {}});
                    } else {
                        out_.ignored.push_back(path);
                    }
                    break;
                case fs::file_type::not_found:
                    files.push_back({path, "the link leads nowhere", "broken link"});
                    break;
                case fs::file_type::none:
                    files.push_back({path, why.message(), "cannot be looked at"});
                    break;
                default:  // never opened: a pipe would wait for its writer
                    files.push_back({path, "it is not a regular file", "it is not a regular file"});
            }
        }
        if (ec == std::errc::permission_denied) {
            files.push_back({dir, "the folder may not be read", "folder may not be read"});
        } else if (ec) {
            raise(Fault::kSystem, fmt::format("--videos {}: {}", dir.string(), ec.message()));
        }
    }

    Found out_;
    std::set<fs::path> files_;
    std::set<std::pair<dev_t, ino_t>> folders_;
};

// Captions are no files to wonder about.
void forget_captions(Found& found, const fs::path& table) {
    std::set<fs::path> captions;
    for (const Video& v : found.videos) {
        fs::path beside = v.path;
        captions.insert(beside.replace_extension(".txt"));
    }
    std::error_code ec;
    std::erase_if(found.ignored, [&](const fs::path& p) {
        return captions.contains(p) || (!table.empty() && fs::equivalent(p, table, ec));
    });
    std::sort(found.ignored.begin(), found.ignored.end());
}

void set_captions(std::vector<Video>& videos, const Args& a) {
    const Captions table = a.captions.empty() ? Captions{} : Captions::load(a.captions);
    int64_t missing = 0;
    for (Video& v : videos) {
        if (!v.cut.refused.empty()) continue;
        v.captions = table.find(v.path);
        if (v.captions.empty()) {
            ++missing;
            try {
                if (const auto beside = caption_beside(v.path)) v.captions = {*beside};
            } catch (const Error& e) {
                if (e.fault() != Fault::kData) throw;
                v.cut.refused = e.message();
                v.cut.kind = "caption is not UTF-8 text";
            }
        }
        const auto empty = [](const std::string& c) { return c.empty(); };
        if (a.require_captions && std::all_of(v.captions.begin(), v.captions.end(), empty) &&
            v.cut.refused.empty()) {
            v.cut.refused = v.cut.kind = "no caption";
        }
        if (v.captions.empty()) v.captions = {caption_of_name(v.path)};
    }
    if (a.captions.empty()) return;
    if (missing > 0) {
        warn("{} of {} files have no caption in {}; {}", missing, videos.size(),
             a.captions.string(),
             a.require_captions ? "those without a .txt beside them are left out"
                                : "a .txt beside the file or its name is used");
    }
    std::vector<fs::path> paths;
    for (const Video& v : videos) paths.push_back(v.path);
    const auto unused = table.unused(paths);
    if (!unused.empty()) {
        warn("{} of {} names in {} are no files here, \"{}\" first", unused.size(), table.size(),
             a.captions.string(), unused.front());
    }
}

// Whole files are set aside, each by a keyed hash of its own id: what else is there does not
// matter, so a set that grows keeps its split, and no clip's neighbour is in the other part. Where
// chance leaves one side without any, the file nearest to the border changes sides.
void set_valid(std::vector<Video>& videos, double fraction, uint64_t seed) {
    if (fraction <= 0) return;
    std::vector<std::pair<double, Video*>> places;
    for (Video& v : videos) {
        if (!v.cut.refused.empty()) continue;
        places.emplace_back(random_unit(seed, Purpose::kOrder, xxh3(v.id), 0), &v);
    }
    if (places.size() < 2) {
        warn("--valid-fraction needs two files or more; none is set aside");
        return;
    }
    std::sort(places.begin(), places.end());
    for (const auto& [place, v] : places) v->valid = place < fraction;
    places.front().second->valid = true;
    places.back().second->valid = false;
}

// Cuts all files, several at once. Refusals are told as they come.
void cut_all(std::vector<Video>& videos, const Args& a, const ClipSink& sink) {
    Pool pool(a.common.spec.threads);
    CutSpec spec = a.cut;
    // few files: the decoders take the other cores
    const auto files = static_cast<int64_t>(videos.size());
    spec.threads = static_cast<int>(std::max<int64_t>(1, pool.threads() / files));
    int64_t all_bytes = 1;
    for (const Video& v : videos) all_bytes += v.bytes;
    Progress progress("reading");
    std::atomic<int64_t> bytes{0}, done{0}, clips{0};
    std::atomic<bool> failed{false};
    pool.parallel_for(files, [&](int64_t i, int /*thread*/) {
        if (failed) return;
        Video& v = videos[static_cast<size_t>(i)];
        const auto tell = [&](int64_t part) {
            progress.tick(static_cast<double>(bytes + part) / static_cast<double>(all_bytes),
                          fmt::format("file {} of {}, {} clips", done.load(), files, clips.load()));
        };
        try {
            const uint64_t first = xxh3(v.id);
            if (v.cut.refused.empty()) {
                v.cut = cut_video(v.path, spec, [&](const Clip& clip, int64_t k) {
                    const size_t n = v.captions.size();
                    sink({.file = i,
                          .clip = k,
                          .id = fmt::format("{}#{}", v.id, k),
                          .caption = v.captions[(first + static_cast<uint64_t>(k)) % n],
                          .valid = v.valid,
                          .pixels = &clip});
                    ++clips;
                    tell(0);
                });
            }
            if (!v.cut.refused.empty()) {
                warn("left out: {}: {}", v.path.string(), v.cut.refused);
            } else if (!v.cut.trouble.empty()) {
                warn("damaged: {}: {}; {} clips are used", v.path.string(), v.cut.trouble,
                     v.cut.clips);
            }
        } catch (...) {
            failed = true;  // the others need not go on
            throw;
        }
        bytes += v.bytes;
        ++done;
        tell(0);
    });
}

void say_summary(const Found& found, int64_t refused) {
    const auto files = static_cast<int64_t>(found.videos.size());
    std::map<std::string, int64_t> reasons;
    std::map<std::string, std::pair<int64_t, double>> shapes;  // files, crop of all
    for (const Video& v : found.videos) {
        if (!v.cut.refused.empty()) {
            ++reasons[v.cut.kind];
        } else {
            auto& [n, crop] = shapes[name_of(v.cut.shape)];
            ++n;
            crop += v.cut.crop;
        }
    }
    std::string others;
    if (!found.ignored.empty()) {
        constexpr size_t kNamed = 5;
        others = fmt::format("; {} more are no videos by name or content:", found.ignored.size());
        for (size_t i = 0; i < std::min(kNamed, found.ignored.size()); ++i) {
            others += (i == 0 ? " " : ", ") + found.ignored[i].filename().string();
        }
        if (found.ignored.size() > kNamed) others += ", ...";
    }
    say("taken: {} of {} files{}", files - refused, files, others);
    for (const auto& [name, of] : shapes) {
        say("  {:>14}  {:>8} files, {:.0f} % of the picture cropped", name, of.first,
            100 * of.second / static_cast<double>(of.first));
    }
    if (refused == 0) return;
    say("left out: {} of {} files", refused, files);
    for (const auto& [kind, n] : reasons) say("  {:>8}  {}", n, kind);
}

void finish_args(Args& a) {
    check_range("--fps", a.cut.fps, 0, 1000);
    check_range("--valid-fraction", a.valid_fraction, 0, 0.99);
    check_range("--max-crop", a.cut.max_crop, 0, 1);
    const int64_t ns = int64_t{1} << a.common.spec.codec.ls;
    if (!a.shapes.empty()) a.common.shapes = parse_shapes(a.shapes, "--shapes");
    if (!a.area.empty()) {
        int64_t H = 0, W = 0;
        parse_size(a.area, &H, &W);
        ShapeGrid grid{.area = H * W,
                       .aspects = parse_aspects(a.aspects),
                       .frames = a.durations,
                       .cell = a.cell > 0 ? a.cell : 2 * ns};
        if (grid.frames.empty()) grid.frames = {a.common.frames};
        a.common.shapes = make_shapes(grid);
    }
    finish_encode_args(a.common);
    a.common.spec.fps = a.cut.fps;
    a.cut.shapes = a.common.spec.shapes;
    a.cut.enlarge = !a.no_enlarge;
    a.cut.crop = a.crop == "top" ? Crop::kTop : a.crop == "none" ? Crop::kSqueeze : Crop::kCenter;
}

int encode(Args& a) {
    finish_args(a);
    if (!have_video()) {
        raise(Fault::kUser, "this vtrain was built without libav and reads no videos",
              "install the libav development packages and configure with -DVTRAIN_LIBAV=ON");
    }
    Found found = Finder().find(a.videos);
    forget_captions(found, a.captions);
    std::vector<Video>& videos = found.videos;
    if (videos.empty()) {
        raise(Fault::kUser, fmt::format("--videos {}: no video or picture files there",
                                        a.videos.front().string()));
    }
    set_captions(videos, a);
    set_valid(videos, a.valid_fraction, a.common.seed);

    const auto refused = [&] {
        return std::count_if(videos.begin(), videos.end(),
                             [](const Video& v) { return !v.cut.refused.empty(); });
    };
    Progress writing("writing shards");
    const EncodeReport report = encode_dataset(
        a.common.out, a.common.spec,
        [&](const ClipSink& sink) {
            cut_all(videos, a, sink);
            if (a.strict && refused() > 0) {
                say_summary(found, refused());
                raise(Fault::kData,
                      fmt::format("--strict: {} of {} files were left out, see above; nothing was "
                                  "written",
                                  refused(), videos.size()));
            }
        },
        [&](int64_t done, int64_t of) {
            writing.tick(static_cast<double>(done) / static_cast<double>(of),
                         fmt::format("sample {} of {}", done, of));
        });
    say_summary(found, refused());
    if (report.train == 0) {
        raise(Fault::kData,
              fmt::format("nothing was encoded: {} of {} files were left out, see above", refused(),
                          videos.size()));
    }
    say_report(a.common, report);
    return 0;
}

void add_shape_options(CLI::App& c, Args& a) {
    CLI::Option* shapes = c.add_option(
        "--shapes", a.shapes,
        "Several shapes at once, height x width x frames: 256x448x17,448x256x17,320x320x1. Each "
        "file goes to the one that fits it best, pictures to those of one frame");
    CLI::Option* area = c.add_option(
        "--area", a.area,
        "Shapes made for you: of about this area, e.g. 256x448, one for each of --aspects and "
        "--durations");
    c.add_option("--aspects", a.aspects, "Width to height, for --area")
        ->needs(area)
        ->capture_default_str();
    c.add_option("--durations", a.durations, "Frames, for --area, e.g. 1,17,33; --frames if absent")
        ->delimiter(',')
        ->needs(area)
        ->check(CLI::Range(int64_t{1}, int64_t{65536}));
    c.add_option("--cell", a.cell,
                 "Heights and widths of --area are multiples of it; 0: twice the codec's, so that "
                 "latents divide into patches of 2")
        ->needs(area)
        ->check(CLI::Range(int64_t{0}, int64_t{4096}));
    shapes->excludes(area);
    for (CLI::Option* o : {shapes, area}) o->excludes(c.get_option("--size"));
    shapes->excludes(c.get_option("--frames"));
    c.add_option("--crop", a.crop,
                 "What is kept where shapes differ: center; top: the upper end of tall pictures; "
                 "none: all, with sides scaled unequally")
        ->check(CLI::IsMember({"center", "top", "none"}))
        ->capture_default_str();
    c.add_option("--max-crop", a.cut.max_crop,
                 "Leave files out of which a larger share would be cropped (or squeezed) away")
        ->capture_default_str();
    c.add_flag("--no-enlarge", a.no_enlarge, "Leave files out that are smaller than their shape");
}

}  // namespace

void add_data_encode(CLI::App& data, Work& work) {
    CLI::App* c = data.add_subcommand(
        "encode", "Cut videos and pictures into clips and write them as shards of latents");
    const auto a = std::make_shared<Args>();
    c->add_option("--videos", a->videos, "Folders and files")->required();
    add_encode_options(*c, a->common, true);
    add_shape_options(*c, *a);
    c->add_option(
        "--captions", a->captions,
        "Table of captions: .txt (NAME tab caption), .csv, .tsv, .jsonl or .json; without "
        "it NAME.txt beside each file, or else the words of its name");
    c->add_flag("--require-captions", a->require_captions,
                "Leave files out whose caption would be made of their name, or is empty");
    c->add_option("--fps", a->cut.fps, "Frames per second of the clips; 0 keeps each file's own")
        ->capture_default_str();
    constexpr int64_t kMost = int64_t{1} << 40;
    c->add_option("--stride", a->cut.stride,
                  "Frames from one clip's start to the next; 0: a clip's length, and for stills "
                  "out of videos one second")
        ->check(CLI::Range(int64_t{0}, kMost));
    c->add_option("--max-clips,--max-clips-per-video", a->cut.max_clips, "Clips per file; 0: all")
        ->check(CLI::Range(int64_t{0}, kMost));
    c->add_option("--valid-fraction", a->valid_fraction,
                  "Share of files set aside in OUT/valid, by a hash of seed and file name");
    c->add_flag("--strict", a->strict, "Write nothing and exit 3 if any file has to be left out");
    c->callback([a, &work] { work = [a] { return encode(*a); }; });
}

}  // namespace vt
