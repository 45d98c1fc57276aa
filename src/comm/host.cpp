// SPDX-License-Identifier: MIT
// Contracts and arithmetic of groups on host memory. Floor 1.
#include "comm/host.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace vt {

namespace {

const char* name_of(CommOp op) {
    switch (op) {
        case CommOp::kAllReduce:
            return "all_reduce";
        case CommOp::kReduceScatter:
            return "reduce_scatter";
        case CommOp::kAllGather:
            return "all_gather";
        case CommOp::kAllToAll:
            return "all_to_all";
        case CommOp::kBroadcast:
            return "broadcast";
        case CommOp::kBarrier:
            return "barrier";
        case CommOp::kSplit:
            return "split";
    }
    return "?";
}

const char* name_of(ReduceOp op) {
    return op == ReduceOp::kSum ? "sum" : op == ReduceOp::kMax ? "max" : "min";
}

std::vector<int64_t> offsets(const std::vector<int64_t>& counts, int64_t numel, int size) {
    std::vector<int64_t> out{0};
    for (int r = 0; r < size; ++r) {
        out.push_back(out.back() +
                      (counts.empty() ? numel / size : counts[static_cast<size_t>(r)]));
    }
    return out;
}

bool good_counts(const std::vector<int64_t>& counts, int64_t numel, int size) {
    if (counts.empty()) return numel % size == 0;
    return narrow<int>(counts.size()) == size &&
           std::all_of(counts.begin(), counts.end(), [](int64_t c) { return c >= 0; }) &&
           std::accumulate(counts.begin(), counts.end(), int64_t{0}) <= numel;
}

bool reducible(DType dtype) {
    return dtype != DType::kU8;
}

}  // namespace

std::string str(const Call& c) {
    const std::string what = name_of(c.op);
    switch (c.op) {
        case CommOp::kAllReduce:
            return fmt::format("{}({}, {}, {} elements)", what, name_of(c.reduce),
                               vt::name_of(c.dtype), c.numel);
        case CommOp::kBroadcast:
            return fmt::format("{}(from {}, {}, {} elements)", what, c.root, vt::name_of(c.dtype),
                               c.numel);
        case CommOp::kReduceScatter:
        case CommOp::kAllGather:
            return fmt::format("{}({}, parts of {} elements)", what, vt::name_of(c.dtype), c.numel);
        case CommOp::kAllToAll:
            return fmt::format("{}({})", what, vt::name_of(c.dtype));
        default:
            return what + "()";
    }
}

std::string mismatch(const std::string& group, int rank_a, const Call& a, int rank_b,
                     const Call& b) {
    return fmt::format("group \"{}\": rank {} called {} while rank {} called {}", group, rank_a,
                       str(a), rank_b, str(b));
}

void HostGroup::need(bool ok, const std::string& what) {
    if (ok) [[likely]]
        return;
    const std::string why = fmt::format("group \"{}\", rank {}: {}", name_, rank_, what);
    abort(Fault::kBug, why);  // the others wait for a call that will not come
    raise(Fault::kBug, why);
}

CommHandle HostGroup::all_reduce(Tensor x, ReduceOp op, void*) {
    need(reducible(x.dtype), "all_reduce of u8");
    add(x.bytes());
    return start({{CommOp::kAllReduce, x.dtype, op, 0, x.numel()}, x, x, {}, {}});
}

CommHandle HostGroup::reduce_scatter(Tensor out, CTensor in, void*) {
    need(reducible(in.dtype), "reduce_scatter of u8");
    need(out.dtype == in.dtype && in.numel() == out.numel() * size_,
         fmt::format("reduce_scatter of {} {} into {} {} over {} ranks", vt::name_of(in.dtype),
                     in.shape.str(), vt::name_of(out.dtype), out.shape.str(), size_));
    add(in.bytes());
    return start(
        {{CommOp::kReduceScatter, in.dtype, ReduceOp::kSum, 0, out.numel()}, out, in, {}, {}});
}

CommHandle HostGroup::all_gather(Tensor out, CTensor in, void*) {
    need(out.dtype == in.dtype && out.numel() == in.numel() * size_,
         fmt::format("all_gather of {} {} into {} {} over {} ranks", vt::name_of(in.dtype),
                     in.shape.str(), vt::name_of(out.dtype), out.shape.str(), size_));
    add(in.bytes());
    return start({{CommOp::kAllGather, in.dtype, ReduceOp::kSum, 0, in.numel()}, out, in, {}, {}});
}

