// SPDX-License-Identifier: MIT
#include "tests/ops/run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/hash.h"
#include "tests/ref/ref.h"
#include "tests/ref/values.h"

namespace vt::test {

using ref::at;
using ref::Values;

namespace {

constexpr uint64_t kSeed = 1;

// Value i of an argument; pure in (seed, id, i).
double value_of(const Fill& fill, uint64_t id, int64_t i) {
    const auto e = static_cast<uint64_t>(i);
    switch (fill.kind) {
        case Fill::kNormal:
            return fill.a +
                   fill.b * static_cast<double>(random_normal(kSeed, Purpose::kTest, id, e));
        case Fill::kUniform:
            return fill.a + (fill.b - fill.a) * random_unit(kSeed, Purpose::kTest, id, e);
        case Fill::kIndex:
            return std::floor(fill.a * random_unit(kSeed, Purpose::kTest, id, e));
        case Fill::kValues:
            return fill.values[at(i) % fill.values.size()];
    }
    return 0;
}

void fill_tensor(const Tensor& t, const Fill& fill, uint64_t id) {
    for (int64_t i = 0; i < t.numel(); ++i) {
        const double x = value_of(fill, id, i);
        if (t.dtype == DType::kI64) {
            t.as<int64_t>()[i] = static_cast<int64_t>(x);
        } else if (t.dtype == DType::kI32) {
            t.as<int32_t>()[i] = static_cast<int32_t>(x);
        } else {
            ref::put(t, i, x);
        }
    }
}

bool is_float(DType t) {
    return t == DType::kF64 || t == DType::kF32 || t == DType::kBF16;
}

// Any dtype as doubles (integer outputs of fill).
double element(const CTensor& t, int64_t i) {
    switch (t.dtype) {
        case DType::kI64:
            return static_cast<double>(t.as<int64_t>()[i]);
        case DType::kI32:
            return t.as<int32_t>()[i];
        case DType::kU8:
            return t.as<uint8_t>()[i];
        default:
            return ref::get(t, i);
    }
}

double largest(const CTensor& t, int64_t begin, int64_t end) {
    double top = 0;
    for (int64_t i = begin; i < end; ++i) top = std::max(top, std::fabs(ref::get(t, i)));
    return top;
}

// The reference's run on |inputs|.
Memory run_abs(const Case& c, const Memory& inputs) {
    Memory abs(c), work(c);
    for (size_t k = 0; k < c.args.size(); ++k) {
        const Tensor& from = inputs.args.tensors[k];
        if (from.bytes() == 0) continue;
        std::memcpy(abs.args.tensors[k].data, from.data, at(from.bytes()));
        if (c.args[k].role == Role::kOut || !is_float(from.dtype)) continue;
        for (int64_t i = 0; i < from.numel(); ++i) {
            ref::put(abs.args.tensors[k], i, std::fabs(ref::get(from, i)));
        }
    }
    const std::string damage = run_case(ref_ops(), nullptr, c, abs, work);
    VT_CHECK(damage.empty(), "{}", damage);
    return work;
}

// n u mag of one term, for every element of argument k.
void add_term(Values& tol, const Term& term, size_t k, const Memory& want, const Memory& abs) {
    const size_t of = term.of < 0 ? k : static_cast<size_t>(term.of);
    const CTensor t = term.mag == Mag::kAbs ? abs.args.tensors[of] : want.args.tensors[of];
    const int64_t D = t.shape.rank == 0 ? 1 : t.shape[t.shape.rank - 1];
    const double whole = term.mag == Mag::kMax ? largest(t, 0, t.numel()) : 0;
    const double nu = term.n * term.u;
    double row = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(tol.size()); ++i) {
        switch (term.mag) {
            case Mag::kOne:
                tol[at(i)] += nu;
                break;
            case Mag::kMax:
                tol[at(i)] += nu * whole;
                break;
            case Mag::kRow:
                if (i % D == 0) row = largest(t, i, i + D);
                tol[at(i)] += nu * row;
                break;
            case Mag::kRef:
            case Mag::kAbs:
                tol[at(i)] += nu * std::fabs(ref::get(t, i));
        }
    }
}

bool needs_abs(const Case& c) {
    for (const Arg& arg : c.args) {
        for (const Term& term : arg.bound.terms) {
            if (term.mag == Mag::kAbs) return true;
        }
    }
    return false;
}

}  // namespace

Guarded::Guarded(int64_t bytes, int64_t offset) : bytes_(bytes) {
    constexpr int64_t kAlign = 64;
    total_ = bytes + offset + 2 * kGuard + kAlign;
    block_ = std::make_unique<std::byte[]>(at(total_));
    const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(block_.get()) % kAlign);
    data_ = block_.get() + (begin == 0 ? 0 : kAlign - begin) + kGuard + offset;
    std::memset(block_.get(), 0xff, at(total_));
}

