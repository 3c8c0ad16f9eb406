"""Give the readers what nobody would write: `python -m benchmarks.fuzz`, recorded for the validation chapter.

Each target is a door through which a file or a word comes in. Atheris (libFuzzer) looks for inputs that
lead where none led before, from a few valid ones, by changing bytes and, as `mutated` does, words and
numbers. Only errors of ours may come out, told in one short line that a terminal prints as it is; an
input that takes longer than `TIMEOUT_S`, or the process beyond `MEMORY_MB`, counts as a finding as well.

A target runs in a process of its own, and alone with ``--target NAME --runs N``.
Atheris is for Linux and macOS: ``pip install atheris``. Tests try a sample without it.
"""

import argparse
import hashlib
import importlib
import json
import os
import platform
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mooncake_companion.errors import CompanionError

COMMAND = "python -m benchmarks.fuzz"
RECORDED = "data/recorded/fuzzing.json"
SEED = 1
TIMEOUT_S = 10
MEMORY_MB = 1024
LONGEST_BYTES = 4096
MOST_CHARACTERS = 1500
"""Of a message."""

PARTS_THAT_MATTER = (
    "benchmarks/fuzz.py",
    "src/mooncake_companion/datafiles.py",
    "src/mooncake_companion/errors.py",
    "src/mooncake_companion/hardware.py",
    "src/mooncake_companion/llm.py",
    "src/mooncake_companion/parameters.py",
    "src/mooncake_companion/presets.py",
    "src/mooncake_companion/publish/given.py",
    "src/mooncake_companion/publish/origins.py",
    "src/mooncake_companion/publish/own_files.py",
    "src/mooncake_companion/publish/sweep_plan.py",
    "src/mooncake_companion/traces/convert.py",
    "src/mooncake_companion/traces/read.py",
    "src/mooncake_companion/traces/trace.py",
)
"""Files whose change can move what is recorded."""

FINDINGS: tuple[dict[str, str], ...] = (
    {
        "target": "trace",
        "found": "the message quoted control characters of the file, which a terminal obeys",
        "now": "they are escaped, in every message",
    },
    {
        "target": "trace",
        "found": "a line of 64 MB became 1.7 GB of objects",
        "now": "a line may have 16 MB, and a test holds the memory",
    },
    {
        "target": "trace",
        "found": "a refused line's ids made later, good lines look wrong to `validate`",
        "now": "a line counts as a whole or not at all",
    },
    {
        "target": "azure",
        "found": "a line without end was read into memory",
        "now": "lines are bounded as a trace's are",
    },
    {
        "target": "azure",
        "found": "a pipe or a device was waited for",
        "now": "only plain files are read",
    },
    {
        "target": "azure",
        "found": "a few huge lengths made billions of block ids",
        "now": "100 million blocks are the most",
    },
    {
        "target": "azure",
        "found": "a column without a name, as pandas writes its index, had every row refused",
        "now": "only a row with more columns is",
    },
    {
        "target": "preset",
        "found": "an integer of thousands of digits, in hexadecimal or in a list, ended in a ValueError",
        "now": "it is told by its digits",
    },
    {
        "target": "preset",
        "found": "a name of thousands of characters was quoted in full",
        "now": "what is quoted is cut",
    },
    {
        "target": "parameters",
        "found": "a date such as 2001-99-99, a tag such as !!timestamp x, or depth ended in a traceback",
        "now": "they are told with file and line",
    },
    {
        "target": "parameters",
        "found": "aliases within aliases were written out in the message",
        "now": "a file of parameters has no aliases",
    },
    {
        "target": "parameters",
        "found": "of a name given twice the second counted",
        "now": "it is refused",
    },
    {
        "target": "parameters",
        "found": "1e12, which YAML 1.1 takes for a word, was refused",
        "now": "it is a number",
    },
    {
        "target": "words",
        "found": "half a character or a null in a word reached the notebook",
        "now": "it is refused",
    },
    {
        "target": "sweep",
        "found": "1:1e9999:1 was counted, and the message with ten thousand digits ended in a ValueError",
        "now": "an end is a number that a float can hold",
    },
    {
        "target": "sweep-record",
        "found": "a record of another shape ended in a TypeError or an AttributeError",
        "now": "it is told what differs",
    },
    {
        "target": "figure-json",
        "found": "a specification whose usermeta is no object ended in an AttributeError",
        "now": "it is told",
    },
    {
        "target": "figure-png",
        "found": "a PNG cut within a chunk was read to its end",
        "now": "it is told where it is cut",
    },
    {
        "target": "figure-pdf",
        "found": "a damaged PDF led its reader to errors of any kind, and to warnings beside ours",
        "now": "all are one line",
    },
    {
        "target": "figure-svg",
        "found": "half a character in the provenance could not be written again",
        "now": "it is told",
    },
)
"""What fuzzing, and trying by hand for it, brought to light, and what happens now."""

