#!/usr/bin/env python3
"""Measure a gateway's cost per forwarded event against nginx passing the same bytes through, in one run.

    python3 compare.py --port 8080 --path /v1/chat/completions -- COMMAND THAT STARTS THE GATEWAY

The gateway must forward to the upstream at http://127.0.0.1:9100 (OpenAI chat format at /v1/chat/completions, Anthropic
at /v1/messages). Gateway and nginx are pinned to core 0, mockllm and loadgen to core 1. Tests:
  paced     1,000 streams, 20 events a second each       saturated  64 streams, as fast as they go
  latency   200 streams, 20 events a second each         hold       9,900 streams, 1 event a second each
Reports CPU microseconds per event (utime + stime of the gateway's process tree), the ratio to nginx, time to first token
and one-way latency per event. Medians over --runs. Needs nginx (Debian package) and gcc; run `make` first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
MOCK, NGINX = 9100, 9101
PROMPT = "Write a short poem about the sea, please."
OPENAI_BODY = json.dumps({"model": "MODEL", "stream": True, "messages": [{"role": "user", "content": PROMPT}]})
TESTS = {  # name: (mock model options, loadgen arguments)
    "paced": ("n=60,i=50000", ["-c", "1000", "-n", "1000", "-r", "2", "-E", "60", "-T", "40"]),
    "latency": ("n=20,i=50000", ["-c", "200", "-d", "3", "-r", "1", "-E", "20", "-T", "25"]),
    "saturated": ("n=500,i=0", ["-c", "64", "-d", "2", "-E", "500", "-T", "40"]),
    "hold": ("n=15,i=1000000", ["-c", "9900", "-n", "9900", "-r", "8", "-E", "15", "-T", "60"]),
}
NGINX_CONF = """worker_processes 1; worker_rlimit_nofile 20000; pid %(dir)s/nginx.pid; error_log %(dir)s/error.log;
daemon off; events { worker_connections 20000; }
http { access_log off; client_body_temp_path %(dir)s; proxy_temp_path %(dir)s; fastcgi_temp_path %(dir)s;
 uwsgi_temp_path %(dir)s; scgi_temp_path %(dir)s;
 upstream mock { server 127.0.0.1:9100; keepalive 10000; }
 server { listen 127.0.0.1:9101 backlog=16384;
  location / { proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
   proxy_read_timeout 120s; } } }
