"""The plots of a record as inline SVG, made for a phone's width."""

from shared.bench.record import Record
from shared.bench.report.picture import pictures
from shared.bench.report.plots_of_cases import plots_of_cases
from shared.bench.report.plots_over_size import plots_over_size
from shared.bench.report.svg import Plot, own_style


def plots(record: Record, name: str) -> list[Plot]:
    """Of everything that was measured. name: unique on the page."""
    if record.settings is None:
        return []
    draw = plots_over_size if record.settings.sweep else plots_of_cases
    with own_style():
        return [*draw(record, name), *pictures(record, name)]
