"""Mutual TLS between router, workers and probes: who is refused, what the log says of it, and that new files are taken.

No process logs a secret: when one ends, Process.stop searches its whole log for a key and a certificate.
"""
import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

import http_client
from cluster import BIN_DIR, NEVER_LOGGED, TINY_MODEL, Process, cluster, get, metric, wait_ready
from tls_files import Authority, make_as_documented
from workload import make_requests

PATIENCE_S = 60


def answers(url, requests):
    async def ask_all():
        return await asyncio.gather(*(http_client.post(url, *request) for request in requests))

    return [answer.comparable() for answer in asyncio.run(ask_all())]


def client_context(pair=None):
    """Of a client that looks at nothing of the server's, and speaks as gRPC does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if pair:
        context.load_cert_chain(*pair)
    return context


@contextlib.contextmanager
def connection(address, pair=None, version=None):
    host, port = address.split(":")
    context = client_context(pair)
    if version:
        context.maximum_version = version
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain:
        yield context, plain


def server_certificate(address, pair):
    with connection(address, pair) as (context, plain), context.wrap_socket(plain) as tls:
        return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True))


def try_to_get_in(address, pair=None, version=None):
    """Whether the server goes on after the handshake, and the port we came from."""
    with connection(address, pair, version) as (context, plain):
        port = plain.getsockname()[1]
        try:
            with context.wrap_socket(plain) as tls:
                tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                return bool(tls.recv(1)), port
        except OSError:
            return False, port


class FakeWorker:
    """A TLS server with some certificate; it notes who connects and says nothing."""

    def __init__(self, pair, ca):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*pair)
        self.context.load_verify_locations(ca)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.set_alpn_protocols(["h2"])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.clients = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            try:
                with self.context.wrap_socket(plain, server_side=True) as tls:
                    self.clients.append(dict(pair[0] for pair in tls.getpeercert()["subject"])["commonName"])
            except OSError:
                pass

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.05)


def free_neighbours():
    """A free port whose next one is free, too; below those that clients get."""
    for port in random.sample(range(20000, 32000, 2), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 1)):
            return port
    raise AssertionError("no two free ports side by side")


def check_no_secret(done):
    """As Process.stop does, of a program that ended by itself."""
    for sign in NEVER_LOGGED:
        assert sign not in done.stdout + done.stderr, f"{sign!r} in {done}"


def probe(address, *flags):
    done = subprocess.run([os.path.join(BIN_DIR, "weightless"), "probe", "grpc://" + address, *flags], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    check_no_secret(done)
    return done.returncode, done.stdout.strip(), done.stderr


class GrpcTlsTest(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.ours = Authority(os.path.join(cls.folder.name, "ours"))
        cls.other = Authority(os.path.join(cls.folder.name, "other"), "another authority")
        cls.worker_pair = cls.ours.issue("worker")
        cls.router_pair = cls.ours.issue("router", "DNS:router")
        cls.worker = Process("weightless-worker", "--model", TINY_MODEL, "--listen", "127.0.0.1:0", *cls.ours.flags(cls.worker_pair))
        cls.addClassCleanup(cls.worker.stop)
        cls.address = cls.worker.wait_for_log(r"event=listening address=(\S+) tls=mutual").group(1)

    def start(self, program, *args):
        process = Process(program, *args)
        self.addCleanup(process.stop)
        return process

    def start_worker(self, pair, listen="127.0.0.1:0"):
        worker = self.start("weightless-worker", "--model", TINY_MODEL, "--listen", listen, *self.ours.flags(pair))
        return worker, worker.wait_for_log(r"event=listening address=(\S+)").group(1)

    def start_router(self, workers, pair=None):
        return self.start("weightless-router", "--workers", workers, "--port", 0, *self.ours.flags(pair or self.router_pair))

    def url_of(self, router):
        return "http://" + router.wait_for_log(r"event=listening address=(\S+)").group(1)

    # Flags

    def check_usage_error(self, program, message, *flags):
        done = subprocess.run([os.path.join(BIN_DIR, program), "--log-level", "error", *flags], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(message, done.stderr)
        check_no_secret(done)

    def test_wrong_files_are_named_at_the_start(self):
        cert, key = self.worker_pair
        expired = self.ours.issue("expired-at-start", days=-1)
        programs = (("weightless-worker", ("--model", TINY_MODEL)), ("weightless-router", ("--worker", "127.0.0.1:1", "--port", "0")))
        for program, flags in programs:
            def refused(message, cert, key, ca):
                names = ("--grpc-tls-cert-file", cert), ("--grpc-tls-key-file", key), ("--grpc-tls-ca-file", ca)
                given = [part for pair in names if pair[1] is not None for part in pair]
                self.check_usage_error(program, message, *flags, *given)

            refused("--grpc-tls-key-file is missing", cert, None, self.ours.ca)
            refused("--grpc-tls-ca-file is missing", cert, key, None)
            refused("--grpc-tls-cert-file is missing", None, key, self.ours.ca)
            refused("--grpc-tls-cert-file", "", key, self.ours.ca)
            refused("--grpc-tls-cert-file /no/such.pem: cannot be read: No such file", "/no/such.pem", key, self.ours.ca)
            refused(f"--grpc-tls-ca-file {key}: holds no PEM certificate", cert, key, key)
            refused(f"--grpc-tls-key-file {self.router_pair[1]}: the key does not belong", cert, self.router_pair[1], self.ours.ca)
            refused(f"--grpc-tls-cert-file {expired[0]}: the certificate expired at", *expired, self.ours.ca)

    def test_a_worker_that_others_reach_without_tls_warns(self):
        worker = self.start("weightless-worker", "--model", TINY_MODEL, "--listen", "0.0.0.0:0")
        worker.wait_for_log(r"event=listening")
        self.assertEqual(worker.log_text().count("WARNING event=grpc_without_tls listen=0.0.0.0:0"), 1)
        self.assertNotIn("grpc_without_tls", self.worker.log_text())

    # What works

    def test_tokens_are_those_without_tls(self):
        requests = make_requests(8, seed=5, max_tokens=60)
        with cluster() as plain:
            expected = answers(plain.url, requests)
        router = self.start_router(self.address)
        url = self.url_of(router)
        wait_ready(url)
        self.assertEqual(expected, answers(url, requests))
        self.assertNotIn("tls_handshake_failed", router.log_text())

    def test_a_name_found_by_dns_is_what_the_certificate_must_have(self):
        for names, good in (("DNS:localhost", True), ("IP:127.0.0.1", False)):
            _, address = self.start_worker(self.ours.issue("by-name", names))
            router = self.start_router("dns:localhost:" + address.split(":")[1])
            if good:
                wait_ready(self.url_of(router))
            else:
                router.wait_for_log(r"localhost is not in peer certificate")

    def test_certificates_made_as_documented(self):
        with tempfile.TemporaryDirectory() as folder:
            make_as_documented(folder)
            paths = [os.path.join(folder, name) for name in ("tls.crt", "tls.key", "ca.crt")]
            names = ("--grpc-tls-cert-file", "--grpc-tls-key-file", "--grpc-tls-ca-file")
            flags = [part for pair in zip(names, paths) for part in pair]
            worker = self.start("weightless-worker", "--model", TINY_MODEL, "--listen", "127.0.0.1:0", *flags)
            address = worker.wait_for_log(r"event=listening address=(\S+)").group(1)
            for name in ((), ("--grpc-tls-server-name", "worker"), ("--grpc-tls-server-name", "weightless-worker")):
                self.assertEqual(probe(address, *flags, *name)[:2], (0, "ready"))

    def test_wildcard_addresses_take_both_families(self):
        _, address = self.start_worker(self.worker_pair, "0.0.0.0:0")
        self.assertEqual(probe("127.0.0.1:" + address.rsplit(":", 1)[1], *self.ours.flags(self.router_pair))[:2], (0, "ready"))

    def test_probe(self):
        flags = self.ours.flags(self.router_pair)
        self.assertEqual(probe(self.address, *flags)[:2], (0, "ready"))
        self.assertEqual(probe(self.address, *flags, "--grpc-tls-server-name", "localhost")[:2], (0, "ready"))
        self.assertEqual(probe(self.address, *flags, "--grpc-tls-server-name", "elsewhere")[:2], (1, "no answer"))
        self.assertEqual(probe(self.address)[:2], (1, "no answer"))

    # Who is refused

    def check_refused(self, worker, address, reason, pair=None, version=None):
        inside, port = try_to_get_in(address, pair, version)
        self.assertFalse(inside)
        line = worker.wait_for_log(rf"WARNING event=tls_handshake_failed peer=ipv4:127\.0\.0\.1:{port} reason=.*").group(0)
        self.assertIn(reason, line)

    def test_a_worker_refuses_who_has_no_certificate_of_its_ca(self):
        worker = self.start_worker(self.worker_pair)  # its own: lines are limited
        self.assertTrue(try_to_get_in(worker[1], self.router_pair)[0])
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            with self.subTest(version=version):
                self.check_refused(*worker, "peer did not return a certificate", None, version)
                self.check_refused(*worker, "certificate has expired", self.ours.issue("expired", days=-1), version)
                self.check_refused(*worker, "unable to get local issuer certificate", self.other.issue("stranger"), version)
                self.check_refused(*worker, "self-signed certificate", self.ours.self_sign("own"), version)

    def test_a_worker_refuses_what_is_not_tls(self):
        worker, address = self.start_worker(self.worker_pair)
        with socket.create_connection(("127.0.0.1", int(address.split(":")[1])), timeout=PATIENCE_S) as plain:
            port = plain.getsockname()[1]
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            with contextlib.suppress(OSError):
                self.assertNotIn(b"HTTP", plain.recv(100))
        worker.wait_for_log(rf"event=tls_handshake_failed peer=ipv4:127\.0\.0\.1:{port} reason=.*(wrong version number|http request)")

    def test_a_worker_refuses_openssl_s_client_without_a_certificate(self):
        command = ["openssl", "s_client", "-connect", self.address, "-alpn", "h2", "-quiet"]
        done = subprocess.run(command, input="PRI * HTTP/2.0\r\n\r\n", capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertRegex(done.stderr, "certificate required|unexpected eof")
        self.assertNotIn("HTTP", done.stdout)

    def test_a_router_refuses_who_is_not_its_worker(self):
        cases = (
            ("certificate has expired", self.ours.issue("old-worker", days=-1)),
            ("(unable to get local issuer|self-signed) certificate", self.other.issue("stranger-worker")),
            ("self-signed certificate", self.ours.self_sign("own-worker")),
            ("127.0.0.1 is not in peer certificate", self.ours.issue("misnamed-worker", "DNS:elsewhere")),
        )
        for reason, pair in cases:
            with self.subTest(reason=reason):
                fake = FakeWorker(pair, self.ours.ca)
                self.addCleanup(fake.stop)
                router = self.start_router(fake.address)
                router.wait_for_log(rf"(INFO|WARNING) event=\w+ .*{reason}")

    def test_strangers_cannot_fill_the_log(self):
        worker, address = self.start_worker(self.worker_pair)
        for _ in range(60):
            try_to_get_in(address)
        self.assertLessEqual(worker.log_text().count("event=tls_"), 40)

    # New files

    def test_new_files_of_a_worker(self):
        pair = self.ours.issue("rotated-worker")
        worker, address = self.start_worker(pair)
        router = self.start_router(address)
        url = self.url_of(router)
        wait_ready(url)
        shown = []
        for tell in (True, False):  # by SIGHUP, and without a word
            shown.append(server_certificate(address, self.router_pair))
            self.ours.issue("rotated-worker")
            if tell:
                worker.signal(signal.SIGHUP)
                worker.wait_for_log("event=grpc_tls_reloaded")
        shown.append(server_certificate(address, self.router_pair))
        self.assertEqual(len(set(shown)), 3)

        with open(pair[0], "w") as file:
            file.write("-----BEGIN CERTIFICATE-----\nbroken\n")
        worker.signal(signal.SIGHUP)
        worker.wait_for_log(rf"ERROR event=grpc_tls_not_reloaded reason=.*{pair[0]}: holds no PEM certificate")
        self.assertEqual(server_certificate(address, self.router_pair), shown[-1])
        self.assertEqual(worker.log_text().count("grpc_tls_not_reloaded"), 1)
        self.assertEqual(metric(url, "weightless_worker_losses_total"), 0)  # its connection lives on

    def test_a_worker_takes_a_new_ca(self):
        folder = os.path.join(self.folder.name, "mine")
        old = Authority(folder)
        worker_pair, old_pair = old.issue("worker"), old.issue("router")
        worker = self.start("weightless-worker", "--model", TINY_MODEL, "--listen", "127.0.0.1:0", *old.flags(worker_pair))
        address = worker.wait_for_log(r"event=listening address=(\S+)").group(1)
        self.assertTrue(try_to_get_in(address, old_pair)[0])
        Authority(folder, "next authority")  # in place of the old one
        worker.signal(signal.SIGHUP)
        worker.wait_for_log("event=grpc_tls_reloaded")
        self.assertFalse(try_to_get_in(address, old_pair)[0])

    def test_new_files_of_a_router(self):
        fake = FakeWorker(self.worker_pair, self.ours.ca)
        self.addCleanup(fake.stop)
        pair = self.ours.issue("first-router")
        router = self.start_router(fake.address, pair)
        wait_until(lambda: "first-router" in fake.clients, "the first certificate")
        second = self.ours.issue("second-router")
        os.replace(second[1], pair[1])
        router.signal(signal.SIGHUP)
        router.wait_for_log(r"ERROR event=grpc_tls_not_reloaded reason=.*the key does not belong to the certificate")
        del fake.clients[:]
        wait_until(lambda: "first-router" in fake.clients, "the old certificate, still")
        os.replace(second[0], pair[0])
        router.signal(signal.SIGHUP)
        router.wait_for_log("event=grpc_tls_reloaded")
        wait_until(lambda: "second-router" in fake.clients, "the new certificate")

    def test_sighup_without_tls_changes_nothing(self):
        worker = self.start("weightless-worker", "--model", TINY_MODEL, "--listen", "127.0.0.1:0")
        address = worker.wait_for_log(r"event=listening address=(\S+)").group(1)
        worker.signal(signal.SIGHUP)
        self.assertEqual(probe(address)[0], 0)

    # serve

    def test_serve_with_tls_and_metrics_of_its_workers(self):
        first_port = free_neighbours()
        serve = self.start("weightless", "serve", "--model", TINY_MODEL, "--workers", 2, "--port", 0, "--worker-metrics-port", first_port,
                           "--vllm-metrics", "off", *self.ours.flags(self.ours.issue("serving")))
        url = serve.wait_for_log(r"(http://127\.0\.0\.1:\d+)").group(1)
        wait_until(lambda: metric(url, "weightless_worker_up") == 2, "two workers")
        self.assertNotIn("vllm:", get(url + "/metrics"))
        for port in (first_port, first_port + 1):
            self.assertIn("weightless_engine_step_seconds_count", get(f"http://127.0.0.1:{port}/metrics"))
        self.assertEqual(len(re.findall(r"event=listening address=\S+ tls=mutual", serve.log_text())), 2)
        self.assertNotIn("tls_handshake_failed", serve.log_text())
        self.ours.issue("serving")
        serve.signal(signal.SIGHUP)
        for program in ("router", "worker-0", "worker-1"):
            serve.wait_for_log(rf"{program} \| .*event=grpc_tls_reloaded")


if __name__ == "__main__":
    unittest.main()
