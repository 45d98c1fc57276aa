// SPDX-License-Identifier: MIT
// The only file that knows oneDNN. Kernels are kept by the shape they are made for. The library
// would split long sums among OpenMP threads; here every call runs on its caller alone.
#include "cpu/onednn.h"

#include <map>
#include <memory>
#include <mutex>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/check.h"

namespace vt {

namespace {

// While this lives OpenMP gives the calling thread, and no other, one thread.
class OneThread {
  public:
    OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
    ~OneThread() { omp_set_num_threads(before_); }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;

  private:
    int before_;
};

dnnl::memory::desc describe(int64_t rows, int64_t columns, int64_t row_step, int64_t column_step) {
    return {
        {rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{row_step, column_step}};
}

// What one call at a time uses: the arguments' places.
struct Arguments {
    dnnl::stream stream;
    dnnl::memory a, b, c, scratch;
    std::unordered_map<int, dnnl::memory> list;
    Arguments(const dnnl::engine& engine, const dnnl::matmul::primitive_desc& d)
        : stream(engine),
          a(d.src_desc(), engine, nullptr),
          b(d.weights_desc(), engine, nullptr),
          c(d.dst_desc(), engine, nullptr),
          scratch(d.scratchpad_desc(), engine, nullptr),
          list{{DNNL_ARG_SRC, a},
               {DNNL_ARG_WEIGHTS, b},
               {DNNL_ARG_DST, c},
               {DNNL_ARG_SCRATCHPAD, scratch}} {}
};

// One kernel and the argument lists not in use.
class Kernel {
  public:
    Kernel(const dnnl::engine& engine, const BlockProduct& p) : engine_(engine) {
        const OneThread alone;  // a kernel is planned for the threads it sees
        const auto a = describe(p.M, p.K, p.a_across ? 1 : p.lda, p.a_across ? p.lda : 1);
        const auto b = describe(p.K, p.N, p.b_across ? p.ldb : 1, p.b_across ? 1 : p.ldb);
        const auto c = describe(p.M, p.N, p.ldc, 1);
        dnnl::primitive_attr attr;
        attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (p.add) {
            dnnl::post_ops post;
            post.append_sum(1.0F);
            attr.set_post_ops(post);
        }
        const dnnl::matmul::primitive_desc d(dnnl::matmul::desc(a, b, c), attr, engine,
                                             /*allow_empty=*/true);
        if (!d) return;
        if (std::string_view(d.impl_info_str()) != "brg:avx512_core") return;
        if (static_cast<int64_t>(d.scratchpad_desc().get_size()) > kLibraryScratch) return;
        description_ = d;
        primitive_ = dnnl::matmul(d);
        there_ = true;
    }
    [[nodiscard]] bool there() const { return there_; }

    void run(const float* a, const float* b, float* c, void* scratch) {
        const OneThread alone;
        std::unique_ptr<Arguments> args = take();
        const auto set = [&](const dnnl::memory& m, const void* at) {
            // operands are read only; the library's interface has one word for both
            m.set_data_handle(const_cast<void*>(at));  // NOLINT(*-const-cast)
        };
        set(args->a, a);
        set(args->b, b);
        set(args->c, c);
        set(args->scratch, scratch);
        primitive_.execute(args->stream, args->list);
        const std::lock_guard lock(mutex_);
        free_.push_back(std::move(args));
    }

  private:
    std::unique_ptr<Arguments> take() {
        {
            const std::lock_guard lock(mutex_);
            if (!free_.empty()) {
                std::unique_ptr<Arguments> last = std::move(free_.back());
                free_.pop_back();
                return last;
            }
        }
        return std::make_unique<Arguments>(engine_, description_);
    }
    dnnl::engine engine_;
    dnnl::matmul::primitive_desc description_;
    dnnl::matmul primitive_;
    bool there_ = false;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Arguments>> free_;
};

// Every kernel asked for so far, for the life of the process: a memory of a pure function.
class Kernels {
  public:
    Kernels() {
        // No later library or machine may choose instructions that the path does not name.
        dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core);
        engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    }
    Kernel& of(const BlockProduct& p) {
        {
            const std::shared_lock lock(mutex_);
            if (const auto it = kernels_.find(p); it != kernels_.end()) return *it->second;
        }
        const std::lock_guard lock(mutex_);
        std::unique_ptr<Kernel>& k = kernels_[p];
        if (k == nullptr) k = std::make_unique<Kernel>(engine_, p);
        return *k;
    }

  private:
    dnnl::engine engine_;
    std::shared_mutex mutex_;
    std::map<BlockProduct, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace

bool library_product(const BlockProduct& p, const float* a, const float* b, float* c,
                     void* scratch) {
    static Kernels kernels;
    try {
        Kernel& kernel = kernels.of(p);
        if (!kernel.there()) return false;
        kernel.run(a, b, c, scratch);
    } catch (const dnnl::error& e) {
        raise(Fault::kSystem, fmt::format("oneDNN: {} ({} x {} x {})", e.what(), p.M, p.N, p.K));
    }
    return true;
}

std::string library_name() {
    const dnnl_version_t* v = dnnl_version();
    return fmt::format("onednn{}.{}.{}", v->major, v->minor, v->patch);
}

}  // namespace vt
