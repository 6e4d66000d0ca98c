"""loadtest, aiperf and guidellm one after the other against our server on the tiny model, with the packets as witness.

    WEIGHTLESS_BIN_DIR=build/release/bin python3 tests/loadtest/compare_tools.py --aiperf PATH --guidellm PATH

Every run has a fresh server, the same prompts and lengths, and a tcpdump capture (root) of the server's port. Each
number stands twice: what the tool says, and what the packets of that run say. After a closed loop of another tool,
loadtest sends at that tool's times, as an open loop, which shows what the times alone do. Server and client have a core
each. The prompts are shorter than a KV block, so that the prefix cache has no part. Not a test: it prints a table.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))
from cluster import BIN_DIR, TINY_MODEL, cluster, metric  # noqa: E402
import wire  # noqa: E402

WORDS = "water first place light story world house night river table green paper music stone plant voice".split()
PROMPT_WORDS = 40
OUTPUT_TOKENS = 32


@dataclasses.dataclass
class Numbers:
    """What one side says of a run: requests and tokens per second, TTFT and TPOT in ms."""
    requests_per_s: float
    tokens_per_s: float
    ttft_mean: float
    ttft_p50: float
    tpot_mean: float
    tpot_p50: float


@dataclasses.dataclass
class Plan:
    """One load, the same for each tool."""
    url: str
    folder: pathlib.Path
    concurrency: int
    num_requests: int
    rate: float | None = None  # requests per second at equal distances; None: a closed loop
    sent_at: list[float] | None = None  # loadtest only: when another tool sent its requests

    @property
    def prompts(self):
        return self.folder / "prompts.jsonl"


def write_prompts(plan):
    """Twice as many as a run needs, each another, so that a warm-up uses none of the measured ones."""
    draw = random.Random(1)
    rows = [f"{number} " + " ".join(draw.choices(WORDS, k=PROMPT_WORDS)) for number in range(2 * plan.num_requests)]
    plan.prompts.write_text("".join(
        json.dumps({"prompt": row, "output_tokens_count": OUTPUT_TOKENS}) + "\n" for row in rows))
    (plan.folder / "aiperf.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))


def prompt_tokens(plan):
    """The usual length of the prompts without their template."""
    rows = [json.loads(line)["prompt"] for line in plan.prompts.read_text().splitlines()[:50]]
    counts = []
    for row in rows:
        request = urllib.request.Request(plan.url + "/tokenize", json.dumps({"prompt": row, "add_special_tokens": False}).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            counts.append(json.load(answer)["count"])
    return round(statistics.mean(counts))


def run(plan, command):
    """Runs a tool on the client's core; its output is kept and shown when it fails."""
    with open(plan.folder / "tool.log", "w") as log:
        code = subprocess.run([str(part) for part in command], stdout=log, stderr=log, cwd=plan.folder,
                              env={**os.environ, "TERM": "dumb"}).returncode
    if code != 0:
        raise RuntimeError(f"{command[0]} ended with {code}:\n" + (plan.folder / "tool.log").read_text()[-4000:])


def run_loadtest(plan, _tool):
    out = plan.folder / "loadtest.json"
    prompts = ["--dataset", "jsonl", "--dataset-file", plan.prompts, "--output-tokens", OUTPUT_TOKENS]
    if plan.sent_at:
        trace = plan.folder / "trace.jsonl"
        lengths = {"input_length": prompt_tokens(plan), "output_length": OUTPUT_TOKENS}
        trace.write_text("".join(json.dumps({"timestamp": 1e3 * when, **lengths}) + "\n" for when in plan.sent_at))
        load, prompts = ["--trace", trace], []
    elif plan.rate is not None:
        load = ["--request-rate", plan.rate, "--arrival", "constant"]
    else:
        load = ["--concurrency", plan.concurrency]
    run(plan, [os.path.join(BIN_DIR, "loadtest"), "--url", plan.url, *prompts, "--ignore-eos", "--num-prompts",
               plan.num_requests, *load, "--warmup", 0, "--json", out])
    result = json.loads(out.read_text())
    assert result["failed"] == 0
    return Numbers(result["request_throughput"], result["output_throughput"], result["mean_ttft_ms"],
                   result["median_ttft_ms"], result["mean_tpot_ms"], result["median_tpot_ms"])


