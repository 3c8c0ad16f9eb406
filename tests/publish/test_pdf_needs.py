import pytest

from mooncake_companion.errors import CompanionError
from mooncake_companion.publish import pdf


def test_a_machine_without_a_browser_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    with pytest.raises(CompanionError, match=r"needs one of chromium, .*CHROMIUM"):
        pdf.browser()


def test_a_browser_can_be_named(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "/opt/browser")
    assert pdf.browser() == "/opt/browser"
