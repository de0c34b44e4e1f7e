"""The binary's words as a user types them: help, version, inspect, chat through a pipe, bench, the deployment profiles, exit codes."""

import json
import os
import signal
import subprocess
import time

import httpx
import pytest

from server_process import BINARY, ROOT, ServerProcess, free_port, server

DUMMY = ["--load-format", "dummy", "--skip-tokenizer-init", "--max-model-len", "256"]


def avocet(*arguments, stdin="", env=None, code=0, timeout=60):
    done = subprocess.run([BINARY, *map(str, arguments)], cwd=ROOT, env={**os.environ, **(env or {})}, input=stdin, capture_output=True,
                          text=True, timeout=timeout)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def config_only(tmp_path):
    folder = tmp_path / "shape"
    folder.mkdir()
    (folder / "config.json").write_text((ROOT / "models/demo/config.json").read_text())
    return folder


def test_version():
    for words in (["--version"], ["version"], ["serve", "--version"]):
        assert avocet(*words).stdout.startswith("avocet ")


def test_help_teaches():
    assert "avocet serve [MODEL]" in avocet("--help").stdout
    page = avocet("serve", "--help").stdout
    assert "--max-model-len" in page and "--help=all" in page
    assert "--kv-cache-memory-bytes" in avocet("serve", "--help=CacheConfig").stdout
    assert "Longest sequence" in avocet("serve", "--help=max-model-len").stdout
    assert avocet("serve", "--help=all").stdout.count("\n  --") > 150


@pytest.mark.parametrize("words,says", [
    (["sreve"], "sreve"), (["bench"], "bench latency"), (["bench", "serve"], "bench latency"),
    (["serve", "models/demo", "--no-such-flag"], "--no-such-flag"), (["serve", "models/demo", "--port", "x"], "--port"),
    (["serve", "models/demo", "--dtype", "int4"], "--dtype"), (["serve", "a", "b"], "MODEL"),
    (["serve", "models/demo", "--compilation-config", "{bad"], "--compilation-config"), (["chat", "models/demo", "--input-len", "4"], "bench latency"),
])
def test_wrong_use_exits_with_2(words, says):
    done = avocet(*words, code=2)
    assert says in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words,says", [
    (["--enable-auto-tool-choice"], "--tool-call-parser"), (["--ssl-keyfile", "k"], "--ssl-certfile"), (["--enable-lora"], "adapters"),
    (["--quantization", "ascend"], "quant_model_description"), (["--max-model-len", "9000"], "8192"),
    (["--max-num-seqs", "64", "--max-num-batched-tokens", "7"], "--max-num-batched-tokens"),
    (["--kv-cache-memory-bytes", "1M", "--max-num-seqs", "4096"], "missing"), (["--kv-cache-memory-bytes", "900G"], "missing"),
    (["--chat-template", "/no/such/file"], "/no/such/file"), (["--generation-config", "/no/such"], "/no/such"),
    (["--tokenizer", "/no/such"], "/no/such"), (["--override-generation-config", "{\"top_p\": 7}"], "top_p"),
])
def test_a_start_that_cannot_be_exits_with_1(words, says):
    done = avocet("serve", "models/demo", "--port", "0", *words, code=1)
    last = done.stderr.splitlines()[-1]
    assert says in last and len(last) < 600, done.stderr


