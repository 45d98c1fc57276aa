// SPDX-License-Identifier: MIT
// Times a save: how long training stands still for it, and how fast it becomes durable.
//   vtrain_bench_ckpt [--mib N] [--threads N] [--rounds N] [--dir DIR]
// Within each round, one after another: a copy of the state in memory (the roof of the stall), the
// stall of a save beside training, the disk's own rate (one file of the same size, space reserved,
// written in 4 MiB pieces, synced), and the save's rate from its start to "committed". Ratios are
// of medians over the rounds.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "ckpt/run_dir.h"
#include "ckpt/saver.h"
#include "core/log.h"

using namespace vt;

namespace {

double now() {
    using Clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double median(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
}

struct Settings {
    int64_t mib = 512, rounds = 5;
    int threads = 0;
    std::string dir = "bench-ckpt";
};

// A state of tensors as a model has them: 16 MiB matrices and small vectors.
struct Bytes {
    std::vector<float> memory;
    std::vector<StateTensor> states;
    explicit Bytes(int64_t mib) : memory(static_cast<size_t>(mib << 18), 1.25F) {
        constexpr int64_t kMatrix = int64_t{1} << 22, kVector = 2048;
        const auto n = std::ssize(memory);
        int64_t at = 0;
        const auto add = [&](int64_t count) {
            count = std::min(count, n - at);
            if (count == 0) return;
            states.push_back({.name = fmt::format("model/blocks.{}.weight", states.size()),
                              .global = {count},
                              .local = {memory.data() + at, {count}, DType::kF32}});
            at += count;
        };
        while (at < n) {
            add(kMatrix);
            add(kVector);
        }
        for (int64_t i = 0; i < n; ++i) memory[static_cast<size_t>(i)] = static_cast<float>(i);
    }
};

double copy_seconds(Pool& pool, const std::vector<float>& from, std::vector<float>& to) {
    const auto bytes = std::ssize(from) * 4;
    constexpr int64_t kPiece = int64_t{1} << 22;
    const double begin = now();
    pool.parallel_for(div_up(bytes, kPiece), [&](int64_t i, int /*thread*/) {
        const int64_t at = i * kPiece;
        std::memcpy(reinterpret_cast<char*>(to.data()) + at,
                    reinterpret_cast<const char*>(from.data()) + at,
                    static_cast<size_t>(std::min(kPiece, bytes - at)));
    });
    return now() - begin;
}

double disk_seconds(const fs::path& path, const std::vector<float>& data) {
    const auto bytes = std::ssize(data) * 4;
    constexpr int64_t kPiece = int64_t{1} << 22;
    const double begin = now();
    Fd fd = create_write(path);
    reserve_space(fd, bytes, path);
    for (int64_t at = 0; at < bytes; at += kPiece) {
        pwrite_all(fd, reinterpret_cast<const char*>(data.data()) + at,
                   std::min(kPiece, bytes - at), at, path);
    }
    fsync_file(fd, path);
    fd.close(path);
    const double seconds = now() - begin;
    fs::remove(path);
    return seconds;
}

int bench(const Settings& set) {
    Pool pool(set.threads);
    const auto world = self_group();
    const Bytes state(set.mib);
    std::vector<float> other(state.memory.size(), 0.5F);
    const fs::path run = set.dir;
    fs::create_directories(run);
    CheckpointOptions options;
    options.keep_last = set.rounds + 2;  // removing is not part of it
    Saver saver(run, options, *world);
    saver.declare(state.states);
    saver.reserve();
    saver.declare(state.states);
    std::vector<double> copy, stall, disk, durable;
    for (int64_t i = 0; i <= set.rounds; ++i) {  // the first warms up
        CheckpointInfo info;
        info.step = i + 1;
        info.run_id = "bench";
        const double c = copy_seconds(pool, state.memory, other);
        const double begin = now();
        saver.save(info, state.states, pool);
        const double s = now() - begin;
        while (saver.committed_step() != info.step) {
            saver.poll();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        const double w = now() - begin - s;
        const double d = disk_seconds(run / "plain", state.memory);
        if (i == 0) continue;
        copy.push_back(c);
        stall.push_back(s);
        disk.push_back(d);
        durable.push_back(w);
    }
    fs::remove_all(run);
    const double gib = static_cast<double>(set.mib) / 1024;
    say("state {} MiB, {} threads, {} rounds, medians", set.mib, pool.threads(), set.rounds);
    say("copy in memory   {:8.1f} ms  {:6.2f} GiB/s", 1e3 * median(copy), gib / median(copy));
    say("stall of a save  {:8.1f} ms  {:6.2f} of the copy", 1e3 * median(stall),
        median(stall) / median(copy));
    say("disk itself      {:8.1f} ms  {:6.2f} GiB/s", 1e3 * median(disk), gib / median(disk));
    say("save, durable    {:8.1f} ms  {:6.2f} GiB/s, {:.0f} % of the disk's", 1e3 * median(durable),
        gib / median(durable), 100 * median(disk) / median(durable));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Settings set;
        for (int i = 1; i + 1 < argc; i += 2) {
            const std::string flag = argv[i], value = argv[i + 1];
            if (flag == "--mib") {
                set.mib = std::stoll(value);
            } else if (flag == "--threads") {
                set.threads = std::stoi(value);
            } else if (flag == "--rounds") {
                set.rounds = std::stoll(value);
            } else if (flag == "--dir") {
                set.dir = value;
            } else {
                raise(Fault::kUser, fmt::format("{} is no flag", flag),
                      "--mib N --threads N --rounds N --dir DIR");
            }
        }
        return bench(set);
    } catch (const std::exception& e) {
        warn("{}", e.what());
        return 1;
    }
}
