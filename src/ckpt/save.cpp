// SPDX-License-Identifier: MIT
#include "ckpt/save.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "comm/agree.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/safetensors.h"

namespace vt {

SaveAttempt::SaveAttempt() : id_(hex64(unique_bits())) {}

bool SaveAttempt::abandon() {
    Phase writing = Phase::kWriting;
    return phase_.compare_exchange_strong(writing, Phase::kAbandoned) ||
           writing == Phase::kAbandoned;
}

void SaveAttempt::check() const {
    if (abandoned())
        raise(Fault::kSystem, fmt::format("the save was given up ({})", doing_.load()));
}

void SaveAttempt::begin_publish() {
    Phase writing = Phase::kWriting;
    if (!phase_.compare_exchange_strong(writing, Phase::kPublishing)) check();
    doing_ = "publish";
}

namespace {

// The shape a part has in its file: the tensor's or the rectangle's where it is one, else flat. A
// checkpoint of one rank thus opens anywhere with the shapes of the model.
Shape shape_in_file(const StateTensor& t) {
    if (t.flat_end - t.flat_begin != numel(t.rect)) return {t.flat_end - t.flat_begin};
    Shape s;
    for (const auto& [begin, end] : t.rect) s.push(end - begin);
    return s;
}

// Writes this rank's file and returns its part of the manifest.
Manifest write_part(const fs::path& dir, const CheckpointInfo& info, const Group& world,
                    const std::vector<StateTensor>& states, SaveAttempt& attempt) {
    constexpr int64_t kPiece = int64_t{1} << 20;  // elements: hashed and written while in cache
    std::vector<StateTensor> parts;
    std::vector<TensorSpec> specs;
    std::map<std::string, int> times;
    Manifest m;
    for (const StateTensor& state : states) {
        StateTensor t = resolved(state);
        ManifestTensor& mt = m.tensors[t.name];
        if (times[t.name]++ == 0) {
            mt.shape = t.global;
            mt.dtype = t.local.dtype;
        }
        VT_CHECK(mt.shape == t.global && mt.dtype == t.local.dtype, "two kinds of '{}'", t.name);
        if (t.local.numel() == 0) continue;
        const int nth = times[t.name];
        specs.push_back({nth == 1 ? t.name : fmt::format("{}@{}", t.name, nth), t.local.dtype,
                         shape_in_file(t)});
        parts.push_back(std::move(t));
    }
    const std::string name = fmt::format("rank-{:05}.safetensors", world.rank());
    attempt.at("reserve space");
    SafetensorsWriter writer(dir / name, specs,
                             {{"format", "vtrain-checkpoint"},
                              {"step", std::to_string(info.step)},
                              {"run_id", info.run_id},
                              {"rank", fmt::format("{} of {}", world.rank(), world.size())}});
    m.files.push_back({name, writer.file_bytes(), writer.header_bytes(), xxh3(writer.header())});
    attempt.at("write");
    for (size_t i = 0; i < parts.size(); ++i) {
        const StateTensor& t = parts[i];
        Xxh3Stream hash;
        const int64_t n = t.local.numel(), width = size_of(t.local.dtype);
        for (int64_t at = 0; at < n; at += kPiece) {
            const int64_t count = std::min(kPiece, n - at);
            const char* data = static_cast<const char*>(t.local.data) + at * width;
            hash.update(data, count * width);
            writer.write(i, {data, {count}, t.local.dtype});
            attempt.wrote(count * width);
        }
        m.tensors[t.name].extents.push_back(
            {t.rect, t.flat_begin, t.flat_end, 0, writer.offset(i), hash.digest()});
    }
    attempt.at("sync");
    writer.close();
    return m;
}

void write_manifest(const fs::path& dir, const Manifest& m) {
    const fs::path path = dir / kManifestName;
    const std::string text = encode(m);
    Fd fd = create_write(path);
    write_all(fd, text.data(), narrow<int64_t>(text.size()), path);
    fsync_file(fd, path);
    fd.close(path);
}

void rename_or_raise(const fs::path& from, const fs::path& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) raise_errno("rename into", to);
}

// temp becomes final; a final that is there becomes step-N.abandoned-K. Sets `published` as soon as
// temp may no longer be removed.
void publish(const fs::path& temp, const fs::path& final, bool& published) {
    const fs::path parent = final.parent_path();
    struct stat st {};
    if (::lstat(final.c_str(), &st) != 0) {
        if (errno != ENOENT) raise_errno("stat", final);
        rename_or_raise(temp, final);
        published = true;
        fsync_dir(parent);
        return;
    }
    // Changing places leaves no moment without a checkpoint of this step.
    if (::renameat2(AT_FDCWD, temp.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
        published = true;
        fsync_dir(parent);
        try {
            // temp is the old checkpoint now: give it its name for good
            for (int k = 1;; ++k) {
                const fs::path to = fmt::format("{}.abandoned-{}", final.string(), k);
                if (::lstat(to.c_str(), &st) == 0) continue;
                rename_or_raise(temp, to);
                break;
            }
        } catch (const Error& e) {
            warn("{} stays under the name of a temporary one: {}", temp.string(), e.message());
        }
        return;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) raise_errno("replace", final);
    const fs::path aside = abandon(final);
    try {
        rename_or_raise(temp, final);
    } catch (...) {
        if (::rename(aside.c_str(), final.c_str()) != 0) {
            warn("{} stays under the name {}", final.string(), aside.string());
        }
        throw;
    }
    published = true;
    fsync_dir(parent);
}

}  // namespace

fs::path save(const fs::path& run_dir, const CheckpointInfo& info,
              const std::vector<StateTensor>& states, Group& world, SaveAttempt& attempt) {
    VT_CHECK(info.step >= 0, "step {}", info.step);
    const auto start = std::chrono::steady_clock::now();
    const bool lead = world.rank() == 0;
    const std::string id = broadcast_text(world, attempt.id());
    const fs::path final = run_dir / step_name(info.step);
    const fs::path temp = fs::path(final.string() + kTempMark + id);
    bool published = false;
    try {
        agree(world, "prepare a checkpoint", [&] {
            if (!lead) return;
            attempt.at("prepare");
            std::error_code error;
            fs::create_directories(run_dir, error);
            if (error) {
                raise(Fault::kSystem,
                      fmt::format("cannot create {}: {}", run_dir.string(), error.message()));
            }
            if (::mkdir(temp.c_str(), 0777) != 0) raise_errno("create", temp);
        });
        Manifest part;
        agree(world, "write its part of a checkpoint",
              [&] { part = write_part(temp, info, world, states, attempt); });
        part.info.step = info.step;
        part.info.run_id = id;
        const std::vector<std::string> parts =
            gather_texts(world, world.size() == 1 ? std::string() : encode(part));
        agree(world, "commit a checkpoint", [&] {
            if (!lead) return;
            attempt.at("commit");
            Manifest m = std::move(part);
            for (size_t r = 1; r < parts.size(); ++r) {
                const Manifest other = decode(parts[r], temp);
                VT_CHECK(other.info.step == info.step && other.info.run_id == id,
                         "rank {} is at step {} of attempt {}, rank 0 at step {} of {}", r,
                         other.info.step, other.info.run_id, info.step, id);
                merge(m, other);
            }
            m.info = info;
            check_complete(m, Fault::kBug, temp.string());
            write_manifest(temp, m);
            attempt.at("sync the directory");
            fsync_dir(temp);
            attempt.begin_publish();
            publish(temp, final, published);
            int64_t bytes = 0;
            for (const ManifestFile& f : m.files) bytes += f.bytes;
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            say("checkpoint: committed step {} to {} ({:.1f} MiB in {:.2f} s)", info.step,
                final.string(), static_cast<double>(bytes) / 1048576.0, took.count());
        });
    } catch (...) {
        std::error_code ignored;
        if (lead && !published) fs::remove_all(temp, ignored);
        throw;
    }
    return final;
}

fs::path save(const fs::path& run_dir, const CheckpointInfo& info,
              const std::vector<StateTensor>& states, Group& world) {
    SaveAttempt attempt;
    return save(run_dir, info, states, world, attempt);
}

}  // namespace vt
