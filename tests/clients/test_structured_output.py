"""Structured output and forced tool calls: what comes back is valid whatever the model would have said. High temperatures make a demo
model say anything at all; the grammar has to hold then too."""

import concurrent.futures
import json
import re

import openai
import pytest

from server_process import server

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                                           "city": {"enum": ["Warsaw", "Lima", "Oslo"]}}, "required": ["name", "age", "city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
             "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
             "required": ["city", "unit"]}}},
         {"type": "function", "function": {"name": "now"}}]
QUESTION = [{"role": "user", "content": "Give a JSON object for Finn, aged 40, who lives in Warsaw."}]


@pytest.fixture(scope="module")
def client():
    with server("models/demo", "--served-model-name", "demo", "--max-model-len", "2048", "--enable-auto-tool-choice", "--tool-call-parser",
                "qwen3_coder", "--reasoning-parser", "qwen3") as running:
        with openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
            yield client


def ask(client, thinks=False, **more):
    body = {"chat_template_kwargs": {"enable_thinking": thinks}, **more.pop("extra_body", {})}
    return client.chat.completions.create(**{"model": "demo", "messages": QUESTION, "temperature": 0, "max_tokens": 400, "extra_body": body,
                                             **more})


def is_valid(text):
    value = json.loads(text)
    return (list(value) == ["name", "age", "city"] and isinstance(value["name"], str) and len(value["name"]) <= 20 and
            type(value["age"]) is int and 0 <= value["age"] <= 150 and value["city"] in ("Warsaw", "Lima", "Oslo"))


def response_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}


@pytest.mark.parametrize("thinks", [False, True])
def test_schema_keeps_a_right_answer(client, thinks):
    choice = ask(client, thinks, response_format=response_format(SCHEMA)).choices[0]
    assert json.loads(choice.message.content) == {"name": "Finn", "age": 40, "city": "Warsaw"}
    assert choice.finish_reason == "stop" and bool(choice.message.reasoning) == thinks


@pytest.mark.parametrize("thinks", [False, True])
def test_schema_holds_at_any_temperature(client, thinks):
    def one(seed):
        return ask(client, thinks, response_format=response_format(SCHEMA), temperature=3, seed=seed, max_tokens=600,
                   extra_body={"thinking_token_budget": 12}).choices[0]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        choices = list(pool.map(one, range(24)))
    finished = [choice for choice in choices if choice.finish_reason == "stop"]
    assert len(finished) >= 20
    assert all(is_valid(choice.message.content) for choice in finished)
    assert len({choice.message.content for choice in finished}) > 1  # it was not the greedy answer each time


def test_stream_is_the_whole(client):
    fields = {"response_format": response_format(SCHEMA), "temperature": 2, "seed": 5}
    whole = ask(client, **fields).choices[0]
    chunks = list(ask(client, stream=True, **fields))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.message.content


def test_json_object_white_space_is_bounded(client):
    for seed in range(8):
        text = ask(client, response_format={"type": "json_object"}, temperature=3, seed=seed, max_tokens=200).choices[0].message.content
        assert text.startswith("{")
        assert not re.search(r"\s{33}", re.sub(r'"(?:[^"\\]|\\.)*"?', '""', text))


@pytest.mark.parametrize("structured,pattern", [
    ({"regex": r"[a-c]{3}-\d+"}, r"[a-c]{3}-\d+"),
    ({"choice": ["yes", "no", "perhaps"]}, "yes|no|perhaps"),
    ({"grammar": 'root ::= "SELECT " col ("," col)* " FROM t"\ncol ::= "a" | "b"'}, r"SELECT [ab](,[ab])* FROM t"),
    ({"json": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}, "disable_any_whitespace": True},
     r"\[(true|false),(true|false)\]"),
    ({"structural_tag": {"structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}], "triggers": ["<n>"]}},
     r"(?s)((?!<n>).)*(<n>-?\d+</n>((?!<n>).)*)*"),
])
def test_other_kinds(client, structured, pattern):
    for temperature in (0, 2):
        choice = ask(client, extra_body={"structured_outputs": structured}, temperature=temperature, seed=3, max_tokens=120).choices[0]
        if choice.finish_reason == "stop":
            assert re.fullmatch(pattern, choice.message.content or ""), choice.message.content
    completion = client.completions.create(model="demo", prompt="x", max_tokens=120, temperature=1, seed=1, extra_body={"structured_outputs": structured})
    if completion.choices[0].finish_reason == "stop":
        assert re.fullmatch(pattern, completion.choices[0].text)


def test_guided_fields_and_text_format(client):
    assert ask(client, extra_body={"guided_choice": ["left", "right"]}).choices[0].message.content in ("left", "right")
    plain = ask(client).choices[0].message.content
    assert ask(client, response_format={"type": "text"}).choices[0].message.content == plain


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_forced_calls_fit_their_schema(client, choice, thinks):
    for seed in range(6):
        fields = {"tools": TOOLS, "tool_choice": choice, "temperature": 2, "seed": seed, "max_tokens": 500,
                  "extra_body": {"thinking_token_budget": 12}}
        answer = ask(client, thinks, **fields).choices[0]
        if answer.finish_reason == "length":
            continue
        assert answer.message.tool_calls and answer.message.content is None
        assert bool(answer.message.reasoning) == thinks
        assert answer.finish_reason == ("tool_calls" if choice == "required" else "stop")
        for call in answer.message.tool_calls:
            arguments = json.loads(call.function.arguments)
            if call.function.name == "now":
                assert choice == "required" and arguments == {}
                continue
            assert call.function.name == "get_weather" and arguments["unit"] in ("C", "F") and isinstance(arguments["city"], str)
            assert type(arguments.get("days", 0)) is int
        streamed = {}
        for chunk in ask(client, thinks, stream=True, **fields):
            for call in chunk.choices[0].delta.tool_calls or []:
                streamed[call.index] = streamed.get(call.index, "") + (call.function.arguments or "")
        assert [streamed[i] for i in sorted(streamed)] == [call.function.arguments for call in answer.message.tool_calls]


def test_thinking_budget(client):
    answer = ask(client, True, extra_body={"thinking_token_budget": 2})
    assert answer.usage.completion_tokens_details.reasoning_tokens == 2
    assert answer.choices[0].message.content
    assert ask(client, True, extra_body={"thinking_token_budget": 0}).choices[0].message.reasoning is None


@pytest.mark.parametrize("fields,param", [
    ({"structured_outputs": {"regex": "["}}, "structured_outputs.regex"),
    ({"structured_outputs": {"grammar": "root ::= root"}}, "structured_outputs.grammar"),
    ({"structured_outputs": {"json": {"type": "nosuch"}}}, "structured_outputs.json"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema"),
    ({"structured_outputs": {"grammar": "root ::= " + "(" * 60000}}, "structured_outputs.grammar"),
])
def test_what_cannot_be_is_a_400(client, fields, param):
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as raised:
            ask(client, extra_body=fields, stream=stream)
        assert raised.value.param == param
    assert ask(client, extra_body={"structured_outputs": {}}).choices
