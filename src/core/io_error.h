// SPDX-License-Identifier: MIT
// The error of a failed system call, for those who must tell one from another.
// Floor 0.
#pragma once

#include <string>
#include <utility>

#include "core/check.h"

namespace vt {

// kSystem, with its errno; what raise_errno (core/file.h) throws.
class IoError : public Error {
  public:
    IoError(int number, std::string message, std::string hint, Where at)
        : Error(Fault::kSystem, std::move(message), std::move(hint), at), number_(number) {}
    [[nodiscard]] int number() const noexcept { return number_; }

  private:
    int number_;
};

}  // namespace vt
