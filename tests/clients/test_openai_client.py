"""The official openai client: plain, async, streaming; what it gets and what it raises."""

import asyncio

import openai
import pytest

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def client(base_url):
    with openai.OpenAI(base_url=base_url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def chat(client, **more):
    return client.chat.completions.create(**{"model": "demo", "messages": MESSAGES, "temperature": 0, "max_tokens": 24, **more})


def complete(client, **more):
    return client.completions.create(**{"model": "demo", "prompt": PROMPT, "temperature": 0, "max_tokens": 24, **more})


def test_models(client):
    models = client.models.list().data
    assert [model.id for model in models] == ["demo"]
    assert models[0].max_model_len == 2048
    assert client.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat_and_its_stream_agree(client):
    whole = chat(client)
    choice = whole.choices[0]
    assert whole.object == "chat.completion" and whole.id.startswith("chatcmpl-")
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens

    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == choice.message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1] if chunk.choices[0].finish_reason] == [choice.finish_reason]
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1


def test_completion_and_its_stream_agree(client):
    whole = complete(client, logprobs=2)
    chunks = list(complete(client, logprobs=2, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        joined = [item for chunk in chunks if chunk.choices[0].logprobs for item in getattr(chunk.choices[0].logprobs, field)]
        assert joined == getattr(whole.choices[0].logprobs, field), field
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens


def test_async_clients_side_by_side(base_url, client):
    expected = complete(client).choices[0].text

    async def stream(many):
        return "".join([chunk.choices[0].text async for chunk in await complete(many, stream=True)])

    async def plain(many):
        return (await complete(many)).choices[0].text

    async def run():
        async with openai.AsyncOpenAI(base_url=base_url + "/v1", api_key="none", max_retries=0, timeout=60) as many:
            return await asyncio.gather(*[(stream if i % 2 else plain)(many) for i in range(16)])

    assert asyncio.run(run()) == [expected] * 16


def test_chat_logprobs(client):
    content = chat(client, logprobs=True, top_logprobs=3, max_tokens=5).choices[0].logprobs.content
    assert len(content) == 5
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob >= entry.top_logprobs[2].logprob
        assert entry.logprob == entry.top_logprobs[0].logprob  # greedy


def test_stop_strings(client):
    text = complete(client).choices[0].text
    stop = text[8:11]
    assert stop not in text[:8]
    for more in ({}, {"stream": True}):
        answer = complete(client, stop=[stop, "never to be seen"], **more)
        choices = [chunk.choices[0] for chunk in answer] if more else [answer.choices[0]]
        assert "".join(choice.text for choice in choices) == text[:8]
        assert choices[-1].finish_reason == "stop" and choices[-1].stop_reason == stop
    kept = complete(client, stop=stop, extra_body={"include_stop_str_in_output": True}).choices[0]
    assert kept.text == text[:11]


def test_several_choices_have_their_own_seeds(client):
    runs = [chat(client, n=4, seed=7, temperature=8) for _ in range(2)]
    texts = [[choice.message.content for choice in run.choices] for run in runs]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 1
    assert [choice.index for choice in runs[0].choices] == [0, 1, 2, 3]
    streamed = {}
    for chunk in chat(client, n=4, seed=7, temperature=8, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
    assert [streamed[i] for i in range(4)] == texts[0]


def test_echo_scores_the_prompt(client):
    scored = complete(client, echo=True, max_tokens=0, logprobs=1)
    assert scored.choices[0].text == PROMPT
    logprobs = scored.choices[0].logprobs
    assert logprobs.token_logprobs[0] is None and all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert "".join(logprobs.tokens) == PROMPT
    assert scored.usage.completion_tokens == 0


def test_several_prompts_and_token_ids(client):
    ids = complete(client, extra_body={"return_token_ids": True}).choices[0].prompt_token_ids
    answers = complete(client, prompt=[ids, ids[:2]]).choices
    assert [answer.index for answer in answers] == [0, 1]
    assert answers[0].text == complete(client).choices[0].text


@pytest.mark.parametrize("more,error,param", [
    ({"temperature": -1}, openai.BadRequestError, "temperature"),
    ({"model": "other"}, openai.NotFoundError, "model"),
    ({"max_tokens": 5000}, openai.BadRequestError, "max_tokens"),
    ({"messages": []}, openai.BadRequestError, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]},
     openai.BadRequestError, "messages.0.content.0"),
    ({"n": 2, "temperature": 0}, openai.BadRequestError, "n"),
])
def test_errors_are_raised_with_their_field(client, more, error, param):
    for stream in (False, True):
        with pytest.raises(error) as raised:
            chat(client, **{**more, "stream": stream})
        assert raised.value.param == param
        assert raised.value.body["code"] == raised.value.status_code


def test_system_message_in_the_middle_is_a_400(client):
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"},
                {"role": "system", "content": "d"}, {"role": "user", "content": "e"}]
    with pytest.raises(openai.BadRequestError, match="(?i)system message"):
        chat(client, messages=messages)


def test_client_that_stops_reading(client):
    with chat(client, stream=True, max_tokens=500, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))
    assert chat(client).choices[0].message.content
