"""A small asynchronous HTTP/1.1 client: JSON posts, streamed or not. Only Python's standard library."""
import asyncio
import json
import urllib.parse


class Answer:
    """What one generation gave, in a form that two runs can be compared by."""

    def __init__(self):
        self.status = None
        self.texts = {}          # choice index -> text
        self.finish_reasons = {}
        self.logprobs = {}
        self.token_ids = {}
        self.usage = None
        self.error = None
        self.done = False        # the stream said [DONE], or the body was complete

    def comparable(self):
        usage = dict(self.usage or {})
        usage.pop("prompt_tokens_details", None)  # depends on the prefix cache, as it should
        return (self.status, self.texts, self.finish_reasons, self.logprobs, self.token_ids, usage, self.error, self.done)

    def _take_choice(self, choice):
        index = choice["index"]
        part = choice.get("delta") or choice.get("message") or {}
        text = choice.get("text") or part.get("content") or ""
        self.texts[index] = self.texts.get(index, "") + text
        if choice.get("finish_reason"):
            assert index not in self.finish_reasons, "two finish reasons"
            self.finish_reasons[index] = choice["finish_reason"]
        if choice.get("logprobs"):
            for key, values in choice["logprobs"].items():
                if values:
                    self.logprobs.setdefault((index, key), []).extend(values)
        if choice.get("token_ids"):
            self.token_ids.setdefault(index, []).extend(choice["token_ids"])

    def take(self, body):
        if "error" in body:
            self.error = body["error"]
            return
        for choice in body.get("choices", []):
            self._take_choice(choice)
        if body.get("usage"):
            self.usage = body["usage"]


async def _read_head(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict((k.lower(), v.strip()) for k, v in (line.split(":", 1) for line in head[1:] if line))
    return int(head[0].split()[1]), headers


async def _read_chunks(reader):
    while True:
        size = int((await reader.readline()).strip(), 16)
        data = await reader.readexactly(size)
        await reader.readexactly(2)
        if size == 0:
            return
        yield data


async def post(url, path, body, on_event=None, headers=None, context=None):
    """Posts one generation request and reads it to its end. `on_event` is called for every streamed event; with an SSL
    `context` it speaks HTTPS."""
    address = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=context)
    try:
        data = json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", f"Host: {address.netloc}", "Content-Type: application/json",
                 f"Content-Length: {len(data)}", "Connection: close"]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        answer = Answer()
        answer.status, head = await _read_head(reader)
        if head.get("content-type", "").startswith("text/event-stream"):
            await _read_stream(reader, head, answer, on_event)
        else:
            raw = await reader.readexactly(int(head["content-length"])) if "content-length" in head else b"".join(
                [chunk async for chunk in _read_chunks(reader)])
            answer.take(json.loads(raw))
            answer.done = True
        return answer
    finally:
        writer.close()


async def _read_stream(reader, head, answer, on_event):
    buffered = b""
    async for chunk in _read_chunks(reader):
        buffered += chunk
        while b"\n\n" in buffered:
            event, buffered = buffered.split(b"\n\n", 1)
            if event.startswith(b":"):
                continue
            assert event.startswith(b"data: "), event
            assert not answer.done, "an event after [DONE]"
            if event[6:] == b"[DONE]":
                answer.done = True
            else:
                answer.take(json.loads(event[6:]))
            if on_event:
                on_event(answer)
    assert not buffered, "the stream ends in half an event"
