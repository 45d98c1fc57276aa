// SPDX-License-Identifier: MIT
#include "optim/groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <fnmatch.h>

#include "core/check.h"

namespace vt {

namespace {

// Edits that make `name` match `pattern`; what a * stands for costs nothing.
size_t glob_distance(const std::string& pattern, const std::string& name) {
    std::vector<size_t> row(name.size() + 1);  // of the pattern so far against each start of name
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (const char c : pattern) {
        size_t corner = row[0];  // the row above, one to the left
        if (c != '*') ++row[0];
        for (size_t j = 1; j < row.size(); ++j) {
            const size_t above = row[j];
            const bool same = c == name[j - 1] || c == '?';
            row[j] = c == '*' ? std::min(above, row[j - 1])
                              : std::min({above + 1, row[j - 1] + 1, corner + (same ? 0 : 1)});
            corner = above;
        }
    }
    return row.back();
}

// Calls what(row) for every row the pattern matches; kUser if there is none.
template <typename F>
void each_match(const ParamTable& table, const std::string& pattern, const F& what) {
    bool any = false;
    for (size_t i = 0; i < table.size(); ++i) {
        if (!glob_matches(pattern, table[i].name)) continue;
        any = true;
        what(i);
    }
    if (any) return;
    const ParamRow* nearest = nullptr;
    size_t least = 0;
    for (const ParamRow& row : table) {
        const size_t d = glob_distance(pattern, row.name);
        if (nearest != nullptr && d >= least) continue;
        nearest = &row;
        least = d;
    }
    raise(Fault::kUser, fmt::format("no parameter is named like \"{}\"", pattern),
          nearest == nullptr ? "" : fmt::format("the nearest is \"{}\"", nearest->name));
}

}  // namespace

bool glob_matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

ParamTable with_frozen(ParamTable table, const std::vector<std::string>& freeze) {
    if (freeze.empty()) return table;
    const ParamTable before = table;
    for (const std::string& entry : freeze) {
        const bool thaw = !entry.empty() && entry.front() == '!';
        each_match(table, thaw ? entry.substr(1) : entry,
                   [&](size_t i) { table[i].trainable = thaw && before[i].trainable; });
    }
    if (std::none_of(table.begin(), table.end(), [](const ParamRow& r) { return r.trainable; })) {
        raise(Fault::kUser, "no parameter is left to train",
              "an entry with '!' in front thaws: freeze = [\"*\", \"!blocks.3.*\"]");
    }
    return table;
}

std::vector<int64_t> groups_of(const ParamTable& table, const OptimOptions& o) {
    std::vector<int64_t> out(table.size(), -1);
    for (size_t k = 0; k < o.groups.size(); ++k) {
        for (const std::string& pattern : o.groups[k].params) {
            each_match(table, pattern, [&](size_t i) { out[i] = static_cast<int64_t>(k); });
        }
    }
    return out;
}

std::vector<AdamW> adamw_of(const ParamTable& table, const OptimOptions& o) {
    const std::vector<int64_t> group = groups_of(table, o);
    std::vector<AdamW> out;
    for (size_t i = 0; i < table.size(); ++i) {
        ParamGroup g;
        if (group[i] >= 0) g = o.groups[static_cast<size_t>(group[i])];
        const bool decays = table[i].decay || g.decay_all;
        out.push_back({.beta1 = o.adam_beta1,
                       .beta2 = o.adam_beta2,
                       .eps = o.adam_eps,
                       .weight_decay = decays ? g.weight_decay.value_or(o.weight_decay) : 0.0,
                       .lr_scale = g.lr ? *g.lr / o.lr : g.lr_scale});
    }
    return out;
}

}  // namespace vt
