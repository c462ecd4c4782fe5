"""Fuzzing that is led by coverage, with atheris: `python -m tests.fuzz.guided --seconds 60 [TARGET ...]`.

One process fuzzes all targets, or those that are named: the first bytes of an input say which one it is for. An input that
breaks a target is printed with the traceback and kept in the folder .fuzz, and the exit status is not 0.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["headrace"], enable_loader_override=False):
    from .mutations import mutated
    from .targets import TARGETS, Finding, Target

MAX_INPUT = 64 * 1024
SECONDS_AN_INPUT = 20
MEGABYTES = 2048
KEPT = ".fuzz"
_HEAD = 2
"""Bytes before the target's own."""


def _planted(data: bytes) -> None:
    if data[:1] == b"!":
        raise Finding("planted: the fuzzing works")


PLANTED = Target("planted", _planted, lambda: [b"?"])
"""For the test of this module: a target with a fault."""


def fuzz(targets: list[Target], folder: str, *, seconds: int, seed: int) -> None:
    """Never returns: the fuzzer ends the process."""
    seeds = [list(target.seeds()) for target in targets]
    for number, some in enumerate(seeds):
        for place, data in enumerate(some):
            Path(folder, f"{number}-{place}").write_bytes(number.to_bytes(_HEAD, "big") + data)

    def run(data: bytes) -> None:
        target = targets[int.from_bytes(data[:_HEAD], "big") % len(targets)]
        try:
            target.run(data[_HEAD:])
        except Exception:
            print(f"target: {target.name}", file=sys.stderr)
            raise

    def mutate(data: bytes, most: int, throw: int) -> bytes:
        dice = random.Random(throw)
        number = int.from_bytes(data[:_HEAD], "big") % len(targets)
        if dice.random() < 0.1:
            number = dice.randrange(len(targets))
            data = number.to_bytes(_HEAD, "big") + dice.choice(seeds[number])
        if dice.random() < 0.5:
            changed: bytes = atheris.Mutate(data[_HEAD:], most - _HEAD)
        else:
            changed = mutated(dice, [data[_HEAD:], dice.choice(seeds[number])])
        return number.to_bytes(_HEAD, "big") + changed[: most - _HEAD]

    options: dict[str, Any] = {
        "max_total_time": seconds,
        "seed": seed,
        "max_len": MAX_INPUT,
        "timeout": SECONDS_AN_INPUT,
        "rss_limit_mb": MEGABYTES,
        "len_control": 0,
        "print_final_stats": 1,
        "artifact_prefix": f"{KEPT}/",
    }
    arguments = [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), folder]
    atheris.Setup(arguments, run, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="names, or parts of them; none: all")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the dice; 0: another one each time")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    parser.add_argument("--planted", action="store_true", help="fuzz a target with a known fault instead")
    given = parser.parse_args()
    chosen = [
        target for name, target in TARGETS.items() if not given.targets or any(one in name for one in given.targets)
    ]
    if not chosen:
        parser.error("no target has such a name (--list shows them)")
    if given.list:
        print("\n".join(target.name for target in chosen))
        return
    Path(KEPT).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        fuzz([PLANTED] if given.planted else chosen, folder, seconds=given.seconds, seed=given.seed)


if __name__ == "__main__":
    main()
