// SPDX-License-Identifier: MIT
// Sums over the steps since the last log row. Floor 6.
#pragma once

#include <cstdint>

#include "prof/machine.h"

namespace vt {

// What the log reports over an interval.
struct Interval {
    double begin = 0;    // of the interval
    double wait = 0;     // seconds of it spent waiting for data
    double outside = 0;  // seconds of it in validation, sampling and saving
    double flop = 0;
    int64_t steps = 0, samples = 0, tokens = 0;
    int64_t skipped = 0, not_finite = 0;  // of the steps: without an update; for that reason
    double loss = 0;                      // sum over the interval's steps that had one
    double roof = 0;                      // flop/s, measured once
    int64_t bad = 0;                      // samples replaced in the whole run
    void restart() {
        begin = seconds_now();
        wait = outside = flop = loss = 0;
        steps = samples = tokens = skipped = not_finite = 0;
    }
};

}  // namespace vt
