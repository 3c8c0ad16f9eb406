"""`companion simulate`: a trace of one's own on a cluster of one's own."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mooncake_companion.errors import InputError

_LINES = (
    ("requests", "requests", "{:,.0f}"),
    ("finished", "finished", "{:,.0f}"),
    ("  of these late", "late", "{:,.0f}"),
    ("rejected at arrival", "rejected_at_arrival", "{:,.0f}"),
    ("rejected after prefill", "rejected_after_prefill", "{:,.0f}"),
    ("TTFT, mean (s)", "ttft_mean_s", "{:,.3f}"),
    ("TTFT, p50 (s)", "ttft_p50_s", "{:,.3f}"),
    ("TTFT, p90 (s)", "ttft_p90_s", "{:,.3f}"),
    ("TTFT, p99 (s)", "ttft_p99_s", "{:,.3f}"),
    ("TBT, mean (s)", "tbt_mean_s", "{:,.4f}"),
    ("TBT, p50 (s)", "tbt_p50_s", "{:,.4f}"),
    ("TBT, p90 (s)", "tbt_p90_s", "{:,.4f}"),
    ("TBT, p99 (s)", "tbt_p99_s", "{:,.4f}"),
    ("effective capacity", "effective_capacity", "{:.1%}"),
    ("goodput (requests/s)", "goodput_requests_per_s", "{:,.3f}"),
    ("hit ratio", "hit_ratio", "{:.1%}"),
    ("fetched (GB)", "fetched_bytes", "{:,.0f}"),
    ("streamed (GB)", "streamed_bytes", "{:,.0f}"),
    ("loaded (GB)", "loaded_bytes", "{:,.0f}"),
    ("GPU-seconds", "gpu_s", "{:,.0f}"),
    ("  of these in prefill", "prefill_gpu_s", "{:,.0f}"),
    ("  per good request", "gpu_s_per_good_request", "{:,.1f}"),
)
_OPTIONS = (
    ("--node", "node", str, "Preset of what every node is, or a TOML file with a table [node]."),
    ("--model", "model", str, "Preset of what it serves, or a TOML file with a table [model]."),
    ("--prefill-nodes", "prefill_nodes", int, "Nodes that prefill."),
    ("--decode-nodes", "decode_nodes", int, "Nodes that decode."),
    ("--cache-bytes", "cache_bytes_per_node", float, "DRAM for KV cache on each prefill node, in bytes."),
    ("--network", "network_gbit_per_s", float, "Of a node, in Gbit/s; 0 takes the node's own."),
    ("--threshold", "kvcache_balancing_threshold", float, "Of Algorithm 1, at least 1."),
    ("--admission", "admission", str, "none, baseline, early or predictive."),
    ("--ttft-limit", "ttft_limit_s", float, "Limit of the first token, in seconds."),
    ("--tbt-limit", "tbt_limit_s", float, "Limit of the token rhythm, in seconds."),
    ("--predicted-decode", "predicted_decode_s", float, "t_d of predictive admission, in seconds."),
    ("--speedup", "arrival_speedup", float, "Replay the trace this many times as fast."),
    ("--host-time", "host_time", bool, "Whether decode waits for the host, as fitted: true or false."),
    ("--block-tokens", "block_tokens", int, "Tokens in a hashed block of the trace file."),
)


def _with_options(command: Any) -> Any:
    for flag, name, kind, text in reversed(_OPTIONS):
        command = click.option(flag, name, type=kind, help=text)(command)
    return command


@click.command()
@click.option("--trace", required=True, metavar="TRACE", help="Registered trace, or path of a JSONL file.")
@click.option(
    "--preset",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with tables [node], [model], [cluster].",
)
@click.option(
    "--systems", "with_baselines", is_flag=True, help="Run vLLM on as many nodes, too, in three ways."
)
@_with_options
@click.option(
    "--cache-tokens", type=click.IntRange(0), help="The same as --cache-bytes, in tokens of KV cache."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for numbers, a row for every request, and charts; replaced if it holds earlier ones.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Of the table of requests in --out.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
def simulate(
    trace: str,
    preset: Path | None,
    with_baselines: bool,
    cache_tokens: int | None,
    out: Path | None,
    form: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay TRACE on a cluster and say what becomes of it.

    Without more, the cluster is that of FAST'25, section 5.2: 8 + 8 nodes of 8 A800 that serve
    LLaMA3-70B. A file says what yours is; an option changes one thing of it.

    \b
    companion simulate --trace conversation
    companion simulate --trace my.jsonl --preset my-cluster.toml
    companion simulate --trace my.jsonl --node h100 --model qwen2.5-72b --prefill-nodes 4 --decode-nodes 4
    companion simulate --trace my.jsonl --preset my-cluster.toml --systems --out results
    companion simulate --trace conversation --speedup 2 --admission early --json | jq .systems

    \b
    my-cluster.toml:
      [node]
      preset = "h100"             # or title, gpus, peak_flops_per_s, hbm_bytes_per_s, hbm_bytes,
      nic_bytes_per_s = 50e9      # host_to_device_bytes_per_s, nic_bytes_per_s of your own
      [model]
      preset = "qwen2.5-72b"
      [cluster]
      prefill_nodes = 4           # names as of `companion params your-cluster`
      decode_nodes = 4
      tbt_limit_s = 0.05

    \b
    late                 finished, but outside a limit
    effective capacity   share of all requests within both limits
    goodput              these, a second from the first to the last arrival
    hit ratio            share of the prompts' tokens that was reused
    fetched, streamed    between prefill nodes, and to the decode node; loaded: into GPU memory there

    What was fitted on A800 nodes is taken for all: see the chapter *Your cluster*. A trace in another
    format: `companion traces convert`.
    """  # noqa: D301 - \b is for click
    from mooncake_companion.experiments import your_cluster
    from mooncake_companion.experiments.end_to_end import MOONCAKE, SYSTEMS
    from mooncake_companion.llm import load_model
    from mooncake_companion.publish import simulation
    from mooncake_companion.publish.given import require_no_other_file

    given: dict[str, Any] = dict(your_cluster.settings(preset)) if preset else {}
    if preset:
        require_no_other_file(given, str(preset))
    if cache_tokens is not None and options["cache_bytes_per_node"] is not None:
        raise InputError("--cache-tokens and --cache-bytes say the same; give one of them")
    given |= {name: value for name, value in options.items() if value is not None}
    if cache_tokens is not None:
        model = load_model(str(given.get("model", your_cluster.Params().model)))
        given["cache_bytes_per_node"] = cache_tokens * model.kv_bytes_per_token
    params = your_cluster.Params(**{**given, "trace": trace})
    if out:
        simulation.check_target(out, form)
    systems = list(SYSTEMS) if with_baselines else [MOONCAKE]
    results = {}
    _tell(f"[1/{len(systems)}] {systems[0]} …")
    for number, (system, result) in enumerate(your_cluster.results(params, systems), start=1):
        results[system] = result
        if number < len(systems):
            _tell(f"[{number + 1}/{len(systems)}] {systems[number]} …")
    table = your_cluster.tabulated(params, results)
    if as_json:
        click.echo(simulation.as_json(table))
    else:
        cluster = f"{params.prefill_nodes} + {params.decode_nodes} nodes of {params.gpu_node.title}"
        click.echo(
            f"{table.attrs['provenance']['trace_source']}\n{cluster}, {load_model(params.model).title}\n"
        )
        click.echo(_laid_out(table.to_dict("records")))
        if params.host_time:
            click.echo(
                "\nDecode waits for its host as the paper's cluster did; --host-time false leaves that out."
            )
    if out:
        files = simulation.write(out, table, results, form)
        click.echo("\n" + "\n".join(map(str, (*files, out / "figures"))), err=as_json)


def _laid_out(rows: Sequence[Mapping[Any, Any]]) -> str:
    """A line for each number, a column for each system; what there is not is a dash."""
    lines = [["", *(str(row["system"]) for row in rows)]]
    for title, name, form in _LINES:
        scale = 1e9 if name.endswith("_bytes") else 1
        values = [row[name] / scale for row in rows]
        lines.append([title, *("–" if value != value else form.format(value) for value in values)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    )


def _tell(text: str) -> None:
    """Say on a terminal what is under way."""
    if sys.stderr.isatty():
        click.echo(text, err=True)
