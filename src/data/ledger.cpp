// SPDX-License-Identifier: MIT
// Floor 3.
#include "data/ledger.h"

#include <charconv>
#include <limits>
#include <string_view>

#include "core/check.h"

namespace vt {

int64_t BadLedger::total() const {
    return earlier_ + std::ssize(met_);
}

int64_t BadLedger::of_source(int32_t source) const {
    const auto first = met_.lower_bound({source, std::numeric_limits<int64_t>::min()});
    const auto last = met_.upper_bound({source, std::numeric_limits<int64_t>::max()});
    return std::distance(first, last);
}

void BadLedger::begin_new_data() {
    earlier_ = total();
    met_.clear();
}

std::string BadLedger::text() const {
    if (total() == 0) return "";
    std::string out = fmt::format("{}", earlier_);
    for (const auto& [source, index] : met_) out += fmt::format(" {}:{}", source, index);
    return out;
}

namespace {

// A number >= 0 at the front of `text`, which moves on; false if there is none.
template <typename T>
bool take(std::string_view& text, T& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc{} || out < 0) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
}

}  // namespace

BadLedger BadLedger::parse(const std::string& text, const std::string& where) {
    BadLedger out;
    std::string_view rest = text;
    bool good = text.empty() || take(rest, out.earlier_);
    while (good && !rest.empty()) {
        std::pair<int32_t, int64_t> entry;
        good = rest.starts_with(' ');
        if (good) rest.remove_prefix(1);
        good = good && take(rest, entry.first) && rest.starts_with(':');
        if (good) rest.remove_prefix(1);
        good = good && take(rest, entry.second) && out.met_.insert(entry).second;
    }
    if (!good) {
        raise(Fault::kData, fmt::format("{}: the list of bad samples '{}' is damaged", where,
                                        text.substr(0, 80)));
    }
    return out;
}

}  // namespace vt
