// SPDX-License-Identifier: MIT
// A table of captions. The first byte chooses the format; what is accepted can be asked for names.
#include "data/captions.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vt;
    if (size < 1) return 0;
    constexpr CaptionFormat kFormats[] = {CaptionFormat::kText, CaptionFormat::kCsv,
                                          CaptionFormat::kJsonLines, CaptionFormat::kJson};
    const CaptionFormat format = kFormats[data[0] % 4];
    test::must_refuse_or_accept([&] {
        const Captions c = parse_captions(test::as_text(data + 1, size - 1), format, "captions");
        (void)c.find("a/clip.mp4");
        (void)c.find("clip");
    });
    return 0;
}