def run_aiperf(plan, tool):
    load = ["--concurrency", plan.concurrency] if plan.rate is None else \
        ["--request-rate", plan.rate, "--arrival-pattern", "constant"]
    run(plan, [tool, "profile", "--model", "tiny-gemma3", "--url", plan.url, "--endpoint-type", "chat", "--streaming",
               "--tokenizer", TINY_MODEL, "--input-file", plan.folder / "aiperf.jsonl", "--custom-dataset-type", "single_turn",
               "--extra-inputs", f"max_completion_tokens:{OUTPUT_TOKENS}", "--extra-inputs", "ignore_eos:true",
               "--use-server-token-count", "--request-count", plan.num_requests, *load,
               "--output-artifact-dir", plan.folder / "aiperf", "--ui", "none"])
    result = json.loads(next((plan.folder / "aiperf").rglob("profile_export_aiperf.json")).read_text())
    assert not result.get("error_summary"), result["error_summary"]
    ttft, tpot = result["time_to_first_token"], result["inter_token_latency"]
    return Numbers(result["request_throughput"]["avg"], result["output_token_throughput"]["avg"], ttft["avg"], ttft["p50"],
                   tpot["avg"], tpot["p50"])


def run_guidellm(plan, tool):
    load = f"kind=concurrent,streams={plan.concurrency}" if plan.rate is None else f"kind=constant,rate={plan.rate}"
    out = plan.folder / "guidellm.json"
    run(plan, [tool, "run", "--backend", f"kind=openai_http,target={plan.url},model=tiny-gemma3", "--profile", load,
               "--constraint", f"kind=max_requests,count={plan.num_requests}", "--tokenizer",
               f"kind=huggingface_auto,model={TINY_MODEL}", "--data", f"kind=json_file,path={plan.prompts}",
               "--output", f"kind=json,path={out}", "--disable-console-interactive"])
    result = json.loads(out.read_text())["benchmarks"][0]["metrics"]
    assert result["request_totals"]["errored"] == 0
    of = lambda name, statistic: result[name]["successful"][statistic]  # noqa: E731
    ttft, tpot = "time_to_first_token_ms", "inter_token_latency_ms"
    return Numbers(of("requests_per_second", "mean"), of("output_tokens_per_second", "mean"), of(ttft, "mean"),
                   of(ttft, "median"), of(tpot, "mean"), of(tpot, "median"))


TOOLS = {"loadtest": run_loadtest, "aiperf": run_aiperf, "guidellm": run_guidellm}


@contextlib.contextmanager
def capture(port, path):
    """Packets of `port` on loopback, written to `path` until the block ends."""
    dump = subprocess.Popen(["tcpdump", "-i", "lo", "-s", "0", "-B", "65536", "--time-stamp-precision=nano", "-U", "-w", str(path),
                             "tcp", "port", str(port)], stderr=subprocess.PIPE, text=True)
    while "listening on" not in dump.stderr.readline():
        if dump.poll() is not None:
            raise RuntimeError("tcpdump cannot capture on lo")
    try:
        yield
    finally:
        time.sleep(2)  # the kernel hands packets on after a second at the latest
        dump.terminate()
        told = dump.communicate()[1]
        if " 0 packets dropped by kernel" not in " " + told.replace("\n", " "):
            raise RuntimeError("tcpdump lost packets: " + told)


def of_packets(exchanges):
    ttft = [1e3 * exchange.ttft for exchange in exchanges]
    tpot = [1e3 * exchange.tpot for exchange in exchanges]
    span = max(exchange.ended for exchange in exchanges) - exchanges[0].first_sent
    return Numbers(len(exchanges) / span, sum(exchange.num_tokens for exchange in exchanges) / span, statistics.mean(ttft),
                   statistics.median(ttft), statistics.mean(tpot), statistics.median(tpot))


