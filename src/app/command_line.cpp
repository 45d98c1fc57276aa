// SPDX-License-Identifier: MIT
#include "app/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "config/huge.h"
#include "config/toml.h"

namespace vt {

namespace {

// The subcommands that were given, outermost first, the program itself in front.
std::vector<const CLI::App*> chain_of(const CLI::App& app) {
    std::vector<const CLI::App*> out{&app};
    for (;;) {
        const std::vector<CLI::App*> given = out.back()->get_subcommands();
        if (given.empty()) return out;
        out.push_back(given.back());
    }
}

// "vtrain data stats"
std::string place_of(const std::vector<const CLI::App*>& chain, size_t level) {
    std::string out = "vtrain";
    for (size_t i = 1; i <= level; ++i) out += " " + chain[i]->get_name();
    return out;
}

std::string nearest(const std::vector<std::string>& valid, const std::string& word) {
    const auto best =
        std::min_element(valid.begin(), valid.end(), [&](const auto& a, const auto& b) {
            return edit_distance(a, word) < edit_distance(b, word);
        });
    return best == valid.end() ? "" : fmt::format("; the nearest valid one is '{}'", *best);
}

// Those that --help shows.
std::vector<std::string> subcommands_of(const CLI::App& app) {
    std::vector<std::string> out;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (!sub->get_group().empty()) out.push_back(sub->get_name());
    }
    return out;
}

std::vector<std::string> options_of(const CLI::App& app) {
    std::vector<std::string> out;
    for (const CLI::Option* o : app.get_options()) {
        for (const std::string& name : o->get_lnames()) out.push_back("--" + name);
    }
    return out;
}

// The option whose name, as the parser words it, `text` begins with.
const CLI::Option* option_at(const CLI::App& app, std::string_view text) {
    const CLI::Option* best = nullptr;
    for (const CLI::Option* o : app.get_options()) {
        const std::string name = o->get_name();
        if (!text.starts_with(name)) continue;
        if (best == nullptr || name.size() > best->get_name().size()) best = o;
    }
    return best;
}

// What an option is of, read out of "INT:INT in [1 - 1000]", "FLOAT:NONNEGATIVE", "TEXT:{a,b}".
struct Allowed {
    bool integer = false, number = false;
    std::vector<std::string> choices;
    std::string text;  // "integer >= 1 and <= 1000"
};
Allowed allowed_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    Allowed out;
    out.integer = type.starts_with("INT") || type.starts_with("UINT");
    out.number = out.integer || type.starts_with("FLOAT");
    if (const size_t open = type.find(":{"); open != std::string::npos) {
        out.choices = CLI::detail::split(type.substr(open + 2, type.size() - open - 3), ',');
        out.text = fmt::format("{}", fmt::join(out.choices, ", "));
        return out;
    }
    out.text = out.integer ? "integer" : out.number ? "number" : "text";
    if (type.ends_with(":POSITIVE")) out.text += " > 0";
    if (type.ends_with(":NONNEGATIVE")) out.text += " >= 0";
    const size_t open = type.find(" in ["), dash = type.find(" - ", open);
    if (open != std::string::npos && dash != std::string::npos) {
        const std::string high = type.substr(dash + 3, type.size() - dash - 4);
        out.text += " >= " + type.substr(open + 5, dash - open - 5);
        if (high != std::to_string(std::numeric_limits<int64_t>::max()))
            out.text += " and <= " + high;
    }
    return out;
}

std::optional<double> number_of(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') return std::nullopt;
    return value;
}

bool beyond_int64(const std::string& text) {
    const auto huge = huge_number_near(text, 0);
    return huge && huge->begin == 0 && huge->end == text.size();
}

// What is wrong with one value of an option: "is out of range".
std::string reason(const Allowed& allowed, const std::string& value) {
    if (!allowed.choices.empty()) return "is not one of the choices";
    const std::optional<double> x = number_of(value);
    if (!allowed.number || !x) return "has the wrong type";
    if (!std::isfinite(*x) && !beyond_int64(value)) return "is not a finite number";
    const bool whole = *x == std::floor(*x) && value.find_first_of(".eE") == std::string::npos;
    if (allowed.integer && !whole && std::abs(*x) < 0x1p63) return "has the wrong type";
    return "is out of range";
}

