"""Fail if a header does not compile alone or lacks its guard. A header is compiled again only after
it, or a header it includes, changed. Usage: headers.py ROOT CACHE_FILE COMPILER FLAGS..."""
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import code, finish, root

base, cache_file = root(), Path(sys.argv[2])
command = [*sys.argv[3:], "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
           f"-I{base}/src", f"-I{base}", "-x", "c++", "-"]


def find(name):
    return next((p for p in (base / "src" / name, base / name) if p.is_file()), None)


def closure(path, seen):
    if path not in seen:
        seen.add(path)
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.M):
            if (there := find(name)) is not None:
                closure(there, seen)
    return seen


def key(path):
    h = hashlib.sha256(" ".join(command).encode())
    for p in sorted(closure(path, set())):
        h.update(p.read_bytes())
    return h.hexdigest()


def check(path):
    rel = path.relative_to(base / "src") if "src" in path.relative_to(base).parts[:1] \
        else path.relative_to(base)
    done = subprocess.run(command, input=f'#include "{rel}"\n', text=True, capture_output=True)
    return "" if done.returncode == 0 else f"{path.relative_to(base)} does not compile alone:\n{done.stderr}"


try:
    good = set(json.loads(cache_file.read_text()))
except (OSError, ValueError):
    good = set()
headers = [p for p in code(base) if p.suffix in {".h", ".hpp"} and "cuda" not in p.relative_to(base).parts[:2]]
bad = [f"{p.relative_to(base)}: no #pragma once" for p in headers if "#pragma once" not in p.read_text()]
keys = {p: key(p) for p in headers}
with ThreadPoolExecutor(2) as pool:
    stale = [p for p in headers if keys[p] not in good]
    results = dict(zip(stale, pool.map(check, stale)))
bad += [text for text in results.values() if text]
cache_file.write_text(json.dumps(sorted(keys[p] for p in headers if not results.get(p))))
finish("headers", bad, f": {len(headers)} headers, {len(stale)} compiled")
