// SPDX-License-Identifier: MIT
#include "core/check.h"

namespace vt {

static std::string compose(Fault fault, const std::string& message, const std::string& hint,
                           Where at) {
    std::string out = message;
    if (fault == Fault::kBug) out += fmt::format(" [{}:{}]", at.file, at.line);
    if (!hint.empty()) out += "\n  hint: " + hint;
    return out;
}

Error::Error(Fault fault, std::string message, std::string hint, Where at)
    : std::runtime_error(compose(fault, message, hint, at)),
      fault_(fault),
      message_(std::move(message)),
      hint_(std::move(hint)) {}

void raise(Fault fault, std::string message, std::string hint, Where at) {
    throw Error(fault, std::move(message), std::move(hint), at);
}

void check_failed(const char* expr, const std::string& message, Where at) {
    raise(Fault::kBug, fmt::format("contract broken: {}: {}", expr, message),
          "this is a bug in vtrain; please report it with the whole log", at);
}

int64_t div_exact(int64_t a, int64_t b) {
    VT_CHECK(b > 0 && a % b == 0, "{} is not divisible by {}", a, b);
    return a / b;
}

}  // namespace vt
