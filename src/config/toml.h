// SPDX-License-Identifier: MIT
// From TOML text and --set overrides to the members that rows (field.h) point at, and back.
// Floor 1.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/field.h"

namespace vt {

// A TOML value with the place it was written at. Dates and times, which no key takes, are the
// monostate.
struct TomlValue;
struct TomlEntry;
using TomlArray = std::vector<TomlValue>;
using TomlTable = std::vector<TomlEntry>;  // by key
struct TomlValue {
    std::variant<std::monostate, bool, int64_t, double, std::string, TomlArray, TomlTable> v;
    int line = 0;
    std::string written = {};  // of a number that int64 or double cannot hold; v is then the
                               // nearest double, an infinity where there is none
};
struct TomlEntry {
    std::string key;
    TomlValue value;
};

// One "key = value" of a file or of a --set.
struct Setting {
    std::string key;  // "optim.lr" as written, '-' turned into '_'
    TomlValue value;
    Origin origin;               // "run.toml:12" or "--set optim.lr"
    std::filesystem::path base;  // what relative paths in the value are relative to
    bool from_command = false;   // --set: text that is not TOML counts as a string
    std::string raw;             // --set: the text behind '='
    bool section = false;        // the value is a whole section without a key in it
};

/// The settings of a TOML text, in the order of its lines. `name` is put before line numbers.
/// kUser "name:line:column: ..." where the text is not TOML 1.0 (duplicate keys are such a
/// mistake).
[[nodiscard]] std::vector<Setting> parse_toml(std::string_view text, const std::string& name,
                                              const std::filesystem::path& base);
/// The same of a file (also a pipe); kUser if it cannot be read or is over 4 MiB.
[[nodiscard]] std::vector<Setting> parse_toml_file(const std::filesystem::path& file);
/// "optim.lr=1e-3": TOML value syntax; a word that is not a TOML value is a string. Relative paths
/// are relative to the working directory. kUser if there is no '=' or no key.
[[nodiscard]] Setting parse_set(const std::string& text);

/// Writes the values of `settings` to the members the rows point at; a --set wins over a file and
/// over an earlier --set of the same spelling.
/// Returns the origin of each key that was set, by the row's key.
/// kUser, one line per mistake in the order of `settings`: unknown section or key (with the nearest
/// valid one), wrong type, out of range, not among the choices (each with what is allowed), the
/// same key in two spellings, required keys that are missing.
std::map<std::string, Origin> apply_settings(const std::vector<Field>& rows,
                                             const std::vector<Setting>& settings);

/// All rows with their present values as TOML, section after section. parse_toml of it gives the
/// same values bit for bit: floats are the shortest text that reads back exactly.
[[nodiscard]] std::string dump_toml(const std::vector<Field>& rows);

// How one row is described in help and documents.
[[nodiscard]] std::string field_type(const Field& row);     // "integer", "list of numbers", ...
[[nodiscard]] std::string field_allowed(const Field& row);  // ">= 0", "cpu, cuda, auto"; or empty
[[nodiscard]] std::string field_value(const Field& row);    // present value as TOML

/// Plain-text table of all keys for the console; the rows' present values are shown as defaults.
[[nodiscard]] std::string help_text(const std::vector<Field>& rows);
/// The same as Markdown: one heading and one table per section.
[[nodiscard]] std::string help_markdown(const std::vector<Field>& rows);

/// Edits (insert, delete, replace, swap of neighbours) that turn a into b.
[[nodiscard]] int edit_distance(std::string_view a, std::string_view b);
/// `value` as TOML text on one line, for messages.
[[nodiscard]] std::string toml_text(const TomlValue& value);
[[nodiscard]] std::string toml_quote(std::string_view text);  // a basic string with its quotes
[[nodiscard]] std::string toml_number(double value);          // shortest exact float

}  // namespace vt
