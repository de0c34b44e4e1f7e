"""/v1/messages with the official anthropic client, /v1/responses with the official openai client, and the smaller routes."""

import json
import ssl
import subprocess
import time

import anthropic
import httpx
import openai
import pytest

from server_process import ROOT, ServerProcess, server

TASKS = [json.loads(line) for line in (ROOT / "models/training/eval.jsonl").read_text().splitlines()]
WEATHER = next(task for task in TASKS if task["kind"] == "weather_call" and task["correct"])
FUNCTION = next(tool["function"] for tool in WEATHER["tools"] if tool["function"]["name"] == "get_weather")
CITY = "Warsaw"
QUESTION = [{"role": "user", "content": f"What is the weather in {CITY}?"}]
CAPITAL = [{"role": "user", "content": "What is the capital of Poland?"}]
RESULT = '{"sky": "snowy", "degrees": 2}'
FLAGS = ("--served-model-name", "demo", "--max-model-len", "2048", "--dtype", "float32", "--enable-auto-tool-choice", "--tool-call-parser",
         "qwen3_coder", "--reasoning-parser", "qwen3", "--enable-tokenizer-info-endpoint")


@pytest.fixture(scope="module")
def running():
    env = {"VLLM_ENABLE_RESPONSES_API_STORE": "1", "VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": "k"}
    with server("models/demo", *FLAGS, env=env) as running:
        yield running


