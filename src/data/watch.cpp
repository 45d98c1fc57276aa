// SPDX-License-Identifier: MIT
// Floor 3.
#include "data/watch.h"

#include <chrono>
#include <ctime>

#include "core/check.h"
#include "core/log.h"

namespace vt {

int64_t coarse_now_ns() {
    struct timespec t {};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void ReadWatch::look_at(const std::string& path) {
    const std::lock_guard lock(mutex_);
    path_ = path;
}

void ReadWatch::enter() {
    since_.store(coarse_now_ns(), std::memory_order_relaxed);
}

void ReadWatch::leave() {
    int64_t now = since_.load(std::memory_order_relaxed);
    while (now != kLeft) {
        if (since_.compare_exchange_weak(now, 0, std::memory_order_acq_rel)) return;
    }
    throw Left{};
}

void ReadWatch::pause(double seconds) {
    enter();
    {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return giving_up(); });
    }
    leave();
}

std::optional<ReadWatch::Waiting> ReadWatch::waiting() const {
    const int64_t since = since_.load(std::memory_order_relaxed);
    if (since <= 0) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return Waiting{.since = since,
                   .seconds = static_cast<double>(coarse_now_ns() - since) / 1e9,
                   .path = path_};
}

void ReadWatch::give_up() {
    {
        const std::lock_guard lock(mutex_);
        giving_up_ = true;
    }
    wake_.notify_all();
}

bool ReadWatch::leave_behind() {
    int64_t now = since_.load(std::memory_order_relaxed);
    while (now > 0) {
        if (since_.compare_exchange_weak(now, kLeft, std::memory_order_acq_rel)) return true;
    }
    return now == kLeft;
}

void StallReport::look(const ReadWatch& watch, const std::string& who) {
    const std::optional<ReadWatch::Waiting> w = watch.waiting();
    if (reported_ != 0 && (!w || w->since != reported_)) {
        warn("{} goes on after {:.0f} s: {} answers again", who,
             static_cast<double>(coarse_now_ns() - reported_) / 1e9, path_);
        reported_ = 0;
    }
    if (reported_ == 0) next_s_ = first_s_;
    if (!w || w->seconds < next_s_) return;
    warn(
        "{} has waited {:.0f} s for the file system to read {}; training waits with it (a signal "
        "still saves and ends the run)",
        who, w->seconds, w->path);
    reported_ = w->since;
    path_ = w->path;
    next_s_ = 2 * w->seconds;
}

}  // namespace vt
