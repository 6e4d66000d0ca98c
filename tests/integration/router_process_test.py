"""The router as a process: exit codes, drain, the open metrics listener, clients that leave."""
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from cluster import BIN_DIR, Process, cluster, get, wait_ready

PATIENCE_S = 60


def run_router(*args):
    done = subprocess.run([os.path.join(BIN_DIR, "weightless-router"), *map(str, args)], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    return done.returncode, done.stderr


def open_stream(url, max_tokens):
    """A socket on which a long completion streams, past its head."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"prompt": "a", "stream": True, "ignore_eos": True, "max_tokens": max_tokens})
    connection = socket.create_connection((host, int(port)), PATIENCE_S)
    connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    read = b""
    while b"data: " not in read:
        read += connection.recv(65536)
    return connection


def status_of(url, key=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        return urllib.request.urlopen(request, timeout=PATIENCE_S).status
    except urllib.error.HTTPError as error:
        return error.code


class RouterProcessTest(unittest.TestCase):
    def test_bad_settings_end_with_code_2_and_say_why(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("a:\n")
            keys.flush()
            for args, words in [((), "--worker"), (("--worker", "nonsense"), "nonsense"),
                                (("--worker", "a:1", "--port", "70000"), "70000"),
                                (("--worker", "a:1", "--http-threads", "0"), "--http-threads 0"),
                                (("--worker", "a:1", "--no-such-flag"), "no-such-flag"),
                                (("--worker", "a:1", "--api-key-file", "/no/such/file"), "/no/such/file"),
                                (("--worker", "a:1", "--api-key-file", keys.name), "line 1")]:
                code, said = run_router(*args)
                self.assertEqual(code, 2, said)
                self.assertIn(words, said)

    def test_a_port_in_use_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, said = run_router("--worker", "127.0.0.1:1", "--port", port)
        self.assertEqual(code, 2)
        self.assertIn(f"127.0.0.1:{port}: Address already in use", said)

    def test_a_file_limit_leaves_fewer_connections_and_none_without_an_answer(self):
        router = Process("/bin/sh", "-c", f"ulimit -n 200; exec {BIN_DIR}/weightless-router --worker 127.0.0.1:1 --port 0")
        url = "http://" + router.wait_for_log(r"event=listening address=(\S+)").group(1)
        self.assertIn("event=fewer_connections max_connections=8192 file_limit=200 used=100", router.log_text())
        host, port = url.removeprefix("http://").split(":")
        held = [socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(100)]
        self.assertEqual(status_of(url + "/health"), 503)
        held.pop().close()
        deadline = time.monotonic() + PATIENCE_S
        while status_of(url + "/health") != 200:
            self.assertLess(time.monotonic(), deadline)
        for connection in held:
            connection.close()
        self.assertEqual(router.stop(), 0)

    def test_without_a_worker_it_runs_and_says_so(self):
        router = Process("weightless-router", "--worker", "127.0.0.1:1", "--port", 0)
        url = "http://" + router.wait_for_log(r"event=listening address=(\S+)").group(1)
        self.assertEqual((status_of(url + "/health"), status_of(url + "/ready")), (200, 503))
        self.assertEqual(router.stop(), 0)

    def test_metrics_listener_needs_no_key(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("a:secret\n")
            keys.flush()
            router = Process("weightless-router", "--worker", "127.0.0.1:1", "--port", 0, "--metrics-port", 0,
                             "--api-key-file", keys.name)
            url = "http://" + router.wait_for_log(r"event=listening address=(\S+)").group(1)
            open_url = "http://" + router.wait_for_log(r"event=metrics_listening address=(\S+)").group(1)
        self.assertEqual((status_of(url + "/metrics"), status_of(url + "/metrics", "secret")), (401, 200))
        self.assertEqual((status_of(open_url + "/metrics"), status_of(open_url + "/v1/models")), (200, 404))
        self.assertNotIn("secret", router.log_text())
        self.assertEqual(router.stop(), 0)

    def test_drain_finishes_what_runs(self):
        # Slow enough for the router to be asked while it drains.
        with cluster(router_args=("--plan-ahead", 1, "--stream-delay-ms", 2)) as one:
            with open_stream(one.url, max_tokens=900) as stream:
                one.router.signal(signal.SIGTERM)
                one.router.wait_for_log("event=draining")
                self.assertEqual(status_of(one.url + "/ready"), 503)
                read = b""
                while part := stream.recv(1 << 20):
                    read += part
            self.assertIn(b'"finish_reason":"length"', read)
            self.assertTrue(read.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"))
            self.assertEqual(one.router.popen.wait(PATIENCE_S), 0)

    def test_a_client_that_leaves_gives_its_blocks_back(self):
        with cluster() as one:
            wait_ready(one.url)
            for _ in range(5):
                streams = [open_stream(one.url, max_tokens=1000) for _ in range(8)]
                for stream in streams:
                    stream.close()
                deadline = time.monotonic() + PATIENCE_S
                while True:
                    load = json.loads(get(one.url + "/v1/loads"))["replicas"][0]
                    if load["num_running"] == 0 and load["full_blocks_used"] == 0:
                        break
                    self.assertLess(time.monotonic(), deadline, load)


if __name__ == "__main__":
    unittest.main()
