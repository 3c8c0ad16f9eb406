import pytest

from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.publish import project


def test_the_checkout_is_found_from_a_folder_inside_it(little_root, monkeypatch):
    monkeypatch.chdir(little_root / "book" / "_static")
    assert project.find_root() == little_root


def test_a_named_folder_without_a_book_is_refused(tmp_path):
    with pytest.raises(InputError, match="no book there"):
        project.find_root(tmp_path)


def test_an_installation_without_checkout_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        project, "__file__", str(tmp_path / "lib" / "site-packages" / "publish" / "project.py")
    )
    with pytest.raises(CompanionError, match="clone the repository"):
        project.find_root()