Door = Callable[[bytes], None]


@dataclass(frozen=True, kw_only=True)
class Target:
    """One door.

    Parameters
    ----------
    what : str
        What comes in, in a phrase.
    runs : int
        Inputs of a recorded run.
    make : callable
        Gives the function that takes an input, for a folder in which it may write.
    seeds : tuple of bytes
        Valid inputs.
    words : tuple of bytes
        What else may stand in one.
    """

    what: str
    runs: int
    make: Callable[[Path], Door]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()


# --- doors ------------------------------------------------------------------------------------


def _trace_door(folder: Path) -> Door:
    from mooncake_companion.traces import read_jsonl, write_jsonl

    file, again = folder / "t.jsonl", folder / "again.jsonl"

    def door(data: bytes) -> None:
        file.write_bytes(data)
        trace = read_jsonl(file)
        write_jsonl(trace, again)
        assert read_jsonl(again).arrival_s.tolist() == trace.arrival_s.tolist()

    return door


def _convert_door(kind: str) -> Callable[[Path], Door]:
    def make(folder: Path) -> Door:
        conversion: Any = importlib.import_module("mooncake_companion.traces.convert")
        conversion.MOST_BLOCKS = 2000  # so that an input takes no seconds
        file = folder / "t"

        def door(data: bytes) -> None:
            file.write_bytes(data)
            conversion.convert(kind, file)

        return door

    return make


def _preset_door(folder: Path) -> Door:
    from mooncake_companion import presets
    from mooncake_companion.hardware import GpuNode, load_nodes
    from mooncake_companion.llm import TransformerModel, load_models

    file = folder / "c.toml"
    nodes, models = load_nodes(), load_models()

    def door(data: bytes) -> None:
        file.write_bytes(data)
        refused = None
        for kind, table, known in ((GpuNode, "node", nodes), (TransformerModel, "model", models)):
            try:
                found: Any = presets.find(kind, str(file), table, known)
                assert table == "node" or found.kv_bytes_per_token > 0
            except CompanionError as error:
                refused = error
        if refused:
            raise refused

    return door


def _parameters_door(folder: Path) -> Door:
    from mooncake_companion.experiments.prefill_scheduling import Params
    from mooncake_companion.publish.given import gather

    file = folder / "p.yml"

    def door(data: bytes) -> None:
        file.write_bytes(data)
        Params(**gather(Params, file=file))  # type: ignore[arg-type]

    return door


def _words_door(_folder: Path) -> Door:
    from mooncake_companion.experiments.prefill_scheduling import Params
    from mooncake_companion.parameters import parse

    def door(data: bytes) -> None:
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        Params(**parse(Params, dict(line.partition("=")[::2] for line in lines)))  # type: ignore[arg-type]

    return door


def _sweep_door(_folder: Path) -> Door:
    from mooncake_companion.experiments import walkthrough
    from mooncake_companion.publish import sweep_plan
    from mooncake_companion.publish.chapters import Chapter

    sweep_plan.MOST_POINTS = 50  # so that an input takes no seconds
    chapter = Chapter(name="c", params=walkthrough.Params)

    def door(data: bytes) -> None:
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        pairs = [(name, text) for name, _, text in (line.partition("=") for line in lines)]
        sample = 5 if pairs and pairs[0][0] == "sample" else None
        sweep_plan.plan(chapter, pairs[1:] if sample else pairs, sample=sample)

    return door


