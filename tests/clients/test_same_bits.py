"""The law (design decision 3): the same greedy tokens and the same logprobs, to the last bit, alone, in a batch, with step budgets of 7
and 4096, with one and two threads, in other page sizes, under preemption, and next to a storm of cancelled requests."""

import concurrent.futures
import contextlib
import json
import random
import threading

import httpx
import pytest

from server_process import ROOT, server

MODELS = ["models/demo", "models/demo-w8a8", "tests/data/golden/checkpoints/a-dense", "tests/data/golden/checkpoints/b-moe-mtp",
          "tests/data/golden/checkpoints/d2-dense-ascend-static"]
VARIANTS = {
    "budget 7": ["--max-num-batched-tokens", "7", "--max-num-seqs", "4"],
    "budget 4096": ["--max-num-batched-tokens", "4096"],
    "one thread": ["--num-threads", "1"],
    "page 16": ["--block-size", "16"],
    "page 128": ["--block-size", "128"],
    "priority": ["--scheduling-policy", "priority"],
    # 22 pages of 16 tokens for 8 sequences that want up to 19 each.
    "preemption": ["--max-model-len", "320", "--block-size", "16", "--num-gpu-blocks-override", "22", "--max-num-seqs", "8"],
}
# Only for checkpoints with a draft layer.
DRAFTS = '{"method": "qwen3_5_mtp", "num_speculative_tokens": %d, "draft_depth": "fixed"}'
DRAFT_VARIANTS = {
    "one draft": ["--speculative-config", DRAFTS % 1],
    "three drafts": ["--speculative-config", DRAFTS % 3],
    "fifteen drafts": ["--speculative-config", DRAFTS % 15],
    "measured drafts": ["--speculative-config.method", "mtp", "--speculative-config.num_speculative_tokens", "3"],
}
DRAFT_VARIANTS |= {f"three drafts, {name}": VARIANTS[name] + ["--speculative-config", DRAFTS % 3]
                   for name in ("budget 7", "one thread", "page 128", "preemption")}
SEED = 20261201


def requests(model):
    """Prompts as token ids, so that every model has some; greedy and sampled, with logprobs."""
    rng = random.Random(SEED)
    config = json.loads((ROOT / model / "config.json").read_text())
    vocabulary = config.get("text_config", config)["vocab_size"] - 80
    for i in range(10):
        body = {"prompt": [rng.randrange(vocabulary) for _ in range(rng.choice([1, 2, 17, 63, 130, 230]))], "max_tokens": 40, "logprobs": 3,
                "ignore_eos": True, "return_token_ids": True, "model": "m", "temperature": 0}
        if i % 3 == 1:
            body |= {"temperature": 0.8, "seed": i, "top_p": 0.9, "presence_penalty": 0.5}
        if i % 5 == 0:
            body |= {"prompt_logprobs": 2}
        yield body


def ask(client, body):
    reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"], choice.get("prompt_logprobs")


@contextlib.contextmanager
def client_of(model, *arguments):
    with server(model, "--served-model-name", "m", "--max-model-len", "1024", *arguments) as running:
        with httpx.Client(base_url=running.url, timeout=300, limits=httpx.Limits(max_connections=100)) as client:
            yield client


@pytest.fixture(scope="module", params=MODELS)
def alone(request):
    """One request at a time on the default server: what every other run must equal."""
    with client_of(request.param) as client:
        return request.param, [ask(client, body) for body in requests(request.param)]


@pytest.mark.parametrize("variant", VARIANTS | DRAFT_VARIANTS)
def test_same_bits_in_a_batch(alone, variant):
    model, want = alone
    arguments = (VARIANTS | DRAFT_VARIANTS)[variant]
    config = json.loads((ROOT / model / "config.json").read_text())
    if variant in DRAFT_VARIANTS and not config.get("text_config", config).get("mtp_num_hidden_layers"):
        pytest.skip("the checkpoint has no draft layer")
    with client_of(model, *arguments) as client, concurrent.futures.ThreadPoolExecutor(16) as pool:
        neighbours = [pool.submit(long_neighbour, client, n) for n in range(3)] if "preemption" in variant else []
        got = list(pool.map(lambda body: ask(client, body), requests(model)))
        for future in neighbours:
            future.result()
        if neighbours:
            metrics = client.get("/metrics").text
            preemptions = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("vllm:num_preemptions_total")]
            assert preemptions and preemptions[0] > 0, "the test did not preempt anything"
        if variant in DRAFT_VARIANTS:
            accepted = [float(line.split()[-1]) for line in client.get("/metrics").text.splitlines()
                        if line.startswith("vllm:spec_decode_num_accepted_tokens_total")]
            assert accepted and accepted[0] > 0, "the test did not accept any draft"
    for i, (g, w) in enumerate(zip(got, want)):
        assert g == w, f"request {i} differs with {variant} (seed {SEED})"


def long_neighbour(client, n):
    """One request of four answers of 300 tokens: they arrive together and each wants most of the small cache."""
    body = {"prompt": [n + 1], "max_tokens": 300, "ignore_eos": True, "n": 4, "temperature": 1.0, "seed": n, "model": "m"}
    assert client.post("/v1/completions", json=body).status_code == 200


def test_same_bits_among_cancelled_neighbours(alone):
    model, want = alone
    stop = threading.Event()

    def storm(client, seed):
        rng = random.Random(seed)
        while not stop.is_set():
            body = {"prompt": [rng.randrange(500) for _ in range(rng.randrange(1, 200))], "max_tokens": 200, "ignore_eos": True, "stream": True, "model": "m"}
            with contextlib.suppress(httpx.HTTPError), client.stream("POST", "/v1/completions", json=body) as reply:
                for _ in zip(range(rng.randrange(0, 6)), reply.iter_lines()):
                    pass

    with client_of(model, "--max-num-seqs", "16", "--max-num-batched-tokens", "64") as client, concurrent.futures.ThreadPoolExecutor(16) as pool:
        storms = [pool.submit(storm, client, SEED + n) for n in range(6)]
        try:
            got = list(pool.map(lambda body: ask(client, body), requests(model)))
        finally:
            stop.set()
        for future in storms:
            future.result()
    assert got == want, f"seed {SEED}"
