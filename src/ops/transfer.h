// SPDX-License-Identifier: MIT
// Between host memory and the backend's. A declaration (data == nullptr, the meta backend) moves
// nothing.
// Floor 1.
#pragma once

#include <cstring>
#include <vector>

#include "ops/ops.h"

namespace vt {

/// dst out, numel elements of T from host memory, on ctx.stream.
template <typename T>
void upload(const Ctx& ctx, const Tensor& dst, const std::vector<T>& src) {
    VT_CHECK(static_cast<int64_t>(src.size()) == dst.numel(), "upload {} into {}", src.size(),
             dst.shape.str());
    T* p = dst.as<T>();
    if (p == nullptr) return;
    if (ctx.ops != nullptr && ctx.ops->copy_in != nullptr) {
        ctx.ops->copy_in(ctx, p, src.data(), dst.bytes());
    } else {
        std::memcpy(p, src.data(), static_cast<size_t>(dst.bytes()));
    }
}

/// Waits for ctx.stream, then fills dst from src; a declaration leaves dst as it is.
template <typename T>
void download(const Ctx& ctx, std::vector<T>& dst, const CTensor& src) {
    VT_CHECK(static_cast<int64_t>(dst.size()) == src.numel(), "download {} into {}",
             src.shape.str(), dst.size());
    const T* p = src.as<T>();
    if (p == nullptr) return;
    if (ctx.ops != nullptr && ctx.ops->copy_out != nullptr) {
        ctx.ops->copy_out(ctx, dst.data(), p, src.bytes());
    } else {
        std::memcpy(dst.data(), p, static_cast<size_t>(src.bytes()));
    }
}

}  // namespace vt
