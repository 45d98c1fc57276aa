"""Fail if a document or a comment names a file, a function or a key that is not there.
Usage: links.py ROOT"""
import re

from common import CODE, bare, code, files, finish, root

base = root()
bad = []
KINDS = r"(?:h|hpp|cpp|cu|cuh|py|md|toml|sh|txt|json)"
FOLDERS = {p.name for p in (base / "src").iterdir() if p.is_dir()}
symbols = set()
for path in code(base):
    symbols.update(re.findall(r"[A-Za-z_]\w*", bare(path.read_text())))
for path in files(base, ".py", ".sh"):
    symbols.update(re.findall(r"[A-Za-z_]\w*", path.read_text()))


def exists(name, beside):
    name = name.rstrip("/")
    places = [base, base / "src", beside]
    if any(c in name for c in "*?"):
        return any(next(iter(place.glob(name)), None) is not None for place in places)
    return any((place / name).exists() for place in places)


def checkable(name):
    """A path of this tree: from the top, or from the top of src. Not what a run or a build makes."""
    first = name.split("/")[0]
    return "/" in name and (first in FOLDERS or first in {"src", "tests", "configs", "scripts", ".ci"})


for path in files(base, ".md"):
    rel, fenced = path.relative_to(base), False
    for n, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
            if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                bad.append(f"{rel}:{n}: link to {target}, which does not exist")
        if fenced:
            words = re.findall(r"(?<![\w/.-])((?:scripts|configs|tests|\.ci)/[\w./-]*\w)", line)
            spans = []
        else:
            spans = re.findall(r"`([^`]+)`", line)
            words = [w for span in spans for w in re.findall(r"(?<![\w/.-])[\w.*-]+/[\w./*-]*[\w/*]", span)]
        for word in words:
            if checkable(word) and not exists(word, path.parent):
                bad.append(f"{rel}:{n}: {word} does not exist")
        for span in spans:
            m = re.fullmatch(r"(?:\w+::)*([A-Za-z_]\w*)\(\)", span)
            if m and m.group(1) not in symbols:
                bad.append(f"{rel}:{n}: {span} is in no source file")

for path in files(base):
    if path.suffix not in CODE:
        continue
    rel = path.relative_to(base)
    for n, line in enumerate(path.read_text().splitlines(), 1):
        comment = re.search(r"//.*", line)
        if comment is None:
            continue
        for word in re.findall(rf"(?<![\w/.<-])((?:[\w-]+/)+[\w.-]+\.{KINDS})\b", comment.group(0)):
            if checkable(word) and not exists(word, path.parent):
                bad.append(f"{rel}:{n}: {word} does not exist")
finish("links", bad)
