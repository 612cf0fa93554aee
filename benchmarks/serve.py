"""Throughput and tail latency of ``revar serve`` against a bare FastAPI handler, same model.

The bare handler is what one writes first: it decodes, calls the model and answers, one request at
a time on its loop, without batching, limits, queue or metrics. Each runs in a process of its own
with one thread for arithmetic, and they are loaded in turns; clients run in this process and send
the next request when the last is answered. Answers of both are compared before anything is timed.
CPU time is that of the server's process for each answer: on a busy machine it says more than the
clock.

    python benchmarks/serve.py --json results/serve/load.json
    python benchmarks/serve.py --seconds 1 --clients 1 4      # a look
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from numpy.typing import NDArray

import where

ROOT = Path(__file__).parents[1]
SERVERS = ("revar serve", "bare handler")
MODELS = ("mlp", "resnet20")
"""Rows of 64 numbers as JSON, and pictures of 32 x 32 pixels as PNG files."""


def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """[n, 64] rows and labels of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x, y


def enlarged(x: NDArray[np.float64]) -> NDArray[np.uint8]:
    """[n, 32, 32] the same as pictures."""
    return np.kron(x.reshape(-1, 8, 8) * 15, np.ones((1, 4, 4))).astype(np.uint8)


def train(folder: Path, names: list[str]) -> dict[str, list[tuple[str, bytes]]]:
    """Runs, and what to send to each: media type and body of requests of one example."""
    from PIL import Image

    from revar import SelectiveClassifier

    x, y = digits()
    sent: dict[str, list[tuple[str, bytes]]] = {}
    for name in names:
        values: Any = x if name == "mlp" else enlarged(x)
        clf = SelectiveClassifier("revar", name, epochs=1, random_state=0)
        clf.fit(values[:300], y[:300])
        clf.set_threshold(values[600:1000], y[600:1000], coverage=0.8)
        clf.save(folder / name)
        sent[name] = []
        for row in values[1000:1064]:
            if name == "mlp":
                body = json.dumps({"rows": [row.tolist()]}).encode()
                sent[name].append(("application/json", body))
                continue
            buffer = BytesIO()
            Image.fromarray(row).save(buffer, "PNG")
            head = b'--b\r\nContent-Disposition: form-data; name="i"; filename="i.png"\r\n\r\n'
            body = head + buffer.getvalue() + b"\r\n--b--\r\n"
            sent[name].append(("multipart/form-data; boundary=b", body))
    return sent


def bare(run: Path, port: int) -> None:
    """The bare handler, until it is killed."""
    import torch
    import uvicorn

    from revar.data.images import decode
    from revar.devices import choose
    from revar.run import RunFolder

    model = RunFolder(run).load(device=choose("cpu"))
    threshold = model.threshold
    assert threshold is not None
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/predict")
    async def predict(request: Request) -> dict[str, Any]:
        if request.headers["content-type"] == "application/json":
            raw: Any = np.array((await request.json())["rows"])
        else:
            files = [part for _, part in (await request.form()).multi_items()]
            shape = model.inputs.shape
            pictures = [decode(Path("i.png"), shape, await file.read()) for file in files]  # type: ignore[union-attr]
            raw = torch.from_numpy(np.stack(pictures))
        predictions = model.predict(raw, wanted=model.needs(threshold.score))
        uncertainty = model.uncertainty(predictions, threshold.score)
        accepted = threshold.accept(uncertainty)
        labels = model.classes.names
        return {
            "predictions": [
                {
                    "label": labels[number] if accepted[i] else "abstain",
                    "uncertainty": float(uncertainty[i]),
                    "probabilities": dict(
                        zip(labels, predictions.probabilities[i].tolist(), strict=True)
                    ),
                }
                for i, number in enumerate(predictions.predicted)
            ]
        }

    uvicorn.run(app, port=port, log_level="warning", access_log=False, http="h11")


