"""Who gets in at the front door: TLS, keys, limits of keys, what SIGHUP reloads, and where anything listens."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import unittest

from cluster import BIN_DIR, SOURCE_DIR, TINY_MODEL, Process, cluster, metric

PATIENCE_S = 60


def openssl(folder, *args):
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)


class Authority:
    """A CA in a folder of the test, which signs certificates for 127.0.0.1."""

    def __init__(self, folder):
        self.folder = folder
        openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key",
                "-out", "ca.pem", "-subj", "/CN=test authority", "-days", "1")
        self.file = os.path.join(folder, "ca.pem")

    def issue(self, common_name, cert="server.pem", key="server.key"):
        """Writes both files; they replace older ones as a whole."""
        with open(os.path.join(self.folder, "ext"), "w") as file:
            file.write("subjectAltName=IP:127.0.0.1")
        openssl(self.folder, "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "new.key",
                "-out", "new.csr", "-subj", f"/CN={common_name}")
        openssl(self.folder, "x509", "-req", "-in", "new.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-extfile", "ext", "-days", "1", "-out", "new.pem")
        paths = [os.path.join(self.folder, name) for name in (cert, key)]
        for new, path in zip(("new.pem", "new.key"), paths):
            os.replace(os.path.join(self.folder, new), path)
        return paths

    def connect(self, port):
        context = ssl.create_default_context(cafile=self.file)
        return http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE_S)


def plain(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)


def name_of(connection):
    return dict(pair[0] for pair in connection.sock.getpeercert()["subject"])["commonName"]


def ask(connection, path, key=None, body=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection.request("POST" if body is not None else "GET", path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def write(path, text):
    """Replaces a file as a whole."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def run(program, *args, **environment):
    done = subprocess.run([os.path.join(BIN_DIR, program), *map(str, args)], capture_output=True, text=True, timeout=PATIENCE_S,
                          env={**os.environ, **environment})
    return done.returncode, done.stderr


