"""The demo model answers as the reference implementation does (models/training/eval.jsonl), over HTTP.

Greedy. The reference ran in f32; in bf16 a handful of near-ties may fall the other way: at most NEAR_TIES of the text tasks."""

import concurrent.futures
import json

import httpx
import pytest

from server_process import ROOT, server

NEAR_TIES = 3


def text_tasks():
    for line in (ROOT / "models/training/eval.jsonl").read_text().splitlines():
        task = json.loads(line)
        if task["kind"] != "picture":
            yield task


def answer_from_prompt(client, task):
    """The rendered prompt as completions input: no template between us and the reference."""
    reply = client.post("/v1/completions", json={"prompt": task["prompt"], "temperature": 0, "max_tokens": 256, "skip_special_tokens": False,
                                                 "include_stop_str_in_output": True, "model": "demo"})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


def answer_from_messages(client, task):
    body = {"messages": task["messages"], "temperature": 0, "max_tokens": 256, "model": "demo",
            "chat_template_kwargs": {"enable_thinking": task["enable_thinking"]}}
    if task["tools"]:
        body |= {"tools": task["tools"], "tool_choice": "none"}
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


def without_end(text):
    return text.removesuffix("<|im_end|>").removesuffix("<|endoftext|>")


@pytest.fixture(scope="module", params=["auto", "float32"])
def demo(request):
    with server("models/demo", "--served-model-name", "demo", "--max-model-len", "2048", "--dtype", request.param) as running:
        yield running, request.param


@pytest.mark.parametrize("ask", [answer_from_prompt, answer_from_messages])
def test_every_text_task_has_the_reference_answer(demo, ask):
    running, dtype = demo
    tasks = list(text_tasks())
    assert len(tasks) > 250
    with httpx.Client(base_url=running.url, timeout=120) as client, concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda task: ask(client, task), tasks))
    different = []
    for task, choice in zip(tasks, answers):
        got = choice.get("text") if "text" in choice else choice["message"]["content"]
        if without_end(got or "") != without_end(task["reference"]):
            different.append((task["kind"], task["reference"], got, choice["finish_reason"]))
    print(f"{dtype}: {len(different)} of {len(tasks)} differ from the reference")
    allowed = 0 if dtype == "float32" else NEAR_TIES
    assert len(different) <= allowed, different[:5]


INT8_DIFFERENT = 5  # of 279; measured 0 (Ascend) and 2 (rounded at load, where the head and the mixers are int8 too)


@pytest.mark.parametrize("arguments", [["models/demo-w8a8", "--quantization", "ascend"], ["models/demo", "--quantization", "int8"]])
def test_int8_answers_as_the_float_reference(arguments):
    tasks = list(text_tasks())
    with server(*arguments, "--served-model-name", "demo", "--max-model-len", "2048") as running:
        with httpx.Client(base_url=running.url, timeout=120) as client, concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda task: answer_from_prompt(client, task), tasks))
    different = [(task["kind"], task["reference"], choice["text"]) for task, choice in zip(tasks, answers)
                 if without_end(choice["text"]) != without_end(task["reference"])]
    print(f"{arguments}: {len(different)} of {len(tasks)} differ from the float reference")
    assert len(different) <= INT8_DIFFERENT, different[:5]
