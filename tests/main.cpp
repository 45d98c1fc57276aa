// SPDX-License-Identifier: MIT
// doctest's main; no test has its own.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