"""
Process = subprocess.Popen[bytes]
Row = dict[str, Any]


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    pids = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            children = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text()
            for child in children.split():
                pids += tree(int(child))
    except FileNotFoundError:
        pass  # it ended while we looked
    return pids


def start(command: list[str], core: str, port: int, log: str, timeout: float = 30) -> Process:
    """Start a server pinned to `core` and wait until it accepts connections."""
    with open(log, "wb") as output:
        proc = subprocess.Popen(
            ["taskset", "-c", core, *command], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 0.3).close()
            time.sleep(0.3)
            return proc
        except OSError:
            if proc.poll() is not None:
                break
            time.sleep(0.1)
    stop(proc)
    sys.exit(f"did not start: {' '.join(command)}\n{pathlib.Path(log).read_text()[-2000:]}")


def stop(proc: Process) -> None:
    pids = tree(proc.pid)
    proc.terminate()
    try:
        proc.wait(8)
    except subprocess.TimeoutExpired:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        proc.wait()


def load(test: str, port: int, path: str, body: str, marker: str, headers: list[str], pids: list[int]) -> Row:
    """One run of loadgen; `pids` are the processes whose CPU and memory it watches."""
    options, arguments = TESTS[test]
    body = body.replace("MODEL", f"mock:{options}")
    command = ["taskset", "-c", "1", str(HERE / "loadgen"), "-p", str(port), "-u", path, "-B", body, "-F", marker]
    command += ["-l", test, *arguments]
    for header in headers:
        command += ["-H", header]
    for pid in pids:
        command += ["-m", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        result: Row = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"loadgen failed: {done.stdout[-500:]} {done.stderr[-500:]}")
    return result


def median(rows: list[Row], *path: str) -> float:
    values = []
    for row in rows:
        value: Any = row
        for key in path:
            value = value[key]
        values.append(float(value))
    return statistics.median(values)


def summary(rows: list[Row]) -> Row:
    """What one side did, medians over its runs."""
    ms = {name: [round(median(rows, name, p) / 1e3, 3) for p in ("p50", "p99")] for name in ("ttft_us", "latency_us")}
    cpu = statistics.median(r["mon"]["cpu_us"] / max(1, r["content_events"] or r["events"]) for r in rows)
    streams = max(1, *(r["streams_ok"] for r in rows))
    grown = max(r["mon"]["rss_peak_kb"] - r["mon"]["rss_start_kb"] for r in rows)
    return {
        "cpu_us_per_event": round(cpu, 1),
        "ok": sum(r["streams_ok"] for r in rows),
        "failed": sum(r["streams_failed"] + r["unfinished"] for r in rows),
        "ttft_ms_p50_p99": ms["ttft_us"],
        "latency_ms_p50_p99": ms["latency_us"],
        "rss_mb": round(max(r["mon"]["rss_peak_kb"] for r in rows) / 1024),
        "kb_per_stream": round(grown / streams, 1),
    }


def measure(arguments: argparse.Namespace, directory: str, procs: list[Process]) -> dict[str, Row]:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    pathlib.Path(directory, "nginx.conf").write_text(NGINX_CONF % {"dir": directory})
    mock = [str(HERE / "mockllm"), "-p", str(MOCK), "-t", "-j", "-q"]
    procs.append(start(mock, "1", MOCK, f"{directory}/mock.log"))
    nginx = ["nginx", "-c", f"{directory}/nginx.conf", "-p", directory]
    procs.append(start(nginx, "0", NGINX, f"{directory}/nginx.log"))
    procs.append(start(command, "0", arguments.port, f"{directory}/gateway.log"))
    out: dict[str, Row] = {}
    for test in arguments.tests.split(","):
        rows: dict[str, list[Row]] = {"nginx": [], "gateway": []}
        for _ in range(1 if test == "hold" else arguments.runs):  # side by side: one after the other, in turn
            pids = tree(procs[1].pid)
            rows["nginx"].append(load(test, NGINX, "/v1/chat/completions", OPENAI_BODY, "[DONE]", [], pids))
            pids = tree(procs[2].pid)
            side = (arguments.port, arguments.path, arguments.body, arguments.marker, arguments.header, pids)
            rows["gateway"].append(load(test, *side))
        found = {who: summary(runs) for who, runs in rows.items()}
        ratio = found["gateway"]["cpu_us_per_event"] / found["nginx"]["cpu_us_per_event"]
        out[test] = {"ratio": round(ratio, 2), **found}
    return out


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--path", default="/v1/chat/completions")
    p.add_argument(
        "--body",
        default=OPENAI_BODY,
        help="request body; MODEL is replaced with the mock's options and must reach the upstream as the model name",
    )
    p.add_argument("--marker", default="[DONE]", help="text that a finished stream holds")
    p.add_argument("--header", action="append", default=[])
    p.add_argument("--tests", default="paced,latency")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    p.add_argument("command", nargs=argparse.REMAINDER)
    arguments = p.parse_args()
    procs: list[Process] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    with tempfile.TemporaryDirectory() as directory:
        try:
            out = measure(arguments, directory, procs)
        finally:
            for proc in reversed(procs):
                stop(proc)
    if arguments.json:
        print(json.dumps(out))
        return
    for test, result in out.items():
        print(f"{test}: {result['ratio']} x nginx")
        for who in ("nginx", "gateway"):
            print("   ", who, result[who])


if __name__ == "__main__":
    main()
