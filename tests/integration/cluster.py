"""Real router and worker processes for a test, on free loopback ports.

WEIGHTLESS_BIN_DIR names the folder of the binaries. Only Python's standard library is used.
"""
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

SOURCE_DIR = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN_DIR = os.environ["WEIGHTLESS_BIN_DIR"]
TINY_MODEL = os.path.join(SOURCE_DIR, "models", "tiny-gemma3")
# The sanitizers' programs are no measure of speed: their tests hold no ratio of speeds.
SANITIZED = bool(os.environ.get("WEIGHTLESS_SANITIZE"))
# Sanitized binaries and busy machines are slow; waits are generous, and none is a measurement.
START_TIMEOUT_S = 120
# No log of any program may hold these: a sanitizer's report, a failed check, a key or a certificate.
NEVER_LOGGED = ("Sanitizer", "runtime error:", "CHECK failed", "PRIVATE", "BEGIN")


class Process:
    """A program of ours whose log goes to a file; found again by what it logs."""

    def __init__(self, program, *args):
        self.name = program
        self.log = tempfile.NamedTemporaryFile(prefix=program + "-", suffix=".log", delete=False)
        self.popen = subprocess.Popen([os.path.join(BIN_DIR, program), *map(str, args)],
                                      stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def log_text(self):
        with open(self.log.name, errors="replace") as file:
            return file.read()

    def wait_for_log(self, pattern, timeout_s=START_TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            found = re.search(pattern, self.log_text())
            if found:
                return found
            if self.popen.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"{self.name} did not log {pattern!r}; its log:\n{self.log_text()[-4000:]}")

    def signal(self, number):
        self.popen.send_signal(number)

    def stop(self):
        """Ends it by SIGTERM; what is in NEVER_LOGGED and yet in its log fails the test that owns it."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.terminate()
            try:
                self.popen.wait(60)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                raise AssertionError(f"{self.name} ignored SIGTERM; its log:\n{self.log_text()[-4000:]}")
        self.log.close()
        text = self.log_text()
        os.unlink(self.log.name)
        for sign in NEVER_LOGGED:
            if sign in text:
                raise AssertionError(f"{self.name} logged {sign!r}:\n{text[-20000:]}")
        return self.popen.returncode


def get(url, timeout_s=10, context=None):
    with urllib.request.urlopen(url, timeout=timeout_s, context=context) as answer:
        return answer.read().decode()


def wait_ready(url, timeout_s=START_TIMEOUT_S):
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            get(url + "/ready", 2)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def metric(url, name, labels=""):
    """The sum over all label sets of one metric family's sample lines that contain `labels`."""
    total = 0.0
    for line in get(url + "/metrics").splitlines():
        if line.startswith(name) and line[len(name)] in " {" and labels in line:
            total += float(line.rsplit(" ", 1)[1])
    return total


class Cluster:
    """One router over N workers started by hand. `url` is the router's."""

    def __init__(self, num_workers=1, model=TINY_MODEL, worker_args=(), router_args=()):
        self.workers = [Process("weightless-worker", "--model", model, "--listen", "127.0.0.1:0", *worker_args)
                        for _ in range(num_workers)]
        self.addresses = [w.wait_for_log(r"event=listening address=(\S+)").group(1) for w in self.workers]
        self.router = Process("weightless-router", "--workers", ",".join(self.addresses), "--host", "127.0.0.1",
                              "--port", 0, *router_args)
        self.url = "http://" + self.router.wait_for_log(r"event=listening address=(\S+)").group(1)
        wait_ready(self.url)

    def stop(self):
        errors = []
        for process in [self.router, *self.workers]:
            try:
                process.stop()
            except AssertionError as error:
                errors.append(str(error))
        if errors:
            raise AssertionError("\n".join(errors))


@contextlib.contextmanager
def cluster(*args, **kwargs):
    running = Cluster(*args, **kwargs)
    try:
        yield running
    finally:
        running.stop()
