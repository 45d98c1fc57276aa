"""Fail if a file, a function or the reading spine is longer than one can keep in mind.
Usage: size.py ROOT"""
import re

from common import bare, code, finish, root

FILE, FUNCTION, SPINE = 600, 150, 2600  # lines; aim for 500, 120, 2500


def functions(text):
    """(first line, last line) of each function body outside any other."""
    containers = re.compile(r"\b(namespace|class|struct|enum|union|extern)\b[^()=]*$|^\s*TEST_SUITE\b")
    stack, head, line, found = [], "", 1, []
    for c in text:
        if c == "\n":
            line += 1
        if c == "{":
            inside = any(kind == "function" for kind, _ in stack)
            if inside or not head.strip():
                kind = "block"
            elif containers.search(head):
                kind = "container"
            elif ")" in head and not re.search(r"=\s*$", head):
                kind = "function"
            else:
                kind = "block"
            stack.append((kind, line))
            head = ""
        elif c == "}":
            if stack:
                kind, begin = stack.pop()
                if kind == "function":
                    found.append((begin, line))
            head = ""
        elif c == ";":
            head = ""
        else:
            head += c
    return found


base = root()
bad = []
for path in code(base):
    rel, text = path.relative_to(base), path.read_text()
    count = text.count("\n")
    if count > FILE:
        bad.append(f"{rel}: {count} lines, at most {FILE}")
    for begin, end in functions(bare(text)):
        if end - begin + 1 > FUNCTION:
            bad.append(f"{rel}:{begin}: a function of {end - begin + 1} lines, at most {FUNCTION}")

# the spine is what README.md numbers: "1. `src/main.cpp`"
spine = re.findall(r"^\d+\. `((?:src|cuda)/[^`]+)`", (base / "README.md").read_text(), re.M)
total = 0
for name in spine:
    if (base / name).is_file():
        total += (base / name).read_text().count("\n")
    else:
        bad.append(f"README.md: the reading spine names {name}, which does not exist")
if not spine:
    bad.append("README.md: no reading spine (lines like '1. `src/main.cpp`')")
if total > SPINE:
    bad.append(f"the reading spine has {total} lines, at most {SPINE}")
finish("size", bad, f": the reading spine has {total} lines")
