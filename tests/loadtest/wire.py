"""What the packets say: the streamed exchanges in a tcpdump capture of one server's port on loopback.

A load generator's clock runs in its own process; packets are stamped by the kernel. The two ends of a loopback
connection are one capture, so its times hold for client and server alike.
"""
import bisect
import dataclasses
import json
import re
import struct

ETHERNET = 1


@dataclasses.dataclass
class Exchange:
    """One request and its answer; times in seconds of the capture's clock."""
    first_sent: float           # packet with the request's first byte
    last_sent: float            # packet with its last byte
    content: list[float]        # packet that completed each event with content
    num_tokens: int             # of the usage, else events with content
    ended: float                # packet with the answer's last byte
    is_first_on_connection: bool

    @property
    def ttft(self):
        return self.content[0] - self.first_sent

    @property
    def tpot(self):
        return (self.content[-1] - self.content[0]) / (self.num_tokens - 1)


class Stream:
    """The bytes of one direction of a connection, each with the time of its packet."""

    def __init__(self):
        self.data = bytearray()
        self._ends, self._times = [], []
        self._next_seq = None

    def add(self, when, seq, payload, is_syn):
        if is_syn:
            self._next_seq = (seq + 1) % 2**32
        if not payload:
            return
        if self._next_seq is None:
            raise ValueError("the capture begins in the middle of a connection")
        skipped = (self._next_seq - seq) % 2**32
        if skipped >= 2**31:
            raise ValueError("the capture lacks packets")
        payload = payload[skipped:]  # sent again
        self.data += payload
        self._next_seq = (self._next_seq + len(payload)) % 2**32
        self._ends.append(len(self.data))
        self._times.append(when)

    def when(self, position):
        """The time of the packet with the byte at `position`."""
        return self._times[bisect.bisect_right(self._ends, position)]


def read_packets(file):
    """(time, source port, destination port, sequence number, is SYN, payload) of each TCP packet over IPv4."""
    head = file.read(24)
    order, unit = {b"\xd4\xc3\xb2\xa1": ("<", 1e-6), b"\x4d\x3c\xb2\xa1": ("<", 1e-9)}[head[:4]]
    if struct.unpack(order + "I", head[20:24])[0] != ETHERNET:
        raise ValueError("not a capture of Ethernet frames; loopback's are")
    while len(record := file.read(16)) == 16:
        seconds, fraction, captured, length = struct.unpack(order + "IIII", record)
        frame = file.read(captured)
        if captured != length:
            raise ValueError(f"a packet of {length} bytes was cut to {captured}")
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        ip_len = (frame[14] & 15) * 4
        tcp = frame[14 + ip_len:14 + struct.unpack(">H", frame[16:18])[0]]
        source, destination, seq = struct.unpack(">HHI", tcp[:8])
        yield seconds + fraction * unit, source, destination, seq, bool(tcp[13] & 2), tcp[(tcp[12] >> 4) * 4:]


def _head(data, begin):
    """(where the body begins, first line, headers) of the message at `begin`; nothing when it is not complete."""
    end = data.find(b"\r\n\r\n", begin)
    if end < 0:
        return None
    lines = bytes(data[begin:end]).decode("latin-1").split("\r\n")
    return end + 4, lines[0], {name.lower(): value.strip() for name, value in (l.split(":", 1) for l in lines[1:])}


def _requests(stream):
    """(first line, first byte, byte after the last) of each request."""
    begin = 0
    while head := _head(stream.data, begin):
        body, line, headers = head
        end = body + int(headers.get("content-length", 0))
        yield line, begin, end
        begin = end


def _responses(stream):
    """(body, [(length of the body so far, bytes of the stream so far)], byte after the last) of each response."""
    begin = 0
    while head := _head(stream.data, begin):
        position, _, headers = head
        body, pieces = bytearray(), []
        if headers.get("transfer-encoding", "") != "chunked":
            end = position + int(headers.get("content-length", 0))
            body += stream.data[position:end]
            pieces.append((len(body), end))
        else:
            size = None
            while size != 0:
                line_end = stream.data.find(b"\r\n", position)
                if line_end < 0:
                    return
                size = int(bytes(stream.data[position:line_end]).split(b";")[0], 16)
                body += stream.data[line_end + 2:line_end + 2 + size]
                position = line_end + 2 + size + 2
                pieces.append((len(body), position - 2))
            end = position
        if end > len(stream.data):
            return
        yield body, pieces, end
        begin = end


def _events(body):
    """(byte after the event, its data as JSON) of each event but [DONE]."""
    for found in re.finditer(rb"data: (.*?)\r?\n\r?\n", body):
        if found.group(1) != b"[DONE]":
            yield found.end(), json.loads(found.group(1))


def _has_content(event):
    return any((choice.get("delta") or {}).get("content") or choice.get("text") for choice in event.get("choices", []))


def read_exchanges(file, port):
    """The generation requests to `port` that were answered to their end, in the order of sending."""
    connections = {}
    for when, source, destination, seq, is_syn, payload in read_packets(file):
        if port in (source, destination):
            client = source if destination == port else destination
            connections.setdefault(client, (Stream(), Stream()))[source == port].add(when, seq, payload, is_syn)
    exchanges = []
    for sent, received in connections.values():
        is_first = True
        for (line, begin, end), (body, pieces, answer_end) in zip(_requests(sent), _responses(received)):
            if line.startswith("POST /v1/") and b"data: " in body:
                content, num_tokens = [], None
                for event_end, event in _events(body):
                    if _has_content(event):
                        raw_end = next(raw for length, raw in pieces if length >= event_end)
                        content.append(received.when(raw_end - 1))
                    if event.get("usage"):
                        num_tokens = event["usage"]["completion_tokens"]
                exchanges.append(Exchange(sent.when(begin), sent.when(end - 1), content,
                                          len(content) if num_tokens is None else num_tokens,
                                          received.when(answer_end - 1), is_first))
            is_first = False
    return sorted(exchanges, key=lambda exchange: exchange.first_sent)


def turnarounds(exchanges, concurrency):
    """How long a closed loop takes from the end of an answer to the request that takes its place."""
    ended = sorted(exchange.ended for exchange in exchanges)
    return [exchange.first_sent - end for exchange, end in zip(exchanges[concurrency:], ended)]
