import pytest

from mooncake_companion.errors import InputError
from mooncake_companion.experiments.prefill_scheduling import Params
from mooncake_companion.experiments.your_cluster import Params as ClusterParams
from mooncake_companion.publish.given import gather


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write


def test_single_values_go_before_the_file_and_the_file_before_presets(written):
    file = written("mine.yml", "prefill_nodes: 6\nseed: 3\n")
    preset = written("mine.toml", '[cluster]\nprefill_nodes = 5\nseed = 2\nnode = "h800"\n')
    values = gather(Params, chosen_presets=[str(preset)], file=file, pairs={"seed": "7"})
    assert values == {"prefill_nodes": 6, "seed": 7, "node": "h800"}


def test_a_later_preset_wins_and_names_are_found_by_what_they_are():
    values = gather(Params, chosen_presets=["h800", "llama3-70b", "a800"])
    assert values == {"node": "a800", "model": "llama3-70b"}


def test_a_preset_file_stands_for_its_node_and_model(written):
    preset = str(written("c.toml", '[node]\npreset = "h100"\n[cluster]\nprefill_nodes = 3\n'))
    assert gather(ClusterParams, chosen_presets=[preset]) == {"node": preset, "prefill_nodes": 3}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yml", "prefill_nodes: 99", r"a.yml: parameter prefill_nodes: 99 is out of range; expected 1 to"),
        ("a.yml", "prefill_nodes: six", r"a.yml: parameter prefill_nodes: 'six' is not a whole number"),
        ("a.yml", "prefill: 6", r"a.yml: this chapter has no parameter 'prefill'; it has trace"),
        ("a.yml", "- 1", r"a.yml: expected lines like `prefill_nodes: 6`, got list"),
        ("a.yml", "a: [", r"a.yml: not YAML"),
        ("a.yml", "node: !!python/object/apply:os.system ['true']", r"a.yml: not YAML"),
        ("a.yml", "seed: .nan", r"a.yml: parameter seed: nan is not a whole number"),
    ],
)
def test_a_fault_in_a_file_names_file_field_value_and_what_was_expected(written, name, text, told):
    with pytest.raises(InputError, match=told):
        gather(Params, file=written(name, text))


@pytest.mark.parametrize(
    ("preset", "told"),
    [("h8000", "h8000: neither a preset nor a .toml file; presets are a800"), ("none.toml", "none.toml")],
)
def test_an_unknown_preset_is_named(preset, told):
    with pytest.raises(InputError, match=told):
        gather(Params, chosen_presets=[preset])


def test_a_preset_with_a_table_that_is_none_is_refused(written):
    with pytest.raises(InputError, match=r"unknown table nodes; expected some of node, model, cluster"):
        gather(Params, chosen_presets=[str(written("c.toml", "[nodes]\n"))])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        gather(Params, file=tmp_path / "none.yml")
