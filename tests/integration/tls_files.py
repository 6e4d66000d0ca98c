"""A CA in a folder of a test, and certificates that it signs. Made by the openssl program."""
import os
import re
import subprocess

SOURCE_DIR = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIMEOUT_S = 60
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make_as_documented(folder):
    """tls.crt, tls.key and ca.crt in `folder`, by the commands of docs/security.md."""
    with open(os.path.join(SOURCE_DIR, "docs", "security.md")) as file:
        recipe = re.search(r"```sh\n(new=.*?)```", file.read(), re.S).group(1)
    subprocess.run(["sh", "-e", "-c", recipe], cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_S)


class Authority:
    def __init__(self, folder, name="test authority"):
        self.folder = str(folder)
        os.makedirs(self.folder, exist_ok=True)
        self._openssl("req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={name}", "-days", "1")
        self.ca = self._path("ca.pem")

    def issue(self, name, names="IP:127.0.0.1,DNS:localhost", days=1):
        """Writes NAME.pem and NAME.key, replacing each as a whole. `days` below 0: expired."""
        with open(self._path("ext"), "w") as file:
            file.write(f"subjectAltName={names}\n")
        self._openssl("req", "-new", *NEW_KEY, "-keyout", "new.key", "-out", "new.csr", "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", "new.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext",
                      "-days", str(days), "-out", "new.pem")
        return self._put(name)

    def self_sign(self, name):
        self._openssl("req", "-x509", *NEW_KEY, "-keyout", "new.key", "-out", "new.pem", "-subj", f"/CN={name}", "-days", "1",
                      "-addext", "subjectAltName=IP:127.0.0.1")
        return self._put(name)

    def flags(self, pair):
        """What turns TLS of gRPC on, for each program."""
        return ("--grpc-tls-cert-file", pair[0], "--grpc-tls-key-file", pair[1], "--grpc-tls-ca-file", self.ca)

    def _put(self, name):
        pair = self._path(name + ".pem"), self._path(name + ".key")
        os.replace(self._path("new.key"), pair[1])
        os.replace(self._path("new.pem"), pair[0])
        return pair

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True, timeout=TIMEOUT_S)
