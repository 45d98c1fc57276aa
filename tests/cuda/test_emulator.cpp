// SPDX-License-Identifier: MIT
// The emulator: right kernels give the right values under every order of threads and no report;
// each planted mistake is named. A mistake runs in a child: a sanitizer ends the process it finds
// one in.
#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/rng.h"
#include "tests/cuda/emu/emu.h"
#include "tests/cuda/emulated_kernels.h"
#include "tests/cuda/runtime_double.h"

using namespace vt;
using namespace vt::test::emulated;

namespace {

std::vector<float> normals(int64_t n, uint64_t id) {
    std::vector<float> v;
    for (int64_t i = 0; i < n; ++i) {
        v.push_back(random_normal(1, Purpose::kTest, id, static_cast<uint64_t>(i)));
    }
    return v;
}

void expect(const char* what, int lane, int got, int want) {
    CHECK_MESSAGE(got == want, what, ", thread ", lane);
}

}  // namespace

TEST_CASE("cuda/emulator: warp operations of whole, short and divided warps") {
    for (const int threads : {32, 96, 40}) {
        std::vector<int> out(static_cast<size_t>(threads) * kOps);
        warp_operations(out.data(), threads);
        for (int t = 0; t < threads; ++t) {
            const int l = t % 32, first = t - l, n = std::min(32, threads - first);
            const unsigned all = n == 32 ? ~0U : (1U << n) - 1;
            const int* o = out.data() + t * kOps;
            expect("ballot", t, o[0], static_cast<int>(all));
            expect("ballot odd", t, o[1], static_cast<int>(all & 0xAAAAAAAAU));
            expect("shfl", t, o[2], first + 3);
            expect("shfl width 4", t, o[3], first + (l & ~3) + (l + 1) % 4);
            expect("up", t, o[4], l >= 2 ? t - 2 : t);
            expect("down width 8", t, o[5], l % 8 < 6 ? t + 2 : t);
            expect("xor", t, o[6], t ^ 1);
            expect("xor width 4", t, o[7], first + ((l ^ 5) < (l & ~3) + 4 ? l ^ 5 : l));
            expect("reduce add", t, o[8], n * first + n * (n - 1) / 2);
            expect("reduce max", t, o[9], -first);
            expect("any, all", t, o[10], (first == 0 ? 1 : 0) + 2);
            expect("count", t, o[11], (threads + 2) / 3);
            expect("or, and", t, o[12], 1);
            expect("shfl of double", t, o[13], first + 2);
            const auto u = static_cast<unsigned>(t);
            expect("bits", t, o[14],
                   std::popcount(u) + 100 * (t != 0 ? std::countr_zero(u) + 1 : 0) +
                       10000 * std::countl_zero(u));
        }
    }
    std::vector<int> halves(32);
    half_warps(halves.data());
    for (int t = 0; t < 32; ++t)
        expect("half warps", t, halves[static_cast<size_t>(t)], t < 16 ? 120 : 31);
}

TEST_CASE("cuda/emulator: grids, atomics, shared memory, waiting threads") {
    std::vector<int> idx(720);
    indices(idx.data());
    for (int i = 0; i < 720; ++i)
        expect("indices", i, idx[static_cast<size_t>(i)], i % 60 * 1000 + i / 60);

    std::vector<int> i(3);
    float f = 0;
    __nv_bfloat162 b = __floats2bfloat162_rn(0, 0);
    atomics(i.data(), &f, &b, 20, 70);
    CHECK(i == std::vector<int>{1400, 1399, 42});
    CHECK(f == 350);
    CHECK(__bfloat162float(b.x) == 80);
    CHECK(__bfloat162float(b.y) == 160);

    for (const int n : {1, 33, 100}) {
        const std::vector<float> in = normals(int64_t{n} * n, 1);
        std::vector<float> out(in.size());
        transpose(in.data(), out.data(), n);
        bool right = true;
        for (size_t y = 0; y < static_cast<size_t>(n); ++y) {
            for (size_t x = 0; x < static_cast<size_t>(n); ++x) {
                right = right &&
                        out[x * static_cast<size_t>(n) + y] == in[y * static_cast<size_t>(n) + x];
            }
        }
        CHECK_MESSAGE(right, "transpose of ", n);
    }
    for (const int n : {1, 31, 1024}) {
        std::vector<int> in(static_cast<size_t>(n)), out(in.size());
        std::iota(in.begin(), in.end(), 1);
        scan(in.data(), out.data(), n);
        for (int t = 0; t < n; ++t)
            expect("scan", t, out[static_cast<size_t>(t)], (t + 1) * (t + 2) / 2);
    }
    std::vector<int> seen(70);
    flag(seen.data(), 70);
    CHECK(std::all_of(seen.begin(), seen.end(), [](int v) { return v == 7; }));
}