def test_a_folder_without_tokenizer_names_the_two_ways_out(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((ROOT / "models/demo" / name).read_bytes())
    last = avocet("serve", folder, "--port", "0", code=1).stderr.splitlines()[-1]
    assert "tokenizer.json" in last and "--skip-tokenizer-init" in last
    with server(folder, "--tokenizer", "models/demo", "--served-model-name", "m") as running:
        assert complete(running.url, "m")["usage"]["completion_tokens"] == 3


def test_malformed_environment_is_one_clear_line():
    assert "VLLM_CPU_KVCACHE_SPACE" in avocet("serve", code=1, env={"VLLM_CPU_KVCACHE_SPACE": "lots"}).stderr
    assert "AVOCET_ISA" in avocet("serve", "models/demo", code=1, env={"AVOCET_ISA": "sse9"}).stderr


def test_inspect_reads_no_weights(tmp_path):
    page = avocet("inspect", "models/demo", "--kernels", "--tensors").stdout
    for part in ("Qwen3_5MoeForConditionalGeneration", "GPU KV cache size", "chosen", "in_proj_qkv", "linear_"):
        assert part in page
    page = avocet("inspect", config_only(tmp_path)).stdout
    assert "safetensors" in page and "Maximum concurrency" in page
    assert "bundled demo model" in avocet("inspect").stdout
    assert "ref" in avocet("inspect", "--isas").stdout.split()


def test_chat_answers_a_question():
    done = avocet("chat", "--temperature", "0", "--default-chat-template-kwargs.enable_thinking", "false", "-q", "What is the capital of Poland?")
    assert "Warsaw" in done.stdout


def test_chat_remembers_within_a_pipe_and_forgets_on_request():
    lines = "My name is Dora.\n/new\nWhat is the capital of Poland?\n"
    done = avocet("chat", "models/demo", "--temperature", "0", "--default-chat-template-kwargs.enable_thinking=false", stdin=lines)
    assert "Warsaw" in done.stdout
    assert len(done.stdout.splitlines()) >= 2


def test_chat_is_stopped_by_ctrl_c_and_goes_on():
    process = subprocess.Popen([BINARY, "chat", "models/demo", "--temperature", "0", "--max-tokens", "7000"], cwd=ROOT, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write("Tell me a story.\n")
    process.stdin.flush()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate("/quit\n", timeout=30)
    assert process.returncode == 0 and out


def test_bench_latency_writes_the_json_of_vllm(tmp_path):
    result = tmp_path / "latency.json"
    done = avocet("bench", "latency", "--model", config_only(tmp_path), *DUMMY, "--input-len", "8", "--output-len", "4", "--batch-size", "2",
                  "--num-iters", "3", "--num-iters-warmup", "1", "--output-json", result)
    assert "Avg latency: " in done.stdout and "99% percentile latency: " in done.stdout
    data = json.loads(result.read_text())
    assert len(data["latencies"]) == 3
    assert abs(data["avg_latency"] - sum(data["latencies"]) / 3) < 1e-9
    assert set(data["percentiles"]) == {"10", "25", "50", "75", "90", "99"}


def test_bench_throughput_writes_the_json_of_vllm(tmp_path):
    result = tmp_path / "throughput.json"
    done = avocet("bench", "throughput", config_only(tmp_path), *DUMMY, "--input-len", "16", "--output-len", "5", "--num-prompts", "7",
                  "--dataset-name", "random", "--output-json", result)
    assert "Throughput: " in done.stdout
    data = json.loads(result.read_text())
    assert data["num_requests"] == 7 and data["total_num_tokens"] == 7 * (16 + 5)
    assert data["tokens_per_second"] == pytest.approx(data["total_num_tokens"] / data["elapsed_time"])


def test_bench_throughput_takes_sharegpt_files(tmp_path):
    turns = [{"conversations": [{"from": "human", "value": "What is the capital of Poland?"}, {"from": "gpt", "value": "The capital of Poland is Warsaw."}]}]
    (tmp_path / "chats.json").write_text(json.dumps(turns * 3 + [{"conversations": []}, 5, None]))
    done = avocet("bench", "throughput", "models/demo", "--dataset-path", tmp_path / "chats.json", "--num-prompts", "10")
    assert "Total num output tokens:" in done.stdout
    (tmp_path / "bad.json").write_text("{")
    avocet("bench", "throughput", "models/demo", "--dataset-path", tmp_path / "bad.json", code=1)


def complete(url, model):
    reply = httpx.post(url + "/v1/completions", json={"model": model, "prompt": "Hi", "max_tokens": 3, "temperature": 0}, timeout=60)
    reply.raise_for_status()
    return reply.json()


def test_the_report_names_what_has_no_effect():
    with server("models/demo", "-tp", "16", "--async-scheduling", "--max-model-len", "1k", env={"OMP_NUM_THREADS": "1"}) as running:
        log = running.log()
        for part in ("--tensor-parallel-size 16: ", "--async-scheduling: ", "OMP_NUM_THREADS=1: ", "GPU KV cache size", "Application startup complete",
                     "Maximum concurrency for 1,000 tokens per request", "max-model-len=1k", running.url):
            assert part in log, part


def test_a_yaml_file_gives_flags_and_loses_to_the_command_line(tmp_path):
    config = tmp_path / "flags.yaml"
    config.write_text(f"model: {ROOT / 'models/demo'}\nserved-model-name: from-file\nmax_model_len: 100\n")
    with server("--config", config, "--max-model-len", "200") as running:
        card = httpx.get(running.url + "/v1/models").json()["data"][0]
        assert card["id"] == "from-file" and card["max_model_len"] == 200


def test_without_a_model_the_demo_is_served_and_it_says_so():
    with server() as running:
        assert "bundled demo" in running.log()
        assert httpx.get(running.url + "/v1/models").json()["data"][0]["id"] == "demo"


@pytest.mark.parametrize("flags", [DUMMY, ["--load-format", "dummy", "--max-model-len", "256"]], ids=["no-tokenizer", "plain"])
def test_dummy_weights_need_a_config_only(tmp_path, flags):
    with server(config_only(tmp_path), *flags, "--served-model-name", "shape") as running:
        reply = httpx.post(running.url + "/v1/completions", json={"model": "shape", "prompt": [1, 2, 3], "max_tokens": 4, "return_token_ids": True}, timeout=60)
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("profile", ["low_latency.sh", "high_throughput.sh"])
def test_the_deployment_profiles_serve(profile):
    port = free_port()
    env = {**os.environ, "AVOCET": BINARY, "AVOCET_MODEL": "models/demo-w8a8", "AVOCET_PORT": str(port)}
    process = subprocess.Popen([ROOT / "examples" / profile], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(200):
            try:
                httpx.get(url + "/health")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        assert complete(url, "qwen3.5")["usage"]["completion_tokens"] == 3
        process.send_signal(signal.SIGTERM)
        log = process.communicate(timeout=30)[1]
        assert process.returncode == 0
        for name in ("--tensor-parallel-size 16", "--enable-expert-parallel", "--compilation-config", "--async-scheduling",
                     "--allowed-local-media-path /", "--mm-processor-cache-gb 0", "--additional-config", "HCCL_BUFFSIZE=1024"):
            assert name in log, name
    finally:
        process.kill()


def test_a_second_signal_ends_at_once():
    running = ServerProcess("models/demo", "--max-model-len", "8192")
    try:
        with httpx.Client(timeout=60) as client, pytest.raises(httpx.HTTPError):
            with client.stream("POST", running.url + "/v1/completions", json={
                    "model": "models/demo", "prompt": "Tell me a story.", "max_tokens": 8000, "ignore_eos": True, "stream": True}) as reply:
                lines = reply.iter_lines()
                next(lines)
                running.process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
                running.process.send_signal(signal.SIGTERM)
                for _ in lines:
                    pass
        assert running.process.wait(10) == 128 + signal.SIGTERM
    finally:
        running.stop()