def measure(name, tool, options, concurrency, rate, sent_at=None):
    """One run: the row of the table, and when its requests were sent."""
    router_args = ["--stream-delay-ms", options.stream_delay_ms] if options.stream_delay_ms else []
    os.sched_setaffinity(0, {options.server_cpu})
    with tempfile.TemporaryDirectory() as folder, cluster(worker_args=("--threads", 1), router_args=router_args) as server:
        os.sched_setaffinity(0, {options.client_cpu})
        num_requests = options.requests_per_stream * concurrency if concurrency > 1 else options.requests_alone
        plan = Plan(server.url, pathlib.Path(folder), concurrency, num_requests, rate, sent_at)
        write_prompts(plan)
        warm = Plan(server.url, pathlib.Path(tempfile.mkdtemp(dir=folder)), concurrency, 2 * concurrency)
        write_prompts(warm)
        run_loadtest(warm, None)
        before = [metric(server.url, f"weightless_ttft_seconds_{part}") for part in ("sum", "count")]
        packets = plan.folder / "packets.pcap"
        with capture(int(server.url.rsplit(":", 1)[1]), packets):
            told = TOOLS[name](plan, tool)
        after = [metric(server.url, f"weightless_ttft_seconds_{part}") for part in ("sum", "count")]
        with open(packets, "rb") as file:
            exchanges = wire.read_exchanges(file, int(server.url.rsplit(":", 1)[1]))
    assert len(exchanges) == num_requests == after[1] - before[1], (len(exchanges), num_requests, after[1] - before[1])
    seen = of_packets(exchanges)
    waits = wire.turnarounds(exchanges, concurrency)
    row = {"tool": name, "told": dataclasses.asdict(told), "packets": dataclasses.asdict(seen),
            "server_ttft": 1e3 * (after[0] - before[0]) / num_requests,
            "send": 1e3 * statistics.mean(exchange.last_sent - exchange.first_sent for exchange in exchanges),
            "turnaround": 1e3 * statistics.median(waits) if rate is None and not sent_at else None,
            "connections": sum(exchange.is_first_on_connection for exchange in exchanges)}
    return row, [exchange.first_sent for exchange in exchanges]


def print_row(load, row):
    told, seen = row["told"], row["packets"]
    pair = lambda name, digits: f"{told[name]:.{digits}f} / {seen[name]:.{digits}f}"  # noqa: E731
    wait = "" if row["turnaround"] is None else f"{row['turnaround']:.2f}"
    print(f"| {load} | {row['tool']} | {pair('requests_per_s', 2)} | {pair('tokens_per_s', 0)} | {pair('ttft_mean', 1)} | "
          f"{pair('ttft_p50', 1)} | {row['server_ttft']:.1f} | {pair('tpot_mean', 2)} | {pair('tpot_p50', 2)} | {wait} | "
          f"{row['connections']} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiperf", help="program; left out when not given")
    parser.add_argument("--guidellm", help="program; left out when not given")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rate", type=float, nargs="*", default=[], help="open loops beside the closed ones, requests per second")
    parser.add_argument("--stream-delay-ms", type=float, default=0, help="of the router: a worker that is further away")
    parser.add_argument("--requests-alone", type=int, default=60, help="at one stream")
    parser.add_argument("--requests-per-stream", type=int, default=15)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--client-cpu", type=int, default=1)
    parser.add_argument("--json", help="every row, for later")
    options = parser.parse_args()
    tools = {"loadtest": None, "aiperf": options.aiperf, "guidellm": options.guidellm}
    loads = [(streams, None) for streams in options.concurrency] + [(32, rate) for rate in options.rate]
    rows = []
    print("tool / packets\n\n| load | tool | req/s | tokens/s | TTFT mean ms | TTFT p50 ms | router's TTFT mean ms | TPOT mean ms | "
          "TPOT p50 ms | turnaround p50 ms | connections |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for concurrency, rate in loads:
        load = f"{concurrency} streams" if rate is None else f"{rate:g}/s"
        for _ in range(options.repeat):
            for name, tool in tools.items():
                if name != "loadtest" and not tool:
                    continue
                row, sent_at = measure(name, tool, options, concurrency, rate)
                rows.append({"load": load, **row})
                print_row(load, row)
                if rate is None and concurrency > 1 and name != "loadtest":
                    row, _ = measure("loadtest", None, options, concurrency, None, sent_at)
                    rows.append({"load": f"{name}'s times", **row})
                    print_row(f"{name}'s times", row)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
