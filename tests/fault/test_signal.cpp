// SPDX-License-Identifier: MIT
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/file.h"
#include "fault/signal.h"
#include "tests/paths.h"

using namespace vt;

namespace {

// Runs body in a child whose stderr is dropped; returns its wait status.
template <typename Body>
int in_child(const Body& body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
        body();
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status;
}

}  // namespace

TEST_CASE("signal: each of three is remembered, handlers come back") {
    for (const int s : {SIGTERM, SIGINT, SIGUSR1}) {
        const int status = in_child([s] {
            struct sigaction before {
            }, after{};
            ::sigaction(s, nullptr, &before);
            {
                const SignalGuard guard;
                if (stop_requested()) ::_exit(1);
                ::raise(s);
                if (!stop_requested() || stop_signal() != s) ::_exit(2);
            }
            {
                const SignalGuard again;  // starts clean
                if (stop_requested()) ::_exit(3);
            }
            ::sigaction(s, nullptr, &after);
            if (before.sa_handler != after.sa_handler) ::_exit(4);
        });
        CHECK(status == 0);
    }
}

TEST_CASE("signal: a second SIGTERM ends the process, an echo or a warning before it does not") {
    const auto late = [] { ::usleep(static_cast<useconds_t>(SignalGuard::kEcho * 1.5e6)); };
    int status = in_child([&] {
        const SignalGuard guard;
        ::raise(SIGTERM);
        late();
        ::raise(SIGTERM);
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGTERM);
    status = in_child([&] {
        const SignalGuard guard;
        ::raise(SIGINT);
        ::raise(SIGTERM);  // at once: the same request
        ::raise(SIGUSR1);
        late();
        ::raise(SIGUSR1);
        if (stop_signal() != SIGINT) ::_exit(1);
    });
    CHECK(status == 0);
    status = in_child([&] {
        const SignalGuard guard;
        ::raise(SIGUSR1);  // the time limit's warning
        late();
        ::raise(SIGTERM);  // the limit itself, while the save runs
    });
    CHECK(status == 0);
}

TEST_CASE("signal: a write past the file size limit is an error, not the end") {
    const test::TempDir dir;
    const fs::path path = dir / "big";
    const int status = in_child([&] {
        const SignalGuard guard;
        const struct rlimit limit { 1000, 1000 };
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
        const std::string text(2000, 'x');
        const Fd fd = create_write(path);
        try {
            write_all(fd, text.data(), 2000, path);
        } catch (const Error& e) {
            ::_exit(e.fault() == Fault::kSystem ? 0 : 2);
        }
        ::_exit(3);
    });
    CHECK(status == 0);
}

TEST_CASE("signal: two guards are a bug") {
    const SignalGuard guard;
    CHECK_THROWS_AS(SignalGuard{}, Error);
}
