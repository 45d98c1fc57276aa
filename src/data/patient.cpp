// SPDX-License-Identifier: MIT
// Floor 3.
#include "data/patient.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "core/check.h"
#include "core/io_error.h"

namespace vt {

Retried read_retrying(const Dataset& data, int source, int64_t index, Tensor latent, Tensor text,
                      ReadWatch& watch, const RetryOptions& retry) {
    Retried out;
    double pause = retry.pause_s;
    for (;; ++out.tries) {
        try {
            data.read_watched(source, index, latent, text, &watch);
            return out;
        } catch (const IoError& e) {  // no process can open more files, or take more memory
            if (out.tries >= retry.tries || watch.giving_up()) throw;
            out.why = e.message();
        } catch (const FileFault& e) {
            if (!e.may_pass() || out.tries >= retry.tries || watch.giving_up()) throw;
            out.why = e.message();
        }
        watch.pause(pause);
        pause *= 2;
    }
}

namespace {

struct OneRead {  // outlives a reader that is left behind
    ReadWatch watch;
    std::mutex mutex;
    std::condition_variable over;
    bool done = false;
    std::exception_ptr error;
};

}  // namespace

bool read_patiently(const Dataset& data, int source, int64_t index, Tensor latent, Tensor text,
                    const RetryOptions& retry, StallReport& report,
                    const std::function<bool()>& stop) {
    const auto one = std::make_shared<OneRead>();
    std::thread reader([one, &data, source, index, latent, text, retry] {
        std::exception_ptr error;
        try {
            (void)read_retrying(data, source, index, latent, text, one->watch, retry);
        } catch (const ReadWatch::Left&) {
            return;
        } catch (...) {
            error = std::current_exception();
        }
        const std::lock_guard lock(one->mutex);
        one->done = true;
        one->error = error;
        one->over.notify_all();
    });
    std::unique_lock lock(one->mutex);
    bool stopped = false;
    while (!one->over.wait_for(lock, std::chrono::milliseconds(50), [&] { return one->done; })) {
        report.look(one->watch, "validation");
        if (!stopped && stop && stop()) {
            stopped = true;
            one->watch.give_up();
        }
        if (stopped && one->watch.leave_behind()) {
            reader.detach();
            return false;
        }
    }
    lock.unlock();
    reader.join();
    report.look(one->watch, "validation");
    if (one->error) std::rethrow_exception(one->error);
    return true;
}

}  // namespace vt
