"""Writes or checks the sets of sets.txt with pyroaring (CRoaring).

    interop.py write SETS DIR    one file a set
    interop.py check SETS DIR    every file holds its set, and nothing else
"""

import pathlib
import sys

from pyroaring import BitMap


def sets(path):
    out = {}
    for line in pathlib.Path(path).read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, first, last, step = line.split()
        out.setdefault(name, BitMap()).update(range(int(first), int(last) + 1, int(step)))
    return out


def main(command, path, directory):
    for name, want in sets(path).items():
        file = pathlib.Path(directory, name + ".bin")
        want.run_optimize()
        if command == "write":
            file.write_bytes(want.serialize())
            continue
        raw = file.read_bytes()
        got = BitMap.deserialize(raw)
        if got != want or got.serialize() != raw:
            sys.exit(f"{name}: pyroaring reads {len(got)} members, want {len(want)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