def listeners(pid):
    """The local addresses, "127.0.0.1:80", on which a process accepts TCP connections."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}")))
        except FileNotFoundError:
            pass
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/{pid}/net/{table}") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] != "0A" or fields[9] not in inodes:
                    continue
                number, port = fields[1].split(":")
                raw = b"".join(bytes.fromhex(number[i:i + 8])[::-1] for i in range(0, len(number), 8))
                found.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found


class FrontDoorTest(unittest.TestCase):
    def open(self, connection):
        self.addCleanup(connection.close)
        return connection

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def router(self, *args):
        process = Process("weightless-router", "--worker", "127.0.0.1:1", "--port", 0, *args)
        self.addCleanup(process.stop)
        port = int(process.wait_for_log(r"event=listening address=127.0.0.1:(\d+)").group(1))
        return process, port

    def test_certificate_is_reloaded_and_a_bad_one_is_not(self):
        authority = Authority(self.folder)
        cert, key = authority.issue("first")
        router, port = self.router("--tls-cert-file", cert, "--tls-key-file", key)
        old = self.open(authority.connect(port))
        self.assertEqual(ask(old, "/health")[0], 200)
        self.assertEqual((name_of(old), old.sock.version()), ("first", "TLSv1.3"))

        authority.issue("second")
        router.signal(signal.SIGHUP)
        router.wait_for_log("event=reloaded what=certificate")
        new = self.open(authority.connect(port))
        self.assertEqual(ask(new, "/health")[0], 200)
        self.assertEqual(name_of(new), "second")
        self.assertEqual(ask(old, "/health")[0], 200)  # the open connection lives on

        write(cert, "no certificate")
        router.signal(signal.SIGHUP)
        said = router.wait_for_log("event=reload_failed what=certificate reason=.*").group(0)
        self.assertIn(f"{cert}: holds no PEM certificate", said)
        last = self.open(authority.connect(port))
        self.assertEqual(ask(last, "/health")[0], 200)
        self.assertEqual(name_of(last), "second")
        self.assertNotIn("PRIVATE", router.log_text())

    def test_serve_speaks_tls_and_passes_hang_up_on(self):
        authority = Authority(self.folder)
        cert, key = authority.issue("first")
        keys = os.path.join(self.folder, "keys")
        write(keys, "alice:sk-a\n")
        serve = Process("weightless", "serve", "--port", 0, "--tls-cert-file", cert, "--tls-key-file", key, "--api-key-file", keys)
        self.addCleanup(serve.stop)
        port = int(serve.wait_for_log(r"URL    https://127.0.0.1:(\d+)/v1").group(1))
        stream = self.open(authority.connect(port))
        body = {"prompt": "a", "stream": True, "max_tokens": 900, "ignore_eos": True}
        stream.request("POST", "/v1/completions", json.dumps(body), {"Authorization": "Bearer sk-a", "Content-Type": "application/json"})
        answer = stream.getresponse()
        self.assertTrue(answer.readline().startswith(b"data: "))
        authority.issue("second")
        write(keys, "bob:sk-b\n")
        serve.signal(signal.SIGHUP)
        for what in ("certificate", "api_keys"):
            serve.wait_for_log(f"event=reloaded what={what}")
        new = self.open(authority.connect(port))
        self.assertEqual([ask(new, "/v1/models", key)[0] for key in ("sk-a", "sk-b")], [401, 200])
        self.assertEqual(name_of(new), "second")
        self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))  # though its key is gone
        done = subprocess.run([os.path.join(BIN_DIR, "weightless"), "probe", f"https://127.0.0.1:{port}"], timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0)

    def test_plain_http_to_a_tls_port(self):
        authority = Authority(self.folder)
        cert, key = authority.issue("server")
        router, port = self.router("--tls-cert-file", cert, "--tls-key-file", key)
        status, _, body = ask(self.open(plain(port)), "/v1/models", "sk-secret")
        self.assertEqual((status, json.loads(body)["error"]["message"]), (400, "this port speaks HTTPS only"))
        router.wait_for_log('event=tls_handshake_failed peer=127.0.0.1 reason="http request"')
        self.assertNotIn("secret", router.log_text())

    def test_keys_are_reloaded_and_a_bad_file_is_not(self):
        keys = os.path.join(self.folder, "keys")
        write(keys, "alice:sk-a\nbob:sk-b\n")
        router, port = self.router("--api-key-file", keys)
        connection = self.open(plain(port))

        def statuses():
            return [ask(connection, "/v1/models", key)[0] for key in ("sk-a", "sk-b", "sk-c")]

        self.assertEqual(statuses(), [200, 200, 401])
        digest = subprocess.run(["sha256sum"], input=b"sk-c", capture_output=True, check=True).stdout.split()[0].decode()
        write(keys, f"alice:sk-a\ncarol:sha256:{digest}\n")
        router.signal(signal.SIGHUP)
        router.wait_for_log("event=reloaded what=api_keys")
        self.assertEqual(statuses(), [200, 401, 200])  # on the connection that was open
        write(keys, "alice:sk-a\nalice:sk-x\n")
        router.signal(signal.SIGHUP)
        self.assertIn(f"{keys} line 2", router.wait_for_log("event=reload_failed what=api_keys .*").group(0))
        os.unlink(keys)
        router.signal(signal.SIGHUP)
        router.wait_for_log("event=reload_failed what=api_keys .*No such file")
        self.assertEqual(statuses(), [200, 401, 200])
        for secret in ("sk-a", "sk-b", "sk-c", "sk-x"):
            self.assertNotIn(secret, router.log_text())

    def test_empty_settings_do_not_open_the_door(self):
        for flag in ("api-key-file", "tls-cert-file", "tls-key-file"):
            name = "WEIGHTLESS_" + flag.upper().replace("-", "_")
            config = os.path.join(self.folder, "config.yaml")
            write(config, f"{flag}: ''\n")
            for program, args in (("weightless-router", ["--worker", "127.0.0.1:1", "--port", "0"]),
                                  ("weightless", ["serve", "--port", "0"])):
                for extra, environment in ((["--" + flag, ""], {}), ([f"--{flag}="], {}), (["--config", config], {}), ([], {name: ""})):
                    code, said = run(program, *args, *extra, **environment)
                    self.assertEqual(code, 2, (program, extra, said))
                    self.assertIn(f"--{flag} ({name}) is empty", said)

    def test_tls_files_that_are_no_good_end_the_start(self):
        authority = Authority(self.folder)
        cert, key = authority.issue("server")
        _, other_key = authority.issue("other", "other.pem", "other.key")
        for files, words in (((cert, "/no/key"), "--tls-key-file /no/key: cannot be read: No such file"),
                             ((cert, other_key), "does not belong to the certificate"),
                             ((key, key), f"--tls-cert-file {key}: holds no PEM certificate")):
            code, said = run("weightless-router", "--worker", "a:1", "--tls-cert-file", files[0], "--tls-key-file", files[1])
            self.assertEqual(code, 2, said)
            self.assertIn(words, said)
        self.assertIn("--tls-key-file is missing", run("weightless-router", "--worker", "a:1", "--tls-cert-file", cert)[1])

    def test_limits_per_minute_name_limit_and_key(self):
        keys = os.path.join(self.folder, "keys")
        write(keys, "alice:sk-a\nbob:sk-b\n")
        body = {"prompt": "a", "max_tokens": 30, "ignore_eos": True}
        with cluster(router_args=("--api-key-file", keys, "--max-requests-per-minute-per-key", 3, "--max-tokens-per-minute-per-key",
                                  40, "--metrics-port", 0)) as one:
            port = int(one.url.rsplit(":", 1)[1])
            connection = self.open(plain(port))
            for _ in range(2):
                status, _, text = ask(connection, "/v1/completions", "sk-a", body)
                self.assertEqual(status, 200, text)
            used = 2 * json.loads(text)["usage"]["total_tokens"]
            status, headers, text = ask(connection, "/v1/completions", "sk-a", body)
            error = json.loads(text)["error"]
            self.assertEqual((status, error["code"], error["type"]), (429, "rate_limit_exceeded", "rate_limit_error"))
            self.assertIn('the key "alice" has used up its 40 tokens per minute', error["message"])
            wait_s = int(headers["Retry-After"])
            self.assertLessEqual(wait_s, (used - 40) * 1.5 + 1)
            self.assertGreaterEqual(wait_s, (used - 40) * 1.5 - 10)
            self.assertNotIn("sk-a", text)
            for _ in range(2):  # another key is not concerned
                self.assertEqual(ask(connection, "/v1/completions", "sk-b", {"prompt": "a", "max_tokens": 1})[0], 200)
            ask(connection, "/v1/completions", "sk-b", {"prompt": "a", "max_tokens": 1})
            text = ask(connection, "/v1/completions", "sk-b", {"prompt": "a", "max_tokens": 1})[2]
            self.assertIn('the key "bob" has used up its 3 requests per minute', json.loads(text)["error"]["message"])
            open_url = "http://" + one.router.wait_for_log(r"event=metrics_listening address=(\S+)").group(1)
            for reason in ("tokens_per_minute", "requests_per_minute"):
                self.assertEqual(metric(open_url, "weightless_refused_requests_total", f'reason="{reason}"'), 1, reason)
            self.assertEqual(metric(open_url, "weightless_requests_started_total"), 5)

    def test_nothing_listens_beyond_loopback_unless_told_to(self):
        worker = Process("weightless-worker", "--model", TINY_MODEL, "--metrics-listen", "127.0.0.1:0")
        self.addCleanup(worker.stop)
        address = worker.wait_for_log(r"event=listening address=(\S+)").group(1)
        router = Process("weightless-router", "--worker", address, "--port", 0, "--metrics-port", 0)
        self.addCleanup(router.stop)
        router.wait_for_log("event=listening address")
        serve = Process("weightless", "serve", "--port", 0, "--workers", 2, "--metrics-port", 0)
        self.addCleanup(serve.stop)
        children = [int(serve.wait_for_log(f"event=program_started program={name} pid=(\\d+)").group(1))
                    for name in ("worker-0", "worker-1", "router")]
        serve.wait_for_log("Weightless is ready")
        expected = {worker.popen.pid: 2, router.popen.pid: 2, serve.popen.pid: 0, children[0]: 1, children[1]: 1, children[2]: 2}
        for pid, count in expected.items():
            found = listeners(pid)
            self.assertEqual(len(found), count, found)
            for host, _ in found:
                self.assertIn(host, ("127.0.0.1", "::1", "::ffff:127.0.0.1"), found)
        told = Process("weightless-router", "--worker", address, "--port", 0, "--host", "0.0.0.0")
        self.addCleanup(told.stop)
        told.wait_for_log("event=listening address")
        self.assertEqual({host for host, _ in listeners(told.popen.pid)}, {"0.0.0.0"})
        self.assertIn('WARNING event=http_open host=0.0.0.0 reason="whoever reaches this port', told.log_text())
        self.assertNotIn("event=http_open", router.log_text())
        with open(os.path.join(SOURCE_DIR, "deploy", "compose.yaml")) as file:
            published = re.findall(r"ports: (.*)", file.read())
        self.assertEqual(len(published), 3)
        for ports in published:
            self.assertTrue(ports.startswith('["${BIND_ADDRESS:-127.0.0.1}:'), ports)


if __name__ == "__main__":
    unittest.main()
