"""The worker as a process: exit codes, messages, signals."""
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = pathlib.Path(os.environ["WEIGHTLESS_BIN_DIR"]) / "weightless-worker"
TINY = str(ROOT / "models" / "tiny-gemma3")
TIMEOUT_SECONDS = 60


def run(*flags):
    return subprocess.run([WORKER, *flags], stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)


class WorkerProgramTest(unittest.TestCase):
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
        with tempfile.TemporaryDirectory() as folder:
            for file in pathlib.Path(TINY).iterdir():
                os.symlink(file, pathlib.Path(folder) / file.name)
            pathlib.Path(folder, "tokenizer.json").unlink()
            pathlib.Path(folder, "tokenizer.json").write_text('{"model":')
            self.check_refused(f"{folder}: tokenizer.json: not valid JSON", "--model", folder)
            pathlib.Path(folder, "tokenizer.json").unlink()
            pathlib.Path(folder, "tokenizer.model").unlink()
            self.check_refused(f"{folder}: the model has no tokenizer", "--model", folder)

    def test_weights_that_are_not_finite_exit_with_2_and_name_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in pathlib.Path(TINY).iterdir():
                os.symlink(file, pathlib.Path(folder) / file.name)
            weights = pathlib.Path(folder, "model.safetensors")
            data = bytearray(weights.read_bytes())
            weights.unlink()
            data[-4096:] = b"\xff\x7f" * 2048  # bf16 NaN
            weights.write_bytes(data)
            self.check_refused(f"{folder}: the model's logits are not finite", "--model", folder)

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
