// SPDX-License-Identifier: MIT
// events.jsonl: what happened to a run, kept for good. Where metrics.jsonl holds one row per step
// of the run's present line (a rollback cuts what was undone), this file only grows: a skipped step
// stays on record after the rollback that undid it.
// Floor 6.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"

namespace vt {

enum class EventKind : uint8_t {
    kStart,      // a process began at this step, from nothing or from imported weights
    kResume,     // a process began at this step, from a checkpoint
    kSave,       // a checkpoint of this step was committed
    kSkip,       // the update of this step was left out
    kRollback,   // the state went back to this step
    kBadSample,  // a sample of this step was replaced
    kSample,     // videos of this step were drawn; the text is their folder, relative to the run
    kSignal,     // a signal asked for a save
    kWarning,    // anything else one should see beside the curves
    kEnd,        // the process ended orderly: done, or stopped with this reason
};
inline constexpr int kNumEventKinds = 10;
/// "start", "resume", "save", "skip", "rollback", "bad_sample", "sample", "signal", "warning",
/// "end"
[[nodiscard]] const char* name_of(EventKind kind);

struct RunEvent {
    EventKind kind = EventKind::kWarning;
    int64_t step = 0;  // optimizer steps done, as the checkpoint of that moment would be called
    double wall = 0;   // seconds since 1970-01-01 UTC
    std::string text;  // one line for people; may be empty
    // what a start or resume ran on: {"build", "Release GNU 12.2.0"}, ...; mostly empty
    std::vector<std::pair<std::string, std::string>> facts;
};

/// {"event":"skip","step":12,"wall":1790000000.123,"text":"..."}, no newline; where there
/// are facts, "facts":{...} behind.
[[nodiscard]] std::string event_line(const RunEvent& event);
/// Its inverse; nullopt for a torn or foreign line. An unknown kind reads as a warning.
[[nodiscard]] std::optional<RunEvent> parse_event(std::string_view line);
/// All whole lines in file order; empty where there is no such file; kSystem if it cannot be read.
[[nodiscard]] std::vector<RunEvent> read_events(const fs::path& path);

// The file of a run that is being written. May be called from several threads.
class RunEvents {
  public:
    /// Opens or creates `path`; a line torn by a crash is ended, so that the next one is whole.
    /// With `anew` an old file is renamed to events.jsonl.old-K. kSystem if that fails.
    RunEvents(fs::path path, bool anew);
    /// Appends one line with the present time. Never throws: a record that cannot be written is a
    /// warning on stderr, not the end of a run.
    void add(EventKind kind, int64_t step, std::string_view text,
             const std::vector<std::pair<std::string, std::string>>& facts = {}) noexcept;

  private:
    fs::path path_;
    Fd fd_;
    std::mutex mutex_;
};

/// Renames `path` to the lowest free path.old-K if it is there and not empty. kSystem on failure.
void set_aside(const fs::path& path);

}  // namespace vt
