"""deploy/ for real: builds the image, brings compose.yaml up on a Docker engine, uses it from outside, kills workers, goes to
compose.tls.yaml and back, takes it down. Skips where no engine can start. The image holds the programs of this build; with
WEIGHTLESS_IMAGE_FROM_SOURCE=1 it is compiled from the sources, as for a user, which takes ten minutes of two cores."""
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import time
import unittest
import unittest.mock
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import http_client  # noqa: E402
from cluster import BIN_DIR, NEVER_LOGGED, SOURCE_DIR, get, wait_ready  # noqa: E402
from docker_engine import SKIP, Engine, Unavailable, call, compose_command, import_base  # noqa: E402
from tls_files import make_as_documented  # noqa: E402
from workload import make_requests  # noqa: E402

NUM_REQUESTS = 32
NUM_KILLS = 3
PATIENCE_S = 60
PROJECT = "weightless-test"
BASE_IMAGE = "weightless-test/base:local"
IMAGE = "weightless-test/weightless:local"
PROMETHEUS_IMAGE = "weightless-test/prometheus:local"
LONG_CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Define: ocean"}], "stream": True, "seed": 1,
                                      "max_tokens": 600, "ignore_eos": True, "stream_options": {"include_usage": True}})

USER = 10001  # whom the programs run as
# Makes the router speak HTTPS with the certificate that compose.tls.yaml gives it.
HTTPS = """
services:
  router:
    environment: {WEIGHTLESS_TLS_CERT_FILE: /grpc-tls/tls.crt, WEIGHTLESS_TLS_KEY_FILE: /grpc-tls/tls.key}
    healthcheck: {test: [CMD, weightless, probe, "https://127.0.0.1:8000"]}
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(what, condition, within_s=PATIENCE_S):
    """Polls, because an engine tells nobody; returns what the condition gave."""
    deadline = time.monotonic() + within_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}")
        time.sleep(0.2)


def build_images(folder):
    import_base(BASE_IMAGE, os.path.join(os.path.dirname(BIN_DIR), "deploy-base.tar"))
    if os.environ.get("WEIGHTLESS_IMAGE_FROM_SOURCE") == "1":
        os.environ.update(WEIGHTLESS_IMAGE=IMAGE, BUILD_IMAGE=BASE_IMAGE, RUNTIME_IMAGE=BASE_IMAGE)
        call(*compose_command(), "-f", os.path.join(SOURCE_DIR, "deploy", "compose.yaml"), "build", "router")
    else:
        build_from_bundle(folder)
    here = os.path.dirname(os.path.abspath(__file__))
    call("docker", "build", "-t", PROMETHEUS_IMAGE, "-f", os.path.join(here, "prometheus.Dockerfile"), "--build-arg",
         f"BASE={BASE_IMAGE}", here)


def build_from_bundle(folder):
    """The image from the programs that are built already, as deploy/Dockerfile takes them from a bundle."""
    build_dir = os.path.dirname(BIN_DIR)
    call("cmake", "--install", build_dir, "--strip", "--prefix", os.path.join(folder, "bundle"))
    context = os.path.join(folder, "context")
    os.makedirs(os.path.join(context, "scripts"))
    shutil.copy(os.path.join(SOURCE_DIR, "scripts", "setup"), os.path.join(context, "scripts"))
    call("tar", "-C", folder, "-czf", os.path.join(context, "bundle.tar.gz"), "bundle")
    call("docker", "build", "-t", IMAGE, "-f", os.path.join(SOURCE_DIR, "deploy", "Dockerfile"), "--build-arg",
         "BUNDLE=bundle.tar.gz", "--build-arg", f"BUILD_IMAGE={BASE_IMAGE}", "--build-arg", f"RUNTIME_IMAGE={BASE_IMAGE}",
         context)


class ComposeTest(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="weightless-deploy-", dir="/var/tmp") as folder:
            build_images(folder)
        cls.port, cls.prometheus_port = free_port(), free_port()
        cls.url = f"http://127.0.0.1:{cls.port}"
        os.environ.update(COMPOSE_PROJECT_NAME=PROJECT, WEIGHTLESS_IMAGE=IMAGE, PROMETHEUS_IMAGE=PROMETHEUS_IMAGE, WORKERS="2",
                          PORT=str(cls.port), PROMETHEUS_PORT=str(cls.prometheus_port))
        cls.compose("down", "-v")  # of a run that was killed
        cls.compose("up", "-d", "router", "worker", "prometheus")
        wait_ready(cls.url)
        cls.wait_for_workers(2)

    @classmethod
    def tearDownClass(cls):
        cls.compose("down", "-v")

    @classmethod
    def compose(cls, *arguments, overrides=()):
        files = [os.path.join(SOURCE_DIR, "deploy", "compose.yaml"), *overrides]
        return call(*compose_command(), *(part for file in files for part in ("-f", file)), *arguments)

    @staticmethod
    def of_project(kind, *arguments):
        label = f"label=com.docker.compose.project={PROJECT}"
        return call("docker", kind, "ls", "-q", "--filter", label, *arguments).split()

    def containers(self, service):
        return [Engine.inspect(name) for name in
                self.of_project("container", "-a", "--filter", f"label=com.docker.compose.service={service}")]

    @staticmethod
    def wait_healthy(containers):
        for container in containers:
            until("a healthy container", lambda i=container["Id"]: Engine.inspect(i)["State"]["Health"]["Status"] == "healthy")

    @classmethod
    def replicas(cls, url, context):
        try:
            return json.loads(get(url + "/v1/loads", context=context))["replicas"]
        except OSError as error:  # the router is not there yet
            return [{"ready": str(error)}]

    @classmethod
    def wait_for_workers(cls, count, url=None, context=None):
        """Exactly so many, all of them ready, and nobody else remembered."""
        url = url or cls.url
        until(f"{count} workers, now {cls.replicas(url, context)}",
              lambda: [r["ready"] for r in cls.replicas(url, context)] == [True] * count)

    def query(self, expression):
        url = f"http://127.0.0.1:{self.prometheus_port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        result = json.loads(get(url))["data"]["result"]
        return float(result[0]["value"][1]) if result else None

    def test_1_streams_to_the_outside(self):
        gaps = []
        answer = asyncio.run(http_client.post(self.url, *LONG_CHAT, on_event=lambda _: gaps.append(time.monotonic())))
        self.assertEqual((200, {0: "length"}, True), (answer.status, answer.finish_reasons, answer.done))
        self.assertEqual(600, answer.usage["completion_tokens"])
        self.assertGreater(len(gaps), 300)
        self.assertGreater(gaps[-1], gaps[0])

    def test_2_runs_without_rights_and_listens_on_loopback_alone(self):
        for container in self.containers("router") + self.containers("worker"):
            host = container["HostConfig"]
            self.assertEqual((True, ["ALL"], "10001:10001"),
                             (host["ReadonlyRootfs"], host["CapDrop"], container["Config"]["User"]))
            call("docker", "exec", container["Id"], "sh", "-c", "! touch /x /models/x /opt/weightless/x 2>/dev/null")
        self.wait_healthy(self.containers("router") + self.containers("worker"))
        for service in ("router", "worker", "prometheus"):
            for container in self.containers(service):
                for bindings in container["NetworkSettings"]["Ports"].values():
                    self.assertEqual([], [b for b in bindings or [] if b["HostIp"] != "127.0.0.1"])

    def test_3_prometheus_scrapes_router_and_workers(self):
        until("every target scraped", lambda: self.query("sum(up)") == 3 and self.query('count(up{job="weightless-worker"})') == 2)
        started = 'sum(weightless_requests_started_total{job="weightless-router"})'
        base = self.query(started)
        for _ in range(NUM_REQUESTS):
            asyncio.run(http_client.post(self.url, "/v1/completions", {"prompt": "The", "max_tokens": 3}))
        until("the requests counted", lambda: self.query(started) == base + NUM_REQUESTS)
        until("the workers up", lambda: self.query("sum(weightless_worker_up)") == 2)
        until("memory of workers", lambda: (self.query('sum(weightless_engine_memory_bytes{job="weightless-worker"})') or 0) > 0)
        rules = json.loads(get(f"http://127.0.0.1:{self.prometheus_port}/api/v1/rules"))["data"]["groups"]
        self.assertTrue(rules, "alerts.yml is not loaded")

    async def kill_while_running(self, requests, rng):
        events, fired = 0, asyncio.Event()
        after = rng.randrange(20, 800)

        def on_event(_):
            nonlocal events
            events += 1
            if events >= after:
                fired.set()

        tasks = [asyncio.create_task(http_client.post(self.url, *request, on_event)) for request in requests]
        await fired.wait()
        victim = rng.choice(self.containers("worker"))
        os.kill(victim["State"]["Pid"], signal.SIGKILL)
        return victim["Id"], [answer.comparable() for answer in await asyncio.gather(*tasks)]

    def test_4_a_killed_worker_is_replaced_and_no_request_is_lost(self):
        requests, rng = make_requests(NUM_REQUESTS, seed=7, max_tokens=400), random.Random(8)
        undisturbed = [asyncio.run(http_client.post(self.url, *request)).comparable() for request in requests]
        for _ in range(NUM_KILLS):
            victim, answers = asyncio.run(self.kill_while_running(requests, rng))
            for request, expected, answer in zip(requests, undisturbed, answers):
                self.assertEqual(expected, answer, request)
            until("a restart", lambda v=victim: Engine.inspect(v)["RestartCount"] > 0 and Engine.inspect(v)["State"]["Running"])
            self.wait_for_workers(2)
        losses = 'sum(weightless_worker_losses_total)'
        until("the losses counted", lambda: (self.query(losses) or 0) >= NUM_KILLS)

    def test_5_workers_join_and_leave(self):
        self.compose("up", "-d", "--no-recreate", "--scale", "worker=3", "router", "worker", "prometheus")
        self.wait_for_workers(3)
        until("the third scraped", lambda: self.query('count(up{job="weightless-worker"} == 1)') == 3)
        self.compose("up", "-d", "--no-recreate", "--scale", "worker=2", "router", "worker", "prometheus")
        self.wait_for_workers(2)
        until("the third forgotten", lambda: self.query("count(weightless_worker_up)") == 2)

    def test_6_stopping_waits_for_answers(self):
        async def stop_while_running():
            begun = asyncio.Event()
            task = asyncio.create_task(http_client.post(self.url, *LONG_CHAT, on_event=lambda _: begun.set()))
            await begun.wait()
            await asyncio.to_thread(self.compose, "stop", "router", "worker")
            return await task

        answer = asyncio.run(stop_while_running())
        self.assertEqual((True, 600), (answer.done, answer.usage["completion_tokens"]))
        for container in self.containers("router") + self.containers("worker"):
            self.assertEqual(0, container["State"]["ExitCode"], container["Name"])

    def stream_over_https(self, folder):
        context = ssl.create_default_context(cafile=os.path.join(folder, "ca.crt"))
        url = f"https://127.0.0.1:{self.port}"
        self.wait_for_workers(2, url, context)
        answer = asyncio.run(http_client.post(url, *LONG_CHAT, context=context))
        self.assertEqual((200, True, 600), (answer.status, answer.done, answer.usage["completion_tokens"]))
        return answer.comparable()

    def check_logs(self, service, sign):
        for container in self.containers(service):
            log = call("docker", "logs", container["Id"])
            self.assertIn(sign, log)
            for bad in ("grpc_without_tls", "tls_handshake_failed", *NEVER_LOGGED):
                self.assertNotIn(bad, log)

    def test_7_tls_inside_and_outside_and_back(self):
        with tempfile.TemporaryDirectory(prefix="weightless-tls-", dir="/var/tmp") as folder:
            make_as_documented(folder)
            os.chown(os.path.join(folder, "tls.key"), USER, USER)
            os.chmod(folder, 0o755)
            https = os.path.join(folder, "https.yaml")
            with open(https, "w", encoding="utf-8") as file:
                file.write(HTTPS)
            with unittest.mock.patch.dict(os.environ, GRPC_TLS=folder):
                self.compose("up", "-d", "router", "worker", overrides=(os.path.join(SOURCE_DIR, "deploy", "compose.tls.yaml"), https))
            encrypted = self.stream_over_https(folder)
            self.wait_healthy(self.containers("router") + self.containers("worker"))
            self.check_logs("router", "tls=on")
            self.check_logs("worker", "tls=mutual")
            self.compose("up", "-d", "router", "worker")
        self.wait_for_workers(2)
        plain = asyncio.run(http_client.post(self.url, *LONG_CHAT))
        self.assertEqual(plain.comparable(), encrypted)

    def test_8_down_leaves_nothing(self):
        self.compose("down", "-v")
        for kind, arguments in (("container", ["-a"]), ("network", []), ("volume", [])):
            self.assertEqual([], self.of_project(kind, *arguments), kind)


if __name__ == "__main__":
    try:
        engine = Engine()
    except Unavailable as reason:
        print(f"SKIPPED: {reason}", flush=True)
        sys.exit(SKIP)
    try:
        program = unittest.main(exit=False, verbosity=2, failfast=True)
    finally:
        engine.close()
    sys.exit(not program.result.wasSuccessful())
