"""What Python results are shown as beyond IPython's own: data frames as JSON, the data of charts.

Installed in each Python kernel; costs nothing until a library of these is used. Sizes are bounded: whoever wants all of a
large frame writes it to a file.
"""

import json
import math
from typing import Any

CHART = "application/vnd.talon.chart+json"
_MAX_ROWS = 1000
_MAX_POINTS = 10_000


def install(shell: Any) -> None:
    formatters = shell.display_formatter.formatters
    formatters["application/json"].for_type_by_name("pandas.core.frame", "DataFrame", frame)
    formatters["application/json"].for_type_by_name("pandas", "DataFrame", frame)
    charts = type("ChartFormatter", (type(formatters["application/json"]),), {"format_type": CHART})
    formatters[CHART] = charts(parent=shell.display_formatter)
    formatters[CHART].for_type_by_name("matplotlib.figure", "Figure", chart)


def frame(table: Any) -> Any:
    """{columns, index, data}, or nothing for a large one."""
    if len(table) > _MAX_ROWS:
        return None
    return json.loads(table.to_json(orient="split", date_format="iso", default_handler=str))


def chart(figure: Any) -> Any:
    """The titles and series of a figure's axes, where they are lines, bars or points."""
    return {"axes": [_axes(axes) for axes in figure.axes]}


def _axes(axes: Any) -> dict[str, Any]:
    series = [_line(line) for line in axes.lines]
    series += [_bars(container) for container in axes.containers if hasattr(container, "patches")]
    series += [_points(points) for points in axes.collections if hasattr(points, "get_offsets")]
    told = {"title": axes.get_title(), "x_label": axes.get_xlabel(), "y_label": axes.get_ylabel()}
    return {**told, "series": [one for one in series if one]}


def _line(line: Any) -> dict[str, Any]:
    return _series("line", line.get_label(), line.get_xdata(), line.get_ydata())


def _bars(container: Any) -> dict[str, Any]:
    patches = [patch for patch in container.patches if hasattr(patch, "get_height")]
    middles = [patch.get_x() + patch.get_width() / 2 for patch in patches]
    return _series("bar", container.get_label(), middles, [patch.get_height() for patch in patches])


def _points(points: Any) -> dict[str, Any]:
    offsets = points.get_offsets()
    return _series("points", points.get_label(), [x for x, _ in offsets], [y for _, y in offsets])


def _series(kind: str, label: Any, xs: Any, ys: Any) -> dict[str, Any]:
    if len(xs) > _MAX_POINTS:
        return {}
    name = "" if str(label).startswith("_") else str(label)
    return {"kind": kind, "label": name, "x": [_plain(x) for x in xs], "y": [_plain(y) for y in ys]}


def _plain(value: Any) -> Any:
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float) and not math.isfinite(number):
        return None
    return number if isinstance(number, (int, float, str)) else str(number)
