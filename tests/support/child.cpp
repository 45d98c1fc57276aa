// SPDX-License-Identifier: MIT
#include "tests/support/child.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace vt::test {

Child::Child(const std::vector<std::string>& args, const std::string& log) {
    std::vector<char*> argv;
    for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) {
        const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
        ::dup2(fd, 1);
        ::dup2(fd, 2);
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }
}

Child::~Child() {
    if (reaped_ || pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    (void)wait();
}

void Child::kill(int signal) {
    ::kill(pid_, signal);
}

int Child::wait() {
    if (reaped_) return code_;
    int status = 0;
    rusage usage{};
    if (::wait4(pid_, &status, 0, &usage) != pid_) throw std::runtime_error("wait4 failed");
    reaped_ = true;
    peak_ = usage.ru_maxrss * 1024;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_;
}

}  // namespace vt::test
