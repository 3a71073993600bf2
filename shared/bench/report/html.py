"""Reports as one HTML page: no network, no script, no other file."""

import base64
from collections.abc import Sequence
from pathlib import Path

from shared.bench.report.plots import COLOURS, ratio_plot
from shared.bench.report.report import Report, blocks
from shared.bench.report.tables import Table, winner


def html_report(reports: Sequence[Report], notes: Sequence[str] = (), machines: Sequence[Table] = ()) -> str:
    """The page, complete; text is shown as text. notes, machines: of all reports together, see side_by_side.py."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    jinja = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
    jinja.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    jinja.filters["lines"] = lambda text: [(line, winner(line)) for line in text.splitlines(keepends=True)]
    jinja.filters["ratio_plot"] = ratio_plot
    parts = [(report, list(blocks(report, is_brief=False))) for report in reports]
    return jinja.get_template("page.html.j2").render(parts=parts, colours=COLOURS, notes=notes, machines=machines)
