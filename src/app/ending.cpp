// SPDX-License-Identifier: MIT
#include "app/ending.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/core.h>
#include <new>
#include <system_error>
#include <unistd.h>

#include "core/check.h"

namespace vt {

namespace {

const char* kind_of(int code) {
    switch (code) {
        case 0:
            return "done";
        case static_cast<int>(Fault::kUser):
            return "configuration";
        case static_cast<int>(Fault::kData):
            return "data";
        case static_cast<int>(Fault::kSystem):
            return "system";
        case static_cast<int>(Fault::kDiverged):
            return "numerical";
        case kExitRequeue:
            return "requeue";
        default:
            return "code";
    }
}

struct Failure {
    std::string text, why;
    int code = 0;
};

Failure look(const std::exception& error) {
    constexpr int kSystem = static_cast<int>(Fault::kSystem);
    if (const auto* e = dynamic_cast<const Error*>(&error)) {
        return {e->what(), e->message(), e->exit_code()};
    }
    // threads that could not be started, files
    if (dynamic_cast<const std::system_error*>(&error) != nullptr) {
        return {error.what(), error.what(), kSystem};
    }
    const std::string text = fmt::format("unexpected: {}", error.what());
    return {text, text, static_cast<int>(Fault::kBug)};
}

}  // namespace

std::string ending_line(std::string_view kind, std::string_view why, int code) {
    std::string flat;
    for (const char c : why) {
        if (c == '\n') {
            flat += "; ";
        } else {
            flat += c;
        }
    }
    const bool helps = code == static_cast<int>(Fault::kSystem) || code == kExitRequeue;
    return fmt::format("vtrain: ended: {}{}{}; exit {}; restart helps: {}", kind,
                       flat.empty() ? "" : ": ", flat, code, helps ? "yes" : "no");
}

void print_ending(std::string_view kind, std::string_view why, int code) {
    // what is in stdio's buffer comes before
    std::fflush(stdout);
    // not fmt::print: that throws where stderr cannot be written
    std::fputs((ending_line(kind, why, code) + "\n").c_str(), stderr);
    std::fflush(stderr);
}

namespace {

// Nothing is allocated: there is nothing left.
int end_without_memory() {
    constexpr std::string_view kLines =
        "vtrain: error: out of memory\n"
        "vtrain: ended: system: out of memory; exit 4; restart helps: yes\n";
    if (::write(STDERR_FILENO, kLines.data(), kLines.size()) < 0) return 4;  // nowhere to complain
    return static_cast<int>(Fault::kSystem);
}

}  // namespace

int end_with(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return end_without_memory();
    try {
        const Failure f = look(error);
        std::fputs(fmt::format("vtrain: error: {}\n", f.text).c_str(), stderr);
        print_ending(kind_of(f.code), f.why, f.code);
        return f.code;
    } catch (const std::bad_alloc&) {
        return end_without_memory();
    }
}

void expect_output_written() {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
    raise(Fault::kSystem,
          fmt::format("the output could not be written: {}",
                      errno != 0 ? std::strerror(errno) : "an earlier write failed"),
          "is the disk full, or whoever reads it gone?");
}

void end_orderly_on_terminate() {
    std::set_terminate([] {
        int code = static_cast<int>(Fault::kBug);
        if (const std::exception_ptr now = std::current_exception()) {
            try {
                std::rethrow_exception(now);
            } catch (const std::exception& e) {
                code = end_with(e);
            } catch (...) {
                print_ending("code", "an exception of unknown type", code);
            }
        } else {
            print_ending("code", "std::terminate was called", code);
        }
        std::_Exit(code);
    });
}

}  // namespace vt
