"""A real Prometheus that scrapes real routers and workers, for tests of deploy/."""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

TESTS_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEPLOY_DIR = os.path.join(os.path.dirname(TESTS_DIR), "deploy")
sys.path.insert(0, os.path.join(TESTS_DIR, "integration"))
from cluster import get  # noqa: E402

SKIPPED = 77


def skip_without_prometheus():
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            print(f"SKIPPED: {program} is not installed (scripts/setup)")
            sys.exit(SKIPPED)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Prometheus:
    """Scrapes `targets`, {job: [host:port, ...]}, every second, and evaluates deploy/prometheus/alerts.yml."""

    def __init__(self, targets):
        self.folder = tempfile.TemporaryDirectory(prefix="prometheus-")
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                  "rule_files": [os.path.join(DEPLOY_DIR, "prometheus", "alerts.yml")],
                  "scrape_configs": [{"job_name": job, "static_configs": [{"targets": addresses}]}
                                     for job, addresses in targets.items()]}
        path = os.path.join(self.folder.name, "prometheus.yml")
        with open(path, "w") as file:
            json.dump(config, file)  # JSON is YAML
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(os.path.join(self.folder.name, "log"), "w")
        self.popen = subprocess.Popen(
            ["prometheus", f"--config.file={path}", f"--web.listen-address=127.0.0.1:{port}",
             f"--storage.tsdb.path={self.folder.name}/data"], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        while True:
            try:
                get(self.url + "/-/ready", 2)
                return
            except OSError:
                if time.monotonic() > deadline or self.popen.poll() is not None:
                    with open(self.log.name) as file:
                        raise AssertionError("Prometheus does not start:\n" + file.read())
                time.sleep(0.1)

    def api(self, path, **parameters):
        answer = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression, at=None):
        """Instant query, now or at a time: [(labels, value)]."""
        result = self.api("query", query=expression, time=at or time.time())["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in result]

    def query_range(self, expression, seconds, step=1, end=None):
        """The last `seconds`, or those before `end`: [(labels, [(time, value)])]."""
        end = end or time.time()
        result = self.api("query_range", query=expression, start=end - seconds, end=end, step=step)["result"]
        return [(series["metric"], [(t, float(v)) for t, v in series["values"]]) for series in result]

    def stop(self):
        self.popen.terminate()
        self.popen.wait(60)
        self.log.close()
        self.folder.cleanup()
