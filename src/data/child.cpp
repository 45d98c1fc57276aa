// SPDX-License-Identifier: MIT
#include "data/child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.h"

extern char** environ;

namespace vt {

namespace {

constexpr rlim_t kChildMemory = rlim_t{2} << 30;  // beyond what the bare program has mapped
constexpr rlim_t kChildCpuSeconds = 60;           // per file

// Sanitizers map terabytes of shadow, which RLIMIT_AS would forbid.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitMemory = false;
#else
constexpr bool kLimitMemory = true;
#endif

void limit(int what, rlim_t soft, rlim_t hard) {
    const rlimit r{.rlim_cur = soft, .rlim_max = hard};
    (void)::setrlimit(static_cast<__rlimit_resource_t>(what), &r);
}

}  // namespace

Fd take_child_stdout() {
    Fd out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    const Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!null.open() || ::dup2(null.get(), STDOUT_FILENO) < 0) return {};
    return out;
}

void limit_child() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_FSIZE, 0, 0);
    limit(RLIMIT_NOFILE, 64, 64);
    if (kLimitMemory) {
        const std::string statm = read_file("/proc/self/stat");
        // field 23 is the address space in bytes; the name in field 2 may hold blanks
        size_t at = statm.rfind(')');
        for (int field = 2; field < 23 && at != std::string::npos; ++field) {
            at = statm.find(' ', at + 1);
        }
        const rlim_t now = at == std::string::npos ? 0 : std::strtoull(&statm[at], nullptr, 10);
        limit(RLIMIT_AS, now + kChildMemory, now + kChildMemory);
    }
}

// RLIMIT_CPU counts the whole process, so it moves on with every file.
void limit_child_cpu() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    limit(RLIMIT_CPU,
          static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + kChildCpuSeconds,
          RLIM_INFINITY);
}

Child::~Child() {
    if (pid > 0) {
        ::kill(pid, SIGKILL);
        wait();
    }
}

int Child::wait() {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    pid = -1;
    return status;
}

void spawn_child(Child& child, std::string_view what, const fs::path& program,
                 const std::vector<std::string>& arguments) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) raise_errno("make a pipe for", program);
    child.out = Fd(ends[0]);
    const Fd write_end(ends[1]);

    std::vector<std::string> words = arguments;
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attr);
    // dup2 clears CLOEXEC. stderr too: a dying library's last words would only puzzle; the parent
    // reports the file.
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attr, &none);
    ::posix_spawnattr_setsigdefault(&attr, &all);
    ::posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int error =
        ::posix_spawn(&child.pid, program.c_str(), &actions, &attr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attr);
    if (error != 0) {
        child.pid = -1;
        errno = error;
        raise_errno(fmt::format("start {}", what), program);
    }
}

void refuse_child(std::string_view what, const fs::path& program, int status) {
    raise(Fault::kSystem,
          fmt::format("{} {} {} before it saw a file", what, program.string(),
                      describe_wait_status(status)),
          "it must be the vtrain program");
}

int64_t read_child(const Child& child, void* to, size_t bytes, ChildClock::time_point deadline) {
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - ChildClock::now())
                .count();
        if (left <= 0) return -1;
        pollfd p{.fd = child.out.get(), .events = POLLIN, .revents = 0};
        const int ready = ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000)));
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        if (ready < 0) return -1;
        const ssize_t n = ::read(child.out.get(), to, bytes);
        if (n < 0 && errno == EINTR) continue;
        return std::max<int64_t>(n, 0);  // a pipe that cannot be read is at its end
    }
}

Refusal Refusal::decode(std::string_view body) {
    const size_t nul = std::min(body.find('\0'), body.size());
    return {.reason = std::string(body.substr(0, nul)),
            .hint = std::string(body.substr(std::min(nul + 1, body.size())))};
}

std::string describe_wait_status(int status) {
    if (WIFSIGNALED(status)) {
        return fmt::format("died of signal {} ({})", WTERMSIG(status),
                           ::strsignal(WTERMSIG(status)));
    }
    return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace vt
