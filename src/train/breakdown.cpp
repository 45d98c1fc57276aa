// SPDX-License-Identifier: MIT
// Floor 6.
#include "train/breakdown.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/check.h"
#include "data/order.h"

namespace vt {

namespace {

// "clips/hd/*.h5" -> "hd", "clips/hd-*.h5" -> "hd", "a.h5" -> "a"
std::string label_of(const std::string& pattern) {
    const fs::path path(pattern);
    std::string stem = path.stem().string();
    const auto wild = [](char c) { return c == '*' || c == '?' || c == '[' || c == ']'; };
    stem.erase(std::remove_if(stem.begin(), stem.end(), wild), stem.end());
    while (!stem.empty() && (stem.back() == '-' || stem.back() == '_' || stem.back() == '.')) {
        stem.pop_back();
    }
    if (stem.empty()) stem = path.parent_path().filename().string();
    for (char& c : stem) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
        if (!plain) c = '_';
    }
    return stem.empty() ? "data" : stem;
}

}  // namespace

std::vector<std::string> source_labels(const Dataset& data) {
    std::vector<std::string> out;
    for (int s = 0; s < data.num_sources(); ++s) {
        const std::string label = label_of(data.source_name(s));
        std::string name = label;
        for (int k = 2; std::find(out.begin(), out.end(), name) != out.end(); ++k) {
            name = fmt::format("{}-{}", label, k);
        }
        out.push_back(name);
    }
    return out;
}

Breakdown::Breakdown(const Dataset& train) : shapes_(train.shapes()) {
    for (int i = 0; i < kBins; ++i) {
        bins_.push_back({.name = fmt::format("loss/t_{:.1f}-{:.1f}", i / 10.0, (i + 1) / 10.0)});
    }
    for (const auto& s : shapes_) {
        buckets_.push_back({.name = fmt::format("loss/bucket/{}", fmt::join(s, "x"))});
    }
    for (const std::string& name : source_labels(train)) {
        sources_.push_back({.name = "loss/data/" + name});
    }
}

void Breakdown::add(const SampleLoss& s) {
    const auto count = [&](std::vector<Mean>& in, size_t i) {
        VT_CHECK(i < in.size(), "place {} of {}", i, in.size());
        in[i].sum += s.loss;
        ++in[i].count;
    };
    const int bin = static_cast<int>(s.tau / 1000.0F * kBins);
    count(bins_, static_cast<size_t>(std::clamp(bin, 0, kBins - 1)));
    const auto at = std::find(shapes_.begin(), shapes_.end(), s.shape);
    count(buckets_, static_cast<size_t>(at - shapes_.begin()));
    count(sources_, static_cast<size_t>(s.draw.source));
}

void Breakdown::restart() {
    for (auto* list : {&bins_, &buckets_, &sources_}) {
        for (Mean& m : *list) {
            m.sum = 0;
            m.count = 0;
        }
    }
}

void Breakdown::report(std::vector<std::pair<std::string, double>>& out) const {
    for (const auto* list : {&bins_, &buckets_, &sources_}) {
        for (const Mean& m : *list) {
            if (m.count > 0) out.emplace_back(m.name, m.sum / static_cast<double>(m.count));
        }
    }
}

Consumed::Consumed(const Dataset& train, uint64_t seed)
    : seed_(seed),
      of_block_(block_counts(train)),
      counts_(of_block_.size(), 0),
      names_(source_labels(train)) {}

const std::vector<int64_t>& Consumed::at(uint64_t cursor) {
    const uint64_t blocks = cursor / kBlockDraws;
    if (cursor < cursor_ || blocks > cursor_ / kBlockDraws) {
        for (size_t d = 0; d < counts_.size(); ++d) {
            counts_[d] = static_cast<int64_t>(blocks) * of_block_[d];
        }
        cursor_ = blocks * kBlockDraws;
    }
    if (counts_.size() == 1) {
        counts_[0] = static_cast<int64_t>(cursor);
        cursor_ = cursor;
    }
    for (; cursor_ < cursor; ++cursor_) {
        ++counts_[static_cast<size_t>(source_of(of_block_, seed_, cursor_))];
    }
    return counts_;
}

void Consumed::report(uint64_t cursor, std::vector<std::pair<std::string, double>>& out) {
    const std::vector<int64_t>& counts = at(cursor);
    for (size_t d = 0; d < counts.size(); ++d) {
        out.emplace_back("consumed/data/" + names_[d], static_cast<double>(counts[d]));
    }
}

}  // namespace vt
