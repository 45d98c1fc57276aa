"""What the lints share: the tree's files, and C++ text without comments and strings."""
import re
import sys
from pathlib import Path

CODE = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
TOP = ["src", "cuda", "tests", "scripts", "configs", "data", ".ci"]


def root() -> Path:
    return Path(sys.argv[1]).resolve()


def files(base: Path, *suffixes: str):
    """Files below the top-level folders and beside them, with one of these suffixes (all: none)."""
    found = [p for p in base.iterdir() if p.is_file() and p.name != ".git"]
    for top in TOP:
        found += [p for p in (base / top).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return sorted(p for p in found if not suffixes or p.suffix in suffixes)


def code(base: Path):
    return [p for p in files(base) if p.suffix in CODE]


_PIECES = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.S,
)


def bare(text: str) -> str:
    """C++ text with comments and the insides of literals blanked; every line stays where it was."""
    text = re.sub(r"(?<=\d)'(?=\d)", "", text)  # digit separators are not characters
    return _PIECES.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def finish(name: str, bad: list, note: str = "") -> None:
    print("\n".join(bad) if bad else f"{name} ok{note}")
    sys.exit(bool(bad))
