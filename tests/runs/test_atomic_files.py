"""Texts as names of files and folders."""

from pathlib import Path

from anchorlab.runs.atomic_files import file_name


def test_signs_that_no_name_may_have(tmp_path):
    assert file_name("quick@gpt2") == "quick@gpt2"
    assert file_name("a/b") == "a%2Fb"
    for text in ("..", "../x", "http://h:80/v1#a", 'a\\b:*?"<>|', "é" * 300, "x" * 1000):
        assert Path(file_name(f"quick@{text}")).name == file_name(f"quick@{text}")
        (tmp_path / file_name(f"quick@{text}")).mkdir()


def test_long_texts_have_names_of_their_own():
    texts = [f"{'a' * 300}{middle}{'b' * 300}" for middle in "xyz"]
    names = {file_name(text) for text in texts}
    assert len(names) == 3
    assert all(name.startswith("aaa") and name.endswith("bbb") and len(name) <= 200 for name in names)
