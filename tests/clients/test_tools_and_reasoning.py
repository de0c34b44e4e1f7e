"""Reasoning and tool calls with the official openai client, whole and streamed, on the demo model's own tool tasks."""

import json

import openai
import pytest

from server_process import ROOT, server

PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder", "--reasoning-parser", "qwen3")
TASKS = [json.loads(line) for line in (ROOT / "models/training/eval.jsonl").read_text().splitlines()]
CALLS = [task for task in TASKS if task["kind"] in ("weather_call", "calc_call") and task["correct"]]
THOUGHTS = [task for task in TASKS if task["enable_thinking"] and task["correct"] and task["kind"] in ("capital", "biggest", "weather_answer")]
WEATHER = next(task for task in CALLS if task["kind"] == "weather_call")
CAPITAL = next(task for task in THOUGHTS if task["kind"] == "capital")


@pytest.fixture(scope="module")
def client():
    with server("models/demo", "--served-model-name", "demo", "--max-model-len", "2048", "--dtype", "float32", *PARSERS) as running:
        with openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
            yield client


def ask(client, task, **more):
    body = {"chat_template_kwargs": {"enable_thinking": task["enable_thinking"]}, **more.pop("extra_body", {})}
    fields = {"model": "demo", "messages": task["messages"], "temperature": 0, "max_tokens": 256, "extra_body": body, **more}
    if task["tools"]:
        fields.setdefault("tools", task["tools"])
    return client.chat.completions.create(**fields)


def joined(stream):
    """A stream put together as a client does; what must hold of every stream is checked on the way."""
    answer = {"reasoning": "", "content": "", "calls": [], "finish": None, "usage": None}
    for number, chunk in enumerate(stream):
        answer["usage"] = chunk.usage or answer["usage"]
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        assert answer["finish"] is None, "something after the finish"
        assert (choice.delta.role == "assistant") == (number == 0)
        answer["reasoning"] += getattr(choice.delta, "reasoning", None) or ""
        answer["content"] += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            if call.index == len(answer["calls"]):
                assert call.id and call.type == "function" and call.function.name and call.function.arguments == ""
                answer["calls"].append({"id": call.id, "name": call.function.name, "arguments": ""})
            else:
                assert call.index == len(answer["calls"]) - 1
                assert call.id is None and call.type is None and call.function.name is None
            answer["calls"][-1]["arguments"] += call.function.arguments
        answer["finish"] = choice.finish_reason
    return answer


def parts_of(reference, thinks):
    """What the reference says, split by hand."""
    text = reference.removesuffix("<|im_end|>")
    reasoning, _, rest = text.partition("</think>") if thinks else ("", "", text)
    return reasoning, rest


@pytest.mark.parametrize("task", CALLS, ids=lambda task: task["messages"][-1]["content"][:40])
def test_calls_are_the_reference_calls(client, task):
    reasoning, rest = parts_of(task["reference"], task["enable_thinking"])
    name = rest.split("<function=")[1].split(">")[0]
    arguments = {part.split(">")[0]: part.split(">\n", 1)[1].split("\n</parameter>")[0] for part in rest.split("<parameter=")[1:]}
    for key, value in arguments.items():
        properties = next(tool["function"] for tool in task["tools"] if tool["function"]["name"] == name)["parameters"]["properties"]
        arguments[key] = int(value) if properties[key]["type"] == "integer" else value
    whole = ask(client, task).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content is None
    assert (whole.message.reasoning or "") == reasoning
    [call] = whole.message.tool_calls
    assert call.id.startswith("call_") and call.type == "function" and call.function.name == name
    assert json.loads(call.function.arguments) == arguments
    streamed = joined(ask(client, task, stream=True))
    assert (streamed["reasoning"], streamed["content"], streamed["finish"]) == (reasoning, "", "tool_calls")
    [call_again] = streamed["calls"]
    assert (call_again["name"], call_again["arguments"]) == (name, call.function.arguments)


