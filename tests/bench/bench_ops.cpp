// SPDX-License-Identifier: MIT
// Times the large rows of the op case table on the cpu backend, as Markdown.
//   vtrain_bench [--threads N] [--seconds S] [--cache-mb M] [part of a row's name]...
// Each memory-bound row runs on rotating copies of its arguments that together exceed `--cache-mb`,
// so that what is measured comes from memory. Roofs are measured in the same run and beside each
// row: a memory-bound row is compared with a threaded copy (bytes read + written), a compute-bound
// one with multiply-adds on registers alone (bench/roof.h), a burst of which follows every call, so
// that a machine that is shared slows both.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <emmintrin.h>
#include <fstream>
#include <string>
#include <vector>

#include "core/log.h"
#include "cpu/cpu.h"
#include "tests/bench/roof.h"
#include "tests/ops/run.h"

using namespace vt;
using namespace vt::test;

namespace {

struct Settings {
    int threads = 0;  // 0: all
    double seconds = 0.5;
    int64_t cache_mb = 512;
    std::vector<std::string> names;
};

struct Times {
    double p50, p95;  // seconds
};

double now() {
    using Clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// At least 7 calls and `seconds` of them, after 2 that warm up. `between` runs after each call and
// is not counted.
template <typename Call, typename Between>
Times time_calls(double seconds, const Call& call, const Between& between) {
    call();
    call();
    std::vector<double> t;
    const double end = now() + seconds;
    while (t.size() < 7 || (now() < end && t.size() < 10000)) {
        const double begin = now();
        call();
        t.push_back(now() - begin);
        between();
    }
    std::sort(t.begin(), t.end());
    return {t[t.size() / 2], t[t.size() * 95 / 100]};
}

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(": ") + 2);
    }
    return "unknown CPU";
}

// Stores that go past the caches: an ordinary store first reads the line it overwrites.
void copy_past_caches(char* to, const char* from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 16) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
    _mm_sfence();
}

// Bytes per second, read plus written, of the faster kind of copy between buffers that no cache
// holds.
double copy_roof(Pool& pool, const Settings& set) {
    const int64_t bytes = std::max<int64_t>(set.cache_mb, 64) << 20;
    const Guarded from(bytes), to(bytes);
    std::memset(from.data(), 1, static_cast<size_t>(bytes));
    std::memset(to.data(), 2, static_cast<size_t>(bytes));
    constexpr int64_t kChunk = 1 << 20;
    double best = 0;
    for (const bool past_caches : {false, true}) {
        const auto call = [&] {
            pool.parallel_for(bytes / kChunk, [&](int64_t i, int /*thread*/) {
                char* d = static_cast<char*>(to.data()) + i * kChunk;
                const char* s = static_cast<const char*>(from.data()) + i * kChunk;
                if (past_caches) {
                    copy_past_caches(d, s, kChunk);
                } else {
                    std::memcpy(d, s, kChunk);
                }
            });
        };
        const Times t = time_calls(set.seconds, call, [] {});
        best = std::max(best, 2 * static_cast<double>(bytes) / t.p50);
    }
    return best;
}

struct Measured {
    Times times{};
    OpCount cost;
    double roof = 0;  // flop/s beside the calls; compute-bound rows
    [[nodiscard]] double flops() const { return cost.flop / times.p50; }
    [[nodiscard]] double bandwidth() const { return cost.bytes / times.p50; }
};

Measured measure(const Case& c, Pool& pool, const Settings& set) {
    ScratchNeed need = c.need;
    need.threads = pool.threads();
    const Guarded scratch(cpu_ops().scratch_bytes(need));
    Measured m;
    const Tensor scratch_view(scratch.data(), {scratch.bytes()}, DType::kU8);
    Ctx ctx{.ops = &cpu_ops(), .pool = &pool, .scratch = scratch_view};

    const Memory inputs = make_inputs(c, &ctx);
    int64_t bytes = 0;
    for (const Guarded& block : inputs.blocks) bytes += block.bytes();
    const int64_t copies =
        c.memory_bound ? std::clamp<int64_t>(div_up(set.cache_mb << 20, bytes), 2, 64) : 1;
    std::vector<Memory> memories;
    for (int64_t k = 0; k < copies; ++k) {
        memories.emplace_back(c);
        for (size_t b = 0; b < inputs.blocks.size(); ++b) {
            std::memcpy(memories.back().blocks[b].data(), inputs.blocks[b].data(),
                        static_cast<size_t>(inputs.blocks[b].bytes()));
        }
    }
    ctx.count = &m.cost;
    c.call(ctx, memories[0].args);  // one call is counted
    ctx.count = nullptr;
    size_t turn = 0;
    std::vector<double> bursts;
    m.times = time_calls(
        set.seconds, [&] { c.call(ctx, memories[turn++ % memories.size()].args); },
        [&] {
            if (!c.memory_bound) bursts.push_back(matrix_roof_burst(c.dtype, pool));
        });
    if (!bursts.empty()) {
        std::sort(bursts.begin(), bursts.end());
        m.roof = bursts[bursts.size() / 2];
    }
    return m;
}

bool wanted(const Case& c, const Settings& set) {
    if (!c.bench) return false;
    const std::string name = c.name();
    return set.names.empty() ||
           std::any_of(set.names.begin(), set.names.end(), [&](const std::string& part) {
               return name.find(part) != std::string::npos;
           });
}

Settings parse(int argc, char** argv) {
    Settings set;
    for (int i = 1; i < argc; ++i) {
        const std::string arg = argv[i];
        if (arg.rfind("--", 0) != 0) {
            set.names.push_back(arg);
            continue;
        }
        if (i + 1 == argc) raise(Fault::kUser, arg + " wants a value");
        const std::string value = argv[++i];
        if (arg == "--threads") {
            set.threads = std::stoi(value);
        } else if (arg == "--seconds") {
            set.seconds = std::stod(value);
        } else if (arg == "--cache-mb") {
            set.cache_mb = std::stoll(value);
        } else {
            raise(Fault::kUser, "no option " + arg, "--threads N, --seconds S, --cache-mb M");
        }
    }
    return set;
}

void bench(const Settings& set) {
    Pool pool(set.threads);
    const double copy = copy_roof(pool, set);
    say("{}, {}, {} threads", cpu_model(), cpu_ops().instruction_path, pool.threads());
    say("");
    say("copy: {:.1f} GB/s (read + write, {} MiB); registers: f32 on {}, bf16 on {}", copy * 1e-9,
        set.cache_mb, matrix_roof_name(DType::kF32), matrix_roof_name(DType::kBF16));
    say("");
    say("| op shape dtype | us, median | us, 95 % | GFLOP/s | GB/s | of the roof |");
    say("|---|---|---|---|---|---|");
    for (const Case& c : all_cases()) {
        if (!wanted(c, set)) continue;
        const Measured m = measure(c, pool, set);
        const double share = c.memory_bound ? m.bandwidth() / copy : m.flops() / m.roof;
        say("| {} | {:.0f} | {:.0f} | {:.1f} | {:.1f} | {:.0f} % of {} |", c.name(),
            m.times.p50 * 1e6, m.times.p95 * 1e6, m.flops() * 1e-9, m.bandwidth() * 1e-9,
            100 * share, c.memory_bound ? "copy" : fmt::format("{:.0f} GFLOP/s", m.roof * 1e-9));
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        bench(parse(argc, argv));
        return 0;
    } catch (const Error& e) {
        warn("{}", e.what());
        return e.exit_code();
    } catch (const std::exception& e) {
        warn("{}", e.what());
        return 2;
    }
}