def _record_door(_folder: Path) -> Door:
    from mooncake_companion.publish.sweep_plan import difference

    now = json.loads(_RECORD)

    def door(data: bytes) -> None:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return  # `sweep` says so before it compares
        if isinstance(found, dict):
            told = difference(found, now)
            assert len(told) < MOST_CHARACTERS, told

    return door


def _figure_door(kind: str) -> Callable[[Path], Door]:
    def make(_folder: Path) -> Door:
        from mooncake_companion.publish.origins import read

        file = Path(f"f.{kind}")

        def door(data: bytes) -> None:
            read(file, data, kind)

        return door

    return make


_JSON_WORDS = (
    *(b"null", b"true", b"NaN", b"-Infinity", b"-1", b"0.5", b"1e999", b"-0.0", b"9223372036854775808"),
    *(b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\ud800", b"\xef\xbb\xbf", b"\r\n", b"\x00", b"1000000000"),
)
_TRACE = (
    b'{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 5.5, "input_length": 1025, "output_length": 9, "hash_ids": [0, 2, 3]}\n'
    b'{"timestamp": 3000, "input_length": 1, "output_length": 1, "hash_ids": [0], "user": "a"}\n'
)
_TRACE_WORDS = (b'"timestamp"', b'"input_length"', b'"output_length"', b'"hash_ids"', b"512", b"513")
_AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    b"2024-05-10 00:00:00.009930+00:00,4808,10\n"
)
_BURST = (
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n"
)
_BAILIAN = (
    b'{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.1, "input_length": 40, "output_length": 3, '
    b'"type": "text", "turn": 1, "hash_ids": [1, 2, 3]}\n'
    b'{"chat_id": 160, "timestamp": 62, "input_length": 33, "output_length": 4, "hash_ids": [1, 2]}\n'
)
_PRESETS = (
    b'[node]\npreset = "h100"\nnic_bytes_per_s = 50e9\n[model]\npreset = "llama3-70b"\n',
    (
        b'[node]\ntitle = "Mine"\ngpus = 8\npeak_flops_per_s = 312e12\nhbm_bytes_per_s = 2e12\n'
        b"hbm_bytes = 80_000_000_000\nhost_to_device_bytes_per_s = 2e11\nnic_bytes_per_s = 1e11\n"
        b'[model]\ntitle = "M"\nlayers = 80\nmodel_dim = 8192\nquery_heads_per_kv_head = 8\n'
        b"element_bytes = 2\nattention_flops_coefficient = 4\nlinear_flops_coefficient = 22.0\n"
        b"parameters = 70_000_000_000\n"
    ),
)
_PRESET_WORDS = (
    *(b"[[node]]", b"[cluster]", b"inf", b"nan", b"0xfff", b"1979-05-27", b'"""', b"kv_elements_per_layer"),
    *(b"dram_bytes", b"ssd_read_bytes_per_s", b"active_parameters", b"weight_element_bytes", b"source"),
)
_YAML = (
    b"# mine\nprefill_nodes: 6\nseed: 3\narrival_speedup: 1.5\n",
    b'trace: "conversation"\nnode: h800\nkvcache_balancing_threshold: 1e1\n',
)
_YAML_WORDS = (
    *(b"&a ", b"*a", b"<<: ", b"!!python/object/apply:os.system", b"!!int ", b"!!timestamp ", b"!!binary "),
    *(b"? ", b"- ", b"---\n", b"...", b"|\n", b">\n", b"2001-99-99", b"1:1:1", b".inf", b".nan", b"0x", b"~"),
)
_WORDS = (
    b"prefill_nodes=6\nseed=1e3\narrival_speedup=0.5",
    b"trace=conversation\nnode=h800\nmodel=llama3-70b",
)
_SWEEPS = (
    b"prefill_nodes=4:8:2\narrival_speedup=1,2",
    b"sample=\nkvcache_balancing_threshold=1:20\nnode=a800,h800",
    b"kvcache_balancing_threshold=1:3:0.25",
)
_RECORD = (
    b'{"chapter": "c", "parameters": {"seed": [0, 1, 2], "rate": {"low": 0, "high": 1}}, "sample": null, '
    b'"sample_seed": null, "points": 3, "points_sha256": "00", "traces": {"t": "11"}, "model_sha256": "22"}'
)
_SAID = b'{"figure": "f", "chapter": "overload", "chapter_parameters": {"seed": 0}, "values_sha256": "00"}'
_SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><metadata>' + _SAID + b"</metadata><g></g></svg>"
_SPEC = b'{"name": "f", "usermeta": {"companion": ' + _SAID + b'}, "datasets": {"t": [{"x": 1}]}}'


