"""Charts as inline SVG: nothing to fetch, nothing to run, and no plotting package where days are prepared.

What a chart shows is told in its title and description, each mark says its value when pointed at, and what is special
is outlined and not only coloured. Sizes are in the units of the drawing, about a pixel.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape

_WIDTH = 720
_LEFT = 64
_TOP = 10
_PLAIN, _MARKED, _INK = "#7fb2d6", "#d55e00", "#1b1b1b"
_MAX_LABELS = 24


def day_bars(
    title: str,
    days: Sequence[str],
    values: Sequence[float | None],
    form: Callable[[float], str],
    marked: Collection[str],
) -> str:
    """A bar a day; those of `marked` days are outlined. A day without a value has no bar."""
    height, bottom = 190, 46
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    step = (_WIDTH - _LEFT - 8) / len(days)
    gap = min(4.0, 0.3 * step)
    base, full = height - bottom, height - bottom - _TOP
    parts = _grid(base, full, top, form)
    every = -(-len(days) // _MAX_LABELS)
    for number, (day, value) in enumerate(zip(days, values, strict=True)):
        x = _LEFT + number * step
        if value is not None:
            tall = full * value / top
            parts.append(
                f'<rect x="{x + gap / 2:.1f}" y="{base - tall:.1f}" width="{step - gap:.1f}" height="{tall:.1f}" '
                f"{_look(day in marked)}><title>{escape(day)}: {escape(form(value))}</title></rect>"
            )
        if number % every == 0 or day in marked:
            weight = ' font-weight="bold"' if day in marked else ""
            parts.append(
                f'<text x="{x + step / 2:.1f}" y="{base + 10}" text-anchor="end" '
                f'transform="rotate(-45 {x + step / 2:.1f} {base + 10})"{weight}>{escape(day[5:])}</text>'
            )
    told = "; ".join(f"{day} {form(value)}" for day, value in zip(days, values, strict=True) if value is not None)
    return _drawing(title, f"One bar a day: {told}.", height, parts)


def hour_grid(title: str, days: Sequence[str], rows_by_hour: Sequence[Sequence[int]], marked: Collection[str]) -> str:
    """A row a day, a cell an hour, the darker the more rows; an hour without any is crossed out."""
    left, wide, tall = 88, 25, 20
    top = max(max(hours) for hours in rows_by_hour) or 1
    parts = [
        f'<text x="{left + (hour + 0.5) * wide}" y="12" text-anchor="middle">{hour:02d}</text>' for hour in range(24)
    ]
    for row, (day, hours) in enumerate(zip(days, rows_by_hour, strict=True)):
        y = 18 + row * tall
        weight = ' font-weight="bold"' if day in marked else ""
        outline = f' stroke="{_INK}" stroke-width="1.2"' if day in marked else ""
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end"{weight}>{escape(day)}</text>')
        for hour, rows in enumerate(hours):
            x = left + hour * wide
            shade = f"rgb{_shade(rows / top)}" if rows else "#ffffff"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{wide - 2}" height="{tall - 2}" fill="{shade}"{outline}>'
                f"<title>{escape(day)}, {hour:02d}:00 to {hour:02d}:59 UTC: {rows:,} rows</title></rect>"
            )
            if not rows:
                parts.append(f'<path d="M{x + 7} {y + 4}l9 10m0 -10l-9 10" stroke="{_INK}" fill="none"/>')
    told = f"Rows by hour of the UTC day, {days[0]} to {days[-1]}; a cross is an hour without rows."
    return _drawing(title, told, 26 + len(days) * tall, parts)


def ranked_bars(title: str, names: Sequence[str], values: Sequence[float], limits: Sequence[float]) -> str:
    """A horizontal bar a name, with a tick at its limit; bars beyond theirs are outlined."""
    left, pitch = 210, 20
    scale = (_WIDTH - left - 120) / max(*values, *limits)
    parts = []
    for number, (name, value, limit) in enumerate(zip(names, values, limits, strict=True)):
        y = 4 + number * pitch
        end = left + max(value, limit) * scale + 6
        parts += [
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="{pitch - 5}" {_look(value > limit)}/>',
            f'<path d="M{left + limit * scale:.1f} {y - 2}v{pitch - 1}" stroke="{_INK}" stroke-width="1.5"/>',
            f'<text x="{end:.1f}" y="{y + 12}">{value:.3f}, limit {limit:.3f}</text>',
        ]
    told = "; ".join(
        f"{name} {value:.3f}, limit {limit:.3f}" for name, value, limit in zip(names, values, limits, strict=True)
    )
    return _drawing(title, f"{told}.", 8 + pitch * len(names), parts)


def paired_bars(title: str, names: Sequence[str], usual: Sequence[float], found: Sequence[float]) -> str:
    """Two bars a group of values: the trailing days' share, and beside it, outlined, the checked day's."""
    height, bottom = 200, 56
    top = max(*usual, *found) or 1.0
    base, full = height - bottom, height - bottom - _TOP
    step = (_WIDTH - _LEFT - 8) / len(names)
    parts = _grid(base, full, top, _percent)
    for number, (name, *pair) in enumerate(zip(names, usual, found, strict=True)):
        x = _LEFT + number * step
        for place, (share, what) in enumerate(zip(pair, ("trailing days", "checked day"), strict=True)):
            tall = full * share / top
            parts.append(
                f'<rect x="{x + 4 + place * (step - 8) / 2:.1f}" y="{base - tall:.1f}" width="{(step - 10) / 2:.1f}" '
                f'height="{tall:.1f}" {_look(place == 1)}>'
                f"<title>{escape(name)}, {what}: {_percent(share)}</title></rect>"
            )
        parts.append(
            f'<text x="{x + step / 2:.1f}" y="{base + 12}" text-anchor="end" '
            f'transform="rotate(-30 {x + step / 2:.1f} {base + 12})">{escape(name)}</text>'
        )
    told = "; ".join(
        f"{name} {_percent(before)} and {_percent(now)}" for name, before, now in zip(names, usual, found, strict=True)
    )
    return _drawing(title, f"Share of values by group, trailing days and checked day: {told}.", height, parts)


def _grid(base: float, full: float, top: float, form: Callable[[float], str]) -> list[str]:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = base - full * share
        parts += [
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 8}" stroke="#d8d8d8"/>',
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(form(top * share))}</text>',
        ]
    return parts


def _look(is_marked: bool) -> str:
    return f'fill="{_MARKED}" stroke="{_INK}" stroke-width="1.5"' if is_marked else f'fill="{_PLAIN}"'


def _shade(share: float) -> tuple[int, int, int]:
    """From a pale to a deep blue."""
    pale, deep = (222, 235, 247), (8, 81, 156)
    red, green, blue = (round(light + share * (dark - light)) for light, dark in zip(pale, deep, strict=True))
    return red, green, blue


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _drawing(title: str, told: str, height: float, parts: Iterable[str]) -> str:
    name = re.sub(r"\W+", "-", title.lower())
    return "\n".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-labelledby="{name} {name}-told" font-size="11" '
            f'fill="{_INK}">',
            f'<title id="{name}">{escape(title)}</title><desc id="{name}-told">{escape(told)}</desc>',
            *parts,
            "</svg>",
        ]
    )