@pytest.fixture(scope="module")
def claude(running):
    with anthropic.Anthropic(base_url=running.url, api_key="k", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def openai_client(running):
    with openai.OpenAI(base_url=running.url + "/v1", api_key="k", max_retries=0, timeout=60) as client:
        yield client


ANTHROPIC_TOOL = {"name": FUNCTION["name"], "description": FUNCTION["description"], "input_schema": FUNCTION["parameters"]}
OPENAI_TOOL = {"type": "function", **FUNCTION}


def message(claude, **more):
    fields = {"model": "demo", "max_tokens": 256, "temperature": 0, "messages": CAPITAL, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    return {**fields, **more}


def test_message_with_thoughts(claude):
    answer = claude.messages.create(**message(claude))
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert answer.content[1].text == "Warsaw." and answer.stop_reason == "end_turn" and answer.role == "assistant"
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0
    plain = claude.messages.create(**message(claude, thinking={"type": "disabled"}))
    assert [block.type for block in plain.content] == ["text"]


def test_message_stream_is_the_whole(claude):
    whole = claude.messages.create(**message(claude))
    with claude.messages.stream(**message(claude)) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert [(block.type, getattr(block, "text", None) or block.thinking) for block in final.content] == \
        [(block.type, getattr(block, "text", None) or block.thinking) for block in whole.content]
    assert final.usage.output_tokens == whole.usage.output_tokens and final.stop_reason == whole.stop_reason


@pytest.mark.parametrize("streams", [False, True])
def test_message_with_a_tool(claude, streams):
    fields = message(claude, messages=QUESTION, tools=[ANTHROPIC_TOOL])
    if streams:
        with claude.messages.stream(**fields) as stream:
            answer = stream.get_final_message()
    else:
        answer = claude.messages.create(**fields)
    use = answer.content[-1]
    assert use.type == "tool_use" and use.name == "get_weather" and use.input == {"city": CITY} and answer.stop_reason == "tool_use"
    history = QUESTION + [{"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]},
                          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": RESULT}]}]
    last = claude.messages.create(**message(claude, messages=history, tools=[ANTHROPIC_TOOL]))
    assert "snowy" in last.content[-1].text and last.stop_reason == "end_turn"
    forced = claude.messages.create(**message(claude, tools=[ANTHROPIC_TOOL], tool_choice={"type": "any"}))
    assert forced.content[-1].type == "tool_use" and isinstance(forced.content[-1].input["city"], str)


def test_message_stops_and_limits(claude):
    off = {"thinking": {"type": "disabled"}}
    stopped = claude.messages.create(**message(claude, **off, stop_sequences=["saw"]))
    assert stopped.content[0].text == "War" and stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "saw"
    cut = claude.messages.create(**message(claude, **off, max_tokens=1))
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 1
    continued = claude.messages.create(**message(claude, **off, messages=CAPITAL + [{"role": "assistant", "content": "War"}]))
    assert continued.content[0].text != "Warsaw."  # the answer goes on, it does not begin anew


def test_message_errors_and_counts(claude):
    with pytest.raises(anthropic.NotFoundError) as raised:
        claude.messages.create(**message(claude, model="other"))
    assert raised.value.body["type"] == "error" and raised.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(**message(claude, messages=[{"role": "robot", "content": "x"}]))
    count = claude.messages.count_tokens(model="demo", messages=CAPITAL, system="Be brief.").input_tokens
    answer = claude.messages.create(model="demo", messages=CAPITAL, system="Be brief.", max_tokens=1)
    assert count == answer.usage.input_tokens


def test_response(openai_client):
    answer = openai_client.responses.create(model="demo", input="What is the capital of Poland?", temperature=0, max_output_tokens=100)
    assert answer.status == "completed" and answer.output_text == "Warsaw."
    assert [item.type for item in answer.output] == ["reasoning", "message"] and answer.output[0].content[0].text
    assert answer.usage.output_tokens_details.reasoning_tokens > 0
    assert openai_client.responses.retrieve(answer.id).output_text == "Warsaw."
    cut = openai_client.responses.create(model="demo", input="What is the capital of Poland?", temperature=0, max_output_tokens=1)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"


def test_response_stream_is_the_whole(openai_client):
    fields = {"model": "demo", "input": "What is the capital of Poland?", "temperature": 0, "instructions": "Answer."}
    whole = openai_client.responses.create(**fields)
    events = list(openai_client.responses.create(**fields, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    final = events[-1].response
    assert final.output_text == whole.output_text and final.usage == whole.usage
    with openai_client.responses.stream(**fields) as stream:
        assert stream.get_final_response().output_text == whole.output_text


@pytest.mark.parametrize("streams", [False, True])
def test_response_with_a_tool_goes_on(openai_client, streams):
    fields = {"model": "demo", "input": QUESTION[0]["content"], "tools": [OPENAI_TOOL], "temperature": 0}
    if streams:
        events = list(openai_client.responses.create(**fields, stream=True))
        answer = events[-1].response
        arguments = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
        assert json.loads(arguments) == {"city": CITY}
    else:
        answer = openai_client.responses.create(**fields)
    call = answer.output[-1]
    assert call.type == "function_call" and call.name == "get_weather" and json.loads(call.arguments) == {"city": CITY}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    last = openai_client.responses.create(model="demo", previous_response_id=answer.id, input=[output], tools=[OPENAI_TOOL], temperature=0)
    assert "snowy" in last.output_text and CITY in last.output_text
    items = [QUESTION[0], *[item.model_dump(exclude_none=True) for item in answer.output], output]
    assert openai_client.responses.create(model="demo", input=items, tools=[OPENAI_TOOL], temperature=0).output_text == last.output_text


def test_response_format_and_errors(openai_client):
    schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Lima"]}}, "required": ["city"]}
    answer = openai_client.responses.create(model="demo", input="x", max_output_tokens=500, extra_body={"thinking_token_budget": 4},
                                            text={"format": {"type": "json_schema", "name": "c", "schema": schema, "strict": True}})
    assert json.loads(answer.output_text)["city"] in ("Oslo", "Lima")
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.create(model="demo", input="x", previous_response_id="resp_none")
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.retrieve("resp_none")
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.cancel("resp_none")
    for fields in ({"background": True}, {"tools": [{"type": "web_search"}]}, {"truncation": "some"}):
        with pytest.raises(openai.BadRequestError):
            openai_client.responses.create(**{"model": "demo", "input": "x", **fields})


def test_smaller_routes(running):
    key = {"Authorization": "Bearer k"}
    with httpx.Client(base_url=running.url, timeout=60) as client:
        body = {"messages": CAPITAL, "temperature": 0, "max_tokens": 8, "chat_template_kwargs": {"enable_thinking": False}}
        rendered = client.post("/v1/chat/completions/render", json=body, headers=key).json()
        assert "capital of Poland" in rendered["prompt"] and len(rendered["token_ids"]) > 5
        assert client.post("/tokenize", json={"messages": CAPITAL, "chat_template_kwargs": {"enable_thinking": False}}).json()["tokens"] == \
            rendered["token_ids"]
        assert client.post("/v1/completions/render", json={"prompt": [[3], [1, 2]]}, headers=key).json()[1]["token_ids"] == [1, 2]
        assert client.post("/invocations", json=body).json()["object"] == "chat.completion"
        assert client.post("/invocations", json={"prompt": "a", "max_tokens": 1}).json()["object"] == "text_completion"
        assert client.post("/invocations", json={"x": 1}).status_code == 400
        chat = client.post("/v1/chat/completions", json=body, headers=key).json()
        assert chat["system_fingerprint"].startswith("avocet-")
        assert client.get("/tokenizer_info").json()["eos_token"]
        assert client.get("/server_info").json()["options"]["max_model_len"] == "2048"
        assert client.get("/version").json()["version"] and client.get("/ping").status_code == 200 and client.post("/ping").status_code == 200
        for path in ("/v1/messages", "/v1/responses", "/v1/responses/x", "/v1/chat/completions/render"):
            reply = client.post(path, json={}) if path.count("/") == 2 or "render" in path else client.get(path)
            assert reply.status_code == 401, path
        assert client.get("/v1/nothing").status_code == 404 and client.get("/v1/messages", headers=key).status_code == 405


def test_routes_that_were_not_asked_for(base_url):
    with httpx.Client(base_url=base_url) as client:
        for path in ("/server_info", "/tokenizer_info", "/v1/responses/resp_x"):
            assert client.get(path).status_code == 404, path


def test_key_everywhere():
    with server("models/demo", "--api-key", "a", "--require-api-key-everywhere", env={}) as running:
        with httpx.Client(base_url=running.url) as client:
            assert client.get("/health").status_code == 200
            for path in ("/metrics", "/version", "/load"):
                assert client.get(path).status_code == 401
                assert client.get(path, headers={"Authorization": "Bearer a"}).status_code == 200


def test_openapi_document(base_url):
    with httpx.Client(base_url=base_url) as client:
        document = client.get("/openapi.json").json()
        assert document["openapi"].startswith("3.") and "temperature" in document["components"]["schemas"]["ChatRequest"]["properties"]
        for path, operations in document["paths"].items():
            # Every route is there: what is refused is the empty call, not the path.
            for method in operations:
                reply = client.request(method.upper(), path.replace("{id}", "x").replace("{name}", "demo"), json={} if method == "post" else None)
                assert reply.status_code != 405 and ("there is no" not in reply.text), path


def certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)


def served_name(port):
    """The subject of the certificate that the server shows."""
    shown = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-servername", "x"], input="", capture_output=True, text=True,
                           timeout=20)
    return next(line for line in shown.stdout.splitlines() if line.startswith("subject="))


def test_tls_and_its_refresh(tmp_path):
    certificate(tmp_path, "first")
    running = ServerProcess("models/demo", "--served-model-name", "demo", "--ssl-certfile", tmp_path / "cert.pem", "--ssl-keyfile",
                            tmp_path / "key.pem", "--enable-ssl-refresh", wait=False)
    url = running.url.replace("http://", "https://")
    try:
        context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        with httpx.Client(base_url=url, verify=context, timeout=60) as client:
            for _ in range(600):
                try:
                    if client.get("/health").status_code == 200:
                        break
                except httpx.ConnectError:
                    time.sleep(0.1)
            body = {"model": "demo", "prompt": "a", "max_tokens": 40, "ignore_eos": True}
            whole = client.post("/v1/completions", json={**body, "temperature": 0}).json()
            lines = client.post("/v1/completions", json={**body, "temperature": 0, "stream": True}).text.split("\n\n")
            text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines if line.startswith("data: {"))
            assert text == whole["choices"][0]["text"] and lines[-2] == "data: [DONE]"
            large = client.post("/tokenize", json={"prompt": "a b " * 300_000})  # many records each way
            assert large.status_code == 200 and large.json()["count"] > 300_000
            with pytest.raises(httpx.HTTPError):
                httpx.get(running.url + "/health")
            assert "first" in served_name(running.port)
            certificate(tmp_path, "second")
            for _ in range(200):
                if "second" in served_name(running.port):
                    break
                time.sleep(0.1)
            else:
                pytest.fail("the new certificate was never served")
            assert client.get("/health").status_code == 200  # the old connection goes on
    finally:
        assert running.stop() == 0
