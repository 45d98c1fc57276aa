// SPDX-License-Identifier: MIT
// A run.toml: parsed, applied, and, if accepted, dumped and read again to the same text.
#include "app/run_config.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vt;
    test::must_refuse_or_accept([&] {
        const RunConfig c =
            parse_run_config(std::string(test::as_text(data, size)), "run.toml", "/base");
        const std::string text = dump(c);
        if (dump(parse_run_config(text, "run.toml", "/base")) != text) std::abort();
    });
    return 0;
}
