"""An FP8 release answers, bit for bit, as the bf16 checkpoint that holds the same values: both are made here from the demo model."""

import json
import shutil
import struct

import httpx

from server_process import ROOT, server

BLOCK = 128


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]]) for name, t in header.items()}


def write(path, tensors):
    header, position = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + len(data)]}
        position += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def code_and_value(bits, exponent):
    """bf16 bits times 2**exponent, fraction cut to 3 bits: the e4m3 code, and the bf16 bits of code / 2**exponent. Too small: zero."""
    power = (bits >> 7 & 255) - 127 + exponent + 7
    if power < 1:
        return 0, 0
    assert power <= 14, "the scale leaves room"
    return bits >> 8 & 128 | power << 3 | bits >> 4 & 7, bits & 0xFFF0


def to_fp8(shape, data):
    """(codes, scales as f32, the same values as bf16); a power of two for each block, another one for every block."""
    rows, cols = shape
    words = struct.unpack(f"<{rows * cols}H", data)
    across = -(-cols // BLOCK)
    largest = max(word >> 7 & 255 for word in words) - 127
    exponents = [6 - largest - block % 2 for block in range(-(-rows // BLOCK) * across)]
    tables = {exponent: {word: code_and_value(word, exponent) for word in set(words)} for exponent in set(exponents)}
    codes, values = bytearray(), []
    for row in range(rows):
        for col in range(0, cols, BLOCK):
            table = tables[exponents[row // BLOCK * across + col // BLOCK]]
            pairs = [table[word] for word in words[row * cols + col : row * cols + min(cols, col + BLOCK)]]
            codes += bytes(code for code, _ in pairs)
            values += [value for _, value in pairs]
    scales = struct.pack(f"<{len(exponents)}f", *(2.0**-exponent for exponent in exponents))
    return bytes(codes), scales, struct.pack(f"<{len(values)}H", *values)


def make_folders(tmp_path):
    source = ROOT / "models/demo"
    config = json.loads((source / "config.json").read_text())
    fp8, plain = {}, {}
    for name, (dtype, shape, data) in read(source / "model.safetensors").items():
        fp8[name] = plain[name] = (dtype, shape, data)
        if dtype != "BF16" or not name.endswith("proj.weight") or "visual" in name or name.startswith("mtp."):
            continue
        codes, scales, values = to_fp8(shape, data)
        fp8[name] = ("F8_E4M3", shape, codes)
        fp8[name + "_scale_inv"] = ("F32", [-(-shape[0] // BLOCK), -(-shape[1] // BLOCK)], scales)
        plain[name] = (dtype, shape, values)
    assert any(dtype == "F8_E4M3" for dtype, _, _ in fp8.values())
    config_fp8 = config | {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                                   "weight_block_size": [BLOCK, BLOCK]}}
    for folder, tensors, text in (("fp8", fp8, config_fp8), ("plain", plain, config)):
        (tmp_path / folder).mkdir()
        for file in source.iterdir():
            if file.suffix in (".json", ".jinja") and file.name not in ("config.json", "model.safetensors.index.json"):
                shutil.copy(file, tmp_path / folder)
        (tmp_path / folder / "config.json").write_text(json.dumps(text))
        write(tmp_path / folder / "model.safetensors", tensors)


def answers(folder, *arguments):
    with server(str(folder), "--served-model-name", "demo", *arguments) as running:
        with httpx.Client(base_url=running.url, timeout=120) as client:
            body = {"model": "demo", "prompt": "The quick brown fox", "temperature": 0, "max_tokens": 24, "logprobs": 3, "ignore_eos": True}
            reply = client.post("/v1/completions", json=body)
            assert reply.status_code == 200, reply.text
            return reply.json()["choices"]


def test_fp8_answers_as_the_same_values_in_bf16(tmp_path):
    make_folders(tmp_path)
    assert answers(tmp_path / "fp8") == answers(tmp_path / "plain")
    assert answers(tmp_path / "fp8", "--quantization", "int8") == answers(tmp_path / "plain", "--quantization", "int8")
