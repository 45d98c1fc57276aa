// SPDX-License-Identifier: MIT
// Matrix products of the oneDNN library, one block of ours on the calling thread at a time.
// Floor 2.
#pragma once

#include <cstdint>
#include <string>

namespace vt {

// C(m,n) = sum_k A(m,k) B(k,n), or += where add; all f32, c[m * ldc + n]. What a kernel of the
// library is made for: everything but the addresses. Operands as kernel::Operand.
struct BlockProduct {
    int64_t M = 0, N = 0, K = 0;
    int64_t lda = 0, ldb = 0, ldc = 0;
    bool a_across = false, b_across = false;
    bool add = false;
    // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer here
    friend auto operator<=>(const BlockProduct&, const BlockProduct&) = default;
};

/// Most scratch a call may use; a product that asks for more is not computed.
inline constexpr int64_t kLibraryScratch = int64_t{2} << 20;

/// Computes p and returns true; or false, nothing done, where the library has no AVX-512 kernel for
/// it or wants more scratch: a matter of p and the library alone. Single-threaded, whatever OpenMP
/// is told, so the bits depend on p alone. Thread-safe. The kernel is made on the first call with a
/// p and kept; after that nothing of size is allocated.
/// scratch  kLibraryScratch bytes of the caller's, 64-byte aligned
[[nodiscard]] bool library_product(const BlockProduct& p, const float* a, const float* b, float* c,
                                   void* scratch);

/// "onednn2.6.3": what of the library may change bits; part of the instruction path.
[[nodiscard]] std::string library_name();

}  // namespace vt
