import pytest

from mooncake_companion.traces import load, locate


@pytest.fixture(params=["conversation", "synthetic"])
def released(request):
    if locate(request.param) is None:
        pytest.skip(
            f"the released {request.param} trace is not on this machine; set MOONCAKE_TRACES to its folder"
        )
    return load(request.param)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without network and without traces; returns its empty cache."""
    monkeypatch.delenv("MOONCAKE_TRACES", raising=False)
    monkeypatch.setenv("MOONCAKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MOONCAKE_OFFLINE", "1")
    return tmp_path / "cache"