def _png() -> bytes:
    import struct
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    text = b"provenance\0\0\0\0\0" + _SAID
    parts = (chunk(b"IHDR", header), chunk(b"iTXt", text), chunk(b"IDAT", zlib.compress(b"\0\0")))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


def _pdf() -> bytes:
    objects = (
        b"<< /Type /Pages /Count 0 /Kids [ ] >>",
        b"<< /Type /Catalog /Pages 1 0 R >>",
        b"<< /Title (f) /provenance (" + _SAID + b") >>",
    )
    made, offsets = b"%PDF-1.3\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer\n<< /Size 4 /Root 2 0 R /Info 3 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(made)
    return made + b"xref\n0 4\n" + table + trailer


TARGETS = {
    "trace": Target(
        what="a trace file, read, written and read again",
        runs=120_000,
        make=_trace_door,
        seeds=(_TRACE, _TRACE.replace(b"\n", b"\r\n")),
        words=(*_JSON_WORDS, *_TRACE_WORDS),
    ),
    "azure": Target(
        what="a file of Azure's to convert",
        runs=120_000,
        make=_convert_door("azure"),
        seeds=(_AZURE, b"\xef\xbb\xbf" + _AZURE.replace(b"\n", b"\r\n")),
        words=(b",", b'"', b"\r", b"9999-12-31T23:59:59+23:59", b"0001-01-01", b"1e9", b"-1", b"nan"),
    ),
    "burstgpt": Target(
        what="a file of BurstGPT's to convert",
        runs=120_000,
        make=_convert_door("burstgpt"),
        seeds=(_BURST,),
        words=(b",", b'"', b"\r", b"1e12", b"-1", b"nan", b"inf", b"0"),
    ),
    "bailian": Target(
        what="a file of Bailian's to convert",
        runs=120_000,
        make=_convert_door("bailian"),
        seeds=(_BAILIAN,),
        words=(*_JSON_WORDS, *_TRACE_WORDS, b"16", b"17"),
    ),
    "preset": Target(
        what="a TOML file with a node and a model",
        runs=40_000,
        make=_preset_door,
        seeds=_PRESETS,
        words=_PRESET_WORDS,
    ),
    "parameters": Target(
        what="a YAML file of parameters",
        runs=12_000,
        make=_parameters_door,
        seeds=_YAML,
        words=_YAML_WORDS,
    ),
    "words": Target(
        what="parameters on a command line",
        runs=60_000,
        make=_words_door,
        seeds=_WORDS,
        words=(b"\n", b"=", b"true", b"1e400", b"nan", b"-1", b"\xff", b"\x00"),
    ),
    "sweep": Target(
        what="a sweep on a command line",
        runs=12_000,
        make=_sweep_door,
        seeds=_SWEEPS,
        words=(b"\n", b"=", b":", b",", b"0:1:1e-9", b"1:0:-1", b"1e400", b"nan", b"sample=\n", b"model"),
    ),
    "sweep-record": Target(
        what="the record of an earlier sweep",
        runs=120_000,
        make=_record_door,
        seeds=(_RECORD,),
        words=_JSON_WORDS,
    ),
    **{
        f"figure-{kind}": Target(
            what=f"the provenance in a figure's {title}",
            runs=runs,
            make=_figure_door(kind),
            seeds=seeds,
            words=(*_JSON_WORDS, *words),
        )
        for kind, title, runs, seeds, words in (
            ("svg", "SVG", 75_000, (_SVG,), (b"<metadata>", b"</metadata>", b"&lt;", b"&amp;")),
            ("png", "PNG", 75_000, (_png(),), (b"iTXt", b"provenance\0\0\0\0\0", b"\xff\xff\xff\xff")),
            ("json", "JSON", 75_000, (_SPEC,), (b'"usermeta"', b'"companion"', b'"name"')),
            ("csv", "file beside a CSV", 75_000, (_SAID,), (b'"figure"',)),
            (
                "pdf",
                "PDF",
                3_000,
                (_pdf(),),
                (
                    b"/Info",
                    b"/Root",
                    b"/Size",
                    b"/Prev",
                    b"/ObjStm",
                    b"/FlateDecode",
                    b"stream\n",
                    b"<<",
                    b"R",
                ),
            ),
        )
    },
}


