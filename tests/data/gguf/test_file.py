"""GGUF: what the writer of the format wrote comes back, and a file that lies is refused within
bounds.
"""

import struct
import sys
import tracemalloc

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thetax.data import Gguf, deinterleave_rotary, interleave_rotary, read_gguf

F16, F32 = np.float16, np.float32
KINDS = gguf.GGMLQuantizationType
W = np.random.default_rng(0).normal(size=(3, 64)).astype(F32)
TOKENS = ["<s>", "</s>", "a", "b", "ab", "é"]


def write(path, quantised=(KINDS.Q4_1, KINDS.Q8_0, KINDS.Q4_K, KINDS.BF16)):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 1e5)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_int64("some.big", -(2**40))
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(["a b"])
    writer.add_token_types([3, 3, 1, 1, 1, 1])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_tensor("plain", W)
    writer.add_tensor("half", W.astype(F16))
    writer.add_tensor("row", W[0])
    for kind in quantised:
        data = (
            gguf.quants.quantize(np.tile(W, 4), kind)
            if kind != KINDS.Q4_K
            else np.arange(3 * 144, dtype=np.uint8)
        )
        writer.add_tensor(kind.name, data.reshape(3, -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


@pytest.fixture
def path(tmp_path, whole):
    (tmp_path / "tiny.gguf").write_bytes(whole)
    return tmp_path / "tiny.gguf"


def test_metadata_are_plain_values(path):
    found = read_gguf(path).metadata
    assert found["general.architecture"] == "llama"
    assert found["llama.block_count"] == 2
    assert found["llama.rope.freq_base"] == 1e5
    assert found["tokenizer.ggml.add_bos_token"] is True
    assert found["some.big"] == -(2**40)
    assert found["some.numbers"] == [1, 2, 3]
    assert found["tokenizer.ggml.tokens"] == TOKENS
    assert {type(value) for value in found.values()} == {str, int, float, bool, list}


def test_the_librarys_own_reader_agrees(path):
    theirs, (metadata, tensors) = gguf.GGUFReader(path), read_gguf(path)
    fields = {
        name: field.contents()
        for name, field in theirs.fields.items()
        if not name.startswith("GGUF.")
    }
    assert metadata == fields
    assert list(tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert tensors[tensor.name].dtype == F32
        np.testing.assert_array_equal(tensors[tensor.name], expected)


def test_tensors_come_back(path):
    tensors = read_gguf(path).tensors
    np.testing.assert_array_equal(tensors["plain"], W)
    np.testing.assert_array_equal(tensors["half"], W.astype(F16).astype(F32))
    np.testing.assert_array_equal(tensors["row"], W[0])
    assert tensors["Q8_0"].shape == (3, 256)
    np.testing.assert_allclose(tensors["Q8_0"], np.tile(W, 4), atol=np.abs(W).max() / 127)
    assert len(tensors) == 7
    assert "other" not in tensors
    with pytest.raises(KeyError):
        tensors["other"]


def test_four_bits_by_hand(path):
    """A block of Q4_1 is d, m in half precision and 16 bytes; low halves are the first 16 numbers,
    x = d q + m.
    """
    raw = gguf.quants.quantize(np.tile(W, 4), KINDS.Q4_1)[1].tobytes()
    expected = []
    for start in range(0, len(raw), 20):
        d, m = np.frombuffer(raw[start : start + 4], F16).astype(F32)
        bits = raw[start + 4 : start + 20]
        expected += [d * q + m for q in [byte & 15 for byte in bits] + [byte >> 4 for byte in bits]]
    np.testing.assert_allclose(read_gguf(path).tensors["Q4_1"][1], expected, rtol=1e-6)


def test_of_a_folder(path):
    assert read_gguf(path.parent).metadata["llama.block_count"] == 2
    (path.parent / "other.gguf").touch()
    with pytest.raises(ValueError, match=r"contains 2 \.gguf files. Give the path of one"):
        read_gguf(path.parent)


def test_what_a_tokeniser_needs(path):
    table = read_gguf(path).token_table()
    assert (table.kind, table.split, table.tokens, table.merges) == (
        "gpt2",
        "smollm",
        TOKENS,
        [("a", "b")],
    )
    assert (table.special_ids, table.control_ids, table.add_bos, table.chat_template) == (
        {"bos": 0, "eos": 1},
        [0, 1],
        True,
        "",
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": None}, "has no list of tokens"),
        ({"tokens": [1, 2]}, "has no list of tokens"),
        ({"merges": ["a b c"]}, "is not two pieces separated by a space"),
        ({"merges": [1]}, "is not two pieces separated by a space"),
        ({"bos_token_id": 6}, r"of 6 tokens: invalid special tokens {'bos': 6}, 6 token types"),
        ({"token_type": [1]}, "of 6 tokens: invalid special tokens {}, 1 token types"),
    ],
)
def test_a_table_that_does_not_fit(path, change, says):
    metadata = read_gguf(path).metadata | {
        f"tokenizer.ggml.{name}": value for name, value in change.items()
    }
    with pytest.raises(ValueError, match=says):
        Gguf(metadata, {}).token_table()


def test_a_file_cut_off_anywhere_is_refused(path, whole):
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"tiny\.gguf: "):
            read_gguf(path)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def file(*, pairs=(), tensors=(), counts=None, magic=b"GGUF", version=3, data=b"") -> bytes:
    """A file by hand; `counts` are lies about the numbers of tensors and pairs."""
    n_tensors, n_pairs = counts or (len(tensors), len(pairs))
    head = (
        magic
        + struct.pack("<IQQ", version, n_tensors, n_pairs)
        + b"".join(pairs)
        + b"".join(tensors)
    )
    return head + b"\0" * (-len(head) % 32) + data


def tensor(name="w", shape=(2,), kind=0, offset=0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return text("a") + struct.pack("<IIQ", 9, kind, count) + data


LIES = {
    "magic": (file(magic=b"GGML"), "is not a GGUF file"),
    "big-endian": (file(version=3 << 24), "is GGUF of version 50331648"),
    "tensors": (file(counts=(2**62, 0)), "announces more than its"),
    "pairs": (file(counts=(0, 2**62)), "announces more than its"),
    "long name": (file(pairs=[struct.pack("<Q", 2**63)]), "announces more than its"),
    "long array": (file(pairs=[array(4, 2**61)]), "announces more than its"),
    "many strings": (file(pairs=[array(8, 2**61, bytes(800))]), "announces more than its"),
    "deep": (file(pairs=[array(9, 1, struct.pack("<IQ", 9, 1) * 50)]), "too deeply nested arrays"),
    "kind of value": (file(pairs=[text("a") + struct.pack("<I", 99)]), "unknown type 99"),
    "no text": (
        file(pairs=[struct.pack("<Q", 1) + b"\xff" + struct.pack("<IB", 0, 1)]),
        "not readable as a GGUF file",
    ),
    "same pair": (file(pairs=[text("a") + struct.pack("<IB", 0, 1)] * 2), "contains 'a' twice"),
    "same tensor": (
        file(tensors=[tensor(), tensor(offset=32)], data=bytes(64)),
        "contains 'w' twice",
    ),
    "kind of tensor": (file(tensors=[tensor(kind=4)]), "has the unknown type 4"),
    "axes": (file(tensors=[tensor(shape=(1,) * 5)]), "has 5 axes"),
    "huge": (file(tensors=[tensor(shape=(2**63, 2**63))]), "has the invalid shape"),
    "empty": (file(tensors=[tensor(shape=(0, 2**60))]), "has the invalid shape"),
    "part of a block": (
        file(tensors=[tensor(shape=(33,), kind=3)], data=bytes(99)),
        "has the invalid shape",
    ),
    "beyond": (
        file(tensors=[tensor(offset=2**60)], data=bytes(8)),
        "is truncated: .* bytes of tensors are missing",
    ),
    "overlap": (
        file(tensors=[tensor(), tensor("v", offset=4)], data=bytes(64)),
        "'w' and 'v' overlap",
    ),
    "alignment": (
        file(pairs=[text("general.alignment") + struct.pack("<II", 4, 12)]),
        "alignment must be a power of two; got 12",
    ),
}


@pytest.mark.parametrize(("data", "says"), LIES.values(), ids=LIES)
def test_a_lie_is_refused_without_room(tmp_path, data, says):
    (tmp_path / "a.gguf").write_bytes(data)
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf"a\.gguf: .*{says}"):
        read_gguf(tmp_path / "a.gguf")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_the_honest_file_by_hand(tmp_path):
    (tmp_path / "a.gguf").write_bytes(
        file(tensors=[tensor()], data=np.array([1, 2], "<f4").tobytes())
    )
    assert read_gguf(tmp_path / "a.gguf").tensors["w"].tolist() == [1, 2]


def test_integer_tensors_are_refused(tmp_path):
    (tmp_path / "a.gguf").write_bytes(file(tensors=[tensor(kind=KINDS.I32)], data=bytes(8)))
    with pytest.raises(
        ValueError, match="w is stored as I32, which cannot be converted to float32"
    ):
        read_gguf(tmp_path / "a.gguf").tensors["w"]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_are_read_or_a_value_error(path, whole, data):
    place = data.draw(st.integers(0, 900))
    path.write_bytes(
        whole[:place] + data.draw(st.binary(min_size=1, max_size=8)) + whole[place + 1 :]
    )
    try:
        found = read_gguf(path)
        assert {len(tensor.shape) for tensor in found.tensors.values()} <= {0, 1, 2, 3, 4}
    except ValueError:
        pass


def test_a_missing_file_and_a_missing_library(path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        read_gguf(path.with_name("none.gguf"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(
        ImportError, match=r"GGUF files need the library gguf: pip install 'thetax\[text\]'"
    ):
        read_gguf(path)


def test_rotary_rows_there_and_back():
    rows = np.arange(24).reshape(12, 2)
    np.testing.assert_array_equal(
        deinterleave_rotary(interleave_rotary(rows, heads=3), heads=3), rows
    )
    assert interleave_rotary(rows, heads=3)[:4, 0].tolist() == [0, 4, 2, 6]
    with pytest.raises(ValueError, match="got 12 rows and heads=4"):
        deinterleave_rotary(rows, heads=4)


def turn(x: np.ndarray, t: int, *, halves: bool) -> np.ndarray:
    """Rotary positions of one head, pair by pair."""
    d = len(x)
    y = x.copy()
    for i in range(d // 2):
        a, b = (i, i + d // 2) if halves else (2 * i, 2 * i + 1)
        angle = t * 100.0 ** (-2 * i / d)
        y[a], y[b] = (
            x[a] * np.cos(angle) - x[b] * np.sin(angle),
            x[a] * np.sin(angle) + x[b] * np.cos(angle),
        )
    return y


def test_the_permutation_keeps_every_score():
    """Interleaved pairs on the file's rows score as halves on the rows put right; with the rows as
    they are, not.
    """
    draw = np.random.default_rng(1).normal
    heads, d, width = 2, 6, 5
    W_q = draw(size=(heads * d, width))
    W_k = draw(size=(heads * d, width))
    x = draw(size=width)
    y = draw(size=width)

    def scores(W_q, W_k, halves):
        q = (W_q @ x).reshape(heads, d)
        k = (W_k @ y).reshape(heads, d)
        return [turn(a, 3, halves=halves) @ turn(b, 8, halves=halves) for a, b in zip(q, k)]

    file = scores(
        interleave_rotary(W_q, heads=heads), interleave_rotary(W_k, heads=heads), halves=False
    )
    np.testing.assert_allclose(file, scores(W_q, W_k, halves=True), rtol=1e-12)
    assert not np.allclose(file, scores(W_q, W_k, halves=False))