TEST_CASE("cuda/emulator: neighbours in one cell of the race detector are no race") {
    for (const int n : {3, 30, 99, 768}) {
        std::vector<unsigned char> bytes(static_cast<size_t>(n));
        std::vector<__nv_bfloat16> halves(bytes.size());
        neighbours(bytes.data(), halves.data(), n);
        for (int i = 0; i < n; ++i) {
            const int m = n / 3, t = i % m, want = 2 * std::min(t ^ 1, m - 1) + m - 1 - t;
            expect("bytes", i, bytes[static_cast<size_t>(i)], want & 255);
        }
    }
}

TEST_CASE("cuda/emulator: the seed changes the order of threads") {
    const std::vector<float> in = normals(640, 3);
    std::set<float> sums;
    for (emu::options().seed = 0; emu::options().seed < 10; ++emu::options().seed) {
        float sum = 0;
        float_sum(in.data(), &sum, 640);
        sums.insert(sum);
    }
    emu::options().seed = 1;
    CHECK(sums.size() > 1);
}

namespace {

// Runs a wrong kernel in a child; what it said, or "silent" if it only gave some values.
std::string outcome(Wrong wrong, int n) {
    int ends[2] = {};
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(ends[1], 2);
        ::close(ends[0]);
        std::string said = "silent";
        for (emu::options().seed = 0; emu::options().seed < 4; ++emu::options().seed) {
            const std::unique_ptr<int[]> data(new int[static_cast<size_t>(n)]);  // exact, for ASan
            std::iota(data.get(), data.get() + n, 0);
            try {
                wrong(data.get(), n);
            } catch (const std::exception& e) {
                said = e.what();
                break;
            }
        }
        const ssize_t written = ::write(2, said.data(), said.size());
        ::_exit(written < 0 ? 1 : 0);
    }
    ::close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
        text.append(part, static_cast<size_t>(got));
    }
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    return text;
}

}  // namespace

TEST_CASE("cuda/emulator: planted mistakes are named") {
    struct Row {
        const char* name;
        Wrong kernel;
        const char *race, *asan;  // what is said where races are watched, and under ASan
    };
#define VT_ROW(name, race, asan) \
    { #name, name, race, asan }
    const std::vector<Row> rows = {
        VT_ROW(missing_syncthreads, " shared 's'", "silent"),
        VT_ROW(missing_second_syncthreads, "data race on shared 's'", "silent"),
        VT_ROW(missing_syncwarp, " shared 's'", "silent"),
        VT_ROW(syncwarp_across_warps, " shared 's'", "silent"),
        VT_ROW(syncwarp_after_readers_of_two_warps, "data race on shared 's'", "silent"),
        VT_ROW(uninitialised_shared, "read of uninitialised shared 's'", "silent"),
        VT_ROW(static_write_past_end, "access outside shared 's'", "index 64 out of bounds"),
        VT_ROW(dynamic_read_past_end, "access outside shared", "use-after-poison"),
        VT_ROW(dynamic_write_before_start, "access outside shared", "use-after-poison"),
        VT_ROW(exit_before_barrier, "divergent barrier", "divergent barrier"),
        VT_ROW(barrier_in_both_branches, "divergent barrier", "divergent barrier"),
        VT_ROW(barrier_in_one_branch, "divergent barrier", "divergent barrier"),
        VT_ROW(shuffle_in_one_branch, "divergent warp operation", "divergent warp operation"),
        VT_ROW(shuffle_from_exited_lane, "takes no part", "takes no part"),
        VT_ROW(lane_outside_own_mask, "not in its own mask", "not in its own mask"),
        VT_ROW(endless_wait, "endless wait", "endless wait"),
        VT_ROW(too_much_shared, "bytes of shared memory", "bytes of shared memory"),
        VT_ROW(too_many_threads, "a block of (64,64,1) threads", "a block of (64,64,1) threads"),
        VT_ROW(no_dynamic_shared, "the launch gave none", "the launch gave none"),
        VT_ROW(blocks_write_same_word, "data race on address", "silent"),
        VT_ROW(block_reads_what_another_wrote, "data race on address", "silent"),
        VT_ROW(plain_and_atomic, "data race on address", "silent"),
        VT_ROW(global_read_past_end, "silent", "heap-buffer-overflow"),
        VT_ROW(misaligned_vector_load, "silent", "misaligned address"),
    };
#undef VT_ROW
    for (const Row& r : rows) {
#ifdef __SANITIZE_ADDRESS__
        const char* want = r.asan;
#else
        const char* want = r.race;
#endif
        const std::string text = outcome(r.kernel, 64);
        CHECK_MESSAGE(text.find(want) != std::string::npos, r.name, ": want \"", want,
                      "\", got: ", text.substr(0, 900));
    }
}