# --- what is tried ----------------------------------------------------------------------------

_PLACES = re.compile(rb'[-+.\w]+|"[^"\n]*"|[^\s\w]')


def mutated(data: bytes, rng: random.Random, target: Target) -> bytes:
    """Change an input in one to four places: a word for another, lines mixed, bytes changed or gone."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        places = list(_PLACES.finditer(changed))
        kind = rng.randrange(7)
        if kind < 3 and places:
            start, end = rng.choice(places).span()
            changed[start:end] = rng.choice(target.words or (b"",)) if kind else _number(rng)
        elif kind == 3 and places:
            start, end = rng.choice(places).span()
            changed[start:start] = changed[start:end] * rng.choice((1, 1, 1, 50))
        elif kind == 4:
            other = rng.choice(target.seeds)
            cut, at = rng.randrange(len(other) + 1), rng.randrange(len(changed) + 1)
            changed[at:] = other[cut:]
        elif kind == 5:
            start = rng.randrange(len(changed) + 1)
            del changed[start : start + rng.choice((1, 1, 4, 40))]
        elif changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[:LONGEST_BYTES])


def _number(rng: random.Random) -> bytes:
    numbers: tuple[float, ...] = (
        rng.randrange(-2, 3),
        rng.randrange(2000),
        rng.uniform(-1, 10),
        2 ** rng.choice((31, 32, 53, 63, 64)) - rng.randrange(2),
    )
    zeros = rng.choice((3, 9, 12, 29, 400, 4000))
    return rng.choice((*(str(number).encode() for number in numbers), b"1" + b"0" * zeros))


def tried(door: Door, data: bytes) -> bool:
    """Give a door an input: whether it was let in; what is no error of ours, or not told well, is raised."""
    try:
        door(data)
    except CompanionError as error:
        told = str(error)
        assert told.isprintable(), told
        assert 0 < len(told) < MOST_CHARACTERS, told
        return False
    return True


def _scratch() -> str | None:
    """Where inputs are written: in memory, if there is such a place, as each is soon gone."""
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) else None


def sample(name: str, runs: int, seed: int = SEED) -> tuple[int, int]:
    """Try inputs at random, without Atheris: how many were let in, and how many refused."""
    target, rng = TARGETS[name], random.Random(seed)
    let_in = 0
    pool = list(target.seeds)
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
        door = target.make(Path(folder))
        for number in range(runs):
            data = mutated(rng.choice(pool), rng, target) if number >= len(pool) else pool[number]
            try:
                let_in += tried(door, data)
            except Exception as error:
                raise AssertionError(f"{name}: {data!r}") from error
    return let_in, runs - let_in


# --- with Atheris -----------------------------------------------------------------------------


def _unwatched() -> list[str]:
    """Our modules that are no readers; Numba could not compile them with Atheris' marks in them."""
    package = Path(__file__).parents[1] / "src" / "mooncake_companion"
    parts = {
        f"src/mooncake_companion/{path.relative_to(package).as_posix()}" for path in package.rglob("*.py")
    }
    modules = (part.removeprefix("src/").removesuffix(".py") for part in parts - set(PARTS_THAT_MATTER))
    return sorted(module.removesuffix("/__init__").replace("/", ".") for module in modules)