def free_port() -> int:
    """One that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def started(server: str, run: Path, port: int) -> Iterator[int]:
    """One of the two, in a process of its own; its number."""
    ours = [sys.executable, "-m", "revar", "serve", str(run), "--port", str(port)]
    theirs = [sys.executable, __file__, "--bare", str(run), str(port)]
    process = subprocess.Popen(
        ours if server == SERVERS[0] else theirs,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=60)


async def _until_up(port: int) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(600):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            await asyncio.wait_for(_answer(reader), 60)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.1)
    raise TimeoutError(f"nothing answers at port {port}")


def _request(kind: str, body: bytes) -> bytes:
    head = (
        f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


async def _client(
    port: int, requests: list[bytes], first: int, until: float, times: list[float]
) -> int:
    """Ask until it is time; appends seconds of each answer and returns how many were refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    refused, number = 0, first
    while (began := time.perf_counter()) < until:
        writer.write(requests[number % len(requests)])
        status, _ = await _answer(reader)
        if status == 200:
            times.append(time.perf_counter() - began)
        else:
            refused += 1
        number += 1
    writer.close()
    return refused


def cpu_seconds(process: int) -> float:
    """What a process has computed so far, in all its threads."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


async def load(
    port: int, process: int, requests: list[bytes], clients: int, seconds: float
) -> dict[str, Any]:
    """Figures of one server under so many clients."""

    async def phase(length: float) -> tuple[list[float], int, float]:
        times: list[float] = []
        began = time.perf_counter()
        refused = await asyncio.gather(
            *(_client(port, requests, 7 * i, began + length, times) for i in range(clients))
        )
        return times, sum(refused), time.perf_counter() - began

    await phase(min(0.5, seconds / 4))
    before = cpu_seconds(process)
    times, refused, took = await phase(seconds)
    cpu = 1000 * (cpu_seconds(process) - before) / (len(times) + refused)
    p50, p95, p99 = (1000 * float(np.quantile(times, q)) for q in (0.5, 0.95, 0.99))
    return {
        "clients": clients, "requests": len(times), "refused": refused,
        "per_second": len(times) / took, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99,
        "cpu_ms": cpu,
    }  # fmt: skip


async def answers(port: int, requests: list[bytes]) -> list[dict[str, Any]]:
    """The decisions of one server on every request, one after another."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for request in requests:
        writer.write(request)
        status, body = await _answer(reader)
        assert status == 200, body
        found += json.loads(body)["predictions"]
    writer.close()
    return found


def same(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    """Refuse to time two servers that do not do the same."""
    for a, b in zip(first, second, strict=True):
        assert a["label"] == b["label"], (a, b)
        assert abs(a["uncertainty"] - b["uncertainty"]) <= 1e-4 * max(1.0, abs(b["uncertainty"]))


def setting() -> dict[str, Any]:
    """What was run, where and when."""
    import fastapi
    import uvicorn

    return {
        **where.here(),
        "fastapi": fastapi.__version__,
        "uvicorn": uvicorn.__version__,
        "threads": 1,
    }


def main() -> None:
    """Train, compare, load, print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bare", nargs=2, metavar=("RUN", "PORT"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.bare:
        bare(Path(chosen.bare[0]), int(chosen.bare[1]))
        return
    found: dict[str, Any] = {"setting": setting(), "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, sent in train(Path(folder), chosen.models).items():
            requests = [_request(kind, body) for kind, body in sent]
            figures: dict[str, list[dict[str, Any]]] = {server: [] for server in SERVERS}
            ports = {server: free_port() for server in SERVERS}
            with ExitStack() as running:
                processes = {
                    server: running.enter_context(started(server, Path(folder) / name, port))
                    for server, port in ports.items()
                }
                for port in ports.values():
                    asyncio.run(_until_up(port))
                same(*(asyncio.run(answers(port, requests)) for port in ports.values()))
                # Neighbours in time: what else the machine does then meets both.
                for clients in chosen.clients:
                    for server, port in ports.items():
                        process = processes[server]
                        measured = load(port, process, requests, clients, chosen.seconds)
                        figures[server].append(asyncio.run(measured))
            found["models"][name] = figures
    print("| model | clients | server | requests/s | p50 ms | p95 ms | p99 ms | CPU ms |")
    print("|---|---|---|---|---|---|---|---|")
    for name, figures in found["models"].items():
        for k, clients in enumerate(chosen.clients):
            for server in SERVERS:
                row = figures[server][k]
                times = " | ".join(f"{row[f'p{q}_ms']:.1f}" for q in (50, 95, 99))
                print(
                    f"| {name} | {clients} | {server} | {row['per_second']:.0f} | {times} "
                    f"| {row['cpu_ms']:.2f} |"
                )
    where.keep(chosen.json, found)


if __name__ == "__main__":
    main()
