"""Every number that the papers report beside what the model makes of it.

``data/scoreboard.toml`` says which experiment speaks to which claim, and in which role. An
experiment is a module of this package with a function ``claims()`` that gives modelled values by
claim, each in the unit of the claim's row; naming it in a rule there is all it takes to add one.
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import math
import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.datafiles import cache_path, data_path, read_toml, replacing
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.traces.sources import STANDIN

MODELLED_ROLES = ("prediction", "blind", "calibration")
ROLES = (*MODELLED_ROLES, "setup", "open")
"""What a row can be: see the chapter on the scoreboard."""

COLUMNS = (
    "id",
    "where",
    "quantity",
    "workload",
    "trace",
    "reported",
    "modelled",
    "unit",
    "error",
    "error_kind",
    "role",
    "reason",
    "command",
)

NOT_MODELLED = "not modelled yet"

_PAPERS = {"fast25": "FAST'25", "arxiv": "arXiv"}
_ALL = ("conversation", "toolagent", "synthetic")
_FIRST_DIGITS = 12
_THOUSAND = 1000
_PACKAGE = Path(__file__).parents[1]
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_NO_RESULT_PARTS = ("cli", "charts", "publish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How some claims are scored; ``data/scoreboard.toml`` says what the fields mean."""

    claims: tuple[str, ...]
    role: str
    reason: str = ""
    experiment: str = ""
    share: bool = False
    trace: str = ""
    fitted_on: str = ""
    standin_role: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        for role in (self.role, self.standin_role or self.role):
            if role not in ROLES:
                raise InputError(f"rule for {self.claims[0]}: role {role!r} is not one of {', '.join(ROLES)}")
        if self.role in MODELLED_ROLES and not self.experiment:
            raise InputError(f"rule for {self.claims[0]}: role {self.role!r} needs an experiment")
        if self.role == "open" and not self.reason:
            raise InputError(f"rule for {self.claims[0]}: what is left open needs a reason")

    def matches(self, claim_id: str) -> bool:
        """Tell whether the rule is about a claim."""
        return any(fnmatchcase(claim_id, pattern) for pattern in self.claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an experiment gave: values by claim, or why there are none.

    Parameters
    ----------
    modelled : dict
        Values by claim.
    informed, given : collection of str
        Claims that an assumption was made in view of, and claims that went into a stand-in.
    failure : str
        Why there is nothing.
    """

    modelled: dict[str, float]
    informed: Collection[str] = ()
    given: Collection[str] = ()
    failure: str = ""


def load_rules() -> tuple[Rule, ...]:
    """All rules of ``data/scoreboard.toml``, in its order."""
    table = read_toml("scoreboard.toml")
    return tuple(Rule(**{**row, "claims": tuple(row["claims"])}) for row in table["rule"])


def find_rule(claim_id: str, rules: Iterable[Rule]) -> Rule:
    """The one rule about a claim.

    Raises
    ------
    CompanionError
        If there is none, or more than one.
    """
    found = [rule for rule in rules if rule.matches(claim_id)]
    if len(found) != 1:
        told = "no rule" if not found else " and ".join(f"the rule for {rule.claims[0]}" for rule in found)
        raise CompanionError(f"claim {claim_id} is matched by {told}; data/scoreboard.toml needs exactly one")
    return found[0]


def run(
    where: str = "", *, fresh: bool = False, tell: Callable[[int, int, str], None] | None = None
) -> pd.DataFrame:
    """Score the papers' claims.

    Parameters
    ----------
    where : str
        Only claims with this text in their id or place, whatever its case; all if empty. A number
        at its end is a whole one: "Figure 1" is not in "Figure 12".
    fresh : bool
        Run the experiments even if their results are kept from an earlier run on the same sources.
    tell : callable, optional
        Called with a number, the count and a name before each experiment that has to run.

    Returns
    -------
    DataFrame
        A row for each claim, sorted by its place. Columns: those of `COLUMNS`; ``reported`` is a
        number or a word, ``modelled`` and ``error`` are NaN where there is none. ``error`` is
        relative to the reported value (``error_kind`` "relative"), or a difference in percentage points
        ("points") for shares, or 0 and 1 for the same and for another value ("exact": a reported zero).
    """
    claims = reported.claims().fillna({"workload": "", "system": "", "condition": "", "unit": ""})
    claims["place"] = [_place(claim) for claim in claims.to_dict("records")]
    wanted = re.escape(where) + (r"(?!\d)" if where[-1:].isdigit() else "")
    claims = claims[(claims["id"] + "\n" + claims["place"]).str.contains(wanted, case=False)]
    rules = load_rules()
    ruled = [(claim, find_rule(claim["id"], rules)) for claim in claims.to_dict("records")]
    outcomes = _outcomes({rule.experiment for _, rule in ruled if rule.experiment}, fresh, tell)
    sources, fitted_on = _trace_sources(), _fitted_on()
    rows = [_row(claim, rule, outcomes, sources, fitted_on) for claim, rule in ruled]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = _by_place(table)
    table.attrs["provenance"] = {
        "traces": sources,
        "trace_source": ", ".join(_each_trace(table["trace"])),
    }
    return table


def _each_trace(told: pd.Series) -> list[str]:
    """Every trace once; a row may name several."""
    return sorted({name for names in told.unique() for name in names.split(", ") if name})


def orderings(table: pd.DataFrame) -> pd.DataFrame:
    """Which of the papers' orderings the modelled values keep.

    Parameters
    ----------
    table : DataFrame
        As `run` returns it; orderings about claims that are not in it are left out.

    Returns
    -------
    DataFrame
        Columns: ``id``, ``where``, ``statement``, ``kept`` (True, False, or None where a value is
        not modelled).
    """
    values = dict(zip(table["id"], table["modelled"], strict=True))
    rows = []
    for row in reported.orderings().to_dict("records"):
        pairs = list(_pairs(row["order"]))
        if all(_NUMBER.fullmatch(term) or term in values for *terms, _ in pairs for term in terms):
            kept = _kept(pairs, values)
            rows.append({"id": row["id"], "where": row["where"], "statement": row["statement"], "kept": kept})
    kept_or_not = pd.DataFrame(rows, columns=["id", "where", "statement", "kept"]).astype({"kept": object})
    return _by_place(kept_or_not)


def summary(table: pd.DataFrame) -> dict[str, float | int | None]:
    """Counts, errors and orderings of a table as `run` returns it.

    Errors are absolute and relative to the reported value, over predictions alone and over blind
    rows alone; for shares, points over 100. None where there is nothing to take them over.
    """
    roles = table["role"].value_counts()
    kept = orderings(table)["kept"]
    errors = {role: _relative_errors(table[table["role"] == role]) for role in ("prediction", "blind")}
    return {
        "rows": len(table),
        "modelled": int(sum(roles.get(role, 0) for role in MODELLED_ROLES)),
        "open": int(roles.get("open", 0)),
        "setup": int(roles.get("setup", 0)),
        "median_abs_rel_error": _quantile(errors["prediction"], 0.5),
        "p90_abs_rel_error": _quantile(errors["prediction"], 0.9),
        "orderings_stated": len(kept),
        "orderings_kept": sum(each is True for each in kept),
        "fitted_constants": len(_fitted_on()),
        "blind_median_abs_rel_error": _quantile(errors["blind"], 0.5),
        "blind_p90_abs_rel_error": _quantile(errors["blind"], 0.9),
    }


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with texts to read and to sort them by.

    Adds ``reported_shown`` and ``modelled_shown`` (to four digits, with the unit; a dash for nothing),
    ``error_shown``, ``abs_error`` (as `summary` counts it) and ``note`` (the reason and the trace).
    """
    said, made = (
        [_shown(*each) for each in zip(table[name], table["unit"], strict=True)]
        for name in ("reported", "modelled")
    )
    errors = [_error_text(*each) for each in zip(table["error"], table["error_kind"], strict=True)]
    trace = ("[" + table["trace"] + "]").where(table["trace"] != "", "")
    note = (table["reason"] + " " + trace).str.strip()
    return table.assign(
        reported_shown=said,
        modelled_shown=made,
        error_shown=errors,
        abs_error=_relative_errors(table),
        note=note,
    )


def _shown(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    digits = f"{value:,.0f}" if abs(value) >= _THOUSAND else f"{value:.4g}"
    return "–" if math.isnan(value) else f"{digits} {unit}".strip()


def _error_text(error: float, kind: str) -> str:
    if math.isnan(error):
        return ""
    if kind == "exact":
        return "differs" if error else "same"
    return f"{error:+.1f} points" if kind == "points" else f"{100 * error:+.1f} %"


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as plain objects for JSON: None where there is no number."""
    return [
        {name: None if _is_nan(row[name]) else row[name] for name in COLUMNS}
        for row in table.to_dict("records")
    ]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# --- one row ----------------------------------------------------------------------------------------


def _place(claim: Mapping[Any, Any]) -> str:
    """Say where a claim stands, such as "FAST'25, Figure 5"."""
    in_text = claim["where"].startswith("text")
    where = f"section {claim['section']}" if in_text and claim["section"][0].isdigit() else claim["where"]
    return f"{_PAPERS[claim['paper']]}, {claim['section'] if where == 'text' else where}"


def _by_place(table: pd.DataFrame) -> pd.DataFrame:
    in_order = table.sort_values("where", key=lambda places: places.map(_natural), kind="stable")
    return in_order.reset_index(drop=True)


def _natural(place: str) -> tuple[tuple[str, int], ...]:
    """Sort key: the papers' order, Figure 9 before Figure 10."""
    paper_last = place.replace("FAST'25", "0").replace("arXiv", "1")
    parts = re.findall(r"(\D*)(\d*)", paper_last)
    return tuple((text, int(digits or 0)) for text, digits in parts)


def _row(
    claim: Mapping[Any, Any],
    rule: Rule,
    outcomes: dict[str, Outcome],
    sources: dict[str, str],
    fitted_on: Sequence[str],
) -> dict[str, Any]:
    outcome = outcomes.get(rule.experiment, Outcome(modelled={}))
    name = claim["workload"] if rule.trace == "workload" else rule.trace
    trace = sources.get(name, "")
    value = outcome.modelled.get(claim["id"], math.nan)
    reported_value = _value(claim["value"])
    role, reason = _role(claim["id"], rule, outcome, STANDIN in trace, fitted_on)
    if role in MODELLED_ROLES and (math.isnan(value) or isinstance(reported_value, str)):
        role, value = "open", math.nan
        missing = f"the {name} trace is not here" if name in sources and not trace else ""
        why = missing or f"{rule.experiment} gives no number"
        reason = outcome.failure or _joined(why, rule.reason)
    error, kind = _error(reported_value, value, rule.share, claim["unit"])
    command = rule.command or f"companion scoreboard --fresh --where {claim['id']}"
    return {
        "id": claim["id"],
        "where": claim["place"],
        "quantity": ", ".join(filter(None, (claim["quantity"], claim["system"], claim["condition"]))),
        "workload": claim["workload"],
        "trace": "" if math.isnan(value) else trace or name,
        "reported": reported_value,
        "modelled": value,
        "unit": claim["unit"],
        "error": error,
        "error_kind": kind,
        "role": role,
        "reason": reason,
        "command": "" if math.isnan(value) else command,
    }


def _role(
    claim_id: str, rule: Rule, outcome: Outcome, is_standin: bool, fitted_on: Sequence[str]
) -> tuple[str, str]:
    """Role and reason; an experiment can only weaken what its rule says."""
    if rule.role == "open":
        return rule.role, rule.reason
    if claim_id in outcome.given:
        return "setup", rule.reason if rule.role == "setup" else "went into the stand-in that is replayed"
    if claim_id in outcome.informed and rule.role != "setup":
        return "calibration", f"{rule.experiment} assumes something that this value informed"
    if rule.fitted_on and any(rule.fitted_on in text for text in fitted_on):
        return "calibration", rule.reason or f"a constant is fitted on {rule.fitted_on}"
    if is_standin and rule.standin_role:
        return rule.standin_role, _joined(rule.reason, "a stand-in fitted to it is replayed")
    return rule.role, rule.reason


def _joined(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def _value(text: Any) -> float | str:
    try:
        return float(text)
    except ValueError:
        return str(text)


def _error(reported_value: float | str, modelled: float, share: bool, unit: str) -> tuple[float, str]:
    """Error and its kind; NaN where nothing is modelled."""
    if isinstance(reported_value, str) or reported_value == 0:
        compared = not isinstance(reported_value, str) and not math.isnan(modelled)
        return float(modelled != reported_value) if compared else math.nan, "exact"
    if share:
        return (modelled - reported_value) * (1 if unit == "%" else 100), "points"
    return modelled / reported_value - 1, "relative"


# --- orderings and errors ----------------------------------------------------------------------------


def _pairs(order: str) -> Iterator[tuple[str, str, str]]:
    """Neighbours of an ordering's chains, as (left, right, relation)."""
    for chain in order.split(";"):
        words = chain.split()
        yield from zip(words[0::2], words[2::2], words[1::2], strict=False)


def _kept(pairs: Iterable[tuple[str, str, str]], values: dict[str, float]) -> bool | None:
    compared = []
    for *terms, relation in pairs:
        left, right = (float(term) if _NUMBER.fullmatch(term) else values[term] for term in terms)
        if math.isnan(left) or math.isnan(right):
            return None
        compared.append(left < right if relation == "<" else left <= right)
    return all(compared)


def _relative_errors(table: pd.DataFrame) -> np.ndarray:
    in_points = (table["error_kind"] == "points").to_numpy()
    return np.abs(table["error"].to_numpy(float)) / np.where(in_points, 100, 1)


def _quantile(errors: np.ndarray, share: float) -> float | None:
    return float(np.quantile(errors, share)) if len(errors) else None


# --- experiments and what they depend on ---------------------------------------------------------------


def _outcomes(
    names: set[str], fresh: bool, tell: Callable[[int, int, str], None] | None
) -> dict[str, Outcome]:
    fingerprint = _fingerprint()
    outcomes = {name: Outcome(modelled={}, failure=NOT_MODELLED) for name in names}
    there = [name for name in sorted(names) if importlib.util.find_spec(f"{__package__}.{name}")]
    if not fresh:
        outcomes |= {name: kept for name in there if (kept := _kept_outcome(name, fingerprint))}
    to_run = [name for name in there if outcomes[name].failure]
    for number, name in enumerate(to_run, start=1):
        if tell:
            tell(number, len(to_run), name)
        outcomes[name] = _run_one(name)
        _keep(name, fingerprint, outcomes[name])
    return outcomes


def _run_one(name: str) -> Outcome:
    module = importlib.import_module(f"{__package__}.{name}")
    if not hasattr(module, "claims"):
        return Outcome(modelled={}, failure=NOT_MODELLED)
    try:
        values = module.claims()
    except CompanionError as error:
        return Outcome(modelled={}, failure=str(error))
    return Outcome(
        modelled={claim_id: float(value) for claim_id, value in values.items()},
        informed=tuple(getattr(module, "INFORMED", ())),
        given=tuple(module.setup_claims() if hasattr(module, "setup_claims") else ()),
    )


def _cache_file(name: str) -> Path:
    return cache_path("scoreboard", f"{name}.json")


def _kept_outcome(name: str, fingerprint: str) -> Outcome | None:
    try:
        kept = json.loads(_cache_file(name).read_text("utf-8"))
        return Outcome(**kept["outcome"]) if kept["fingerprint"] == fingerprint else None
    except (OSError, ValueError, KeyError, TypeError):  # nothing is kept, or something else
        return None


def _keep(name: str, fingerprint: str, outcome: Outcome) -> None:
    """Keep values for a next time; a failure may have passed by then, so it is not kept."""
    if outcome.failure:
        return
    with replacing(_cache_file(name)) as part:
        kept = {"fingerprint": fingerprint, "outcome": dataclasses.asdict(outcome)}
        part.write_text(json.dumps(kept), "utf-8")


def _fingerprint() -> str:
    """Hash of all that a modelled value depends on: sources, data, traces and numeric libraries."""
    versions = [f"{name} {metadata.version(name)}" for name in ("numpy", "pandas", "scipy", "numba")]
    said = [platform.python_version(), *versions, traces.sources_fingerprint()]
    digest = hashlib.sha256("\n".join(said).encode())
    data = data_path("README.md").parent
    for root, pattern in (
        (_PACKAGE, "**/*.py"),
        (data, "*.toml"),
        (data, "*/*.toml"),
        (data, "reported/*.csv"),
    ):
        for file in sorted(root.glob(pattern)):
            relative = file.relative_to(root)
            if relative.parts[0] not in _NO_RESULT_PARTS:
                digest.update(
                    f"{relative.as_posix()}\0".encode() + hashlib.sha256(file.read_bytes()).digest()
                )
    return digest.hexdigest()


def _trace_sources() -> dict[str, str]:
    """Where each registered trace comes from now, with its checksum; empty where it cannot be had."""
    found = dict(word.split(":", 1) for word in traces.sources_fingerprint().split())
    sources = {name: _trace_source(name, digest) for name, digest in found.items()}
    return sources | {"all": ", ".join(filter(None, (sources.get(name) for name in _ALL)))}


def _trace_source(name: str, digest: str) -> str:
    if digest == "absent":
        return ""
    if digest.startswith(f"{STANDIN.removeprefix('-')}-"):
        return f"{name}{STANDIN} ({digest.rpartition('-')[2]})"
    return f"{name} (SHA-256 {digest[:_FIRST_DIGITS]})"


def _fitted_on() -> list[str]:
    """For each fitted constant, what it was fitted on; one that is only stated is not fitted."""
    constants = read_toml("calibration.toml")
    return [constant["fitted_on"] for constant in constants.values() if "fitted_on" in constant]
