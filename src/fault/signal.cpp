// SPDX-License-Identifier: MIT
#include "fault/signal.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <unistd.h>

#include "core/check.h"

namespace vt {

namespace {

constexpr std::array<int, 6> kSignals{SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGXFSZ, SIGPIPE};

bool ignored(int signal) {
    return signal == SIGXFSZ || signal == SIGPIPE;
}

// A handler has no other way to reach its process than objects of static storage.
std::atomic<bool> g_installed{false};
std::atomic<int> g_first{0};         // the first signal
std::atomic<bool> g_nothing{false};  // to save
std::atomic<int64_t> g_ended{0};     // time of the first SIGTERM or SIGINT in ns, 0: none yet
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

int64_t now_ns() {
    struct timespec t {};
    ::clock_gettime(CLOCK_MONOTONIC, &t);  // async-signal-safe
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void put(std::string_view text) {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nowhere to complain to
}

void handle(int signal) {
    if (g_nothing.load(std::memory_order_relaxed)) {
        put("vtrain: ended: requeue: a signal came before training began; exit 75; restart helps: "
            "yes\n");
        ::_exit(kExitRequeue);
    }
    const int saved_errno = errno;
    int none = 0;
    const bool first = g_first.compare_exchange_strong(none, signal);
    if (signal == SIGTERM || signal == SIGINT) {
        int64_t never = 0;
        const int64_t now = now_ns();
        if (!g_ended.compare_exchange_strong(never, now) &&
            now - never > static_cast<int64_t>(SignalGuard::kEcho * 1e9)) {
            put(signal == SIGINT ? "vtrain: ended: signal: a second signal, nothing is saved; exit "
                                   "130; restart helps: yes\n"
                                 : "vtrain: ended: signal: a second signal, nothing is saved; exit "
                                   "143; restart helps: yes\n");
            struct sigaction plain {};
            plain.sa_handler = SIG_DFL;
            ::sigaction(signal, &plain, nullptr);
            ::raise(signal);  // takes effect when this handler returns
        }
    }
    if (first) put("vtrain: signal received: saving at the next step, then ending\n");
    errno = saved_errno;
}

}  // namespace

SignalGuard::SignalGuard() {
    VT_CHECK(!g_installed.exchange(true), "two signal guards");
    g_first = 0;
    g_ended = 0;
    g_nothing = false;
    for (size_t i = 0; i < kSignals.size(); ++i) {
        struct sigaction action {};
        action.sa_handler = ignored(kSignals.at(i)) ? SIG_IGN : handle;
        action.sa_flags = SA_RESTART;  // libraries need not expect EINTR
        ::sigemptyset(&action.sa_mask);
        ::sigaction(kSignals.at(i), &action, &before_.at(i));
    }
}

SignalGuard::~SignalGuard() {
    for (size_t i = 0; i < kSignals.size(); ++i) {
        ::sigaction(kSignals.at(i), &before_.at(i), nullptr);
    }
    g_installed = false;
}

bool stop_requested() {
    return g_first.load(std::memory_order_relaxed) != 0;
}
int stop_signal() {
    return g_first.load(std::memory_order_relaxed);
}
void nothing_to_save(bool yes) {
    g_nothing = yes;
}

}  // namespace vt