void Guarded::poison() {
    std::memset(block_.get(), 0xff, at(total_));
}

bool Guarded::guards_whole() const {
    const std::byte* end = block_.get() + total_;
    const auto hurt = [](std::byte b) { return b != std::byte{0xff}; };
    return std::none_of(static_cast<const std::byte*>(block_.get()),
                        static_cast<const std::byte*>(data_), hurt) &&
           std::none_of(static_cast<const std::byte*>(data_) + bytes_, end, hurt);
}

Memory::Memory(const Case& c, bool odd) {
    for (const Arg& arg : c.args) {
        if (arg.alias >= 0) {
            blocks.emplace_back(0);
            args.tensors.push_back(args[arg.alias]);
            continue;
        }
        const int64_t size = size_of(arg.dtype);
        blocks.emplace_back(arg.shape.numel() * size, odd ? size : 0);
        args.tensors.emplace_back(blocks.back().data(), arg.shape, arg.dtype);
    }
}

Memory make_inputs(const Case& c, const Ctx* with) {
    Memory memory(c);
    for (size_t k = 0; k < c.args.size(); ++k) {
        const Arg& arg = c.args[k];
        if (arg.role == Role::kOut || arg.alias >= 0) continue;
        fill_tensor(memory.args.tensors[k], arg.fill, xxh3(c.name() + "/" + arg.name));
    }
    const Ctx reference{.ops = &ref_ops()};
    if (c.prepare) c.prepare(with == nullptr ? reference : *with, memory.args);
    return memory;
}

std::string run_case(const Ops& ops, Pool* pool, const Case& c, const Memory& inputs, Memory& work,
                     void* stream) {
    for (size_t k = 0; k < c.args.size(); ++k) {
        if (c.args[k].alias >= 0) continue;
        work.blocks[k].poison();
        if (c.args[k].role == Role::kOut || inputs.blocks[k].bytes() == 0) continue;
        std::memcpy(work.blocks[k].data(), inputs.blocks[k].data(), at(inputs.blocks[k].bytes()));
    }
    ScratchNeed need = c.need;
    need.threads = pool == nullptr ? 1 : pool->threads();
    const Guarded scratch(ops.scratch_bytes(need));
    const Ctx ctx{.ops = &ops,
                  .pool = pool,
                  .stream = stream,
                  .scratch = Tensor(scratch.data(), {scratch.bytes()}, DType::kU8)};
    c.call(ctx, work.args);

    if (!scratch.guards_whole()) return "wrote outside the scratch";
    for (size_t k = 0; k < c.args.size(); ++k) {
        const Arg& arg = c.args[k];
        if (!work.blocks[k].guards_whole()) return "wrote outside " + arg.name;
        bool written = arg.role != Role::kIn || work.blocks[k].bytes() == 0;
        for (const Arg& other : c.args) written = written || other.alias == static_cast<int>(k);
        if (!written && std::memcmp(work.blocks[k].data(), inputs.blocks[k].data(),
                                    at(inputs.blocks[k].bytes())) != 0) {
            return "changed its input " + arg.name;
        }
    }
    return "";
}

Verdict judge(const Case& c, const Memory& inputs, const Memory& want, const Memory& got) {
    Verdict verdict;
    const Memory abs = needs_abs(c) ? run_abs(c, inputs) : Memory(c);
    for (size_t k = 0; k < c.args.size(); ++k) {
        const Arg& arg = c.args[k];
        if (arg.role == Role::kIn) continue;
        const CTensor w = want.args.tensors[k], g = got.args.tensors[k];
        Values tol(at(w.numel()));
        for (const Term& term : arg.bound.terms) add_term(tol, term, k, want, abs);
        for (int64_t i = 0; i < w.numel(); ++i) {
            const double a = element(w, i), b = element(g, i), t = tol[at(i)];
            if (a == b || (std::isnan(a) && std::isnan(b))) continue;
            const double error = std::fabs(a - b);
            if (error <= t) {  // false for NaN
                verdict.share = std::max(verdict.share, error / t);
            } else {
                if (std::isfinite(error) && t > 0) {
                    verdict.share = std::max(verdict.share, error / t);
                }
                if (verdict.failure.empty()) {
                    verdict.failure = fmt::format("{}[{}] is {:.9g}, want {:.9g} +- {:.3g} ({})",
                                                  arg.name, i, b, a, t, arg.bound.why);
                }
            }
        }
    }
    return verdict;
}

std::string different_bits(const Case& c, const Memory& a, const Memory& b) {
    for (size_t k = 0; k < c.args.size(); ++k) {
        const Tensor &x = a.args.tensors[k], &y = b.args.tensors[k];
        if (c.args[k].role == Role::kIn || x.bytes() == 0) continue;
        if (std::memcmp(x.data, y.data, at(x.bytes())) != 0) return c.args[k].name;
    }
    return "";
}

}  // namespace vt::test
