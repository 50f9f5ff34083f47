"""`python -m bench controller.follow` evaluates a trace of the controller."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bench.cases.memory import follow
from bench.cases.memory.follow import Script, Step, phases_of, swings


@pytest.mark.parametrize(
    "budgets, expected",
    [
        ([8], 0),
        ([8, 8, 7, 5, 6, 8], 0),
        ([8, 4, 2, 1], 0),
        ([1, 2, 4, 8], 0),
        ([8, 4, 8], 1),
        ([1, 2, 1, 2], 2),
        ([8, 6, 4, 5, 7, 8, 6, 4, 8], 3),
    ],
)
def test_swings(budgets: list[int], expected: int) -> None:
    assert swings(budgets) == expected


def test_phases_count_what_the_payload_was_given_once_they_have_settled() -> None:
    events = [(10.0, "begins"), (12.0, "limit halved")]
    decisions = [
        *((10.0 + step / 10, 3, 1000, 8, 8) for step in range(20)),
        *((12.0 + step / 10, 3, 100, 8 if step < 5 else 4, 4) for step in range(20)),
        (11.0, 0, 5, 1, 1),
    ]
    first, second = phases_of(events, sorted(decisions))
    assert (first["name"], first["headroom"], first["lowest"], first["highest"]) == ("begins", 1000, 8, 8)
    assert (second["name"], second["headroom"], second["lowest"], second["highest"]) == ("limit halved", 100, 4, 4)
    assert first["swings"] == second["swings"] == 0


def test_a_script_waits_for_the_pipeline_and_then_for_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, taken, tried = [0.0], [], []
    monkeypatch.setattr(follow.time, "time", lambda: now[0])

    def step(name: str) -> Step:
        def take() -> bool:
            tried.append(name)
            if tried.count(name) == 1:
                return False
            taken.append((name, now[0]))
            return True

        return name, take

    script = Script(tmp_path / "running", [step("one"), step("two")], lambda: (7, 3))
    for moment in range(24):
        now[0] = moment * follow.PHASE_SECONDS / 4
        if moment == 4:
            (tmp_path / "running").touch()
        script.play()
    assert [name for name, _ in taken] == ["one", "two"] and script.played
    begun = 4 * follow.PHASE_SECONDS / 4
    assert script.trace.events[0] == (begun, "begins")
    assert taken[0][1] - begun > follow.PHASE_SECONDS and taken[1][1] - taken[0][1] > follow.PHASE_SECONDS
    assert script.trace.samples[0] == (begun, 7, 3) and len(script.trace.samples) == 20


def test_decisions_are_told_by_the_clock_of_traces(tmp_path: Path) -> None:
    follow._call(tmp_path, "prepare", {"rows": 1000, "fan_out": 1})
    follow._call(tmp_path, "prepare", {"rows": 1000, "fan_out": 10})
    before = time.time()
    given = {**follow._configured(100), "fan_out": 10, "build_rows": 1000}
    decisions = json.loads(follow._call(tmp_path, "run", given))["decisions"]
    assert decisions and all(before <= decision[0] <= time.time() for decision in decisions)
