"""A Docker engine for a test: the one that runs here, or one of our own in a temporary folder."""
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time

SKIP = 77
START_TIMEOUT_S = 60


class Unavailable(Exception):
    """No engine can be had here, and why."""


def call(*command, **kwargs):
    """Runs a command and returns what it printed; a failure shows its output."""
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **kwargs)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def compose_command():
    """`docker compose` where that plugin is installed, else docker-compose."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"]


def engine_answers():
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


class Engine:
    """Sets DOCKER_HOST for every later call. Close() ends what was started."""

    def __init__(self):
        self.folder = None
        self.process = None
        for program in ("docker", "debootstrap"):
            if shutil.which(program) is None:
                raise Unavailable(f"{program} is not installed: scripts/setup deploy")
        if shutil.which(compose_command()[0]) is None:
            raise Unavailable("neither `docker compose` nor docker-compose is installed: scripts/setup deploy")
        if os.getuid() != 0:
            raise Unavailable("debootstrap, and an engine of our own, need root")
        if engine_answers():
            return
        if "DOCKER_HOST" in os.environ:
            raise Unavailable(f"the engine of DOCKER_HOST, {os.environ['DOCKER_HOST']}, does not answer")
        if shutil.which("dockerd") is None:
            raise Unavailable("no engine runs and dockerd is not installed: scripts/setup deploy")
        self.folder = tempfile.mkdtemp(prefix="weightless-docker-", dir="/var/tmp")
        os.environ["DOCKER_HOST"] = f"unix://{self.folder}/docker.sock"
        problems = []
        for storage in ("overlay2", "vfs"):  # overlay2 needs a file system that overlayfs can lie on
            if self._start(storage):
                return
            problems.append(f"{storage}: {self._log()[-600:]}")
        self.close()
        raise Unavailable("no Docker engine starts here:\n" + "\n".join(problems))

    def _log(self):
        with open(os.path.join(self.folder, "log"), errors="replace", encoding="utf-8") as log:
            return log.read()

    def _start(self, storage):
        with open(os.path.join(self.folder, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["dockerd", "--host", os.environ["DOCKER_HOST"], f"--data-root={self.folder}/data",
                 f"--exec-root={self.folder}/exec", f"--pidfile={self.folder}/pid", f"--storage-driver={storage}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if engine_answers():
                return True
            time.sleep(0.2)
        self._stop()
        return False

    def _stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def close(self):
        self._stop()
        if self.folder is not None:
            os.environ.pop("DOCKER_HOST")
            # An engine that could not start leaves its folder mounted on itself.
            subprocess.run(["umount", "-l", os.path.join(self.folder, "data")], capture_output=True, check=False)
            shutil.rmtree(self.folder)

    @staticmethod
    def inspect(name):
        return json.loads(call("docker", "inspect", name))[0]


def import_base(image, archive):
    """Makes `image` from this machine's own distribution with debootstrap, which knows the same package source as apt
    here. `archive` keeps it for the next time."""
    if not os.path.exists(archive):
        release = platform.freedesktop_os_release()
        codename = release["VERSION_CODENAME"]
        sources = call("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages").split("\n")
        mirrors = [line.split()[1] for line in sources if line.startswith(codename + " ")]
        if not mirrors:
            raise Unavailable(f"apt has no package source for {codename}")
        components = "main,universe" if release["ID"] == "ubuntu" else "main"
        with tempfile.TemporaryDirectory(prefix="weightless-base-", dir="/var/tmp") as folder:
            call("debootstrap", "--variant=minbase", f"--components={components}", codename, folder, mirrors[0])
            call("tar", "-C", folder, "-cf", archive + ".part", ".")
        os.rename(archive + ".part", archive)
    call("docker", "import", archive, image)
