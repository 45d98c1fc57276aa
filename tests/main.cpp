// SPDX-License-Identifier: MIT
// doctest's main; no test has its own. Like the program, it can be its own index child: opening a
// data set runs `/proc/self/exe data index-child FILES`.
#define DOCTEST_CONFIG_IMPLEMENT
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "data/index_child.h"

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() > 3 && words[0] == "data" && words[1] == "index-child") {
        const bool told = words[2] == "--foreign";
        const auto files = words.begin() + (told ? 5 : 3);
        return vt::index_child_main(told ? words[3] : "", {files, words.end()});
    }
    return doctest::Context(argc, argv).run();
}
