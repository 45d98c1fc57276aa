// SPDX-License-Identifier: MIT
// How fast the loader gives samples, beside the plainest program that does the same work: as many
// threads, each in a loop over its samples: pread, XXH3 of the bytes, conversion to f32 into a
// buffer as large as the loader's. Both read the same draws of the same shards, warm in the page
// cache, in turns; the ratio of each pair is what counts, since the machine may be busy.
//
//   vtrain_bench_loader [FOLDER] [ROUNDS]      (default: a temporary folder, 7 rounds)
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <thread>

#include "core/hash.h"
#include "core/rng.h"
#include "data/index.h"
#include "data/order.h"
#include "data/shard_read.h"

using namespace vt;

namespace {

struct Case {
    const char* name;
    std::array<int64_t, 4> shape;
    DType stored;
    int64_t text_rows, text_dim, files, per_file, batch, steps;
};

LatentFacts facts_of(const Case& c) {
    LatentFacts f;
    f.codec = "bench";
    f.channels = c.shape[0];
    f.normalised = false;
    f.text_encoder = "bench";
    f.text_dim = c.text_dim;
    f.text_len = c.text_rows;
    return f;
}

std::vector<fs::path> write(const fs::path& dir, const Case& c) {
    std::vector<fs::path> out;
    for (int64_t k = 0; k < c.files; ++k) {
        out.push_back(dir / fmt::format("{}-{}.h5", c.name, k));
        if (fs::exists(out.back())) continue;
        ShardWriter w(out.back(), facts_of(c), c.shape,
                      std::vector<float>(static_cast<size_t>(c.text_dim), 0.5F),
                      {.dtype = c.stored});
        ShardSample s;
        s.latent.resize(static_cast<size_t>(c.shape[0] * c.shape[1] * c.shape[2] * c.shape[3]));
        s.text.resize(static_cast<size_t>(c.text_rows * c.text_dim));
        for (int64_t i = 0; i < c.per_file; ++i) {
            s.id = fmt::format("{}/{}", k, i);
            const auto id = static_cast<uint64_t>(k * c.per_file + i);
            for (size_t j = 0; j < s.latent.size(); ++j) {
                s.latent[j] = static_cast<float>(random_bits(1, Purpose::kTest, id, j) >> 8);
            }
            std::fill(s.text.begin(), s.text.end(), static_cast<float>(i));
            w.add(s);
        }
        w.close();
    }
    return out;
}

double seconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Plain {
    const Dataset& data;
    const std::vector<ShardIndex>& index;
    std::vector<Fd> fds;
    std::vector<float> to;  // as many samples as the loader has buffers for
    int64_t slots = 0, latent = 0, text = 0;

    void one(int64_t n, const Draw& d) {
        const Dataset::Sample s = data.sample(d.source, d.index);
        const ShardIndex& x = index[static_cast<size_t>(s.file)];
        const Fd& fd = fds[static_cast<size_t>(s.file)];
        float* out = to.data() + n % slots * (latent + text);
        Xxh3Stream hash;
        const auto read = [&](Stored stored, int64_t at, int64_t count, float* into) {
            std::array<char, 65536> piece;  // NOLINT: filled by pread
            const int64_t width = size_of(stored), most = std::ssize(piece) / width;
            for (int64_t i = 0; i < count; i += most) {
                const int64_t m = std::min(most, count - i);
                pread_all(fd, piece.data(), m * width, at + i * width, "");
                hash.update(piece.data(), m * width);
                to_floats(stored, piece.data(), m, into + i);
            }
        };
        const auto r = static_cast<size_t>(s.row);
        const int64_t begin = x.text_start[r], rows = x.text_start[r + 1] - begin;
        const int64_t dim = x.facts.text_dim;
        read(x.latent_type, x.latents.offset + s.row * latent * size_of(x.latent_type), latent,
             out);
        read(x.text_type, x.text.offset + begin * dim * size_of(x.text_type), rows * dim,
             out + latent);
        if (hash.digest() != x.checksums[r]) std::abort();
    }
};

void run(const fs::path& dir, const Case& c, int threads, int rounds) {
    const std::vector<fs::path> files = write(dir, c);
    const IndexOptions options{.program = VTRAIN_PROGRAM, .timeout_s = 60, .cache = false};
    const auto data = Dataset::open({{files, 1.0, "bench"}}, options);
    std::vector<ShardIndex> index;
    for (Indexed& x : index_files(files, options)) index.push_back(std::move(*x.index));
    const LoaderOptions o{.seed = 3,
                          .global_batch_size = c.batch,
                          .micro_batch_size = c.batch,
                          .reader_threads = threads};
    Arena arena("data", MemCategory::kData);
    { const Loader measure(*data, o, 0, arena); }
    arena.reserve();
    Plain plain{.data = *data, .index = index, .fds = {}, .to = {}};
    for (const fs::path& f : files) plain.fds.push_back(open_read(f));
    plain.latent = index[0].latent_elements();
    plain.text = c.text_rows * c.text_dim;
    plain.slots = c.batch * (o.prefetch_steps + 1);
    plain.to.resize(static_cast<size_t>(plain.slots * (plain.latent + plain.text)));
    const int64_t total = c.batch * c.steps;
    std::vector<int64_t> table(BlockOrder::needs_table(*data) ? kBlockDraws : 0);
    BlockOrder order(*data, o.seed, {table.data(), {std::ssize(table)}, DType::kI64});
    std::vector<Draw> draws;
    for (int64_t i = 0; i < total; ++i) draws.push_back(order.at(static_cast<uint64_t>(i)));

    const auto plain_run = [&] {
        std::atomic<int64_t> next{0};
        std::vector<std::thread> pool;
        for (int t = 0; t < threads; ++t) {
            pool.emplace_back([&] {
                for (int64_t i = 0; (i = next++) < total;) {
                    plain.one(i, draws[static_cast<size_t>(i)]);
                }
            });
        }
        for (std::thread& t : pool) t.join();
    };
    // to the last step asked for, without the end of the threads that read beyond it
    const auto loader_seconds = [&] {
        arena.reset();
        const auto start = std::chrono::steady_clock::now();
        Loader loader(*data, o, 0, arena);
        for (int64_t s = 0; s < c.steps; ++s) (void)loader.next(nullptr);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    plain_run();  // warms the page cache
    std::vector<double> ratio, rate;
    const double bytes = static_cast<double>(total) *
                         static_cast<double>(plain.latent * size_of(index[0].latent_type) +
                                             plain.text * size_of(index[0].text_type));
    for (int k = 0; k < rounds; ++k) {
        const double a = seconds(plain_run), b = loader_seconds();
        ratio.push_back(a / b);
        rate.push_back(bytes / b / 1e9);
    }
    std::sort(ratio.begin(), ratio.end());
    std::sort(rate.begin(), rate.end());
    const size_t mid = ratio.size() / 2;
    fmt::print(
        "{:<8} {:2} threads  {:9.0f} samples/s  {:6.2f} GB/s  x plain {:.3f}  ({:.3f} to "
        "{:.3f})\n",
        c.name, threads, rate[mid] * 1e9 / bytes * static_cast<double>(total), rate[mid],
        ratio[mid], ratio.front(), ratio.back());
}

}  // namespace

int main(int argc, char** argv) {
    const fs::path dir = argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path() / "vtrain-bench";
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
    fs::create_directories(dir);
    const std::array<Case, 4> cases = {
        Case{"wan480p", {16, 21, 60, 104}, DType::kBF16, 64, 4096, 2, 12, 8, 24},
        Case{"clip", {16, 5, 32, 32}, DType::kBF16, 32, 512, 4, 100, 32, 60},
        Case{"clipf32", {16, 5, 32, 32}, DType::kF32, 32, 512, 4, 100, 32, 60},
        Case{"tiny", {4, 1, 16, 16}, DType::kBF16, 8, 64, 4, 1000, 256, 200}};
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (const Case& c : cases) {
        for (const int threads : {1, cores}) run(dir, c, threads, rounds);
    }
    return 0;
}
