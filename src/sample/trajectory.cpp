// SPDX-License-Identifier: MIT
// Floor 5.
#include "sample/trajectory.h"

#include "core/check.h"
#include "data/safetensors.h"

namespace vt {

namespace {

// Tensors 0, 1, 2 of the file, then x and v of each sample.
constexpr size_t kSigma = 0, kTau = 1, kGuidance = 2, kSamples = 3;

std::vector<TensorSpec> specs_of(const Solver& solver, const LatentShape& s,
                                 const std::vector<SampleRequest>& requests) {
    const int64_t N = solver.steps();
    std::vector<TensorSpec> out = {
        {"sigma", DType::kF32, {N + 1}}, {"tau", DType::kF32, {N}}, {"guidance", DType::kF32, {N}}};
    for (const SampleRequest& r : requests) {
        const std::string name = fmt::format("sample-{:06}", r.index);
        out.push_back({name + "/x", DType::kF32, {N + 1, s.C, s.T, s.H, s.W}});
        out.push_back({name + "/v", DType::kF32, {N, s.C, s.T, s.H, s.W}});
    }
    return out;
}

CTensor piece(const float* data, const LatentShape& s) {
    return {data, {1, s.C, s.T, s.H, s.W}, DType::kF32};
}
CTensor number(const float& v) {
    return {&v, {1}, DType::kF32};
}

}  // namespace

struct TrajectoryFile::Impl {
    LatentShape shape;
    int64_t steps;
    size_t samples;
    SafetensorsWriter file;
};

TrajectoryFile::TrajectoryFile(const fs::path& path, const Solver& solver, const LatentShape& shape,
                               const std::vector<SampleRequest>& requests)
    : impl_(new Impl{shape, solver.steps(), requests.size(),
                     SafetensorsWriter(path, specs_of(solver, shape, requests),
                                       {{"format", "vtrain-trajectory"}})}) {
    for (int64_t k = 0; k <= solver.steps(); ++k) {
        impl_->file.write(kSigma, number(solver.sigma(k)));
        if (k < solver.steps()) impl_->file.write(kTau, number(solver.tau(k)));
    }
}

TrajectoryFile::~TrajectoryFile() = default;

void TrajectoryFile::add(const PathPoint& point) {
    Impl& s = *impl_;
    if (point.first == 0) s.file.write(kGuidance, number(point.guidance));
    for (int64_t b = 0; b < point.count; ++b) {
        const auto at = kSamples + 2 * static_cast<size_t>(point.first + b);
        const int64_t offset = b * s.shape.numel();
        s.file.write(at, piece(point.x + offset, s.shape));
        s.file.write(at + 1, piece(point.v + offset, s.shape));
    }
}

void TrajectoryFile::close(const std::vector<std::vector<float>>& latents) {
    Impl& s = *impl_;
    VT_CHECK(latents.size() == s.samples, "{} latents for {} samples", latents.size(), s.samples);
    for (size_t i = 0; i < latents.size(); ++i) {
        s.file.write(kSamples + 2 * i, piece(latents[i].data(), s.shape));
    }
    s.file.close();
}

}  // namespace vt