CommHandle HostGroup::all_to_all(Tensor out, CTensor in, const std::vector<int64_t>& out_counts,
                                 const std::vector<int64_t>& in_counts, void*) {
    need(out.dtype == in.dtype && good_counts(out_counts, out.numel(), size_) &&
             good_counts(in_counts, in.numel(), size_),
         fmt::format("all_to_all of {} {} into {} {} over {} ranks with {} and {} counts",
                     vt::name_of(in.dtype), in.shape.str(), vt::name_of(out.dtype), out.shape.str(),
                     size_, in_counts.size(), out_counts.size()));
    Job job{{CommOp::kAllToAll, in.dtype, ReduceOp::kSum, 0, 0},
            out,
            in,
            offsets(out_counts, out.numel(), size_),
            offsets(in_counts, in.numel(), size_)};
    add(job.in_parts.back() * size_of(in.dtype));
    return start(std::move(job));
}

CommHandle HostGroup::send(CTensor x, int to, void*) {
    need(0 <= to && to < size_, fmt::format("send to rank {} of {}", to, size_));
    add(x.bytes());
    return start_send(x, to);
}

CommHandle HostGroup::recv(Tensor x, int from, void*) {
    need(0 <= from && from < size_, fmt::format("recv from rank {} of {}", from, size_));
    add(0);
    return start_recv(x, from);
}

CommHandle HostGroup::broadcast(Tensor x, int root, void*) {
    need(0 <= root && root < size_, fmt::format("broadcast from rank {} of {}", root, size_));
    add(root == rank_ ? x.bytes() : 0);
    return start({{CommOp::kBroadcast, x.dtype, ReduceOp::kSum, root, x.numel()}, x, x, {}, {}});
}

void HostGroup::barrier() {
    add(0);
    start({{CommOp::kBarrier}, {}, {}, {}, {}}).wait();
}

std::unique_ptr<Group> HostGroup::split(int color, int key, std::string name) {
    return start_split({{CommOp::kSplit}, {}, {}, {}, {}, color, key}, std::move(name));
}

namespace {

// Storage type T, arithmetic type A.
template <typename T, typename A, typename Load, typename Store>
void reduce_typed(std::span<void* const> outs, std::span<const void* const> inputs, int64_t n,
                  ReduceOp op, Load load, Store store) {
    constexpr int64_t kBlock = 1024;
    std::array<A, kBlock> acc;
    std::array<T, kBlock> rounded;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t m = std::min(kBlock, n - begin);
        const auto each = [&](const void* input, auto&& join) {
            const T* x = static_cast<const T*>(input) + begin;
            A* a = acc.data();
            for (int64_t i = 0; i < m; ++i) a[i] = join(a[i], load(x[i]));
        };
        each(inputs[0], [](A, A x) { return x; });
        for (const void* input : inputs.subspan(1)) {
            if (op == ReduceOp::kMax) {
                each(input, [](A a, A x) { return x > a || x != x ? x : a; });
            } else if (op == ReduceOp::kMin) {
                each(input, [](A a, A x) { return x < a || x != x ? x : a; });
            } else if constexpr (std::is_integral_v<A>) {
                using U = std::make_unsigned_t<A>;  // wraps
                each(input, [](A a, A x) {
                    return static_cast<A>(static_cast<U>(a) + static_cast<U>(x));
                });
            } else {
                each(input, [](A a, A x) { return a + x; });
            }
        }
        for (int64_t i = 0; i < m; ++i) {
            rounded[static_cast<size_t>(i)] = store(acc[static_cast<size_t>(i)]);
        }
        for (void* out : outs) {
            std::copy_n(rounded.data(), m, static_cast<T*>(out) + begin);
        }
    }
}

}  // namespace

void reduce_in_order(std::span<void* const> outs, std::span<const void* const> inputs, int64_t n,
                     DType dtype, ReduceOp op) {
    const auto same = [](auto x) { return x; };
    if (n == 0) return;
    switch (dtype) {
        case DType::kF64:
            return reduce_typed<double, double>(outs, inputs, n, op, same, same);
        case DType::kF32:
            return reduce_typed<float, float>(outs, inputs, n, op, same, same);
        case DType::kBF16:
            return reduce_typed<bf16, float>(outs, inputs, n, op, to_float, to_bf16);
        case DType::kI64:
            return reduce_typed<int64_t, int64_t>(outs, inputs, n, op, same, same);
        case DType::kI32:
            return reduce_typed<int32_t, int32_t>(outs, inputs, n, op, same, same);
        case DType::kU8:
            break;
    }
    raise(Fault::kBug, "reduce of u8");
}

std::vector<int> members_of_split(const std::vector<int64_t>& colors,
                                  const std::vector<int64_t>& keys, int me) {
    std::vector<int> out;
    for (size_t r = 0; r < colors.size(); ++r) {
        if (colors[r] == colors[static_cast<size_t>(me)]) out.push_back(narrow<int>(r));
    }
    std::stable_sort(out.begin(), out.end(), [&](int a, int b) {
        return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
    });
    return out;
}

}  // namespace vt