def fuzz(name: str, runs: int, corpus: Path) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris

    target = TARGETS[name]
    watched = {"mooncake_companion", "tomllib", "yaml", "json", "csv", "pypdf"}
    with atheris.instrument_imports(include=sorted(watched), exclude=_unwatched()):
        door = target.make(corpus.parent)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)

    def mutator(data: bytes, size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        return mutated(data, rng, target)[:size] if seed % 2 else atheris.Mutate(data, size)

    dictionary = corpus.parent / "words.dict"
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
    dictionary.write_text("".join(f'"{word}"\n' for word in escaped), "utf-8")
    arguments = [
        sys.argv[0],
        f"-runs={runs}",
        f"-seed={SEED}",
        f"-max_len={LONGEST_BYTES}",
        f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-dict={dictionary}",
        f"-artifact_prefix={corpus.parent}/",
        "-print_final_stats=1",
        str(corpus),
    ]
    atheris.Setup(arguments, lambda data: tried(door, data) and None, custom_mutator=mutator)
    atheris.Fuzz()


_DONE = re.compile(
    r"^#(?P<inputs>\d+)\s+DONE\s+cov: (?P<edges>\d+) ft: (?P<features>\d+) corp: (?P<corpus>\d+)", re.M
)
_PEAK = re.compile(r"^stat::peak_rss_mb:\s+(\d+)", re.M)


def measured(name: str, runs: int) -> dict[str, Any]:
    """Fuzz one target in a process of its own, and read what it says at its end.

    Raises
    ------
    RuntimeError
        If it found something: what it says, with the input.
    """
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        # As a file: the package would import, before Atheris can watch them, what is to be watched.
        command = [sys.executable, __file__, "--target", name, "--runs", str(runs)]
        done = subprocess.run(
            [*command, "--corpus", str(corpus)], capture_output=True, text=True, errors="replace", check=False
        )
        cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        end, peak = _DONE.search(done.stderr), _PEAK.search(done.stderr)
        if done.returncode or not end or not peak:
            inputs = {file.name: file.read_bytes() for file in Path(folder).glob("*-*") if file.is_file()}
            raise RuntimeError(f"{name}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{inputs}")
    return {
        "target": name,
        "what": TARGETS[name].what,
        **{key: int(value) for key, value in end.groupdict().items()},
        "peak_rss_mb": int(peak[1]),
        "cpu_s": round(cpu_s, 1),
    }


def sources_sha256(root: Path) -> str:
    """SHA-256 over the files that matter, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(PARTS_THAT_MATTER):
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def recording(root: Path, share: float = 1.0) -> dict[str, Any]:
    """What is written to `RECORDED`."""
    before, rows = sources_sha256(root), []
    for name, target in TARGETS.items():
        row = measured(name, max(1, round(share * target.runs)))
        sys.stderr.write(f"{time.strftime('%X')} {json.dumps(row)}\n")
        rows.append(row)
    if sources_sha256(root) != before:
        raise RuntimeError("the sources changed during the run; record again")
    return {
        "made_by": COMMAND,
        "sources_sha256": before,
        "sources": list(PARTS_THAT_MATTER),
        "python": platform.python_version(),
        "atheris": metadata.version("atheris"),
        "seed": SEED,
        "inputs": sum(row["inputs"] for row in rows),
        "targets": rows,
        "findings": list(FINDINGS),
    }


def main(root: Path, arguments: Sequence[str] | None = None) -> None:
    """Fuzz all targets and record, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=list(TARGETS))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--corpus", type=Path)
    given = parser.parse_args(arguments)
    if given.target and given.corpus:
        fuzz(given.target, given.runs, given.corpus)
    elif given.target:
        sys.stdout.write(json.dumps(measured(given.target, given.runs or TARGETS[given.target].runs)) + "\n")
    else:
        from mooncake_companion.datafiles import replacing  # not before Atheris can watch it

        text = json.dumps(recording(root), indent=1, ensure_ascii=False) + "\n"
        with replacing(root / RECORDED) as part:
            part.write_text(text, "utf-8")


if __name__ == "__main__":
    os.environ.setdefault("MOONCAKE_OFFLINE", "1")
    main(Path(__file__).parents[1])
