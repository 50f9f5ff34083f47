"""Spark sessions in processes of their own: answers, errors, and the comparison of whole queries with Comet."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.cases.queries import comet
from bench.cases.queries.comparison import CACHED, COLD, DEFAULT
from bench.engines.query_process import QueryFailedError, Session, query_process
from bench.harness import Bench

PLAIN = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}


@pytest.mark.parametrize("extended", [True, False])
def test_a_process_answers_queries_and_survives_a_wrong_one(extended: bool, tmp_path: Path) -> None:
    tables = {}
    for name, keys in (("a", [1, 2, 3]), ("b", [2, 3, 4])):
        tables[name] = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({f"{name}k": keys}), tables[name])
    settings = {**PLAIN, "spark.sparkext.mode": "auto", "spark.sparkext.debug.force": "true"}
    with query_process("it", Session(settings, extended), tables, tmp_path / "log") as process:
        with pytest.raises(QueryFailedError, match="TABLE_OR_VIEW_NOT_FOUND"):
            process.run("SELECT * FROM c")
        answer = process.run("SELECT ak FROM a JOIN b ON ak = bk ORDER BY ak")
        assert answer["rows"] == [[2], [3]]
        assert answer["pipelines"] == (1 if extended else 0), answer["plan"]
        assert answer["joins"] == 1
        assert answer["native"] == 0
        assert 0 < answer["planning"] < answer["seconds"]
        assert answer["peak_bytes"] > 100 << 20
        changed = tables["b"].stat().st_mtime_ns
        assert process.run("SELECT count(*) FROM b", cold=True)["rows"] == [[3]]
        assert tables["b"].stat().st_mtime_ns > changed


def bench_of(results: Path | None) -> Bench:
    return Bench("comet.tpch", 1.0, 2, 3, Path(".data/tpch"), results)


def test_a_run_continues_after_the_recorded_queries(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    assert comet._recorded_seconds(bench_of(None)) == comet._recorded_seconds(bench_of(results)) == {}
    lines: list[dict[str, object]] = [{"facts": {"cores": "2"}}]
    for case, factor, part in (("comet.tpch", 1.0, "q01"), ("comet.tpch", 3.0, "q02"), ("comet.tpcds", 1.0, "q03")):
        line = {"case": case, "scale_factor": factor, "threads": 2, "part": part, "rows": 0, "seconds": [3.0, 1.0, 2.0]}
        lines.append({**line, "contestant": COLD, "ours": True})
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert comet._recorded_seconds(bench_of(results)) == {"q01": {COLD: 2.0}}


@pytest.mark.parametrize(("control", "counts"), [(1.0, True), (1.029, True), (1.05, False), (0.95, False)])
def test_the_summary(control: float, counts: bool, capsys: pytest.CaptureFixture[str]) -> None:
    others = {CACHED: 1.0, comet.COMET: 2.0, comet.BOTH: 2.0, DEFAULT: 4.0, comet.CONTROL: 4.0 * control}
    comet._print_summary({"q01": {COLD: 1.0, **others}, "q02": {COLD: 4.19, **others}, "q03": {COLD: 4.21, **others}})
    printed = capsys.readouterr().out
    cold = next(line for line in printed.splitlines() if line.startswith(COLD))
    assert cold.split()[2:] == ["0.65", "1.30", "1", "2"]
    assert "slower than Spark, cold: q03 1.05\n" in printed
    assert ("DOES NOT COUNT" in printed) != counts
