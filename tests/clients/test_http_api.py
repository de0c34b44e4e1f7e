"""The API byte by byte, where client libraries would hide things: events, lengths, bad bodies, tokenising, metrics."""

import json
import random
import socket
import urllib.parse

import httpx
import pytest


@pytest.fixture(scope="module")
def client(base_url):
    with httpx.Client(base_url=base_url, timeout=60) as client:
        yield client


def complete(client, **body):
    return client.post("/v1/completions", json={"temperature": 0, **body})


def events(client, path, **body):
    with client.stream("POST", path, json={"temperature": 0, "stream": True, **body}) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        text = b"".join(reply.iter_raw()).decode("utf-8")  # raises on a broken character
    parts = text.split("\n\n")
    assert parts.pop() == "" and all(part.startswith("data: ") and "\n" not in part for part in parts)
    return [part[6:] for part in parts]


def error_of(reply, status):
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["code"] == status
    return error


def test_chat_events_in_order(client):
    body = {"messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 8, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    all_events = events(client, "/v1/chat/completions", **body)
    assert all_events[-1] == "[DONE]" and all_events.count("[DONE]") == 1
    parsed = [json.loads(event) for event in all_events[:-1]]
    assert parsed[0]["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]
    assert parsed[-1]["choices"] == []
    assert sum(event["choices"][0]["finish_reason"] is not None for event in parsed[:-1]) == 1
    assert parsed[-2]["choices"][0]["finish_reason"] is not None
    for event in parsed[1:-2]:
        assert event["choices"][0]["delta"]["content"], "an event without anything"
    counts = [event["usage"]["completion_tokens"] for event in parsed]
    assert counts == sorted(counts)


def test_usage_counts_tokens(client):
    for stream in (False, True):
        body = {"prompt": "Hello", "max_tokens": 100, "ignore_eos": True, "n": 2, "temperature": 1, "stream_options": {"include_usage": True}}
        if stream:
            usage = json.loads(events(client, "/v1/completions", **body)[-2])["usage"]
        else:
            del body["stream_options"]
            usage = complete(client, **body).json()["usage"]
        assert usage["completion_tokens"] == 200
        assert usage["total_tokens"] == usage["prompt_tokens"] + 200


def test_events_are_valid_utf8_whatever_is_sampled(client):
    rng = random.Random(20261201)
    for seed in range(10):
        prompt = [rng.randrange(1000) for _ in range(20)]
        body = {"prompt": prompt, "max_tokens": 60, "temperature": 5.0, "seed": seed, "ignore_eos": True, "skip_special_tokens": False}
        streamed = "".join(json.loads(event)["choices"][0]["text"] for event in events(client, "/v1/completions", **body)[:-1])
        assert streamed == complete(client, **body).json()["choices"][0]["text"], f"seed {seed}"


def test_stop_string_that_never_comes_loses_nothing(client):
    body = {"prompt": "Once", "max_tokens": 20, "ignore_eos": True, "return_token_ids": True, "skip_special_tokens": False}
    whole = complete(client, **body).json()["choices"][0]
    text = client.post("/detokenize", json={"tokens": whole["token_ids"]}).json()["prompt"]
    streamed = events(client, "/v1/completions", **body, stop=["never-occurring-long-string"])
    assert "".join(json.loads(event)["choices"][0]["text"] for event in streamed[:-1]) == text == whole["text"]


def test_min_tokens_protects_its_part(client):
    body = {"prompt": "Once upon", "max_tokens": 60, "ignore_eos": True, "min_tokens": 10}
    free = complete(client, **body).json()["choices"][0]["text"]
    letter = max(set(free), key=free.count)
    answer = complete(client, **body, stop=letter).json()
    assert answer["usage"]["completion_tokens"] > 10
    assert free.startswith(answer["choices"][0]["text"]) and answer["choices"][0]["stop_reason"] == letter


def test_lengths(client):
    ids = [5] * 8
    assert complete(client, prompt=ids, max_tokens=2040, stop_token_ids=list(range(1000))).status_code == 200
    for stream in (False, True):
        error = error_of(complete(client, prompt=ids, max_tokens=2041, stream=stream), 400)
        assert all(number in error["message"] for number in ("2048", "8", "2041")) and "maximum context length" in error["message"]
    assert "reduce the length" in error_of(complete(client, prompt=[5] * 2048), 400)["message"]
    assert complete(client, prompt=[5] * 2047).json()["usage"]["completion_tokens"] == 1
    assert complete(client, prompt=ids, ignore_eos=True).json()["usage"]["completion_tokens"] == 16
    assert complete(client, prompt=[5] * 5000, truncate_prompt_tokens=100, max_tokens=1).json()["usage"]["prompt_tokens"] == 100


@pytest.mark.parametrize("prompt", ["", [], [[]], [""], ["", "a"]])
@pytest.mark.parametrize("stream", [False, True])
def test_empty_prompts(client, prompt, stream):
    assert error_of(complete(client, prompt=prompt, stream=stream), 400)["param"] == "prompt"


NUMBERS = ["n", "top_k", "max_tokens", "min_tokens", "seed", "logprobs", "prompt_logprobs", "truncate_prompt_tokens", "priority"]
FLOATS = ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"]


@pytest.mark.parametrize("value", ["1000000000000000000000", "1e30", "1.5", "\"5\"", "NaN", "Infinity", "1e999", "[1]", "{}", "true"])
def test_bad_numbers_are_400_and_nothing_breaks(client, value):
    for field in NUMBERS + (FLOATS if value not in ("1.5", "1000000000000000000000", "1e30") else []):
        reply = client.post("/v1/completions", content=f'{{"prompt":"a","{field}":{value}}}', headers={"content-type": "application/json"})
        error_of(reply, 400)
    assert complete(client, prompt="1", max_tokens=1).status_code == 200


def test_bad_bodies(client):
    def post(content):
        return client.post("/v1/completions", content=content, headers={"content-type": "application/json"})

    for content in (b"", b"{", b"[1]", b'{"prompt":"\xff\xfe"}', b'{"prompt":"\\ud800"}', b"[" * 1_000_000, b'{"a":' * 100_000):
        assert error_of(post(content), 400)["type"] == "Bad Request"
    assert post(b'{"prompt":"a\\u0000b","max_tokens":1}').status_code == 200
    assert error_of(client.post("/v1/completions", content=b'{"prompt":"a"}', headers={"content-type": "text/plain"}), 400)
    assert client.get("/health").status_code == 200


def test_tokenize_and_back(client):
    text = "Hello, wörld! 你好 \U0001f642 <|im_start|>"
    tokens = client.post("/tokenize", json={"prompt": text, "return_token_strs": True}).json()
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"]) and tokens["max_model_len"] == 2048
    assert client.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": text}
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    joined = [{"role": "user", "content": "ab"}]
    assert client.post("/tokenize", json={"messages": messages}).json() == client.post("/tokenize", json={"messages": joined}).json()


def test_null_content_is_empty_content(client):
    def tokens(content):
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": content, "tool_calls": [call]}, {"role": "tool", "content": "r"}]
        return client.post("/tokenize", json={"messages": messages}).json()["tokens"]

    assert tokens(None) == tokens("")


def test_prompt_logprobs_agree_with_echo(client):
    body = {"prompt": "The quick brown fox", "max_tokens": 1}
    listed = complete(client, **body, prompt_logprobs=2).json()["choices"][0]["prompt_logprobs"]
    echoed = complete(client, **body, echo=True, logprobs=2, return_token_ids=True).json()["choices"][0]
    assert listed[0] is None
    for position, id, logprob in list(zip(listed, echoed["prompt_token_ids"], echoed["logprobs"]["token_logprobs"]))[1:]:
        assert position[str(id)]["logprob"] == logprob
        assert next(iter(position)) == str(id)
        assert len(position) in (2, 3)


def test_metrics_are_prometheus_text(client):
    complete(client, prompt="a", max_tokens=3, ignore_eos=True)
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = [line for line in reply.text.splitlines() if line and not line.startswith("#")]
    for line in samples:
        float(line.rsplit(" ", 1)[1])
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:num_preemptions_total",
                 "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total", "vllm:time_to_first_token_seconds_bucket",
                 "vllm:inter_token_latency_seconds_sum", "vllm:e2e_request_latency_seconds_count", "vllm:request_queue_time_seconds_count",
                 "vllm:request_prefill_time_seconds_count", "vllm:request_decode_time_seconds_count", "vllm:request_prompt_tokens_count",
                 "vllm:request_params_max_tokens_count", "vllm:cache_config_info"):
        assert any(line.startswith(name + "{") and 'model_name="demo"' in line and 'engine="0"' in line for line in samples), name


def test_raw_garbage_on_the_socket(base_url, client):
    address = urllib.parse.urlparse(base_url)
    for data in (b"\x16\x03\x01\x00\xa5", b"GET / HTTP/1.1\r\nbroken\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\ncontent-length: x\r\n\r\n"):
        with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
            connection.sendall(data + b"\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400 Bad Request")
    assert client.get("/health").status_code == 200


def test_unknown_routes_and_methods(client):
    assert error_of(client.get("/v1/nothing"), 404)["type"] == "NotFoundError"
    assert error_of(client.post("/v1/embeddings", json={"input": "a"}), 404)
    assert error_of(client.get("/v1/completions"), 405)
    assert client.request("OPTIONS", "/v1/completions").status_code == 204
