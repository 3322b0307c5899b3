"""What `make demo` runs once everything is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 120


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "line", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag


def test_the_demo_trains_on_one_and_two_ranks_and_writes_what_it_names(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    command = [
        sys.executable,
        str(ROOT / "tools" / "demo.py"),
        "--epochs",
        "2",
        "--width",
        "8",
        "--output",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for ranks in ("1 rank", "2 ranks"):
        assert re.search(rf"{ranks} .*epoch  2.0 of 2, .* images/s, loss [0-9.]+, communication \d+%", done.stdout)
        assert re.search(rf"{ranks} .*% of unseen images right, [0-9,]+ images/s", done.stdout), done.stdout
    assert re.search(r"speed-up \d+\.\d\d", done.stdout), done.stdout
    for name in ("report.html", "timeline.json"):
        assert str(tmp_path / name) in done.stdout
    events = json.loads((tmp_path / "timeline.json").read_text())
    assert {event["pid"] for event in events if event.get("name") == "ALLREDUCE"} == {0, 1}

    report = (tmp_path / "report.html").read_text()
    elements = Elements()
    elements.feed(report)
    assert elements.open == []
    curves = [attributes["points"] for tag, attributes in elements.seen if tag == "polyline"]
    assert len(curves) == 9, "loss, accuracy and waiting of two runs, speeds of three ranks"
    assert all(curve and len(curve.split()) >= 2 for curve in curves)
    assert "http" not in report, "nothing comes from the network"
