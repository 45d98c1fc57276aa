// SPDX-License-Identifier: MIT
// Step::explain: where the first value of a step that is not finite came from. Floor 6.
#include <fmt/format.h>

#include "fault/checked_ops.h"
#include "train/step.h"

namespace vt {

namespace {

std::string name_of(const Dataset& data, const Draw& d) {
    std::string id;
    try {
        id = data.sample_id(d.source, d.index);
    } catch (const Error&) {
        id = "?";  // its file may be gone
    }
    return fmt::format("{} (source {}, index {}, draw {})", id, d.source, d.index, d.ordinal);
}

// The parameter whose values, operand copy or gradient hold the element of `t` at `index`.
std::string parameter(const ParamStore& store, const CTensor& t, int64_t index) {
    const char* const at = static_cast<const char*>(t.data) + index * size_of(t.dtype);
    const auto inside = [&](const Tensor& p) {
        const char* const begin = static_cast<const char*>(p.data);
        return p.present() && begin <= at && at < begin + p.bytes();
    };
    for (size_t i = 0; i < store.table().size(); ++i) {
        const std::string& name = store.table()[i].name;
        // rows that are not trained share a piece, whose values have no one name
        if (store.table()[i].trainable && inside(store.grads()[i])) {
            return "the gradient of " + name;
        }
        if (inside(store.master()[i])) return "the weight " + name;
        if (inside(store.operand_copy(static_cast<int64_t>(i)))) {
            return "the operand copy of the weight " + name;
        }
    }
    return {};
}

// The sample that a row of a tensor belongs to: rows are samples, tokens or text rows of n samples
// of one shape. Empty for tensors that sum over samples.
std::string sample_of_row(const Dataset& data, const MicroBatch& m, int64_t tokens,
                          const CTensor& t, int64_t row) {
    const auto n = static_cast<int64_t>(m.draws.size());
    const int64_t rows = t.shape.rank == 0 ? 0 : t.shape[0];
    if (rows != n && rows != n * tokens && rows != n * m.text.shape[1]) return {};
    return name_of(data, m.draws[static_cast<size_t>(row / (rows / n))]);
}

std::string bad_value(const char* what, const CTensor& t) {
    const int64_t at = first_not_finite(t);
    if (at < 0) return {};
    return fmt::format("{} has the value {} at element {}", what, value_text(element_of(t, at)),
                       at);
}

// A value that was there before any op ran: in the batch, or in the weights.
std::string bad_before(const ParamStore& store, const StepBatch& batch, const Dataset& data) {
    for (const MicroBatch& m : batch.micros) {
        for (size_t i = 0; i < m.draws.size(); ++i) {
            const auto row = static_cast<int64_t>(i);
            for (const auto& [what, t] :
                 {std::pair{"the input latent", m.x0}, std::pair{"the input text", m.text}}) {
                const std::string bad = bad_value(what, t.rows(row, row + 1));
                if (!bad.empty()) return bad + " of sample " + name_of(data, m.draws[i]);
            }
        }
    }
    for (size_t i = 0; i < store.table().size(); ++i) {
        const std::string& name = store.table()[i].name;
        std::string bad = bad_value(("the weight " + name).c_str(), store.master()[i]);
        if (bad.empty()) {
            bad = bad_value(("the operand copy of the weight " + name).c_str(),
                            store.operand_copy(static_cast<int64_t>(i)));
        }
        if (!bad.empty()) return bad;
    }
    return {};
}

std::string place(const CallSite& at) {
    std::string out = at.pass;
    if (*at.part != '\0') out += fmt::format("{}{}", out.empty() ? "" : ", ", at.part);
    if (at.block >= 0) out += fmt::format(" {}", at.block);
    return out.empty() ? "" : " (" + out + ")";
}

}  // namespace

std::string Step::explain(const Ctx& ctx, const StepBatch& batch, const Dataset& data) {
    if (const std::string bad = bad_before(store_, batch, data); !bad.empty()) return bad;
    const CheckedOps ops(*ctx.ops);
    Ctx checked = ctx;
    checked.ops = &ops;
    StepResult unused;
    store_.zero_grads(checked);
    const MicroBatch* at = nullptr;
    for (const MicroBatch& m : batch.micros) {
        if (ops.found) break;
        at = &m;
        (void)micro(checked, m, denominator(batch), unused);
    }
    if (!ops.found) {
        at = nullptr;
        (void)norm_squared(checked);
    }
    if (!ops.found) {
        return "every value is finite when the step is run again: a passing fault of memory or "
               "processor, or a race";
    }
    const NotFinite& f = *ops.found;
    std::string out = fmt::format("the first value that is not finite is {}, from {}{}",
                                  value_text(f.value), f.op, place(f.at));
    if (f.outputs > 1) out += fmt::format(", output {} of {}", f.output + 1, f.outputs);
    out += fmt::format(", element {} of {}", f.element, f.tensor.shape.str());
    if (const std::string name = parameter(store_, f.tensor, f.element); !name.empty()) {
        out += ", " + name;
    } else if (at != nullptr) {
        const LatentShape latent{at->shape[0], at->shape[1], at->shape[2], at->shape[3]};
        const std::string sample =
            sample_of_row(data, *at, model_.tokens(latent), f.tensor, f.row());
        if (!sample.empty()) out += ", sample " + sample;
    }
    for (const CTensor& t : f.bad_inputs) {
        const std::string name = parameter(store_, t, 0);
        out += fmt::format("; its input {} is not finite", name.empty() ? t.shape.str() : name);
    }
    return out;
}

}  // namespace vt
