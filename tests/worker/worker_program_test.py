"""The worker as a process: exit codes, messages, signals."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = pathlib.Path(os.environ["WEIGHTLESS_BIN_DIR"]) / "weightless-worker"
TINY = str(ROOT / "models" / "tiny-gemma3")
TINY_GGUF = ROOT / "models" / "tiny-gemma3-bf16.gguf"
TIMEOUT_SECONDS = 60
METRICS_PORT = re.compile(r"metrics\S* address=127\.0\.0\.1:(\d+)")


def run(*flags):
    return subprocess.run([WORKER, *flags], stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)


@contextlib.contextmanager
def tiny_with(**changes):
    """A folder with the tiny model's files, but for those that `changes` replaces (bytes) or leaves out (None)."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in pathlib.Path(TINY).iterdir():
            os.symlink(file, folder / file.name)
        for file, data in changes.items():
            (folder / file).unlink()
            if data is not None:
                (folder / file).write_bytes(data)
        yield folder


class WorkerProgramTest(unittest.TestCase):
    def test_silent_connections_leave_room_for_a_scrape(self):
        worker = subprocess.Popen([WORKER, "--model", TINY, "--metrics-listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        with worker, contextlib.ExitStack() as connections:
            port = next(int(found[1]) for line in worker.stderr if (found := METRICS_PORT.search(line)))
            for _ in range(8):
                connections.enter_context(socket.create_connection(("127.0.0.1", port)))
            started = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_SECONDS) as answer:
                self.assertIn(b"weightless_engine_info", answer.read())
            self.assertLess(time.monotonic() - started, 10)  # two threads of the library would take 30 s
            worker.terminate()

    def check_refused(self, message, *flags):
        done = run("--log-level", "error", *flags)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(message, done.stderr)

    def test_bad_flags_and_models_exit_with_2_and_one_line(self):
        self.check_refused("--model")
        self.check_refused("--bogus", "--model", TINY, "--bogus")
        self.check_refused("/no/such/model", "--model", "/no/such/model")
        self.check_refused("config.json", "--model", str(ROOT / "worker"))
        self.check_refused("max_length 5000 is outside 2 .. 1024", "--model", TINY, "--max-length", "5000")
        self.check_refused('--dtype "int8"', "--model", TINY, "--dtype", "int8")
        self.check_refused('--listen "nowhere"', "--model", TINY, "--listen", "nowhere")

    def test_a_model_without_a_sound_tokenizer_exits_with_2_and_names_it(self):
        with tiny_with(**{"tokenizer.json": b'{"model":'}) as folder:
            self.check_refused(f"{folder}: tokenizer.json: not valid JSON", "--model", folder)
        with tiny_with(**{"tokenizer.json": None, "tokenizer.model": None}) as folder:
            self.check_refused(f"{folder}: the model has no tokenizer", "--model", folder)

    def test_weights_that_are_not_finite_exit_with_2_and_name_the_model(self):
        weights = bytearray(pathlib.Path(TINY, "model.safetensors").read_bytes())
        weights[-4096:] = b"\xff\x7f" * 2048  # bf16 NaN
        with tiny_with(**{"model.safetensors": weights}) as folder:
            self.check_refused(f"{folder}: the model's logits are not finite", "--model", folder)

    def test_a_truncated_safetensors_file_exits_with_2_and_names_file_and_field(self):
        weights = pathlib.Path(TINY, "model.safetensors").read_bytes()
        header = int.from_bytes(weights[:8], "little")
        whole = len(weights) - 8 - header
        for size, message in (
            (4, "not a safetensors file: it has 4 bytes"),
            (8 + header // 2, f"not a safetensors file: header length {header} exceeds {header // 2}"),
            (8 + header, f"tensors end at {whole} of the data, the file has 0 bytes of it"),
            (len(weights) // 2, f"tensors end at {whole} of the data, the file has {len(weights) // 2 - 8 - header} bytes of it"),
            (len(weights) - 1, f"tensors end at {whole} of the data, the file has {whole - 1} bytes of it"),
        ):
            with self.subTest(size=size), tiny_with(**{"model.safetensors": weights[:size]}) as folder:
                self.check_refused(f"{folder}/model.safetensors: {message}", "--model", folder)

    def test_a_truncated_gguf_file_exits_with_2_and_names_file_and_field(self):
        whole = TINY_GGUF.read_bytes()
        for size, message in (
            (4, "version at byte 4 needs 4 bytes"),
            (5000, 'metadata "tokenizer.ggml.tokens": array of 4096 strings exceeds the'),
            (len(whole) // 2, 'tensor "blk.3.ffn_gate.weight" lies at offset'),
            (len(whole) - 1, 'tensor "output_norm.weight" lies at offset'),
        ):
            with self.subTest(size=size), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "cut.gguf")
                path.write_bytes(whole[:size])
                self.check_refused(f"{path}: {message}", "--model", path)

    def test_port_in_use_exits_with_2_and_names_it(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.check_refused(f"cannot listen on {address}", "--model", TINY, "--listen", address)

    def seconds_to_end(self, mark):
        with subprocess.Popen([WORKER, "--model", TINY], stderr=subprocess.PIPE, text=True) as worker:
            for line in worker.stderr:
                if mark in line:
                    break
            begin = time.monotonic()
            worker.send_signal(signal.SIGTERM)
            worker.stderr.read()
            self.assertEqual(worker.wait(TIMEOUT_SECONDS), 0, mark)
            return time.monotonic() - begin

    def test_sigterm_ends_it_within_a_second_with_0(self):
        for mark in ("event=starting", "event=listening"):
            # A busy machine may make one attempt late.
            self.assertTrue(any(self.seconds_to_end(mark) < 1.0 for _ in range(3)), mark)


if __name__ == "__main__":
    unittest.main()