std::string refused(const CLI::Option& option, const std::string& value) {
    const Allowed allowed = allowed_of(option);
    return fmt::format("{} = {} {}; allowed: {}", option.get_name(), value, reason(allowed, value),
                       allowed.text);
}

// A word that stands where none is expected, if there is one.
std::optional<std::string> leftover(const CLI::App& app, bool deepest) {
    const std::vector<std::string> rest = app.remaining();
    if (rest.empty()) return std::nullopt;
    const std::string& word = rest.front();
    if (word.size() > 1 && word.front() == '-' && !number_of(word)) {
        const std::string name = word.substr(0, word.find('='));
        // one letter is near to everything
        return fmt::format("unknown option '{}'{}", name,
                           name.size() > 2 ? nearest(options_of(app), name) : "");
    }
    const std::vector<std::string> subs = subcommands_of(app);
    if (deepest && !subs.empty()) {
        return fmt::format("unknown subcommand '{}'{}", word, nearest(subs, word));
    }
    return fmt::format("unexpected argument '{}'", word);
}

}  // namespace

Error command_line_error(const CLI::App& app, const CLI::ParseError& mistake) {
    const std::vector<const CLI::App*> chain = chain_of(app);
    const size_t last = chain.size() - 1;
    const auto error = [&](size_t level, const std::string& what, std::string hint) {
        const std::string place = place_of(chain, level);
        if (hint.empty()) hint = fmt::format("`{} --help` lists what it takes", place);
        return Error(Fault::kUser, place + ": " + what, std::move(hint), Where::here());
    };
    const std::string said = mistake.what(), kind = mistake.get_name();
    const bool subcommand = kind == "RequiredError" && said.starts_with("A subcommand");
    // such a mistake carries the name of the command, not its kind
    if (dynamic_cast<const CLI::ExtrasError*>(&mistake) != nullptr || subcommand) {
        for (size_t i = 0; i <= last; ++i) {
            if (const auto what = leftover(*chain[i], i == last)) return error(i, *what, "");
        }
    }
    if (subcommand) {
        return error(last, "a subcommand is missing",
                     fmt::format("one of {}", fmt::join(subcommands_of(*chain[last]), ", ")));
    }
    // the mistake of one option, in the innermost command that has it
    constexpr std::string_view kConvert = "Could not convert: ";
    const std::string_view about =
        std::string_view(said).substr(said.starts_with(kConvert) ? kConvert.size() : 0);
    for (size_t level = last + 1; level-- > 0;) {
        const CLI::Option* option = option_at(*chain[level], about);
        if (option == nullptr) continue;
        const std::string help = option->get_description();
        if (kind == "ArgumentMismatch" && said.ends_with("missing")) {
            return error(level, option->get_name() + " lacks its value", help);
        }
        if (kind == "ValidationError" || kind == "ConversionError") {
            const std::vector<std::string>& given = option->results();
            const Allowed allowed = allowed_of(*option);
            for (const std::string& value : given) {
                // of several values the one that the parser speaks of
                if (given.size() == 1 || said.find(value) != std::string::npos) {
                    std::string what = refused(*option, value);
                    if (!allowed.choices.empty()) what += nearest(allowed.choices, value);
                    return error(level, what, help);
                }
            }
        }
        return error(level, said, help);
    }
    return error(last, said, "");
}

void check_numbers(const CLI::App& app) {
    const std::vector<const CLI::App*> chain = chain_of(app);
    for (size_t level = 0; level < chain.size(); ++level) {
        for (const CLI::Option* option : chain[level]->get_options()) {
            const Allowed allowed = allowed_of(*option);
            if (!allowed.number) continue;
            for (const std::string& value : option->results()) {
                const std::optional<double> x = number_of(value);
                const bool wrong = allowed.integer ? beyond_int64(value) : x && !std::isfinite(*x);
                if (!wrong) continue;
                raise(Fault::kUser, place_of(chain, level) + ": " + refused(*option, value),
                      option->get_description());
            }
        }
    }
}

}  // namespace vt
