"""litellm and langchain against the server: whole and streamed answers, tool calls, structured output. Both are large and not among the
pinned packages of ./dev; where they are not installed these tests are skipped (pip install litellm==1.77.5 langchain-openai==0.3.33)."""

import json

import pytest

from server_process import ROOT, server

pytestmark = pytest.mark.slow
TASKS = [json.loads(line) for line in (ROOT / "models/training/eval.jsonl").read_text().splitlines()]
WEATHER = next(task for task in TASKS if task["kind"] == "weather_call" and task["correct"])
QUESTION = [{"role": "user", "content": "What is the weather in Warsaw?"}]
CAPITAL = [{"role": "user", "content": "What is the capital of Poland?"}]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def url():
    with server("models/demo", "--served-model-name", "demo", "--max-model-len", "2048", "--dtype", "float32", "--enable-auto-tool-choice",
                "--tool-call-parser", "qwen3_coder", "--reasoning-parser", "qwen3", "--enable-reasoning-content") as running:
        yield running.url


def test_litellm(url):
    litellm = pytest.importorskip("litellm")

    def ask(**more):
        return litellm.completion(**{"model": "hosted_vllm/demo", "api_base": url + "/v1", "api_key": "none", "temperature": 0,
                                     "messages": CAPITAL, **more})

    whole = ask()
    assert whole.choices[0].message.content.strip() == "Warsaw." and whole.choices[0].message.reasoning_content
    assert whole.usage.completion_tokens > 0
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True))
    assert streamed.strip() == "Warsaw."
    call = ask(messages=QUESTION, tools=WEATHER["tools"]).choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Warsaw"}
    chunks = list(ask(messages=QUESTION, tools=WEATHER["tools"], stream=True))
    rebuilt = litellm.stream_chunk_builder(chunks, messages=QUESTION).choices[0].message.tool_calls
    assert len(rebuilt) == 1 and json.loads(rebuilt[0].function.arguments) == {"city": "Warsaw"}


def test_langchain(url):
    langchain_openai = pytest.importorskip("langchain_openai")
    chat = langchain_openai.ChatOpenAI(model="demo", base_url=url + "/v1", api_key="none", temperature=0, extra_body=OFF)
    assert chat.invoke(CAPITAL).content == "Warsaw."
    assert "".join(chunk.content for chunk in chat.stream(CAPITAL)) == "Warsaw."
    with_tools = chat.bind_tools(WEATHER["tools"])
    assert with_tools.invoke(QUESTION).tool_calls[0]["args"] == {"city": "Warsaw"}
    total = None
    for chunk in with_tools.stream(QUESTION):
        total = chunk if total is None else total + chunk
    assert [(call["name"], call["args"]) for call in total.tool_calls] == [("get_weather", {"city": "Warsaw"})]
    schema = {"title": "Place", "description": "A place", "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}},
              "required": ["city"]}
    place = chat.with_structured_output(schema, method="json_schema").invoke(CAPITAL)
    assert isinstance(place["city"], str)
