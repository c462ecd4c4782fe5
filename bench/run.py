#!/usr/bin/env python3
"""Measure the gateway against nginx in the cases that matter, and print a section for RESULTS.md.

    make bench                                  everything (ten minutes)
    make bench ARGS="--tests paced --cases openai-llm_stream --runs 1"
    make bench ARGS="--append"                  also append the section to bench/RESULTS.md
    make bench ARGS="--full"                    with keys and limits, usage records and routes switched on

Each case is one run of compare.py: gateway and nginx side by side on the same core, the same mock provider behind both.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from compare import TESTS

from headrace.access.keys import KeyFile

HERE = pathlib.Path(__file__).resolve().parent
PORT = 9102
PROMPT = "Write a short poem about the sea, please."
CASES: dict[str, tuple[str, str, str]] = {
    # case: (provider, value of Accept, text that a finished stream holds)
    "openai-llm_stream": ("openai", 'text/event-stream; profile="llm-stream-1.0"', "stream.end"),
    "openai-openai": ("openai", "text/event-stream", "[DONE]"),
    "anthropic-openai": ("anthropic", "text/event-stream", "[DONE]"),
}
TARGETS: dict[str, float] = {"paced": 2.0, "latency": 2.6, "saturated": 1.5}
"""Ratios to nginx to stay under."""
HOLD_STREAMS = 9900
HOLD_KB = 40


FULL = """
keys_file: keys.json
usage: {folder: usage}
prices:
  routed: {input: 1.25, output: 10, cached: 0.125}
routes:
"""
"""What is switched on with --full, beside the providers of headrace.yaml: a key with every limit, a ledger, routes."""


def full_config(folder: pathlib.Path) -> tuple[pathlib.Path, str]:
    """A configuration with everything switched on, in `folder`, and the secret of its key."""
    core = (HERE / "headrace.yaml").read_text().replace("usage: {enabled: false}", "")
    lines = [core, FULL]
    for options, _ in TESTS.values():
        for provider, other in (("openai", "anthropic"), ("anthropic", "openai")):
            model = f"mock:{options}"
            candidates = [f"{{provider: {name}, model: '{model}', same_as: mock}}" for name in (provider, other)]
            lines.append(f"  'routed {provider}/{model}': {{candidates: [{', '.join(candidates)}]}}")
    config = folder / "headrace.yaml"
    config.write_text("\n".join(lines))
    _, secret = KeyFile(folder / "keys.json").create(
        "bench",
        now=datetime.datetime.now(datetime.UTC),
        requests_per_minute=10_000_000,
        tokens_per_minute=2_000_000_000,
        concurrent_streams=100_000,
    )
    return config, secret


def compare(case: str, tests: str, runs: int, *, full: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        config, secret = full_config(pathlib.Path(folder)) if full else (HERE / "headrace.yaml", "")
        return _compare(case, tests, runs, config, secret)


def _compare(case: str, tests: str, runs: int, config: pathlib.Path, secret: str) -> dict[str, Any]:
    provider, accept, marker = CASES[case]
    model = f"routed {provider}/MODEL" if secret else f"{provider}/MODEL"
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    command = [
        sys.executable,
        str(HERE / "compare.py"),
        *("--port", str(PORT), "--path", "/v1/chat/completions", "--body", json.dumps(body)),
        *("--marker", marker, "--header", f"Accept: {accept}", "--header", "Content-Type: application/json"),
        *(("--header", f"Authorization: Bearer {secret}") if secret else ()),
        *("--tests", tests, "--runs", str(runs), "--json", "--"),
        *(str(pathlib.Path(sys.executable).with_name("headrace")), "serve"),
        *("--config", str(config), "--port", str(PORT)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rows(case: str, result: dict[str, Any]) -> list[str]:
    lines = []
    for test, found in result.items():
        ours, nginx = found["gateway"], found["nginx"]
        target = TARGETS.get(test)
        verdict = "" if target is None else ("met" if found["ratio"] <= target else "**missed**")
        added = [round(ours["ttft_ms_p50_p99"][i] - nginx["ttft_ms_p50_p99"][i], 2) for i in (0, 1)]
        memory = ours["kb_per_stream"] if test == "hold" else ""
        lines.append(
            f"| {case} | {test} | {found['ratio']} | {target or ''} | {verdict} | {ours['cpu_us_per_event']} | "
            f"{nginx['cpu_us_per_event']} | {added[0]} / {added[1]} | {ours['ok']} / {ours['failed']} | {memory} |"
        )
    return lines


def section(results: dict[str, dict[str, Any]], *, full: bool) -> str:
    commit = subprocess.run(
        ["git", "-C", str(HERE), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    head = (
        f"## {today}, commit {commit or 'unknown'}{', keys, limits, usage records and routes' if full else ''}\n\n"
        "| case (provider-caller) | test | x nginx | target | | us/event | nginx us/event "
        "| added TTFT ms p50 / p99 | streams ok / failed | KB/stream |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(line for case, result in results.items() for line in rows(case, result)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--tests", default="paced,latency,saturated,hold")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--full", action="store_true", help="with keys and limits, usage records and routes")
    arguments = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    for case in arguments.cases.split(","):
        print(f"{case} ...", file=sys.stderr, flush=True)
        tests = arguments.tests.split(",")
        results[case] = {}
        # The hold test has a gateway of its own: memory that other tests left free would hide what a stream takes.
        for group in ([t for t in tests if t != "hold"], [t for t in tests if t == "hold"]):
            if group:
                results[case].update(compare(case, ",".join(group), arguments.runs, full=arguments.full))
    text = section(results, full=arguments.full)
    print(text)
    if arguments.append:
        with (HERE / "RESULTS.md").open("a") as file:
            file.write("\n" + text)


if __name__ == "__main__":
    main()
