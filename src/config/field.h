// SPDX-License-Identifier: MIT
// One row per configuration key. Parsing, --help, validation, configs/README.md, the copy in the
// log and the copy in checkpoints are read from the rows. Floor 1.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/check.h"

namespace vt {

// Where a value came from, for messages: "run.toml:12" or "--set optim.lr" or "default".
struct Origin {
    std::string text = "default";
};

// A glob and its share of the samples: "clips/*.h5", or { path = "clips/*.h5", weight = 2.0 }.
struct WeightedPath {
    std::string path;
    double weight = 1.0;  // > 0, relative to the sum over the list
    bool operator==(const WeightedPath&) const = default;
};

struct Field;

// A list of tables, [[optim.groups]], whose keys are rows themselves: "lr_scale", without section.
// Made by table_list() of a vector whose elements have a fields(T&).
struct TableList {
    std::function<size_t()> size;
    std::function<void(size_t)> resize;              // new tables hold their defaults
    std::function<std::vector<Field>(size_t)> rows;  // of table i
    std::function<std::vector<Field>()> defaults;    // of a new table, for help
};

// A number that may be left out has no value of its own then, and is not written out.
using FieldTarget = std::variant<bool*, int64_t*, double*, std::optional<double>*, std::string*,
                                 std::vector<double>*, std::vector<std::string>*,
                                 std::vector<int64_t>*, std::vector<WeightedPath>*, TableList>;

struct Field {
    std::string key;     // "optim.lr"
    FieldTarget target;  // member it writes; its value on registration is the default
    std::string help;    // what it is, with its unit and what special values mean
    std::vector<std::string> aliases =
        {};  // other spellings, e.g. "parallel.tensor_model_parallel_size"
    double min = -std::numeric_limits<double>::infinity();
    double max = std::numeric_limits<double>::infinity();
    bool min_exclusive = false;
    bool max_exclusive = false;
    std::vector<std::string> choices = {};  // for strings; empty = anything
    bool required = false;
    bool is_path = false;  // relative values are resolved against the folder of the config file
};

template <typename T>
[[nodiscard]] TableList table_list(std::vector<T>* items) {
    const auto fresh = std::make_shared<T>();
    return {.size = [items] { return items->size(); },
            .resize = [items](size_t n) { items->resize(n); },
            .rows = [items](size_t i) { return fields(items->at(i)); },
            .defaults = [fresh] { return fields(*fresh); }};
}

// Values that are each allowed but do not go together; `keys` are those that may be at fault.
struct Conflict {
    std::vector<std::string> keys;
    std::string rule, hint;
};

}  // namespace vt
