"""Exchanges are read from packets as they are cut on the wire: in pieces, twice, and over a kept connection."""
import io
import json
import struct
import unittest

import wire

PORT, CLIENT = 8000, 40000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def packet(when, source, destination, seq, payload=b"", syn=False):
    tcp = struct.pack(">HHIIBBHHH", source, destination, seq, 0, 5 << 4, 2 if syn else 16, 0, 0, 0) + payload
    ip = struct.pack(">BBHHHBBH8s", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, bytes(8)) + tcp
    frame = bytes(12) + b"\x08\x00" + ip
    return struct.pack("<IIII", int(when), round(when % 1 * 1e9), len(frame), len(frame)) + frame


def capture(packets):
    return io.BytesIO(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, wire.ETHERNET) + b"".join(packets))


def event(content=None, usage=None):
    body = {"choices": [{"delta": {"content": content}}]} if content is not None else {"choices": [], "usage": usage}
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return f"{len(data):x}".encode() + b"\r\n" + data + b"\r\n"


class Connection:
    """Both directions of one connection, with sequence numbers that wrap around."""

    def __init__(self):
        self.packets, self.seq = [], {CLIENT: 2**32 - 5, PORT: 7}
        for source, destination in ((CLIENT, PORT), (PORT, CLIENT)):
            self.packets.append(packet(1, source, destination, self.seq[source], syn=True))
            self.seq[source] = (self.seq[source] + 1) % 2**32

    def send(self, when, source, payload):
        destination = PORT if source == CLIENT else CLIENT
        self.packets.append(packet(when, source, destination, self.seq[source], payload))
        self.seq[source] = (self.seq[source] + len(payload)) % 2**32


class WireTest(unittest.TestCase):
    def test_times_are_those_of_the_packets_that_complete_things(self):
        line = Connection()
        line.send(2.0, CLIENT, b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 4\r\n\r\n")
        line.send(2.1, CLIENT, b"body")
        line.packets.append(line.packets[-1])  # sent again
        line.send(3.0, PORT, HEAD + event(""))  # the role alone
        first = event("a")
        line.send(3.4, PORT, first[:20])
        line.send(3.5, PORT, first[20:])
        line.send(3.75, PORT, event("b"))
        line.send(4.0, PORT, event("c") + event(usage={"completion_tokens": 3}) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        line.send(4.5, CLIENT, b"GET /metrics HTTP/1.1\r\n\r\n")
        line.send(4.6, PORT, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        line.send(5.0, CLIENT, b"POST /v1/completions HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        line.send(5.2, PORT, HEAD + event("x") + event("y") + b"0\r\n\r\n")
        one, two = wire.read_exchanges(capture(line.packets), PORT)
        self.assertAlmostEqual(one.first_sent, 2.0)
        self.assertAlmostEqual(one.last_sent, 2.1)
        self.assertAlmostEqual(one.ttft, 1.5)
        self.assertAlmostEqual(one.tpot, 0.25)
        self.assertAlmostEqual(one.ended, 4.0)
        self.assertEqual((one.num_tokens, one.is_first_on_connection), (3, True))
        self.assertEqual((two.num_tokens, two.is_first_on_connection), (2, False))
        self.assertAlmostEqual(wire.turnarounds([one, two], 1)[0], 1.0)

    def test_a_capture_with_holes_is_refused(self):
        line = Connection()
        line.seq[CLIENT] = (line.seq[CLIENT] + 10) % 2**32
        line.send(2.0, CLIENT, b"POST")
        with self.assertRaisesRegex(ValueError, "lacks packets"):
            wire.read_exchanges(capture(line.packets), PORT)


if __name__ == "__main__":
    unittest.main()