@pytest.mark.parametrize("task", THOUGHTS, ids=lambda task: task["messages"][-1]["content"][:40])
def test_thoughts_are_split_off(client, task):
    reasoning, rest = parts_of(task["reference"], True)
    whole = ask(client, task)
    message = whole.choices[0].message
    # The end tag and the thoughts' own tokens; white space around an answer is the tool parser's to trim.
    assert (message.reasoning, message.content.strip()) == (reasoning, rest.strip())
    details = whole.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens < whole.usage.completion_tokens
    streamed = joined(ask(client, task, stream=True, stream_options={"include_usage": True}))
    assert (streamed["reasoning"], streamed["content"]) == (message.reasoning, message.content)
    assert streamed["usage"] == whole.usage


def test_a_conversation_with_a_tool(client):
    question = [{"role": "user", "content": "What is the weather in Warsaw?"}]
    task = {**WEATHER, "messages": question, "enable_thinking": True}
    message = ask(client, task).choices[0].message
    city = json.loads(message.tool_calls[0].function.arguments)["city"]
    history = question + [message.model_dump(exclude_none=True),
                          {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": '{"sky": "snowy", "degrees": 2}'}]
    answer = ask(client, {**task, "messages": history}).choices[0]
    assert answer.finish_reason == "stop"
    assert "snowy" in answer.message.content and "2 degrees" in answer.message.content and city in answer.message.content


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_cut_thought_is_no_answer(client, max_tokens):
    whole = ask(client, CAPITAL, max_tokens=max_tokens).choices[0]
    assert whole.message.content is None and whole.message.reasoning and whole.finish_reason == "length"
    chunks = list(ask(client, CAPITAL, max_tokens=max_tokens, stream=True))
    assert all(not chunk.choices[0].delta.content for chunk in chunks)


def test_thinking_off_gives_content_only(client):
    task = {**CAPITAL, "enable_thinking": False}
    message = ask(client, task).choices[0].message
    assert message.reasoning is None and message.content
    assert joined(ask(client, task, stream=True))["reasoning"] == ""
    off = ask(client, {**CAPITAL}, extra_body={"reasoning_effort": "none", "chat_template_kwargs": {}}).choices[0].message
    assert off.reasoning is None and off.content == message.content


def test_reasoning_can_be_left_out(client):
    message = ask(client, CAPITAL, extra_body={"include_reasoning": False}).choices[0].message
    assert message.reasoning is None and message.content


def test_choice_none_leaves_markup_in_the_content(client):
    task = {**WEATHER, "enable_thinking": True}
    message = ask(client, task, tool_choice="none").choices[0].message
    assert message.tool_calls is None and "<function=get_weather>" in message.content
    assert message.reasoning


def test_tools_need_their_flags(base_url):
    with openai.OpenAI(base_url=base_url + "/v1", api_key="none", max_retries=0) as bare:
        for stream in (False, True):
            for choice in ("auto", "required"):
                with pytest.raises(openai.BadRequestError, match="--tool-call-parser"):
                    ask(bare, WEATHER, tool_choice=choice, stream=stream)
        # Nothing is split where no parser was asked for.
        assert "</think>" in ask(bare, CAPITAL).choices[0].message.content


@pytest.mark.parametrize("parameters,status", [({"$defs": None, "type": "object"}, 200), (None, 200), ({}, 200), (True, 400), ([], 400),
                                               ({"properties": None}, 200), ({"required": "x"}, 400)])
def test_odd_schemas(client, parameters, status):
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    task = {**CAPITAL, "tools": tools}
    if status == 200:
        assert ask(client, task, max_tokens=2).choices
    else:
        with pytest.raises(openai.BadRequestError) as raised:
            ask(client, task, max_tokens=2)
        assert raised.value.param.startswith("tools.0.function.parameters")


def test_reasoning_under_both_names():
    with server("models/demo", "--served-model-name", "demo", "--max-model-len", "2048", *PARSERS, "--enable-reasoning-content") as running:
        with openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0) as client:
            message = ask(client, CAPITAL).choices[0].message
            assert message.reasoning and message.reasoning == message.reasoning_content
            deltas = [chunk.choices[0].delta for chunk in ask(client, CAPITAL, stream=True)]
            assert all(getattr(delta, "reasoning", None) == getattr(delta, "reasoning_content", None) for delta in deltas)
            assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == message.reasoning
