import os
import shutil
import zipfile

import pytest

from mooncake_companion.publish import archive

NOTE = '<p>One file: <span class="companion-archive">{}</span>.</p>'


@pytest.fixture
def html(tmp_path):
    folder = tmp_path / "html"
    (folder / "book").mkdir(parents=True)
    (folder / "index.html").write_text("<p>first</p>")
    (folder / "book" / "offline.html").write_text(NOTE.format(""))
    (folder / "book" / "picture.png").write_bytes(bytes(range(256)) * 50)
    (folder / ".buildinfo").write_text("config: 1")
    return folder


def test_the_same_book_gives_the_same_bytes_wherever_and_whenever(html, tmp_path):
    first = archive.write_archive(html).read_bytes()
    other = shutil.copytree(html, tmp_path / "other")
    shutil.rmtree(other / archive.FOLDER)
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o777)
    assert archive.write_archive(other).read_bytes() == first


def test_it_holds_the_book_in_one_folder_and_not_itself(html):
    with zipfile.ZipFile(archive.write_archive(html)) as opened:
        assert opened.testzip() is None
        names = opened.namelist()
        assert names == [
            f"{archive.NAME}/{name}" for name in ("book/offline.html", "book/picture.png", "index.html")
        ]
        assert {entry.date_time for entry in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {oct(entry.external_attr >> 16) for entry in opened.infolist()} == {"0o100644"}
        there = opened.read(f"{archive.NAME}/book/offline.html").decode()
    assert there == NOTE.format("this copy")


def test_the_page_links_to_it_with_its_name_and_size(html):
    made = archive.write_archive(html)
    size = f"{made.stat().st_size / 1e6:.1f} MB"
    name = f"{archive.NAME}.zip"
    link = f'<a href="../downloads/{name}" download>{name}, {size}</a>'
    assert (html / "book" / "offline.html").read_text() == NOTE.format(link)
    assert made == html / "downloads" / name


def test_what_it_says_of_itself_does_not_change_it(html):
    made = archive.write_archive(html)
    first, when = made.read_bytes(), made.stat().st_mtime_ns
    assert archive.write_archive(html).stat().st_mtime_ns == when  # nothing to do
    made.write_bytes(b"broken")
    assert archive.write_archive(html).read_bytes() == first


def test_a_change_of_the_book_makes_another_and_leaves_no_earlier_version(html):
    first = archive.write_archive(html).read_bytes()
    (html / archive.FOLDER / "mooncake-companion-0.0.1.zip").touch()
    (html / "index.html").write_text("<p>second</p>")
    assert archive.write_archive(html).read_bytes() != first
    assert len(list((html / archive.FOLDER).iterdir())) == 1
