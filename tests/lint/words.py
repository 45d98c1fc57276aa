"""Fail on marks of unfinished work, paths of one machine, lines that end in blanks, files without a
licence line. Usage: words.py ROOT"""
import re

from common import CODE, files, finish, root

# written in pieces, so that this file does not hold them
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b|[Nn]ot (yet )?implement" r"ed")
MACHINE = re.compile(r"(?<![\w./:])/(home|Users|work|root)/\w")
TEXT = CODE | {".py", ".sh", ".md", ".toml", ".txt", ".json", ".yml", ".cmake", ""}

base = root()
bad = []
for path in files(base):
    if path.suffix not in TEXT:
        continue
    rel = path.relative_to(base)
    try:
        lines = path.read_text().split("\n")
    except UnicodeDecodeError:
        if path.suffix:
            bad.append(f"{rel}: not UTF-8")
        continue
    if path.suffix in CODE and not lines[0].startswith("// SPDX-License-Identifier: MIT"):
        bad.append(f"{rel}:1: no SPDX line")
    if lines[-1]:
        bad.append(f"{rel}: the last line has no end")
    for n, line in enumerate(lines, 1):
        if line != line.rstrip():
            bad.append(f"{rel}:{n}: ends in blanks")
        if m := UNFINISHED.search(line):
            bad.append(f"{rel}:{n}: {m.group(0)}")
        if m := MACHINE.search(line):
            bad.append(f"{rel}:{n}: a path of one machine: {m.group(0)}")
finish("words", bad)
