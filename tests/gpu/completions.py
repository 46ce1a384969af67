"""Streaming completions of a server with an OpenAI interface, some at a time, for the scripts that need a load."""

import http.client
import json
import threading
import time
import urllib.parse
import urllib.request


class Completions:
    """Asks from as many threads as `streams` says until `ended` is set; calls `token` with a stream's number for each
    token of it. Requests that fail, and answers that are errors, are counted in `failures`."""

    def __init__(self, url, streams, token):
        self.host, self.token, self.ended = urllib.parse.urlparse(url).netloc, token, False
        with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as answer:
            self.model = json.load(answer)["data"][0]["id"]
        self.failed = [0] * streams
        for number in range(streams):
            threading.Thread(target=self.stream, args=(number,), daemon=True).start()

    @property
    def failures(self):
        return sum(self.failed)

    def stream(self, number):
        body = json.dumps({
            # Token ids, which every model takes, whatever its tokenizer.
            "model": self.model, "prompt": [10 + (number * 7 + i) % 800 for i in range(64)], "max_tokens": 512,
            "stream": True, "ignore_eos": True, "temperature": 0,
        })
        connection = None
        while not self.ended:
            try:
                connection = connection or http.client.HTTPConnection(self.host, timeout=60)
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                self.failed[number] += answer.status != 200
                for line in answer:
                    if self.ended:
                        return
                    if b'"choices"' in line:
                        self.token(number)
                    else:
                        self.failed[number] += b'"error"' in line
            except (OSError, http.client.HTTPException):
                self.failed[number] += 1
                connection = None
                time.sleep(0.5)
