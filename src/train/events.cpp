// SPDX-License-Identifier: MIT
// Floor 6.
#include "train/events.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"

namespace vt {

namespace {

constexpr const char* kNames[] = {"start",      "resume", "save",   "skip",    "rollback",
                                  "bad_sample", "sample", "signal", "warning", "end"};
static_assert(std::size(kNames) == kNumEventKinds);

}  // namespace

const char* name_of(EventKind kind) {
    const auto i = static_cast<size_t>(kind);
    VT_CHECK(i < std::size(kNames), "event kind {}", i);
    return kNames[i];
}

std::string event_line(const RunEvent& event) {
    nlohmann::ordered_json out;
    out["event"] = name_of(event.kind);
    out["step"] = event.step;
    out["wall"] = event.wall;
    out["text"] = event.text;
    for (const auto& [key, value] : event.facts) out["facts"][key] = value;
    // names from outside may hold bytes that are not UTF-8
    return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<RunEvent> parse_event(std::string_view line) {
    const auto in = nlohmann::ordered_json::parse(line, nullptr, false);
    if (!in.is_object()) return std::nullopt;
    const auto kind = in.find("event"), step = in.find("step");
    if (kind == in.end() || !kind->is_string() || step == in.end() || !step->is_number_integer()) {
        return std::nullopt;
    }
    RunEvent out;
    const auto* name = std::find(std::begin(kNames), std::end(kNames), kind->get<std::string>());
    if (name != std::end(kNames)) out.kind = static_cast<EventKind>(name - std::begin(kNames));
    out.step = step->get<int64_t>();
    if (const auto it = in.find("wall"); it != in.end() && it->is_number()) {
        out.wall = it->get<double>();
    }
    if (const auto it = in.find("text"); it != in.end() && it->is_string()) {
        out.text = it->get<std::string>();
    }
    if (const auto it = in.find("facts"); it != in.end() && it->is_object()) {
        for (const auto& [key, value] : it->items()) {
            if (value.is_string()) out.facts.emplace_back(key, value.get<std::string>());
        }
    }
    return out;
}

std::vector<RunEvent> read_events(const fs::path& path) {
    std::vector<RunEvent> out;
    if (!fs::exists(path)) return out;
    const std::string text = read_file(path);
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        if (auto event = parse_event(std::string_view(text).substr(begin, end - begin))) {
            out.push_back(std::move(*event));
        }
        begin = end + 1;
    }
    return out;
}

void set_aside(const fs::path& path) {
    std::error_code error;
    if (!(fs::file_size(path, error) > 0) || error) return;
    fs::path aside;
    int k = 0;
    do {
        aside = path;
        aside += fmt::format(".old-{}", k++);
    } while (fs::exists(aside));
    fs::rename(path, aside, error);
    if (error) {
        raise(Fault::kSystem, fmt::format("cannot rename {} to {}: {}", path.string(),
                                          aside.string(), error.message()));
    }
}

RunEvents::RunEvents(fs::path path, bool anew) : path_(std::move(path)) {
    if (anew) set_aside(path_);
    fd_ = open_append(path_);
    const off_t size = ::lseek(fd_.get(), 0, SEEK_END);
    char last = '\n';
    if (size > 0) pread_all(fd_, &last, 1, size - 1, path_);
    if (last != '\n') write_all(fd_, "\n", 1, path_);
}

void RunEvents::add(EventKind kind, int64_t step, std::string_view text,
                    const std::vector<std::pair<std::string, std::string>>& facts) noexcept {
    try {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        RunEvent event{kind, step, std::chrono::duration<double>(now).count(), std::string(text),
                       facts};
        const std::string line = event_line(event) + "\n";
        const std::lock_guard lock(mutex_);
        append_whole(fd_, line, path_);
    } catch (const std::exception& e) {
        try {
            warn("an event ({}) is not on record: {}", name_of(kind), e.what());
        } catch (...) {  // nothing left to tell it with
            return;
        }
    }
}

}  // namespace vt
