// SPDX-License-Identifier: MIT
// A checkpoint's manifest. The input is the body; head and checksum are made here, so that it gets
// past them. What is accepted and complete survives a round trip.
#include "ckpt/manifest.h"
#include "core/hash.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vt;
    const std::string_view body = test::as_text(data, size);
    const std::string text =
        fmt::format(R"({{"format":"vtrain-checkpoint","version":{},"xxh3":"{}","manifest":{}}})"
                    "\n",
                    kManifestVersion, hex64(xxh3(body)), body);
    test::must_refuse_or_accept([&] {
        const Manifest m = decode(text, "manifest.json");
        check_complete(m, Fault::kData, "manifest.json");
        const std::string again = encode(m);
        if (encode(decode(again, "manifest.json")) != again) std::abort();
    });
    test::must_refuse_or_accept([&] { (void)decode(std::string(body), "manifest.json"); });
    return 0;
}
