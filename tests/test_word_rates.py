"""The reminder of constructions that readers have to decode."""

from __future__ import annotations

from docs.tools.word_rates import CONSTRUCTIONS, prose, python_prose, rates

_SOURCE = '''"""What is asked for."""
X = "SELECT a FROM t WHERE a > 1"
Y = "two words"
# What does it do? It tells nobody.
'''


def test_comments_docstrings_and_messages_count() -> None:
    found = list(python_prose(_SOURCE))
    assert found == ["# What does it do? It tells nobody.", "What is asked for.", "SELECT a FROM t WHERE a > 1"]
    counted = rates([("a.py", text) for text in found])
    words = sum(len(text.replace(">", "").replace("1", "").replace("#", "").split()) for text in found)
    assert counted["what"] == (1e4 / words, [("a.py", 1)]), "a question is none"
    assert counted["where"] == (0.0, [("a.py", 0)]), "SQL is none"
    assert counted["tell, tells, told"][0] == 1e4 / words


def test_all_languages_are_read() -> None:
    endings = {file.rpartition(".")[2] for file, text in prose() if text.strip()}
    assert endings == {"py", "scala", "json", "md"}
    assert set(rates([])) == set(CONSTRUCTIONS)
