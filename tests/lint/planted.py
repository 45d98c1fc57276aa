"""Fail if a lint lets a planted mistake pass, or finds one in a clean tree. Usage: planted.py"""
import subprocess
import sys
import tempfile
from pathlib import Path

here = Path(__file__).parent
SPDX = "// SPDX-License-Identifier: MIT\n"
CLEAN = {
    "README.md": "1. `src/main.cpp`\n\nSee [keys](configs/README.md), `core/a.h` and `good()`.\n",
    "configs/README.md": "keys\n",
    "tests/lint/floors.txt": "0 core\n1 ops\n1 comm\n7 app\n",
    "src/main.cpp": SPDX + '// The program. Floor 7.\n#include "ops/b.h"\nint main() { return 0; }\n',
    "src/core/a.h": SPDX + "// A. Floor 0.\n#pragma once\nint good();\n",
    "src/ops/b.h": SPDX + '// B. Floor 1.\n#pragma once\n#include "core/a.h"\n',
    "src/comm/c.h": SPDX + "// C. Floor 1.\n#pragma once\n",
}
LONG = SPDX + "namespace vt {\nvoid f(int x) {\n" + "    x += '{';  // }\n" * 150 + "}\n}\n"
# lint, the file to change, its new text, what the message must hold
PLANTED = [
    ("floors", "src/ops/b.h", SPDX + '#include "comm/c.h"\n', "src/ops/b.h:2: floor 1 (ops) includes comm"),
    ("floors", "src/core/a.h", SPDX + "#  include <ops/b.h>\n", "includes ops"),
    ("floors", "src/core/a.h", SPDX + '#include "../ops/b.h"\n', "relative include"),
    ("floors", "src/ops/b.h", SPDX + '#include "c.h"\n', "not written from the top"),
    ("floors", "src/new/d.h", SPDX, "has no floor"),
    ("floors", "src/ops/b.h", SPDX + "// B. Floor 2.\n", "says floor 2"),
    ("floors", "src/comm/c.h", SPDX + "#include <mpi.h>\n", ""),
    ("size", "src/core/long.cpp", SPDX + "\n" * 600, "601 lines"),
    ("size", "src/core/long.cpp", LONG, "src/core/long.cpp:3: a function of 152 lines"),
    ("size", "README.md", "1. `src/gone.cpp`\n", "does not exist"),
    ("size", "README.md", "nothing\n", "no reading spine"),
    ("links", "README.md", "[x](gone.md)\n", "gone.md"),
    ("links", "README.md", "`src/gone.cpp`\n", "src/gone.cpp"),
    ("links", "README.md", "`vt::gone()`\n", "vt::gone()"),
    ("links", "README.md", "```\nscripts/gone.sh\n```\n", "scripts/gone.sh"),
    ("links", "src/core/a.h", SPDX + "// as core/gone.h says\n", "core/gone.h"),
    ("words", "src/core/a.h", SPDX + "// TO" + "DO\n", "a.h:2"),
    ("words", "src/core/a.h", SPDX + "int x; \n", "ends in blanks"),
    ("words", "src/core/a.h", "int x;\n", "no SPDX"),
    ("words", "README.md", "in /ho" + "me/me/x\n", "path of one machine"),
    ("headers", "src/core/a.h", SPDX + "#pragma once\nstd::string x();\n", "does not compile alone"),
    ("headers", "src/core/a.h", SPDX, "no #pragma once"),
]


def run(lint, base):
    command = [sys.executable, str(here / f"{lint}.py"), str(base)]
    if lint == "headers":
        command += [str(base / "cache.json"), "c++"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def tree(base, changed):
    for name, text in {**CLEAN, **changed}.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)


bad = []
for lint in ["floors", "size", "links", "words", "headers"]:
    with tempfile.TemporaryDirectory() as d:
        tree(Path(d), {})
        code, text = run(lint, Path(d))
        if code != 0:
            bad.append(f"{lint} refuses a clean tree: {text}")
for lint, name, content, part in PLANTED:
    changed = {name: content}
    if content.endswith("<mpi.h>\n"):  # a second door
        changed["src/ops/b.h"] = content
        part = "MPI is included from"
    with tempfile.TemporaryDirectory() as d:
        tree(Path(d), changed)
        code, text = run(lint, Path(d))
        if code != 1 or part not in text:
            bad.append(f"{lint} let pass: {name} with ...{content[-60:]!r}: exit {code}, {text}")
print("\n".join(bad) or f"planted ok: {len(PLANTED)} mistakes found")
sys.exit(bool(bad))
